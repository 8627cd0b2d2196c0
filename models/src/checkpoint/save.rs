//! Saves a decoder as a Hugging Face model folder, in shards.

use std::{
    cmp::Reverse,
    collections::BTreeMap,
    fs::{self, File},
    io::{self, BufWriter, Seek as _, SeekFrom, Write},
    ops::Range,
    path::Path,
};

use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::{Value, json};

use super::{
    CheckpointError, Formats, WeightDtype,
    folder::{INDEX, SINGLE},
    layout, stored,
};
use crate::{Decoder, DecoderConfig, Parameter, names, parameters};

/// Number format and file sizes of written weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveOptions {
    /// Type that weights are rounded to. A run resumes with the same bits only from f32.
    pub dtype: WeightDtype,
    /// Maximum number of bytes of tensors in one file. A larger tensor is alone in its file.
    pub max_shard_bytes: u64,
}

/// Returns float32 in files of at most 5 GB, the usual size on the Hub.
impl Default for SaveOptions {
    fn default() -> Self {
        SaveOptions { dtype: WeightDtype::F32, max_shard_bytes: 5_000_000_000 }
    }
}

/// Writes `decoder` into `folder` like [`save_as`], with all weights in one format.
///
/// # Errors
/// Fails like [`save_as`].
pub fn save(
    decoder: &Decoder,
    config: &Value,
    folder: &Path,
    options: &SaveOptions,
) -> Result<(), CheckpointError> {
    save_as(decoder, config, folder, &Formats::all(options.dtype), options.max_shard_bytes)
}

/// Writes `decoder` into `folder` as `config.json` and `model.safetensors`, or shards with their index, under the names
/// and in the layout that `transformers` reads. Each tensor gets its own format. A file has at most `max_shard_bytes`
/// of tensors, or a single larger tensor, or the experts of a layer if they are one tensor.
///
/// `config` is the content of the model's original `config.json`, unknown fields included. Its dtype becomes
/// the one that most weights are written in. A head that is the embedding is written once. Adapters are left out:
/// [`save_adapter`](crate::save_adapter) writes them, and [`Decoder::merged`] adds them into the weights. At most one
/// parameter at a time is read from the device. A file gets its name only when all of it is on disk.
///
/// # Errors
/// Fails if a file cannot be written, a parameter cannot be read, or a weight is beyond the dtype's range.
pub fn save_as(
    decoder: &Decoder,
    config: &Value,
    folder: &Path,
    formats: &Formats,
    max_shard_bytes: u64,
) -> Result<(), CheckpointError> {
    let parameters = saved_parameters(decoder, folder)?;
    let mut values = Values::new(decoder.config(), &parameters);
    let shards = shards(decoder.config(), &parameters, formats, max_shard_bytes);
    let single = folder.join(SINGLE);
    let index = folder.join(INDEX);
    if let [all] = shards.as_slice() {
        write_tensors(&single, all, &mut values)?;
        // A stale index would contradict the single file.
        remove(&index)?;
        return write_config(config, folder, formats);
    }

    let mut weight_map = BTreeMap::new();
    for (number, shard) in shards.iter().enumerate() {
        let file = format!("model-{:05}-of-{:05}.safetensors", number + 1, shards.len());
        write_tensors(&folder.join(&file), shard, &mut values)?;
        weight_map.extend(shard.iter().map(|tensor| (tensor.name.clone(), file.clone())));
    }

    let bytes: usize = shards.iter().flatten().map(Planned::bytes).sum();
    write_json(&index, &json!({"metadata": {"total_size": bytes}, "weight_map": weight_map}))?;
    // An older single file in this folder would be found before the index.
    remove(&single)?;
    write_config(config, folder, formats)
}

/// Lists the parameters that a checkpoint at `path` has, without those of adapters.
pub(super) fn saved_parameters(
    decoder: &Decoder,
    path: &Path,
) -> Result<Vec<Parameter>, CheckpointError> {
    let mut parameters = parameters(decoder);
    parameters.retain(|parameter| !names::is_adapter(&parameter.path));

    if parameters.iter().any(|parameter| names::is_quantised(&parameter.path)) {
        let problem =
            "the weights are kept in 8 or 4 bits, expected a model that was loaded in 32 or 16";
        let source = io::Error::other(problem);
        return Err(CheckpointError::Write { path: path.to_owned(), source });
    }
    Ok(parameters)
}

