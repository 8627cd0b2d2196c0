//! Defines `PolicyFiles`, the trait that writes and reads a policy's files.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use firebrick_models::{
    AdapterBase, Decoder, Formats, ParameterSet, PolicyModel, SaveOptions, WeightDtype, load,
    load_adapter, load_parameters, save_adapter, save_as, save_parameters,
};

use crate::Error;

/// Writes and reads the policy of a run.
///
/// A [`Decoder`] is a Hugging Face folder, [`HuggingFace`]. A policy of another architecture is written as its
/// parameters by name, [`Parameters`], unless its author writes it in a format that others read.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not write and read policies of type `{M}`",
    note = "`Parameters` does for every policy"
)]
pub trait PolicyFiles<M>: Send {
    /// Writes the policy into the existing folder `folder`, in the format in which others open it.
    ///
    /// # Errors
    /// When the device or the file system fails.
    fn write(&self, policy: &M, folder: &Path) -> Result<(), Error>;

    /// Tells whether [`PolicyFiles::write`] rounds the weights. A resumed run then needs the weights of
    /// [`PolicyFiles::write_trained`].
    fn rounds(&self) -> bool {
        false
    }

    /// Writes the weights bit for bit as they were trained.
    ///
    /// # Errors
    /// As for [`PolicyFiles::write`].
    fn write_trained(&self, policy: &M, folder: &Path) -> Result<(), Error> {
        self.write(policy, folder)
    }

    /// Reads the policy whose weights [`PolicyFiles::write_trained`] wrote into `folder`. `policy` has its
    /// shape, its device, and everything else that was not written.
    ///
    /// # Errors
    /// When a file is missing, damaged, or another model's.
    fn read(&self, policy: M, folder: &Path) -> Result<M, Error>;

    /// Returns a policy that stays as it is, whatever happens to the one in training. `policy` has the weights that
    /// [`PolicyFiles::write_trained`] has just written into `folder`.
    ///
    /// # Errors
    /// As for [`PolicyFiles::read`].
    fn frozen(&self, policy: M, folder: &Path) -> Result<M, Error> {
        let _ = folder;
        Ok(policy)
    }

    /// Makes whatever takes long end when the flag is set.
    fn interrupted_by(&self, flag: &Arc<AtomicBool>) {
        let _ = flag;
    }

    /// Returns the format of the files, for the model card.
    fn format(&self) -> FileFormat<'_> {
        FileFormat::Own
    }
}

/// Format of a checkpoint's files, as others see it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum FileFormat<'a> {
    /// A model folder or an adapter, which `transformers` or `peft` opens.
    HuggingFace {
        /// Model that the run began with, or that its adapter is for; empty for a new model.
        base: &'a AdapterBase,
        /// True for an adapter.
        adapter: bool,
        /// Number format of most weights.
        dtype: WeightDtype,
    },
    /// Files that are read by the program that made them.
    Own,
}

/// A model folder in the format of Hugging Face's libraries, or an adapter alone in the format of PEFT.
#[derive(Clone, Debug, PartialEq)]
pub struct HuggingFace {
    /// Content of `config.json`.
    pub config: serde_json::Value,
    /// Name of the adapter's model in the adapter's file.
    pub base: AdapterBase,
    /// True if the policy has an adapter. Then only the adapter is written.
    pub adapter: bool,
    /// Number format of each tensor; f32 for an adapter.
    pub formats: Formats,
}

impl HuggingFace {
    fn write_as(&self, decoder: &Decoder, formats: &Formats, folder: &Path) -> Result<(), Error> {
        let SaveOptions { max_shard_bytes, .. } = SaveOptions::default();
        Ok(match decoder.lora() {
            Some(_) => save_adapter(decoder, &self.base, folder),
            None => save_as(decoder, &self.config, folder, formats, max_shard_bytes),
        }?)
    }
}

impl PolicyFiles<Decoder> for HuggingFace {
    fn write(&self, policy: &Decoder, folder: &Path) -> Result<(), Error> {
        self.write_as(policy, &self.formats, folder)
    }

    fn rounds(&self) -> bool {
        self.formats.rounds()
    }

    fn write_trained(&self, policy: &Decoder, folder: &Path) -> Result<(), Error> {
        self.write_as(policy, &Formats::all(WeightDtype::F32), folder)
    }

    fn read(&self, policy: Decoder, folder: &Path) -> Result<Decoder, Error> {
        let compute = policy.compute();
        let chunk_sizes = policy.chunk_sizes();
        let longest = policy.longest();

        let read = match policy.lora() {
            // The frozen weights stay the same, and are shared.
            Some(_) => load_adapter(policy, folder)?,
            None => load(folder, &policy.device())?,
        };

        Ok(read.with_compute(compute).with_chunk_sizes(chunk_sizes).with_longest(longest))
    }

    fn format(&self) -> FileFormat<'_> {
        FileFormat::HuggingFace {
            base: &self.base,
            adapter: self.adapter,
            dtype: self.formats.most(),
        }
    }
}

/// Parameters of any policy, by their paths in the module: `policy.safetensors`, in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters;

/// File that [`Parameters`] writes.
const PARAMETERS: &str = "policy.safetensors";

impl<M: PolicyModel> PolicyFiles<M> for Parameters {
    fn write(&self, policy: &M, folder: &Path) -> Result<(), Error> {
        Ok(save_parameters(policy, ParameterSet::All, &folder.join(PARAMETERS))?)
    }

    fn read(&self, policy: M, folder: &Path) -> Result<M, Error> {
        Ok(load_parameters(policy, ParameterSet::All, &folder.join(PARAMETERS))?)
    }
}
