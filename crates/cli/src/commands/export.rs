//! `firebrick export`: writes a checkpoint as a model folder or a GGUF file for other programs.

use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use clap::{Args, ValueEnum};
use firebrick::{
    Error, Stage,
    card::{CARD, exported},
    model::{Folders, trained_weights},
    source::Need,
};
use firebrick_data::{ChatTemplate, Tokenizer};
use firebrick_device::{Name, Precision, open};
use firebrick_gguf::FileType;
use firebrick_models::{
    Decoder, Formats, FrozenFormat, SaveOptions, WeightDtype, inventory, load_config, save_adapter,
    save_as, save_gguf,
};
use firebrick_runs::{publish_file, publish_folder};
use serde_json::Value;

use crate::{ProgramError, bars::Bars};

/// Arguments of `firebrick export`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Export {
    /// A run, by its name or folder: its newest checkpoint; or a checkpoint, an adapter, a model folder, a GGUF file, or
    /// the name of a model on the Hugging Face Hub
    model: PathBuf,
    /// The folder to make; or the file to make, if its name ends in .gguf
    out: PathBuf,
    /// Add the adapter into the weights of its model, and write the model; a GGUF file always holds a whole model
    #[arg(long)]
    merge: bool,
    /// The number format of the weights; by default each tensor keeps that of the model, or of the adapter's model,
    /// while the matrices of a GGUF file become float16
    #[arg(long, value_enum)]
    dtype: Option<Dtype>,
}

/// A number format that weights are written in.
#[derive(Clone, Copy, ValueEnum)]
enum Dtype {
    /// 32 bits
    #[value(alias = "f32")]
    Float32,
    /// 16 bits with the range of float32
    #[value(alias = "bf16")]
    Bfloat16,
    /// 16 bits, more precise than bfloat16 and at most 65504
    #[value(alias = "f16")]
    Float16,
    /// Eight bits, and a scale for 32 weights; in GGUF files only
    #[value(name = "q8_0")]
    Q8_0,
}

const EXAMPLES: &str = "\
Writes the files that other programs open, and none that only a resumed run
needs: configuration, weights in files of at most 5 GB, tokenizer, chat
template, generation_config.json and model card. An adapter stays an adapter,
unless --merge adds it into its model; a merged model gets no card, since the
adapter's describes the adapter.

A GGUF file is a whole model for llama.cpp, Ollama and LM Studio: an adapter is
merged, and matrices become float16 unless --dtype says otherwise.

Examples:
  firebrick export gsm8k gsm8k-model
  firebrick export runs/lora/checkpoints/step-000200 gsm8k-model --merge
  firebrick export lora gsm8k.gguf --dtype q8_0";

impl Export {
    pub(super) fn run(self) -> Result<(), ProgramError> {
        let refuse = |problem| Err(ProgramError::Export { out: self.out.clone(), problem });
        // A dangling link exists too.
        if self.out.symlink_metadata().is_ok() {
            return refuse("it exists already; give the name of a new folder or file");
        }

        let sources = super::sources::alone();
        let folder = super::model_folder(&self.model, &sources)?;
        let folders = Folders::find(&folder, &sources, Need::Model)?;
        let to_gguf = self.out.extension().is_some_and(|end| end.eq_ignore_ascii_case("gguf"));

        // What can't be done is refused before anything is loaded.
        match (&folders.adapter, self.merge) {
            (None, true) => return refuse("the model has no adapter to merge; leave --merge out"),
            (Some(_), false) if self.dtype.is_some() && !to_gguf => {
                return refuse(
                    "an adapter keeps the format that it is trained in; --dtype needs --merge",
                );
            }
            _ => {}
        }
        if !to_gguf && matches!(self.dtype, Some(Dtype::Q8_0)) {
            return refuse(
                "only GGUF files have weights in q8_0; give the name of a file that ends in .gguf",
            );
        }

        let tokenizer = Tokenizer::from_folder(&folders.text)?;

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

        // The bar stays until the end of this function.
        let _saving = bars.bar(Stage::Save.name(), 0);
        if to_gguf {
            self.write_file(&folders, decoder, &tokenizer)?;
        } else {
            self.write_folder(&folder, &folders, decoder, &tokenizer)?;
        }
        super::print(&format!("{}\n", self.out.display()))
    }