/// Writes `config.json`, last of all, so that a folder that was not finished is not a model.
fn write_config(config: &Value, folder: &Path, formats: &Formats) -> Result<(), CheckpointError> {
    write_json(&folder.join("config.json"), &of_saved(config, formats.most()))
}

/// Writes the adapters of `decoder`, and the matrices that are trained in full, into one file, in f32.
pub(super) fn write_adapter(
    decoder: &Decoder,
    modules_to_save: &[String],
    path: &Path,
) -> Result<(), CheckpointError> {
    let mut parameters = parameters(decoder);
    let named = |name: String| {
        let text_name = name.strip_prefix(names::OF_PEFT).unwrap_or(&name);
        format!("{}{}", names::OF_PEFT, decoder.text_prefix().name(text_name))
    };

    let config = decoder.config();
    parameters.retain(|parameter| {
        let full_module = names::full_module(&parameter.path);
        names::is_adapter(&parameter.path)
            || full_module.is_some_and(|module| modules_to_save.iter().any(|it| it == module))
    });

    let mut tensors = shards(config, &parameters, &Formats::default(), u64::MAX).concat();
    for tensor in &mut tensors {
        tensor.name = named(std::mem::take(&mut tensor.name));
    }
    write_tensors(path, &tensors, &mut Values::new(decoder.config(), &parameters))
}

/// A tensor of the checkpoint that will be written.
#[derive(Clone)]
pub(super) struct Planned {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) dtype: WeightDtype,
    /// Which entry of its first dimension is meant, if the others are planned by themselves.
    pub(super) index: Option<usize>,
}

impl Planned {
    fn count(&self) -> usize {
        let shape = if self.index.is_some() { &self.shape[1..] } else { &self.shape[..] };
        shape.iter().product()
    }

    /// Returns the size of the tensor in the file.
    fn bytes_of_all(&self) -> usize {
        self.shape.iter().product::<usize>() * self.dtype.bytes()
    }

    fn bytes(&self) -> usize {
        self.count() * self.dtype.bytes()
    }
}

/// Plans the files and their tensors, in the order in which [`Values`] reads their values.
fn shards(
    config: &DecoderConfig,
    parameters: &[Parameter],
    formats: &Formats,
    max_shard_bytes: u64,
) -> Vec<Vec<Planned>> {
    let mut shards = vec![Vec::new()];
    let mut filled = 0;

    let of = |parameter| planned(config, parameter, formats);
    let tensors: Vec<Planned> = parameters.iter().flat_map(of).collect();
    // The entries of a tensor are in one file, and those of a layer's experts come in turns.
    let together = |one: &Planned, next: &Planned| one.index.is_some() && next.index.is_some();
    for group in tensors.chunk_by(together) {
        let bytes = group.iter().map(|tensor| tensor.bytes() as u64).sum::<u64>();
        if filled > 0 && filled + bytes > max_shard_bytes {
            shards.push(Vec::new());
            filled = 0;
        }
        filled += bytes;
        shards.last_mut().expect("there is one from the beginning").extend_from_slice(group);
    }
    shards
}

/// Lists the tensors of a parameter.
fn planned(config: &DecoderConfig, parameter: &Parameter, formats: &Formats) -> Vec<Planned> {
    let (pieces, index) = match stored::stacked(config, &parameter.path, &parameter.shape) {
        Some((name, shape, index)) => (vec![(name, shape)], Some(index)),
        None => (layout::pieces(config, &parameter.path, &parameter.shape), None),
    };
    let of = |(name, shape): (String, Vec<usize>)| {
        let dtype = formats.of(&name);
        Planned { name, shape, dtype, index }
    };
    pieces.into_iter().map(of).collect()
}

/// All values of a model in the order and layout of its checkpoint. They are read from the device when they are asked
/// for, a parameter at a time, or a part at a time if they have the same order there, because the largest are among these: the
/// embedding of a small model is a third of it.
struct Values<'a> {
    config: &'a DecoderConfig,
    parts: std::vec::IntoIter<(&'a Parameter, Range<usize>)>,
    current: Vec<f32>,
    taken: usize,
}

