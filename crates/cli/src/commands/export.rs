//! `firebrick export`: writes a checkpoint as a model folder for other programs.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use firebrick::{
    Error, Stage,
    card::CARD,
    model::{Folders, trained_weights},
    source::Need,
};
use firebrick_data::Tokenizer;
use firebrick_device::{Name, Precision, open};
use firebrick_models::{
    Decoder, Formats, FrozenFormat, SaveOptions, WeightDtype, inventory, load_config, save_adapter,
    save_as,
};
use firebrick_runs::publish_folder;
use serde_json::Value;

use crate::{ProgramError, bars::Bars};

/// Arguments of `firebrick export`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Export {
    /// The folder to export: a checkpoint, an adapter or any model folder
    checkpoint: PathBuf,
    /// The folder to make
    out: PathBuf,
    /// Add the adapter into the weights of its model, and write the model
    #[arg(long)]
    merge: bool,
    /// The number format of the weights; by default each tensor keeps that of the model, or of the adapter's model
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
}

/// A number format that weights are written in.
#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    Float32,
    Bfloat16,
    Float16,
}

const EXAMPLES: &str = "\
Writes the files that other programs open, and none that only a resumed run
needs: configuration, weights in files of at most 5 GB, tokenizer, chat
template, generation_config.json and model card. An adapter stays an adapter,
unless --merge adds it into its model; a merged model gets no card, since the
adapter's describes the adapter.

Examples:
  firebrick export runs/gsm8k/checkpoints/step-000200 gsm8k-model
  firebrick export runs/lora/checkpoints/step-000200 gsm8k-model --merge";

impl Export {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let refuse = |problem| Err(ProgramError::Export { out: self.out.clone(), problem });
        // A dangling link exists too.
        if self.out.symlink_metadata().is_ok() {
            return refuse("it exists already; give the name of a new folder");
        }

        let sources = super::sources::alone();
        let folder = super::model_folder(&self.checkpoint, &sources)?;
        let folders = Folders::find(&folder, &sources, Need::Model)?;

        // What can't be done is refused before anything is loaded.
        match (&folders.adapter, self.merge) {
            (None, true) => return refuse("the model has no adapter to merge; leave --merge out"),
            (Some(_), false) if self.dtype.is_some() => {
                return refuse(
                    "an adapter keeps the format that it is trained in; --dtype needs --merge",
                );
            }
            _ => {}
        }

        let tokenizer = Tokenizer::from_folder(&folders.text)?;
        let (_, config) = load_config(&folders.weights)?;
        let as_it_is = inventory(&folders.weights)?.formats();

        // The weights are rounded only once, from the trained ones.
        let trained = Folders { weights: trained_weights(&folders.weights), ..folders.clone() };
        let bars = Bars::on_stderr();
        let loading = bars.bar(Stage::Load.name(), 0);
        let decoder = trained.load(
            FrozenFormat::F32,
            &open(Name::default(), Precision::F32)?,
            super::warn,
        )?;
        drop(loading);

        // The folder has another name until it is complete.
        let name = self.out.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let temporary = self.out.with_file_name(format!(".tmp-{name}"));
        let file = |source| Error::File { path: temporary.clone(), source };
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(file)?;
        }
        fs::create_dir_all(&temporary).map_err(file)?;

        // The bar stays until the end of this function.
        let _saving = bars.bar(Stage::Save.name(), 0);
        let written = self.write(&folder, &folders, decoder, &config, &as_it_is, &temporary);
        if let Err(error) = written.and_then(|()| Ok(tokenizer.save(&temporary)?)) {
            // Only the first error matters, even if the folder can't be removed.
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }

        publish_folder(&temporary, &self.out)?;
        super::print(&format!("{}\n", self.out.display()))
    }

    /// Writes everything but the tokenizer into `into`.
    fn write(
        &self,
        folder: &Path,
        folders: &Folders,
        decoder: Decoder,
        config: &Value,
        as_it_is: &Formats,
        into: &Path,
    ) -> Result<(), ProgramError> {
        match &folders.adapter {
            Some(_) if !self.merge => save_adapter(&decoder, &folders.base, into)?,
            _ => {
                let dtype = self.dtype.map(|dtype| match dtype {
                    Dtype::Float32 => WeightDtype::F32,
                    Dtype::Bfloat16 => WeightDtype::BF16,
                    Dtype::Float16 => WeightDtype::F16,
                });
                let formats = dtype.map_or(as_it_is.clone(), Formats::all);
                let SaveOptions { max_shard_bytes, .. } = SaveOptions::default();
                save_as(&decoder.merged(), config, into, &formats, max_shard_bytes)?;
            }
        }

        // The adapter's card does not describe a merged model.
        let card = folder.join(CARD);
        if card.is_file() && !self.merge {
            fs::copy(&card, into.join(CARD))
                .map_err(|source| Error::File { path: card.clone(), source })?;
        }
        Ok(())
    }
}
