//! `firebrick inspect`: describes a model folder.

use std::{fmt::Write as _, path::PathBuf};

use clap::Args;
use firebrick::{model::Folders, source::Need};
use firebrick_core::printable;
use firebrick_device::{Name, Precision, open};
use firebrick_models::{FrozenFormat, is_adapter, load_noting};

use crate::{ProgramError, inspect::Inspection};

/// Arguments of `firebrick inspect`.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct Inspect {
    /// A run, by its name or folder: its newest checkpoint; or a checkpoint, an adapter, a model folder, a GGUF file, or
    /// the name of a model on the Hugging Face Hub
    model: PathBuf,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// Read the weights too, and look for values that are not finite numbers
    #[arg(long)]
    check: bool,
    /// Print the findings as one JSON object
    #[arg(long)]
    json: bool,
}

const EXAMPLES: &str = "\
Only --check reads the weights. Without it, a large model takes no longer.

Examples:
  firebrick inspect qwen
  firebrick inspect runs/quickstart/checkpoints/step-000200 --check
  firebrick inspect qwen --tensors --json

Exit codes: 0 the folder can be used, 1 it can't be used.";

impl Inspect {
    /// Returns exit code 1 if the folder can't be used.
    pub(super) fn run(self) -> Result<u8, ProgramError> {
        let sources = super::sources::alone();
        let folder = super::model_folder(&self.model, &sources)?;
        let mut inspection = Inspection::read(&folder);
        // Only an adapter that can be read can be compared with its model.
        if is_adapter(&folder) && inspection.faults.is_empty() {
            match Folders::find(&folder, &sources, Need::Sizes) {
                Ok(folders) => inspection.add_base(&folders),
                Err(error) => inspection.faults.push(error.to_string()),
            }
        }

        if self.check && is_adapter(&folder) {
            let note = "--check reads only a model's weights; the adapter's values were not \
                        checked";
            inspection.unusual.push(note.into());
        } else if self.check && inspection.faults.is_empty() {
            let loaded =
                load_noting(&folder, FrozenFormat::F32, &open(Name::default(), Precision::F32)?)?;
            let words = |name| format!("{name} has values that are not finite numbers");
            inspection.faults.extend(loaded.nonfinite.iter().map(words));
        }

        let code = u8::from(!inspection.faults.is_empty());
        if self.json {
            super::print(&format!("{}\n", inspection.json(self.tensors)))?;
            return Ok(code);
        }

        let mut text = inspection.to_string();
        for tensor in inspection.inventory.iter().flat_map(|all| &all.tensors) {
            if self.tensors {
                let (name, dtype) = (printable(&tensor.name), printable(&tensor.dtype));
                let _ = writeln!(text, "  {name} {dtype} {:?}", tensor.shape);
            }
        }

        super::print(&text)?;
        Ok(code)
    }
}
