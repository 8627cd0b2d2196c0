use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
};

use burn::tensor::Device;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde_json::{Map, Value};

use crate::{
    ConfigError, Decoder, DecoderConfig, config::Piece, init::ParameterSource, parameters,
};

/// Reads the model of a Hugging Face folder: `config.json` with `model.safetensors`, or with the
/// shards that `model.safetensors.index.json` lists. Weights in f32, bf16 and f16 become f32.
///
/// # Errors
/// When a file is missing, damaged or does not hold what `config.json` promises: every tensor must
/// be there with its shape. Nothing is ever filled in.
pub fn load(folder: &Path, device: &Device) -> Result<Decoder, CheckpointError> {
    let (config, _) = load_config(folder)?;
    let mut weights = Weights::open(folder, &config)?;
    Decoder::from_source(&config, &mut weights, device)
}

/// Reads the sizes of the model in a folder from its `config.json`, and the file as it stands, for
/// [`save`] to write back.
///
/// # Errors
/// When the file is missing or is not a model that can be read.
pub fn load_config(folder: &Path) -> Result<(DecoderConfig, Value), CheckpointError> {
    let path = folder.join("config.json");
    let fields: Map<String, Value> = read_json(&path)?;
    match DecoderConfig::from_json(&fields) {
        Ok(config) => Ok((config, Value::Object(fields))),
        Err(source) => Err(CheckpointError::Config { path, source }),
    }
}

/// Writes `decoder` into `folder` as `config.json` and `model.safetensors`, under the names and in
/// the layout that `transformers` reads.
///
/// `config` is the content of `config.json`: what the model came with, unknown fields included. Its
/// dtype is set to float32, because that is what is written: a run that resumes from this folder
/// continues with the same bits.
///
/// # Errors
/// When a file cannot be written.
pub fn save(decoder: &Decoder, config: &Value, folder: &Path) -> Result<(), CheckpointError> {
    let mut config = config.clone();
    if let Value::Object(fields) = &mut config {
        let dtype = if fields.contains_key("dtype") { "dtype" } else { "torch_dtype" };
        fields.insert(dtype.into(), "float32".into());
    }
    let write = |path: PathBuf, result: std::io::Result<()>| {
        result.map_err(|source| CheckpointError::Write { path, source })
    };
    let path = folder.join("config.json");
    let text =
        serde_json::to_string_pretty(&config).expect("a JSON value has no unserialisable keys");
    write(path.clone(), fs::write(&path, text))?;

    let mut tensors = BTreeMap::new();
    for parameter in parameters(decoder) {
        let values: Vec<f32> = parameter
            .values
            .try_into_vec_as::<f32>()
            .map_err(|error| CheckpointError::Device(format!("{error:?}")))?;
        for tensor in named_tensors(decoder.config(), &parameter.path, &parameter.shape, &values) {
            let bytes: Vec<u8> =
                tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect();
            tensors.insert(tensor.name, (tensor.shape, bytes));
        }
    }
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        let view =
            TensorView::new(Dtype::F32, shape.clone(), bytes).expect("four bytes for every value");
        (name.as_str(), view)
    });
    let metadata = [("format".to_owned(), "pt".to_owned())].into();
    let path = folder.join("model.safetensors");
    safetensors::serialize_to_file(views, Some(metadata), &path)
        .map_err(|source| CheckpointError::Tensors { path, source })
}

/// A tensor as a checkpoint names it and lays it out.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedTensor {
    /// Its name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Its shape; matrices are `[outputs, inputs]`.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f32>,
}

/// One parameter's values, or its gradient's, as the checkpoint tensors that it is made of: fused
/// projections are taken apart and matrices turned.
///
/// `path`, `shape` and `values` are those of a [`Parameter`](crate::Parameter).
///
/// # Panics
/// When a model of this configuration has no such parameter.
pub fn named_tensors(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
    values: &[f32],
) -> Vec<NamedTensor> {
    // The inverse of `Weights::values`.
    let (columns, rows_first) = match shape {
        [_] => (None, values.to_vec()),
        [_, hidden] if is_lookup(path) => (Some(*hidden), values.to_vec()),
        _ => (Some(shape[0]), transpose(values, shape[0], shape[1])),
    };
    let mut rest = rows_first.as_slice();
    let take = |piece: Piece| {
        let (own, others) = rest.split_at(piece.rows * columns.unwrap_or(1));
        rest = others;
        let shape = std::iter::once(piece.rows).chain(columns).collect();
        NamedTensor { name: piece.name, shape, values: own.to_vec() }
    };
    config.family.pieces(path, config).into_iter().map(take).collect()
}

