use std::{collections::BTreeMap, path::Path};

use burn::{
    module::Module,
    tensor::{Device, Tensor, TensorData},
};
use firebrick_models::{Parameter, parameters};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::read;
use crate::TrainError;

/// An optimizer's memory of parameters: flat tensors and counts, by the parameter's path and a name.
///
/// A checkpoint holds it as safetensors under `<path>.<name>`: values in f32, counts in u64.
#[derive(Clone, Debug, Default)]
pub struct NamedState {
    values: BTreeMap<String, Tensor<1>>,
    counts: BTreeMap<String, u64>,
}

/// A part of what is remembered of a parameter, with its name, which has no dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// A number for each of the parameter's.
    Values(&'static str),
    /// One whole number, at most [`NamedState::LARGEST_COUNT`].
    Count(&'static str),
}

impl NamedState {
    /// The largest count that a file may have. burn takes its steps as `i32`.
    pub const LARGEST_COUNT: u64 = i32::MAX as u64;

    /// Takes the values that the parameter at `path` has under `name`. They are gone from the state, so
    /// that arithmetic on them can reuse their memory: [`put`](Self::put) their successors.
    pub fn take(&mut self, path: &str, name: &str) -> Option<Tensor<1>> {
        self.values.remove(&key(path, name))
    }

    /// Remembers `values`, as many as the parameter at `path` has.
    pub fn put(&mut self, path: &str, name: &str, values: Tensor<1>) {
        self.values.insert(key(path, name), values);
    }

    /// The count that the parameter at `path` has under `name`; 0 before there is one.
    pub fn count(&self, path: &str, name: &str) -> u64 {
        self.counts.get(&key(path, name)).copied().unwrap_or(0)
    }

    /// Remembers a count.
    pub fn set_count(&mut self, path: &str, name: &str, count: u64) {
        self.counts.insert(key(path, name), count);
    }

    /// Writes everything to the file `path`.
    ///
    /// # Errors
    /// When the device or the file system fails.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let mut tensors: BTreeMap<&String, (Dtype, Vec<u8>)> = BTreeMap::new();
        for (name, values) in &self.values {
            let values = read(values.clone())?;
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.insert(name, (Dtype::F32, bytes));
        }
        for (name, count) in &self.counts {
            tensors.insert(name, (Dtype::U64, count.to_le_bytes().to_vec()));
        }
        let views = tensors.iter().map(|(name, (dtype, bytes))| {
            let count = bytes.len() / (dtype.bitsize() / 8);
            (
                name,
                TensorView::new(*dtype, vec![count], bytes).expect("a flat tensor of whole values"),
            )
        });
        safetensors::serialize_to_file(views, None, path)
            .map_err(|error| TrainError::checkpoint(path, format!("cannot be written: {error}")))
    }

    /// Reads what [`NamedState::save`] wrote, for the parameters of `module`. `parts` says what is
    /// remembered of a parameter that had a gradient; of one that never had, nothing is.
    ///
    /// # Errors
    /// When the file is damaged, or belongs to another model or another optimizer.
    pub fn load<M: Module>(
        module: &M,
        path: &Path,
        device: &Device,
        parts: impl Fn(&Parameter) -> &'static [Part],
    ) -> Result<Self, TrainError> {
        let bytes = std::fs::read(path)
            .map_err(|error| TrainError::checkpoint(path, format!("cannot be read: {error}")))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| {
            TrainError::checkpoint(path, format!("is not a whole safetensors file: {error}"))
        })?;
        let all = parameters(module);
        NamedState::check_names(&file, &all, &parts)
            .map_err(|problem| TrainError::checkpoint(path, problem))?;
        let mut state = NamedState::default();
        for parameter in &all {
            let parts = parts(parameter);
            if parts.iter().all(|part| file.tensor(&key(&parameter.path, part.name())).is_err()) {
                continue;
            }
            for &part in parts {
                state
                    .read_part(&file, parameter, part, device)
                    .map_err(|problem| TrainError::checkpoint(path, problem))?;
            }
        }
        Ok(state)
    }

    /// What in `file` is of another model or another optimizer: left out in silence, a resumed run would
    /// begin with moments of nothing.
    fn check_names(
        file: &SafeTensors,
        all: &[Parameter],
        parts: &impl Fn(&Parameter) -> &'static [Part],
    ) -> Result<(), String> {
        let by_path: BTreeMap<&str, &Parameter> =
            all.iter().map(|parameter| (parameter.path.as_str(), parameter)).collect();
        let mut names = file.names();
        names.sort_unstable();
        for name in names {
            let known =
                name.rsplit_once('.').and_then(|(path, part)| Some((*by_path.get(path)?, part)));
            let Some((parameter, part)) = known else {
                return Err(format!(
                    "has \"{name}\", which the model lacks: it is another model's"
                ));
            };
            if parts(parameter).iter().all(|known| known.name() != part) {
                return Err(format!(
                    "has \"{name}\", which this optimizer does not keep: it is another optimizer's. \
                     Go on with the optimizer that the run began with, or begin a new run"
                ));
            }
        }
        Ok(())
    }

    fn read_part(
        &mut self,
        file: &SafeTensors,
        parameter: &Parameter,
        part: Part,
        device: &Device,
    ) -> Result<(), String> {
        let name = key(&parameter.path, part.name());
        let (dtype, count) = match part {
            Part::Values(_) => (Dtype::F32, parameter.shape.iter().product()),
            Part::Count(_) => (Dtype::U64, 1),
        };
        let view = file.tensor(&name).map_err(|_| format!("has no \"{name}\""))?;
        let (data, size) = (view.data(), count * dtype.bitsize() / 8);
        if data.len() != size {
            let came = data.len();
            return Err(format!("has {came} bytes for \"{name}\", but the model needs {size}"));
        }
        if view.dtype() != dtype {
            return Err(format!("has {} as \"{name}\", expected {dtype}", view.dtype()));
        }
        match part {
            Part::Values(_) => {
                let values = data.as_chunks::<4>().0.iter();
                let values: Vec<f32> = values.map(|bytes| f32::from_le_bytes(*bytes)).collect();
                // The next step would make such numbers of the weights.
                if let Some(value) = values.iter().find(|value| !value.is_finite()) {
                    return Err(format!("holds {value} in \"{name}\", expected finite numbers"));
                }
                self.values
                    .insert(name, Tensor::from_data(TensorData::new(values, [count]), device));
            }
            Part::Count(_) => {
                let bytes = data.try_into().expect("the length was checked");
                let (count, largest) = (u64::from_le_bytes(bytes), NamedState::LARGEST_COUNT);
                if count > largest {
                    return Err(format!("holds {count} in \"{name}\", expected at most {largest}"));
                }
                self.counts.insert(name, count);
            }
        }
        Ok(())
    }
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Part::Values(name) | Part::Count(name) => name,
        }
    }
}

fn key(path: &str, name: &str) -> String {
    format!("{path}.{name}")
}
