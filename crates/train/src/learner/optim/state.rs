//! An optimizer's state by parameter, in memory and in its file.

use std::{collections::BTreeMap, path::Path};

use burn::{
    module::Module,
    tensor::{DType, Device, Int, Tensor, TensorData},
};
use firebrick_core::config::Moments;
use firebrick_models::{Parameter, parameters};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{
    narrow::{Kind, Narrow},
    read,
};
use crate::{checkpoint::write_tensors, error::TrainError};

/// What an optimizer keeps of parameters: flat tensors and counts, by the parameter's path and a name.
///
/// In a checkpoint it is safetensors under `<path>.<name>`: values in f32, counts in u64. Values in 8 bits
/// are integers of four codes each, i32, or u32 for squares, next to `<path>.<name>_scales` in f32 and
/// `<path>.<name>_turn` in u64.
#[derive(Clone, Debug, Default)]
pub struct NamedState {
    moments: Moments,
    values: BTreeMap<String, Kept>,
    counts: BTreeMap<String, u64>,
}

/// Values in the format of [`Moments`].
#[derive(Clone, Debug)]
enum Kept {
    F32(Box<Tensor<1>>),
    Narrow(Box<Narrow>),
}

/// One part of an optimizer's state of a parameter, with its name, which has no dot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One number for each number of the parameter.
    Values(&'static str),
    /// One whole number, at most [`NamedState::LARGEST_COUNT`].
    Count(&'static str),
}

impl NamedState {
    /// The largest count that a file may have, because burn takes its steps as `i32`.
    pub const LARGEST_COUNT: u64 = i32::MAX as u64;

    /// Makes an empty state, which keeps values in the format `moments`.
    pub fn new(moments: Moments) -> Self {
        NamedState { moments, ..NamedState::default() }
    }

    /// Takes the values that the parameter at `path` has under `name`. They are removed from the state, so that
    /// arithmetic on them can reuse their memory; [`put`](Self::put) their successors.
    pub fn take(&mut self, path: &str, name: &str) -> Option<Tensor<1>> {
        self.values.remove(&key(path, name)).map(|kept| match kept {
            Kept::F32(values) => *values,
            Kept::Narrow(narrow) => narrow.values(),
        })
    }

    /// Stores `values`, as many as the parameter at `path` has.
    pub fn put(&mut self, path: &str, name: &str, values: Tensor<1>) {
        self.keep(path, name, values, Kind::Signed);
    }

    /// Stores values of at least 0 whose roots have to stay distinct.
    pub fn put_squares(&mut self, path: &str, name: &str, squares: Tensor<1>) {
        self.keep(path, name, squares, Kind::Squares);
    }

    fn keep(&mut self, path: &str, name: &str, values: Tensor<1>, kind: Kind) {
        let key = key(path, name);
        let kept = match self.moments {
            Moments::F32 => Kept::F32(Box::new(values)),
            Moments::Int8 => {
                let turn = self.counts.entry(key.clone() + TURN).or_default();
                // A file may have no larger count.
                *turn = (*turn + 1) % NamedState::LARGEST_COUNT;
                Kept::Narrow(Box::new(Narrow::new(values, kind, *turn)))
            }
        };
        self.values.insert(key, kept);
    }

    /// Returns the count that the parameter at `path` has under `name`; 0 before there is one.
    pub fn count(&self, path: &str, name: &str) -> u64 {
        self.counts.get(&key(path, name)).copied().unwrap_or(0)
    }

    /// Stores a count.
    pub fn set_count(&mut self, path: &str, name: &str, count: u64) {
        self.counts.insert(key(path, name), count);
    }

    /// Writes everything to the file `path`.
    ///
    /// # Errors
    /// When the device or the file system fails.
    pub fn save(&self, path: &Path) -> Result<(), TrainError> {
        let mut tensors: BTreeMap<String, (Dtype, Vec<u8>)> = BTreeMap::new();
        let floats = |values: &Tensor<1>| -> Result<(Dtype, Vec<u8>), TrainError> {
            let values = read(values.clone())?;
            Ok((Dtype::F32, values.iter().flat_map(|value| value.to_le_bytes()).collect()))
        };

        for (name, kept) in &self.values {
            match kept {
                Kept::F32(values) => {
                    tensors.insert(name.clone(), floats(values)?);
                }
                Kept::Narrow(narrow) => {
                    let words = narrow.words.clone().try_into_vec_as::<i32>();
                    let words = words.map_err(|error| TrainError::Device(format!("{error:?}")))?;
                    let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                    tensors.insert(name.clone(), (narrow.kind.dtype(), bytes));
                    tensors.insert(name.clone() + SCALES, floats(&narrow.scales)?);
                }
            }
        }

        for (name, count) in &self.counts {
            tensors.insert(name.clone(), (Dtype::U64, count.to_le_bytes().to_vec()));
        }

        let views = tensors.iter().map(|(name, (dtype, bytes))| {
            let count = bytes.len() / (dtype.bitsize() / 8);
            (
                name,
                TensorView::new(*dtype, vec![count], bytes).expect("a flat tensor of whole values"),
            )
        });

        write_tensors(views, path)
    }

    /// Reads the file of [`NamedState::save`], for the parameters of `module`. Values stay in the format that
    /// they were written in until others replace them. `parts` returns what is kept of a parameter that had a
    /// gradient; one that never had a gradient has no parts.
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
            TrainError::checkpoint(path, format!("is not an intact safetensors file: {error}"))
        })?;

        let all = parameters(module);
        NamedState::check_names(&file, &all, &parts)
            .map_err(|problem| TrainError::checkpoint(path, problem))?;

        let mut state = NamedState::default();
        for parameter in &all {
            let parts = parts(parameter);
            // Without any of its parts, a parameter never had a gradient; without some, the file is damaged.
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

    /// Checks that every name in `file` belongs to this model and this optimizer. If other names were silently
    /// ignored, a resumed run would begin with empty moments.
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
                    "has \"{name}\", which the model lacks: the file is another model's"
                ));
            };

            let part = part.strip_suffix(SCALES).or(part.strip_suffix(TURN)).unwrap_or(part);
            if parts(parameter).iter().all(|known| known.name() != part) {
                return Err(format!(
                    "has \"{name}\", which this optimizer does not keep: the file is another \
                     optimizer's. Continue with the optimizer that the run began with, or begin a new run"
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

        match part {
            Part::Values(_) => {
                let count = parameter.shape.iter().product();
                let dtype = file.tensor(&name).map(|view| view.dtype()).ok();
                // The type of the file decides the format, whatever the settings are.
                let kept = match Kind::ALL.into_iter().find(|kind| dtype == Some(kind.dtype())) {
                    Some(kind) => {
                        let words = view(file, &name, kind.dtype(), Narrow::words(count))?;
                        let words = words.as_chunks::<4>().0.iter();
                        let words: Vec<i32> = words.map(|word| i32::from_le_bytes(*word)).collect();
                        let words = TensorData::new(words, [Narrow::words(count)]);
                        let words = Tensor::<1, Int>::from_data(words, (device, DType::I32));

                        let scales = floats(file, &(name.clone() + SCALES), Narrow::runs(count))?;
                        let turn = name.clone() + TURN;
                        self.counts.insert(turn.clone(), read_count(file, &turn)?);
                        let scales = Tensor::from_data(scales, device);
                        Kept::Narrow(Box::new(Narrow::from_parts(words, scales, kind, count)))
                    }
                    None => {
                        let values = floats(file, &name, count)?;
                        Kept::F32(Box::new(Tensor::from_data(values, device)))
                    }
                };

                self.values.insert(name, kept);
            }
            Part::Count(_) => {
                self.counts.insert(name.clone(), read_count(file, &name)?);
            }
        }
        Ok(())
    }

    /// Stores all later values in the format `moments`.
    pub fn with_moments(mut self, moments: Moments) -> Self {
        self.moments = moments;
        self
    }
}

/// Returns the bytes of `count` values of a type.
fn view<'a>(
    file: &SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
    count: usize,
) -> Result<&'a [u8], String> {
    let view = file.tensor(name).map_err(|_| format!("has no \"{name}\""))?;
    let data = view.data();
    let size = count * dtype.bitsize() / 8;

    if data.len() != size {
        let actual = data.len();
        return Err(format!("has {actual} bytes for \"{name}\", but the model needs {size}"));
    }

    if view.dtype() != dtype {
        return Err(format!("has {} as \"{name}\", expected {dtype}", view.dtype()));
    }
    Ok(data)
}

