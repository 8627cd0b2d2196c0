//! Loads a decoder from a Hugging Face model folder or a GGUF file, one parameter at a time.

use std::path::Path;

use burn::tensor::Device;
use firebrick_core::config::Family;
use serde_json::{Map, Value};

use super::{
    CheckpointError, head, json, layout, names, pictures,
    tensors::{Tensors, not_of},
};
use crate::{
    base::FrozenFormat,
    config::DecoderConfig,
    decoder::Decoder,
    fields::{ConfigError, not_implemented},
    names::TextPrefix,
    rope::RopeScaling,
    source::ParameterSource,
};

/// A model that was read, and what is unusual about it.
#[derive(Debug)]
pub struct Loaded {
    /// The model.
    pub decoder: Decoder,
    /// Tensors with a NaN or an infinity among their values. The model is not refused because of them, although its
    /// logits will not be finite either.
    pub nonfinite: Vec<String>,
    /// Tensors of the folder that are not part of the model.
    pub unread: Vec<String>,
}

/// Reads the model of a Hugging Face folder: `config.json` with `model.safetensors`, or with the shards that
/// `model.safetensors.index.json` lists. A GGUF file is read as such a folder. Weights in f32, bf16,
/// f16, FP8, MXFP4 and GGUF's blocks become f32.
///
/// One parameter is read at a time, so peak memory is the model in f32 and its largest parameter once more.
///
/// # Errors
/// Fails if a file is missing, damaged, or does not hold what `config.json` promises. Every tensor must be there with
/// its shape, and there must be none that would make it another model. Nothing is ever filled in.
pub fn load(folder: &Path, device: &Device) -> Result<Decoder, CheckpointError> {
    Ok(load_noting(folder, FrozenFormat::F32, device)?.decoder)
}

/// Reads a model like [`load`], keeps its weights in the format `base`, and notes what is unusual about them.
/// Weights that are not kept in f32 are frozen: such a model can be sampled from, or get adapters.
///
/// # Errors
/// Fails like [`load`].
pub fn load_noting(
    folder: &Path,
    base: FrozenFormat,
    device: &Device,
) -> Result<Loaded, CheckpointError> {
    let (config, _, prefix) = read_config(folder)?;
    let tensors = head::open(folder, &config)?;
    let unread = names::check(&tensors, &config)?;

    let mut weights = Weights { tensors, config: &config, base, nonfinite: Vec::new() };
    let mut decoder = Decoder::from_source(&config, &mut weights, device)?;
    decoder.set_text_prefix(prefix);
    Ok(Loaded { decoder, nonfinite: weights.nonfinite, unread })
}

/// Reads the sizes of the model in a folder from its `config.json`. Also returns the file as it is, for
/// [`save`](crate::save) to write back, or only its part about text if the model also sees pictures. If the file says
/// that the head is the embedding although the weights hold another head, the head is a separate matrix here, as in
/// transformers.
///
/// # Errors
/// Fails if the file is missing, or its model cannot be read.
pub fn load_config(folder: &Path) -> Result<(DecoderConfig, Value), CheckpointError> {
    let (config, fields, _) = read_config(folder)?;
    Ok((config, fields))
}

/// Lists the tensors of a model folder that its model does not read, by name and without reading weights.
///
/// # Errors
/// Fails if a file is missing or damaged, or if the names of the tensors are not those of the model that `config.json`
/// describes.
pub fn unread_tensors(folder: &Path) -> Result<Vec<String>, CheckpointError> {
    let (config, _) = load_config(folder)?;
    names::check(&head::open(folder, &config)?, &config)
}

/// Runs [`load_config`], and also returns where `transformers` keeps the text model of such a folder.
fn read_config(folder: &Path) -> Result<(DecoderConfig, Value, TextPrefix), CheckpointError> {
    let path = folder.join("config.json");
    let fields = json::read(&path, json::CONFIG)?;
    let prefix = pictures::text_prefix(&fields);
    let mut fields = pictures::text_part(fields);

    let mut config = DecoderConfig::from_json(&fields)
        .map_err(|source| CheckpointError::Config { path, source })?;

    if config.tied && !head::is_tied(folder, &config)? {
        config.tied = false;
        fields.insert("tie_word_embeddings".into(), false.into());
    }
    Ok((config, Value::Object(fields), prefix))
}

/// Parts of a model that scores a text by a single number.
pub(crate) struct Scorer {
    /// Everything below the head. The decoder's own head is missing.
    pub(crate) trunk: Decoder,
    /// Head, `[hidden]`.
    pub(crate) score: Vec<f32>,
    /// Padding token. A text is read up to its last token that is not padding.
    pub(crate) pad: Option<u32>,
    /// See [`Loaded::nonfinite`].
    pub(crate) nonfinite: Vec<String>,
}

