//! `config.json` and `generation_config.json`, made from the metadata.

use std::f64::consts::TAU;

use serde_json::{Map, Value, json};

use crate::{
    Gguf, GgufError,
    error::quoted,
    metadata::Metadata,
    tokenizer::{ENDS, TOKENS_KEY},
};

const EPSILON: &str = "attention.layer_norm_rms_epsilon";

/// An architecture, as the format calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    Llama,
    Qwen2,
    Qwen3,
    Gemma,
}

impl Family {
    const ALL: [(&str, Family); 4] = [
        ("llama", Family::Llama),
        ("qwen2", Family::Qwen2),
        ("qwen3", Family::Qwen3),
        ("gemma", Family::Gemma),
    ];

    /// Tells whether queries and keys are stored in pairs of rows that are turned together.
    pub(crate) fn pairs(self) -> bool {
        self == Family::Llama
    }

    /// Tells whether 1 was added to the weights of norms.
    pub(crate) fn adds_one(self) -> bool {
        self == Family::Gemma
    }

    /// Returns the model type and the class that `config.json` has. A Llama with a window is a Mistral.
    fn class(self, window: bool) -> (&'static str, &'static str) {
        match self {
            Family::Llama if window => ("mistral", "MistralForCausalLM"),
            Family::Llama => ("llama", "LlamaForCausalLM"),
            Family::Qwen2 => ("qwen2", "Qwen2ForCausalLM"),
            Family::Qwen3 => ("qwen3", "Qwen3ForCausalLM"),
            Family::Gemma => ("gemma", "GemmaForCausalLM"),
        }
    }
}

/// The part of the metadata that is needed to read a weight.
pub(crate) struct Shape {
    pub(crate) family: Family,
    /// The architecture's name. The architecture's keys begin with it.
    name: &'static str,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
}

impl Shape {
    pub(crate) fn of(file: &Gguf) -> Result<Self, GgufError> {
        let wrong = |problem| file.model(problem);
        let metadata = file.metadata();
        let Some(name) = metadata.text("general.architecture").map_err(wrong)? else {
            return Err(wrong("it has no general.architecture: it is not a model".into()));
        };
        let Some(&(name, family)) = Family::ALL.iter().find(|(known, _)| *known == name) else {
            let known = Family::ALL.map(|(name, _)| name).join(", ");
            let came = quoted(name);
            return Err(wrong(format!("its architecture is {came}, expected one of {known}")));
        };
        let keys = Keys { metadata, name };
        let heads = keys.needed("attention.head_count").map_err(wrong)?;
        let kv_heads = keys.size("attention.head_count_kv").map_err(wrong)?.unwrap_or(heads);
        Ok(Shape { family, name, heads, kv_heads })
    }
}

impl Gguf {
    /// Makes `config.json`.
    pub(crate) fn config(&self) -> Result<Value, GgufError> {
        let shape = Shape::of(self)?;
        let mut config = self.sizes(&shape).map_err(|problem| self.model(problem))?;
        if let Some(scaling) = self.rope_scaling(&shape, &config)? {
            config.insert("rope_scaling".into(), scaling);
        }
        for (field, token) in [("bos_token_id", "bos"), ("eos_token_id", "eos")] {
            if let Some(id) = self.token(token)? {
                config.insert(field.into(), id.into());
            }
        }
        Ok(Value::Object(config))
    }

    /// Makes `generation_config.json`: every token that ends a text or a turn. Files seldom name more than one of
    /// these tokens, so the others are known by their texts.
    pub(crate) fn generation_config(&self) -> Result<Value, GgufError> {
        let mut ends: Vec<u64> = Vec::new();
        for token in ["eos", "eot", "eom"] {
            ends.extend(self.token(token)?.filter(|id| !ends.contains(id)));
        }
        let mut id = 0;
        self.each_text(TOKENS_KEY, |token| {
            if ENDS.contains(&token.as_str()) && !ends.contains(&id) {
                ends.push(id);
            }
            id += 1;
            Ok(())
        })?;
        let mut config = Map::new();
        if let Some(id) = self.token("bos")? {
            config.insert("bos_token_id".into(), id.into());
        }
        match ends.as_slice() {
            [] => {}
            [id] => drop(config.insert("eos_token_id".into(), (*id).into())),
            ends => drop(config.insert("eos_token_id".into(), ends.into())),
        }
        Ok(Value::Object(config))
    }

