//! History of the prompts in a checkpoint: one safetensors file with a column for each part of a record,
//! sorted by prompt. So the file is as small as it can be, and any tool reads it.

use std::{collections::BTreeMap, fs, path::Path};

use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{PromptHistory, PromptRecord};
use crate::{checkpoint::write_tensors, error::TrainError};

/// File name in the folder of the trainer's state.
const FILE: &str = "prompts.safetensors";

/// Writes the history into `folder`, unless it is empty.
pub(crate) fn save_history(folder: &Path, history: &PromptHistory) -> Result<(), TrainError> {
    if history.is_empty() {
        return Ok(());
    }
    let records = || history.records.values();

    let columns: [(&str, Dtype, Vec<u8>); 5] = [
        ("id", Dtype::U64, history.records.keys().flat_map(|id| id.to_le_bytes()).collect()),
        ("step", Dtype::U32, records().flat_map(|record| record.step.to_le_bytes()).collect()),
        ("variance", Dtype::F32, floats(records().map(|record| record.variance))),
        ("right", Dtype::F32, floats(records().map(|record| record.right))),
        ("wrong", Dtype::F32, floats(records().map(|record| record.wrong))),
    ];

    let views = columns.iter().map(|(name, dtype, bytes)| {
        let view = TensorView::new(*dtype, vec![history.len()], bytes);
        (*name, view.expect("a column has one value for each record"))
    });
    write_tensors(views, &folder.join(FILE))
}

/// Reads the file of [`save_history`] from `folder`. It must have the records of `prompts` prompts, if that
/// number is known. Without a file the history is empty.
pub(crate) fn load_history(
    folder: &Path,
    prompts: Option<usize>,
) -> Result<PromptHistory, TrainError> {
    let path = folder.join(FILE);
    let fault = |problem: String| TrainError::checkpoint(&path, problem);
    if !path.exists() {
        return match prompts.unwrap_or(0) {
            0 => Ok(PromptHistory::default()),
            prompts => Err(fault(format!(
                "is missing: state.json next to it expects a history of {prompts} prompts"
            ))),
        };
    }

    let bytes = fs::read(&path).map_err(|error| fault(format!("cannot be read: {error}")))?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| fault(format!("is not an intact safetensors file: {error}")))?;

    let column = |name: &str, dtype: Dtype| match file.tensor(name) {
        Ok(view) if view.dtype() == dtype => Ok(view.data()),
        _ => Err(fault(format!(
            "has no column \"{name}\" of {dtype:?}: it is not a history of prompts"
        ))),
    };

    let ids = column("id", Dtype::U64)?.as_chunks::<8>().0;
    let of_four = |name: &str, dtype| {
        let values = column(name, dtype)?.as_chunks::<4>().0;

        if values.len() == ids.len() {
            Ok(values)
        } else {
            Err(fault(format!(
                "has {} values of \"{name}\" for {} prompts",
                values.len(),
                ids.len()
            )))
        }
    };
    let steps = of_four("step", Dtype::U32)?;
    let [variance, right, wrong] =
        ["variance", "right", "wrong"].map(|name| of_four(name, Dtype::F32));
    let (variance, right, wrong) = (variance?, right?, wrong?);

    let mut records = BTreeMap::new();
    for (index, id) in ids.iter().enumerate() {
        let numbers = [variance, right, wrong].map(|column| f32::from_le_bytes(column[index]));

        if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) {
            let problem =
                format!("holds {numbers:?} for a prompt, expected finite numbers of at least 0");
            return Err(fault(problem));
        }

        let [variance, right, wrong] = numbers;
        let step = u32::from_le_bytes(steps[index]);
        records.insert(u64::from_le_bytes(*id), PromptRecord { step, variance, right, wrong });
    }

    match prompts {
        Some(prompts) if prompts != records.len() => Err(fault(format!(
            "is a history of {} prompts, but state.json next to it expects {prompts}",
            records.len()
        ))),
        _ => Ok(PromptHistory { records }),
    }
}

fn floats(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(f32::to_le_bytes).collect()
}