/// Reads a classifier with one label, as [`load`] reads a language model.
pub(crate) fn load_scorer(folder: &Path, device: &Device) -> Result<Scorer, CheckpointError> {
    let (config, fields) = scorer_config(folder)?;
    let pad = pad(&fields, &config);

    let tensors = Tensors::open(folder)?;
    let unread = names::check(&tensors, &config)?;
    if let Some(name) = unread.iter().find(|name| name.starts_with("score.") && *name != SCORE) {
        let path = tensors.path().to_owned();
        return Err(CheckpointError::Foreign { path, name: name.clone() });
    }

    let base = FrozenFormat::F32;
    let mut weights = Weights { tensors, config: &config, base, nonfinite: Vec::new() };
    let mut score = Vec::new();
    weights.read(SCORE, &[1, config.hidden_size], &mut score)?;
    let trunk = Decoder::from_source(&config, &mut weights, device)?;
    Ok(Scorer { trunk, score, pad, nonfinite: weights.nonfinite })
}

/// Reads the sizes of a classifier with one label, and its `config.json`. There is no head over the vocabulary.
pub(crate) fn scorer_config(
    folder: &Path,
) -> Result<(DecoderConfig, Map<String, Value>), CheckpointError> {
    let path = folder.join("config.json");
    let fields: Map<String, Value> = json::read(&path, json::CONFIG)?;
    let of_config = |source| CheckpointError::Config { path: path.clone(), source };
    let mut config = DecoderConfig::of_classifier(&fields).map_err(of_config)?;

    let labels = labels(&fields);
    if labels != 1 {
        return Err(of_config(ConfigError::Size(format!(
            "the model has {labels} labels (num_labels, id2label); a reward model has one, \
             its score"
        ))));
    }

    if matches!(config.rope.scaling, RopeScaling::Dynamic { .. } | RopeScaling::LongRope(_)) {
        // The length of the texts is not known here.
        return Err(of_config(not_implemented(
            "a reward model whose rope depends on the length of texts",
        )));
    }
    // There is no head over the vocabulary to read, and no logits.
    config.tied = true;
    config.logit_scale = 1.0;
    config.logit_cap = None;
    Ok((config, fields))
}

/// A classifier's head, which has no bias in any family.
const SCORE: &str = "score.weight";

/// Counts the labels as transformers does: 2 if the file does not say it.
fn labels(fields: &Map<String, Value>) -> u64 {
    // A list of names is used only if no number is given.
    let named = fields.get("id2label").and_then(Value::as_object).map(|names| names.len() as u64);
    fields.get("num_labels").and_then(Value::as_u64).or(named).unwrap_or(2)
}

/// Returns the padding token. `None` if no token pads, as with the -1 of old Llama files. Some families' classes
/// have a default.
fn pad(fields: &Map<String, Value>, config: &DecoderConfig) -> Option<u32> {
    match fields.get("pad_token_id") {
        None => match config.family {
            Family::Gemma | Family::Gemma3 | Family::Gemma4 => Some(0),
            Family::Olmo2 | Family::Olmo3 | Family::Olmoe | Family::SeedOss => Some(1),
            Family::Ernie45 | Family::HunYuan | Family::Lfm2 => Some(0),
            Family::Ministral3 => Some(11),
            Family::Glm4 => Some(151_329),
            Family::Phi3 => Some(32000),
            Family::SmolLm3 => Some(128_004),
            Family::Qwen2
            | Family::Qwen3
            | Family::Qwen3Moe
            | Family::Qwen3Next
            | Family::Qwen35
            | Family::Qwen35Moe
            | Family::Qwen2Moe
            | Family::Llama
            | Family::Mistral
            | Family::Mixtral
            | Family::GptOss
            | Family::Glm4Moe
            | Family::MiniMaxM2
            | Family::Granite
            | Family::GraniteHybrid
            | Family::Exaone4
            | Family::Arcee => None,
        },
        Some(id) => id.as_u64().and_then(|id| u32::try_from(id).ok()),
    }
}

/// Reads a decoder's parameters from the tensors of a folder.
struct Weights<'a> {
    tensors: Tensors,
    config: &'a DecoderConfig,
    base: FrozenFormat,
    nonfinite: Vec<String>,
}

impl Weights<'_> {
    /// Appends one checkpoint tensor, of exactly `shape`, to `values`.
    fn read(
        &mut self,
        name: &str,
        shape: &[usize],
        values: &mut Vec<f32>,
    ) -> Result<(), CheckpointError> {
        let info = self.tensors.info(name).ok_or_else(|| CheckpointError::Missing {
            path: self.tensors.path().to_owned(),
            name: name.to_owned(),
            layers: self.config.layers,
        })?;

        let read = if info.shape == shape {
            // Memory is taken only now that the file is known to have the bytes of that shape.
            values.reserve_exact(shape.iter().product());
            self.tensors.read(name, values)?
        } else {
            None
        };

        let finite = read.ok_or_else(|| not_of(shape, info))?;

        if !finite {
            self.nonfinite.push(name.to_owned());
        }
        Ok(())
    }
}

impl ParameterSource for Weights<'_> {
    fn values(&mut self, path: &str, shape: &[usize]) -> Result<Vec<f32>, CheckpointError> {
        let mut joined = Vec::new();
        // The maps of a fused projection are read one after the other, and transposed together.
        for (name, piece) in layout::pieces(self.config, path, shape) {
            self.read(&name, &piece, &mut joined)?;
        }
        Ok(layout::from_checkpoint(self.config, path, shape, joined))
    }

    fn base(&self) -> FrozenFormat {
        self.base
    }
}
