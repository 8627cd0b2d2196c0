//! `config.json` and `generation_config.json`, made from the metadata.

use serde_json::{Map, Value, json};

use crate::{
    change::Recurrence,
    error::GgufError,
    family::Family,
    file::Gguf,
    keys::{Keys, LAYERS, Shape},
    rope,
    tokenizer::{ENDS, TOKENS_KEY},
};

pub(crate) const EPSILON: &str = "attention.layer_norm_rms_epsilon";

/// Sizes that every file states and every `config.json` has: fields and keys.
pub(crate) const SIZES: [(&str, &str); 3] = [
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("max_position_embeddings", "context_length"),
];

impl Gguf {
    /// Makes `config.json`.
    pub(crate) fn config(&self) -> Result<Value, GgufError> {
        let shape = Shape::of(self.metadata()).map_err(|problem| self.model(problem))?;
        let mut config = self.sizes(&shape).map_err(|problem| self.model(problem))?;
        if let Some(scaling) = self.scaling_in_tensors(&shape, &config)? {
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

        // Ids are the positions of texts in the list.
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

    /// Returns the id of a special token, such as `eos`.
    pub(crate) fn token(&self, name: &str) -> Result<Option<u64>, GgufError> {
        let name = if name == "pad" { "padding" } else { name };
        let id = self.metadata().count(&format!("tokenizer.ggml.{name}_token_id"));
        // Files without such a token write -1, in 32 bits.
        Ok(id.map_err(|problem| self.model(problem))?.filter(|&id| id < u64::from(u32::MAX)))
    }

    fn sizes(&self, shape: &Shape) -> Result<Map<String, Value>, String> {
        let keys = Keys { metadata: self.metadata(), name: shape.name };

        let experts = keys.size("expert_count")?.filter(|experts| *experts > 0);
        if experts.is_some() && shape.family != Family::Qwen3Moe {
            return Err(format!(
                "it is a mixture of experts of the architecture {}, which is not read from GGUF; expected \
                 qwen3moe",
                shape.name
            ));
        }

        let tensor = |name: &str| self.tensors().get(name);
        let Some(embedding) = tensor("model.embed_tokens.weight") else {
            return Err("it has no token_embd.weight: it is not a complete model".into());
        };
        let head = shape.head;

        let rotated = keys.size("rope.dimension_count")?;
        for (key, actual) in [
            ("rope.dimension_count", rotated.filter(|_| !shape.family.rotates_a_part())),
            ("attention.value_length", keys.size("attention.value_length")?),
        ] {
            if actual.is_some_and(|actual| actual != head) {
                let name = shape.name;
                let actual = actual.unwrap_or_default();
                return Err(format!(
                    "{name}.{key} is {actual}, expected {head}, the size of a head"
                ));
            }
        }

        // Files for other architectures and for embeddings have the next two keys, and llama.cpp obeys them.
        let usual = 1.0 / (head.max(1) as f64).sqrt();
        let scale = keys.number("attention.scale")?.filter(|scale| *scale != 0.0);
        let scale = scale.filter(|_| shape.family != Family::Gemma3);
        if let Some(actual) = scale.filter(|actual| (actual - usual).abs() > 1e-4 * usual) {
            return Err(format!("{} is {actual}, expected {usual}", keys.key("attention.scale")));
        }

        if keys.flag("attention.causal")? == Some(false) {
            let key = keys.key("attention.causal");
            return Err(format!(
                "{key} is false, expected true: it is not a model that generates text"
            ));
        }

        // The other families ignore a window, whatever the file says.
        let window = match shape.family {
            Family::Llama | Family::Gemma3 | Family::Olmo2 | Family::Phi3 => {
                keys.size("attention.sliding_window")?.filter(|&window| window > 0)
            }
            _ => None,
        };

        let layers = keys.layers()?;
        let (model_type, class) = shape.family.class(window.is_some());
        let epsilon = keys.number(EPSILON)?.ok_or_else(|| keys.missing(EPSILON))?;

        let mut config = Map::new();
        let mut set = |field: &str, value: Value| drop(config.insert(field.into(), value));
        for (field, key) in SIZES {
            set(field, keys.needed(key)?.into());
        }
        for (field, value) in [
            ("architectures", json!([class])),
            ("model_type", model_type.into()),
            ("vocab_size", embedding.shape[0].into()),
            ("num_hidden_layers", layers.into()),
            ("num_attention_heads", shape.heads.into()),
            ("num_key_value_heads", shape.kv_heads.into()),
            ("head_dim", head.into()),
            ("rms_norm_eps", epsilon.into()),
            ("rope_theta", keys.number("rope.freq_base")?.unwrap_or(10_000.0).into()),
            ("tie_word_embeddings", tensor("lm_head.weight").is_none().into()),
            ("torch_dtype", "float32".into()),
        ] {
            set(field, value);
        }

        let bias = |name: &str| {
            let has = |layer: usize| tensor(&format!("model.layers.{layer}.{name}.bias")).is_some();
            // Not every layer has attention, so all are searched.
            (0..layers.min(LAYERS)).any(has)
        };

        match shape.family {
            Family::Llama if window.is_some() => set("sliding_window", json!(window)),
            Family::Llama | Family::SmolLm3 => {
                set("attention_bias", bias("self_attn.q_proj").into());
                set("mlp_bias", bias("mlp.down_proj").into());
            }
            Family::Gemma => set("hidden_activation", "gelu_pytorch_tanh".into()),
            Family::Gemma3 | Family::Olmo2 | Family::Qwen3Moe | Family::Qwen35 => {
                set("attention_bias", bias("self_attn.q_proj").into());
            }
            Family::Phi3 => set("sliding_window", json!(window)),
            Family::Qwen2 | Family::Qwen3 => {}
        }

        match shape.family {
            Family::Gemma3 => self.of_gemma3(&keys, shape, window, &mut config)?,
            Family::Olmo2 if window.is_some() => {
                let types = keys.windows(self, layers, 4)?;
                config.insert("sliding_window".into(), json!(window));
                config.insert("layer_types".into(), attention_types(&types));
            }
            Family::Qwen3Moe => self.of_experts(&keys, experts, layers, &mut config)?,
            Family::Qwen35 => self.of_recurrences(&keys, layers, &mut config)?,
            Family::Phi3 => {
                let original = keys.size("rope.scaling.original_context_length")?;
                let original =
                    original.map_or(config["max_position_embeddings"].clone(), Into::into);
                config.insert("original_max_position_embeddings".into(), original);
            }
            _ => {}
        }

        if shape.family.rotates_a_part() {
            let share = rotated.unwrap_or(head) as f64 / head.max(1) as f64;
            config.insert("partial_rotary_factor".into(), share.into());
        }

        // Layers with a window have their own rotary embedding, which is never scaled.
        let scaling = rope::scaling(&keys, shape.family)?;
        match shape.family {
            Family::Gemma3 | Family::Olmo2
                if window.is_some() || shape.family == Family::Gemma3 =>
            {
                let local = keys.number("rope.freq_base_swa")?;
                let local = local.map_or_else(
                    || match shape.family {
                        Family::Gemma3 => 10_000.0.into(),
                        _ => config["rope_theta"].clone(),
                    },
                    Into::into,
                );
                let mut full = scaling.unwrap_or(json!({ "rope_type": "default" }));
                full["rope_theta"] = config["rope_theta"].clone();
                let ropes = json!({
                    "full_attention": full,
                    "sliding_attention": { "rope_type": "default", "rope_theta": local },
                });
                config.insert("rope_parameters".into(), ropes);
            }
            _ => {
                if let Some(scaling) = scaling {
                    config.insert("rope_scaling".into(), scaling);
                }
            }
        }

        Ok(config)
    }

    /// Adds the fields that only Gemma 3 has. The format has no key for the factor of queries, so it follows from the
    /// number of layers, as in llama.cpp: only the model of 27 billion parameters has 62.
    fn of_gemma3(
        &self,
        keys: &Keys<'_>,
        shape: &Shape,
        window: Option<usize>,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        const LARGEST: usize = 62;

        let layers = keys.layers()?;
        let scalar = match keys.number("attention.scale")?.filter(|scale| *scale != 0.0) {
            Some(scale) => rounded(1.0 / (scale * scale)),
            None if layers == LARGEST => {
                rounded(keys.needed("embedding_length")? as f64 / shape.heads.max(1) as f64)
            }
            None => shape.head.into(),
        };

        config.insert("query_pre_attn_scalar".into(), scalar);
        config.insert("hidden_activation".into(), "gelu_pytorch_tanh".into());
        for capping in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if let Some(cap) = keys.number(capping)?.filter(|cap| *cap != 0.0) {
                config.insert(capping.into(), cap.into());
            }
        }

        let types = match window {
            Some(_) => keys.windows(self, layers, 6)?,
            None => vec![false; layers.min(LAYERS)],
        };

        config.insert("sliding_window".into(), json!(window.unwrap_or(1)));
        config.insert("layer_types".into(), attention_types(&types));
        Ok(())
    }

    /// Adds the experts of Qwen3. A layer without a router has one MLP.
    fn of_experts(
        &self,
        keys: &Keys<'_>,
        experts: Option<usize>,
        layers: usize,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        /// Number of the format for a softmax over the experts.
        const SOFTMAX: usize = 1;
        if let Some(actual) = keys.size("expert_gating_func")?.filter(|actual| *actual != SOFTMAX) {
            let key = keys.key("expert_gating_func");
            return Err(format!("{key} is {actual}, expected {SOFTMAX}, a softmax"));
        }

        let scale = keys.number("expert_weights_scale")?;
        if let Some(actual) = scale.filter(|actual| *actual != 0.0 && *actual != 1.0) {
            return Err(format!("{} is {actual}, expected 1", keys.key("expert_weights_scale")));
        }

        let chosen = keys.needed("expert_used_count")?;
        // Older files state only the width of all chosen experts together.
        let inner = match keys.size("expert_feed_forward_length")? {
            Some(inner) => inner,
            None => keys.needed("feed_forward_length")? / chosen.max(1),
        };

        let dense = |layer: &usize| {
            !self.tensors().contains_key(&format!("model.layers.{layer}.mlp.gate.weight"))
        };
        let dense: Vec<usize> = (0..layers.min(LAYERS)).filter(dense).collect();

        for (field, value) in [
            ("num_experts", experts.ok_or_else(|| keys.missing("expert_count"))?.into()),
            ("num_experts_per_tok", chosen.into()),
            ("moe_intermediate_size", inner.into()),
            ("norm_topk_prob", keys.flag("expert_weights_norm")?.unwrap_or(true).into()),
            ("decoder_sparse_step", 1.into()),
            ("mlp_only_layers", dense.into()),
        ] {
            config.insert(field.into(), value);
        }
        Ok(())
    }

    /// Adds the recurrences of Qwen3.5.
    fn of_recurrences(
        &self,
        keys: &Keys<'_>,
        layers: usize,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        const LIST: &str = "attention.recurrent_layers";

        let sizes = Recurrence::of(keys)?;
        let recurrent = match keys.flags(self, LIST, layers)? {
            Some(list) => list,
            None => {
                let every = keys.size("full_attention_interval")?.unwrap_or(4).max(1);
                (0..layers.min(LAYERS)).map(|layer| (layer + 1) % every != 0).collect()
            }
        };

        let kind =
            |recurrent: &bool| if *recurrent { "linear_attention" } else { "full_attention" };

        for (field, value) in [
            ("layer_types", recurrent.iter().map(kind).collect()),
            ("linear_num_key_heads", sizes.key_heads.into()),
            ("linear_num_value_heads", sizes.value_heads.into()),
            ("linear_key_head_dim", sizes.key_dim.into()),
            ("linear_value_head_dim", sizes.value_dim.into()),
            ("linear_conv_kernel_dim", Value::from(sizes.kernel)),
        ] {
            config.insert(field.into(), value);
        }
        Ok(())
    }
}

/// Lists the types of layers that have a window, or none.
fn attention_types(windows: &[bool]) -> Value {
    let kind = |window: &bool| if *window { "sliding_attention" } else { "full_attention" };
    windows.iter().map(kind).collect()
}

/// Returns a number as an integer if it only misses one by rounding.
fn rounded(number: f64) -> Value {
    let nearest = number.round();
    if (number - nearest).abs() <= 1e-4 * nearest { json!(nearest as u64) } else { json!(number) }
}