/// How many values are read from the device at a time, if a parameter can be cut: 16 MB.
pub(super) const PART: usize = 1 << 22;

/// Cuts a parameter into parts of at most `limit` values, which is not 0.
pub(super) fn parts(
    parameter: &Parameter,
    limit: usize,
) -> impl Iterator<Item = (&Parameter, Range<usize>)> {
    let count = parameter.shape.iter().product::<usize>();
    let part = move |begin: usize| (parameter, begin..count.min(begin.saturating_add(limit)));
    (0..count).step_by(limit).map(part)
}

/// Reads one part of a parameter from the device.
pub(super) fn read(parameter: &Parameter, part: Range<usize>) -> Result<Vec<f32>, CheckpointError> {
    let values = parameter.values.clone().narrow(0, part.start, part.len());
    let values = values.try_into_vec_as::<f32>();
    values.map_err(|error| CheckpointError::Device(format!("{error:?}")))
}

impl<'a> Values<'a> {
    fn new(config: &'a DecoderConfig, parameters: &'a [Parameter]) -> Self {
        // A transposed parameter is needed as a whole, because its columns become rows.
        let parts = |parameter: &'a Parameter| {
            let stacked = stored::stacked(config, &parameter.path, &parameter.shape);
            let whole = stacked.is_some()
                || layout::is_reordered(config, &parameter.path, &parameter.shape);
            parts(parameter, if whole { usize::MAX } else { PART })
        };
        let parts: Vec<_> = parameters.iter().flat_map(parts).collect();
        Values { config, parts: parts.into_iter(), current: Vec::new(), taken: 0 }
    }

    /// Takes the next values: at least one, and at most `limit`.
    ///
    /// # Panics
    /// Panics if there are no more.
    fn take(&mut self, limit: usize) -> Result<&[f32], CheckpointError> {
        if self.taken == self.current.len() {
            // The last values are freed before the next ones are read.
            self.current = Vec::new();
            let (parameter, part) = self.parts.next().expect("every value has its tensor");
            let values = read(parameter, part)?;
            let Parameter { path, shape, .. } = parameter;
            self.current = match stored::stacked(self.config, path, shape) {
                Some(_) => stored::in_turns(path, shape, values),
                None => layout::to_checkpoint(self.config, path, shape, values),
            };
            self.taken = 0;
        }

        let begin = self.taken;
        self.taken = self.current.len().min(begin + limit);
        Ok(&self.current[begin..self.taken])
    }
}

/// Writes one safetensors file. The library's own writer has two faults: it asks for tensors through a trait that can't
/// fail, although a device can; and it makes files that only their owner may read.
fn write_tensors(
    path: &Path,
    tensors: &[Planned],
    values: &mut Values<'_>,
) -> Result<(), CheckpointError> {
    let failed = |source| CheckpointError::Write { path: path.to_owned(), source };
    write_whole(path, |file| {
        let (header, offsets) = header(tensors);
        file.write_all(&header).map_err(failed)?;

        let mut bytes = Vec::new();
        let mut end = 0;
        for (tensor, offset) in tensors.iter().zip(offsets) {
            let dtype = tensor.dtype;
            // The values are in the order of the model, while tensors of several formats are stored in another order.
            if offset != end {
                file.seek(SeekFrom::Start((header.len() + offset) as u64)).map_err(failed)?;
            }
            end = offset + tensor.bytes();

            let mut rest = tensor.count();
            while rest > 0 {
                let values = values.take(rest.min(1 << 18))?;
                if let Some(&value) = values.iter().find(|&&value| dtype.overflows(value)) {
                    let remedy = if dtype == WeightDtype::F16 { "bfloat16" } else { "float32" };
                    let name = tensor.name.clone();
                    let dtype = dtype.name();
                    return Err(CheckpointError::Range { name, value, dtype, remedy });
                }

                rest -= values.len();
                bytes.clear();
                dtype.narrow(values, &mut bytes);
                file.write_all(&bytes).map_err(failed)?;
            }
        }
        Ok(())
    })
}