/// Reads `count` values, which have to be finite: any others would break the weights in the next step.
fn floats(file: &SafeTensors, name: &str, count: usize) -> Result<TensorData, String> {
    let values = view(file, name, Dtype::F32, count)?.as_chunks::<4>().0.iter();
    let values: Vec<f32> = values.map(|bytes| f32::from_le_bytes(*bytes)).collect();
    match values.iter().find(|value| !value.is_finite()) {
        Some(value) => Err(format!("holds {value} in \"{name}\", expected finite numbers")),
        None => Ok(TensorData::new(values, [count])),
    }
}

/// Reads a count.
fn read_count(file: &SafeTensors, name: &str) -> Result<u64, String> {
    let bytes = view(file, name, Dtype::U64, 1)?.try_into().expect("the length was checked");
    let count = u64::from_le_bytes(bytes);
    let largest = NamedState::LARGEST_COUNT;

    if count <= largest {
        Ok(count)
    } else {
        Err(format!("holds {count} in \"{name}\", expected at most {largest}"))
    }
}

impl Kind {
    /// Returns the type of the codes in a file.
    fn dtype(self) -> Dtype {
        match self {
            Kind::Signed => Dtype::I32,
            Kind::Squares => Dtype::U32,
        }
    }
}

/// Endings of the names of scales and turns, for values in 8 bits.
const SCALES: &str = "_scales";
const TURN: &str = "_turn";

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