    /// Returns the name that `out` has until all of it is written.
    fn temporary(&self) -> PathBuf {
        let name = self.out.file_name().unwrap_or_default().to_string_lossy();
        self.out.with_file_name(format!(".tmp-{name}"))
    }

    /// Writes a GGUF file.
    fn write_file(
        &self,
        folders: &Folders,
        decoder: Decoder,
        tokenizer: &Tokenizer,
    ) -> Result<(), ProgramError> {
        let template = ChatTemplate::from_folder(&folders.text)?;
        let name = self.out.file_stem().unwrap_or_default().to_string_lossy();
        let file_type = match self.dtype {
            Some(Dtype::Float32) => FileType::F32,
            Some(Dtype::Bfloat16) => FileType::BF16,
            Some(Dtype::Float16) | None => FileType::F16,
            Some(Dtype::Q8_0) => FileType::Q8_0,
        };

        let temporary = self.temporary();
        let file = |source| Error::File { path: temporary.clone(), source };
        if temporary.symlink_metadata().is_ok() {
            fs::remove_file(&temporary).map_err(file)?;
        }
        if let Some(parent) = temporary.parent() {
            fs::create_dir_all(parent).map_err(file)?;
        }

        let write = || -> Result<(), ProgramError> {
            let vocabulary = tokenizer.vocabulary(template.as_ref());
            save_gguf(&decoder.merged(), vocabulary, &name, &temporary, file_type)?;
            // A file in which texts become other tokens would be another model.
            tokenizer.check_written(&Tokenizer::from_folder(&temporary)?)?;
            Ok(publish_file(&temporary, &self.out)?)
        };
        write().inspect_err(|_| {
            // Only the first error matters, even if the file can't be removed.
            let _ = fs::remove_file(&temporary);
        })
    }

    /// Writes a model folder.
    fn write_folder(
        &self,
        folder: &Path,
        folders: &Folders,
        decoder: Decoder,
        tokenizer: &Tokenizer,
    ) -> Result<(), ProgramError> {
        let (_, config) = load_config(&folders.weights)?;
        let as_it_is = inventory(&folders.weights)?.formats();

        let temporary = self.temporary();
        let file = |source| Error::File { path: temporary.clone(), source };
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(file)?;
        }
        fs::create_dir_all(&temporary).map_err(file)?;

        let written = self.write(folder, folders, decoder, &config, &as_it_is, &temporary);
        if let Err(error) = written.and_then(|()| Ok(tokenizer.save(&temporary)?)) {
            // Only the first error matters, even if the folder can't be removed.
            let _ = fs::remove_dir_all(&temporary);
            return Err(error);
        }
        Ok(publish_folder(&temporary, &self.out)?)
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
        let dtype = match self.dtype {
            Some(Dtype::Float32) => Some(WeightDtype::F32),
            Some(Dtype::Bfloat16) => Some(WeightDtype::BF16),
            Some(Dtype::Float16) => Some(WeightDtype::F16),
            // A folder in blocks was refused.
            Some(Dtype::Q8_0) | None => None,
        };
        match &folders.adapter {
            Some(_) if !self.merge => save_adapter(&decoder, &folders.base, into)?,
            _ => {
                let formats = dtype.map_or(as_it_is.clone(), Formats::all);
                let SaveOptions { max_shard_bytes, .. } = SaveOptions::default();
                save_as(&decoder.merged(), config, into, &formats, max_shard_bytes)?;
            }
        }

        // The adapter's card does not describe a merged model.
        let card = folder.join(CARD);
        if card.is_file() && !self.merge {
            copy_card(&card, &into.join(CARD), dtype)
                .map_err(|source| Error::File { path: card, source })?;
        }
        Ok(())
    }
}

/// Longest card that is read, in bytes. A checkpoint's card has a recipe, of at most 1 MiB, and some paragraphs.
const CARD_BYTES: u64 = 2 << 20;

/// Copies a card, without what does not hold for the exported folder. A file that is no text, or is longer than any
/// checkpoint's card, is copied as it is.
fn copy_card(from: &Path, to: &Path, dtype: Option<WeightDtype>) -> io::Result<()> {
    let mut bytes = Vec::new();
    fs::File::open(from)?.take(CARD_BYTES).read_to_end(&mut bytes)?;
    match String::from_utf8(bytes) {
        Ok(card) if (card.len() as u64) < CARD_BYTES => fs::write(to, exported(&card, dtype)),
        _ => fs::copy(from, to).map(|_| ()),
    }
}