/// Makes the header of a safetensors file, with its length before it. Also returns the offset of each tensor after it.
///
/// The header is padded to a multiple of eight bytes, and tensors with the longest values come first, so that every
/// value is aligned. PyTorch does not open a file in which one is not.
pub(super) fn header(tensors: &[Planned]) -> (Vec<u8>, Vec<usize>) {
    let mut order: Vec<usize> = (0..tensors.len()).collect();
    order.sort_by_key(|&tensor| Reverse(tensors[tensor].dtype.bytes()));

    let mut end = 0;
    let mut offsets = vec![0; tensors.len()];
    let mut begins = BTreeMap::new();
    let placed = |number: usize| {
        let tensor = &tensors[number];
        let begin = *begins.entry(&tensor.name).or_insert(end);
        offsets[number] = begin + tensor.index.unwrap_or(0) * tensor.bytes();
        if offsets[number] > begin {
            // The header has an entry for the first one.
            return None;
        }
        end += tensor.bytes_of_all();
        let info = TensorInfo {
            dtype: tensor.dtype.in_file(),
            shape: tensor.shape.clone(),
            data_offsets: (begin, end),
        };
        Some((tensor.name.clone(), info))
    };

    let infos = order.into_iter().filter_map(placed).collect();

    // transformers refuses a file without this field.
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let header = Metadata::new(Some(metadata), infos).expect("each begins where the last one ends");
    let mut json = serde_json::to_vec(&header).expect("its keys are texts");
    json.resize(json.len().next_multiple_of(8), b' ');
    ([&(json.len() as u64).to_le_bytes(), json.as_slice()].concat(), offsets)
}

/// Makes the `config.json` of what is saved: `config` with the dtype of most weights, under the name or names that are there: `torch_dtype` until transformers 4, `dtype`
/// since 5.
fn of_saved(config: &Value, dtype: WeightDtype) -> Value {
    let mut config = config.clone();
    if let Value::Object(fields) = &mut config {
        // What was read from 8 or 4 bits is written in more, and layers that guess further tokens are not written.
        fields.remove("quantization_config");
        if let Some(count) = fields.get_mut("num_nextn_predict_layers") {
            *count = 0.into();
        }
        if !fields.contains_key("dtype") {
            fields.insert("torch_dtype".into(), dtype.name().into());
        } else {
            fields.insert("dtype".into(), dtype.name().into());
            fields.entry("torch_dtype").and_modify(|value| *value = dtype.name().into());
        }
    }
    config
}

pub(super) fn write_json(path: &Path, value: &Value) -> Result<(), CheckpointError> {
    let text =
        serde_json::to_string_pretty(value).expect("a JSON value has no unserialisable keys");
    write_whole(path, |file| {
        file.write_all(text.as_bytes())
            .map_err(|source| CheckpointError::Write { path: path.to_owned(), source })
    })
}

/// Writes a file under a hidden name, and renames it when all of it is on disk.
pub(super) fn write_whole(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> Result<(), CheckpointError>,
) -> Result<(), CheckpointError> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".tmp-{name}"));
    let failed = |source| CheckpointError::Write { path: path.to_owned(), source };
    // Synced before the rename, or a crash could leave an empty file under the right name.
    let written = File::create(&temporary).map_err(failed).and_then(|file| {
        let mut file = BufWriter::new(file);
        write(&mut file)?;
        let file = file.into_inner().map_err(|error| failed(error.into_error()))?;
        file.sync_all().map_err(failed)?;
        fs::rename(&temporary, path).map_err(failed)
    });

    if written.is_err() {
        // The first error matters, whether or not this succeeds.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn remove(path: &Path) -> Result<(), CheckpointError> {
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(CheckpointError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_of_a_file_is_aligned() {
        let tensor = |name: &str, count: usize, dtype| Planned {
            name: name.into(),
            shape: vec![count],
            dtype,
            index: None,
        };

        // Three values in bf16 have six bytes, after which no value in f32 may be stored.
        let (_, offsets) = header(&[
            tensor("a", 3, WeightDtype::BF16),
            tensor("b", 5, WeightDtype::F32),
            tensor("c", 1, WeightDtype::F16),
            tensor("d", 2, WeightDtype::F32),
        ]);

        assert_eq!(offsets, [28, 0, 34, 20]);
    }
}
