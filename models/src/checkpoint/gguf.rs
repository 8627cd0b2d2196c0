//! Saves a decoder as a GGUF file.

use std::path::Path;

use firebrick_gguf::{FileType, GgufError, NewGguf, NewModel, Vocabulary};
use serde_json::Value;

use super::{CheckpointError, layout, named_tensors, read::load_config, save};
use crate::{Decoder, Parameter};

/// Writes `decoder` into the file `path`, which must not exist, for llama.cpp and the programs that are built on it.
/// They show `name` as the model's. Adapters are left out: [`Decoder::merged`] adds them into the weights. At most one
/// parameter at a time is read from the device.
///
/// # Errors
/// Fails if the file can't be written, a parameter can't be read, a weight is beyond the file's type, or the format has
/// no words for such a model. A part of the file may then be there.
pub fn save_gguf(
    decoder: &Decoder,
    vocabulary: Vocabulary<'_>,
    name: &str,
    path: &Path,
    file_type: FileType,
) -> Result<(), CheckpointError> {
    let parameters = save::saved_parameters(decoder, path)?;
    let config = decoder.config();
    let pieces = |parameter: &Parameter| layout::pieces(config, &parameter.path, &parameter.shape);

    let fields = config.to_json(None, 0);
    let tensors = parameters.iter().flat_map(pieces).collect();
    let model = NewModel { name, config: &fields, tensors, vocabulary };
    let mut file = NewGguf::create(path, &model, file_type)?;
    check_config(&fields, path)?;

    for parameter in &parameters {
        let values = save::read(parameter, 0..parameter.shape.iter().product())?;
        for tensor in named_tensors(config, &parameter.path, &parameter.shape, &values) {
            file.write(&tensor.name, tensor.values)?;
        }
    }
    Ok(file.finish()?)
}

/// Reads the configuration from the file again, and refuses what the file could not say.
fn check_config(fields: &Value, path: &Path) -> Result<(), CheckpointError> {
    let in_file = load_config(path)?.0.to_json(None, 0);

    let Some(fields) = fields.as_object() else { return Ok(()) };
    // A file has the same names for several families, such as Llama and Mistral.
    let names = ["architectures", "model_type"];
    let different = |(field, value): &(&String, &Value)| {
        !names.contains(&field.as_str()) && !close(value, &in_file[field.as_str()])
    };
    match fields.iter().find(different) {
        None => Ok(()),
        Some((field, value)) => {
            let read = &in_file[field.as_str()];
            let problem = format!(
                "its {field} is {value}, and llama.cpp, which reads nothing else from a file, would compute with {read}"
            );
            Err(GgufError::Unwritable { problem }.into())
        }
    }
}

/// Tells whether two values are the same but for rounding to 32 bits.
fn close(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            let [one, other] = [one, other].map(|it| it.as_f64().unwrap_or(f64::NAN));
            (one - other).abs() <= 1e-6 * one.abs()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| close(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let same = |(field, value): (&String, &Value)| {
                other.get(field).is_some_and(|other| close(value, other))
            };
            one.len() == other.len() && one.iter().all(same)
        }
        _ => one == other,
    }
}