    /// Returns the id of a token that plays a part, such as `eos`.
    pub(crate) fn token(&self, name: &str) -> Result<Option<u64>, GgufError> {
        let name = if name == "pad" { "padding" } else { name };
        let id = self.metadata().count(&format!("tokenizer.ggml.{name}_token_id"));
        // Files that have no such token say -1 in 32 bits.
        Ok(id.map_err(|problem| self.model(problem))?.filter(|&id| id < u64::from(u32::MAX)))
    }

    fn sizes(&self, shape: &Shape) -> Result<Map<String, Value>, String> {
        let keys = Keys { metadata: self.metadata(), name: shape.name };
        if keys.size("expert_count")?.is_some_and(|experts| experts > 0) {
            return Err("it is a mixture of experts, which is not read from GGUF".into());
        }
        let tensor = |name: &str| self.tensors().get(name);
        let Some(embedding) = tensor("model.embed_tokens.weight") else {
            return Err("it has no token_embd.weight: it is not a whole model".into());
        };
        let hidden = keys.needed("embedding_length")?;
        let head = keys.size("attention.key_length")?;
        let head = head.unwrap_or(hidden / shape.heads.max(1));
        for (key, came) in [
            ("rope.dimension_count", keys.size("rope.dimension_count")?),
            ("attention.value_length", keys.size("attention.value_length")?),
        ] {
            if came.is_some_and(|came| came != head) {
                let (name, came) = (shape.name, came.unwrap_or_default());
                return Err(format!("{name}.{key} is {came}, expected {head}, the size of a head"));
            }
        }
        let window = match shape.family {
            Family::Llama => keys.size("attention.sliding_window")?.filter(|&window| window > 0),
            _ => None,
        };
        let (model_type, class) = shape.family.class(window.is_some());
        let epsilon = keys.number(EPSILON)?.ok_or_else(|| keys.missing(EPSILON))?;
        let mut config = Map::new();
        let mut set = |field: &str, value: Value| drop(config.insert(field.into(), value));
        for (field, value) in [
            ("architectures", json!([class])),
            ("model_type", model_type.into()),
            ("vocab_size", embedding.shape[0].into()),
            ("hidden_size", hidden.into()),
            ("intermediate_size", keys.needed("feed_forward_length")?.into()),
            ("num_hidden_layers", keys.needed("block_count")?.into()),
            ("num_attention_heads", shape.heads.into()),
            ("num_key_value_heads", shape.kv_heads.into()),
            ("head_dim", head.into()),
            ("max_position_embeddings", keys.needed("context_length")?.into()),
            ("rms_norm_eps", epsilon.into()),
            ("rope_theta", keys.number("rope.freq_base")?.unwrap_or(10_000.0).into()),
            ("tie_word_embeddings", tensor("lm_head.weight").is_none().into()),
            ("torch_dtype", "float32".into()),
        ] {
            set(field, value);
        }
        match shape.family {
            Family::Llama if window.is_some() => set("sliding_window", json!(window)),
            Family::Llama => {
                let bias = |name: &str| tensor(&format!("model.layers.0.{name}.bias")).is_some();
                set("attention_bias", bias("self_attn.q_proj").into());
                set("mlp_bias", bias("mlp.down_proj").into());
            }
            Family::Gemma => set("hidden_activation", "gelu_pytorch_tanh".into()),
            Family::Qwen2 | Family::Qwen3 => {}
        }
        // A factor without a type is linear, as in llama.cpp. There a factor of 0 means none, and the second key
        // is the older one.
        let kind = keys.text("rope.scaling.type")?.unwrap_or("linear");
        let factor = keys.number("rope.scaling.factor")?.or(keys.number("rope.scale_linear")?);
        let factor = factor.filter(|factor| *factor != 0.0);
        match kind {
            "none" => {}
            "linear" => {
                if let Some(factor) = factor.filter(|factor| *factor != 1.0) {
                    set("rope_scaling", json!({ "rope_type": kind, "factor": factor }));
                }
            }
            "yarn" => {
                let context = keys.needed("rope.scaling.original_context_length")?;
                let factor = factor.ok_or_else(|| keys.missing("rope.scaling.factor"))?;
                for (key, usual) in YARN {
                    if let Some(came) = keys.number(key)?.filter(|came| *came != usual) {
                        return Err(format!("{} is {came}, expected {usual}", keys.key(key)));
                    }
                }
                set(
                    "rope_scaling",
                    json!({
                        "rope_type": kind,
                        "factor": factor,
                        "original_max_position_embeddings": context,
                    }),
                );
            }
            _ => {
                return Err(format!(
                    "its rope.scaling.type is {}, expected none, linear or yarn",
                    quoted(kind)
                ));
            }
        }
        Ok(config)
    }