/// What is wrong with a checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// A file could not be read.
    #[error(
        "cannot read {path}: {source}; expected a Hugging Face model folder with config.json, model.safetensors and tokenizer.json"
    )]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file could not be written.
    #[error("cannot write {path}: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A JSON file is not what it should be.
    #[error("{path} is not valid JSON: {source}; download the file again")]
    Json {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// `config.json` describes a model that cannot be read.
    #[error("{path}: {source}")]
    Config {
        /// Which file.
        path: PathBuf,
        /// What about it.
        source: ConfigError,
    },
    /// The sizes of a new model do not fit together.
    #[error("the new model's sizes do not fit: {0}")]
    NewModel(ConfigError),
    /// A safetensors file is damaged, or could not be written.
    #[error(
        "{path} is not a whole safetensors file: {source}; it may be cut off: download or copy it again"
    )]
    Tensors {
        /// Which file.
        path: PathBuf,
        /// What the reader found.
        source: safetensors::SafeTensorError,
    },
    /// A tensor that the configuration asks for is in none of the files.
    #[error(
        "{path} has no tensor \"{name}\", which a model of {layers} layers needs: is this the right folder?"
    )]
    Missing {
        /// The file, or the index of the shards.
        path: PathBuf,
        /// The checkpoint's name of the tensor.
        name: String,
        /// As `config.json` says.
        layers: usize,
    },
    /// The files hold more layers than the configuration.
    #[error(
        "{path} has the tensor \"{name}\", but config.json says {layers} layers: is this the right folder?"
    )]
    Surplus {
        /// The file, or the index of the shards.
        path: PathBuf,
        /// The first tensor too many.
        name: String,
        /// As `config.json` says.
        layers: usize,
    },
    /// A tensor has another shape or type than the configuration says.
    #[error(
        "{path}: tensor \"{name}\" is {came}, but config.json makes it {expected}: do the two files belong together?"
    )]
    Shape {
        /// Which file.
        path: PathBuf,
        /// The checkpoint's name of the tensor.
        name: String,
        /// Shape and type in the file.
        came: String,
        /// Shape and type expected.
        expected: String,
    },
    /// The index of the shards names a file outside its folder.
    #[error("{path} lists the shard \"{shard}\"; a shard must be a file in the same folder")]
    Shard {
        /// The index file.
        path: PathBuf,
        /// What it lists.
        shard: String,
    },
    /// The device could not give its values back.
    #[error("the device could not read back a parameter: {0}")]
    Device(String),
}

/// The safetensors files of a folder, memory kept as bytes until each tensor is taken.
struct Weights {
    /// The one file, or the index, for messages.
    path: PathBuf,
    config: DecoderConfig,
    files: Vec<(PathBuf, Vec<u8>)>,
    /// Which file holds a tensor.
    home: BTreeMap<String, usize>,
}

impl Weights {
    fn open(folder: &Path, config: &DecoderConfig) -> Result<Self, CheckpointError> {
        let index = folder.join("model.safetensors.index.json");
        let (path, names) = if index.exists() {
            (index.clone(), shard_names(&index)?)
        } else {
            (folder.join("model.safetensors"), vec!["model.safetensors".to_owned()])
        };
        let mut weights =
            Weights { path, config: config.clone(), files: Vec::new(), home: BTreeMap::new() };
        for name in names {
            let path = folder.join(name);
            let bytes = fs::read(&path)
                .map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
            let tensors = SafeTensors::deserialize(&bytes)
                .map_err(|source| CheckpointError::Tensors { path: path.clone(), source })?;
            let file = weights.files.len();
            weights.home.extend(tensors.names().into_iter().map(|name| (name.to_owned(), file)));
            weights.files.push((path, bytes));
        }
        weights.refuse_more_layers()?;
        Ok(weights)
    }