    /// Finds Llama 3.1's scaling. The file holds only a factor for each frequency, so the scaling is recognised by
    /// these factors.
    fn rope_scaling(
        &self,
        shape: &Shape,
        config: &Map<String, Value>,
    ) -> Result<Option<Value>, GgufError> {
        const NAME: &str = "rope_freqs.weight";
        let Some(tensor) = self.tensors().get(NAME) else { return Ok(None) };
        let head = config["head_dim"].as_u64().unwrap_or_default();
        let unlike = || {
            self.model(format!(
                "{NAME} scales the frequencies of {} in an unknown way, expected Llama 3.1's way",
                shape.name
            ))
        };
        if tensor.shape != [head as usize / 2] || config.contains_key("rope_scaling") {
            return Err(unlike());
        }
        let mut factors = Vec::new();
        if !self.read(NAME, &mut factors)? {
            return Err(unlike());
        }
        let factor = f64::from(factors.last().copied().unwrap_or(1.0));
        let keys = Keys { metadata: self.metadata(), name: shape.name };
        let context = keys.number("rope.scaling.original_context_length");
        let context = context.map_err(|problem| self.model(problem))?.unwrap_or(8192.0);
        let (low, high) = (1.0, 4.0);
        let theta = config["rope_theta"].as_f64().unwrap_or(10_000.0);
        for (index, &came) in factors.iter().enumerate() {
            let wave = TAU * theta.powf(2.0 * index as f64 / head as f64);
            let smooth = ((context / wave - low) / (high - low)).clamp(0.0, 1.0);
            let expected = 1.0 / ((1.0 - smooth) / factor + smooth);
            let near = (f64::from(came) - expected).abs() <= 1e-4 * expected;
            if !near {
                return Err(unlike());
            }
        }
        Ok(Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": low,
            "high_freq_factor": high,
            "original_max_position_embeddings": context as u64,
        })))
    }
}

/// The values that llama.cpp takes for a scaling by YaRN if a file is silent.
const YARN: [(&str, f64); 5] = [
    ("rope.scaling.attn_factor", 1.0),
    ("rope.scaling.yarn_ext_factor", 1.0),
    ("rope.scaling.yarn_attn_factor", 1.0),
    ("rope.scaling.yarn_beta_fast", 32.0),
    ("rope.scaling.yarn_beta_slow", 1.0),
];

/// The keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    name: &'static str,
}

impl Keys<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.name)
    }

    fn size(&self, key: &str) -> Result<Option<usize>, String> {
        let key = self.key(key);
        let size = self.metadata.count(&key)?;
        size.map(|size| usize::try_from(size).map_err(|_| format!("{key} is {size}"))).transpose()
    }

    fn needed(&self, key: &str) -> Result<usize, String> {
        self.size(key)?.ok_or_else(|| self.missing(key))
    }

    fn missing(&self, key: &str) -> String {
        format!("it has no {}", self.key(key))
    }

    fn number(&self, key: &str) -> Result<Option<f64>, String> {
        self.metadata.number(&self.key(key))
    }

    fn text(&self, key: &str) -> Result<Option<&str>, String> {
        self.metadata.text(&self.key(key))
    }
}