    /// A folder whose files were mixed up is found by the layers that would be left over.
    fn refuse_more_layers(&self) -> Result<(), CheckpointError> {
        let prefix = format!("model.layers.{}.", self.config.layers);
        match self.home.keys().find(|name| name.starts_with(&prefix)) {
            None => Ok(()),
            Some(name) => Err(CheckpointError::Surplus {
                path: self.path.clone(),
                name: name.clone(),
                layers: self.config.layers,
            }),
        }
    }

    /// One checkpoint tensor as f32, of exactly `shape`.
    fn tensor(&self, name: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        let missing = || CheckpointError::Missing {
            path: self.path.clone(),
            name: name.to_owned(),
            layers: self.config.layers,
        };
        let (path, bytes) = &self.files[*self.home.get(name).ok_or_else(missing)?];
        let damaged = |source| CheckpointError::Tensors { path: path.clone(), source };
        let view =
            SafeTensors::deserialize(bytes).and_then(|file| file.tensor(name)).map_err(damaged)?;
        let values = (view.shape() == shape).then(|| floats(view.dtype(), view.data())).flatten();
        values.ok_or_else(|| CheckpointError::Shape {
            path: path.clone(),
            name: name.to_owned(),
            came: format!("{:?} {:?}", view.dtype(), view.shape()),
            expected: format!("F32, BF16 or F16 {shape:?}"),
        })
    }
}

impl ParameterSource for Weights {
    fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        let pieces = self.config.family.pieces(path, &self.config);
        let mut joined = Vec::new();
        for piece in &pieces {
            let piece_shape = match shape {
                [_] => vec![piece.rows],
                [vocab, hidden] if is_lookup(path) => vec![*vocab, *hidden],
                _ => vec![piece.rows, shape[0]],
            };
            joined.extend(self.tensor(&piece.name, &piece_shape)?);
        }
        Ok(match shape {
            [inputs, outputs] if !is_lookup(path) => transpose(&joined, *outputs, *inputs),
            _ => joined,
        })
    }
}

/// Embedding and head are rows per token on both sides; every other matrix is `[outputs, inputs]`
/// in a checkpoint and `[inputs, outputs]` here.
fn is_lookup(path: &str) -> bool {
    matches!(path, "embedding" | "head")
}

/// `[rows, columns]` to `[columns, rows]`.
fn transpose(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..columns)
        .flat_map(|column| (0..rows).map(move |row| values[row * columns + column]))
        .collect()
}

fn floats(dtype: Dtype, bytes: &[u8]) -> Option<Vec<f32>> {
    match dtype {
        Dtype::F32 => {
            Some(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
        }
        Dtype::BF16 => {
            let wide = |bytes: &[u8; 2]| half::bf16::from_le_bytes(*bytes).to_f32();
            Some(bytes.as_chunks::<2>().0.iter().map(wide).collect())
        }
        Dtype::F16 => {
            let wide = |bytes: &[u8; 2]| half::f16::from_le_bytes(*bytes).to_f32();
            Some(bytes.as_chunks::<2>().0.iter().map(wide).collect())
        }
        _ => None,
    }
}

fn shard_names(index: &Path) -> Result<Vec<String>, CheckpointError> {
    let fields: Map<String, Value> = read_json(index)?;
    let mut names: Vec<String> = match fields.get("weight_map") {
        Some(Value::Object(map)) => {
            map.values().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    names.sort();
    names.dedup();
    match names.iter().find(|name| name.contains(['/', '\\']) || name.starts_with('.')) {
        Some(shard) => Err(CheckpointError::Shard { path: index.to_owned(), shard: shard.clone() }),
        None => Ok(names),
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, CheckpointError> {
    let file = File::open(path)
        .map_err(|source| CheckpointError::Read { path: path.to_owned(), source })?;
    serde_json::from_reader(std::io::BufReader::new(file))
        .map_err(|source| CheckpointError::Json { path: path.to_owned(), source })
}
