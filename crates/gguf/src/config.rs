//! `config.json` and `generation_config.json`, made from the metadata.

use serde_json::{Map, Value, json};

use crate::{
    change::Recurrence,
    error::GgufError,
    family::{Family, ROTATES, SHARED, SIGMOIDS},
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

/// Factors of Granite: fields and keys.
pub(crate) const FACTORS: [(&str, &str); 4] = [
    ("attention_multiplier", "attention.scale"),
    ("embedding_multiplier", "embedding_scale"),
    ("residual_multiplier", "residual_scale"),
    ("logits_scaling", "logit_scale"),
];

/// Numbers of gpt-oss's MLP, which llama.cpp has in its code instead of a key.
pub(crate) const SWIGLU: [(&str, f64); 2] = [("swiglu_limit", 7.0), ("swiglu_alpha", 1.702)];

const WINDOW: &str = "attention.sliding_window";

/// Fields that tell whether there are biases, each with a map that has one, and the families that have the field.
const BIASES: [(&str, &str, &[Family]); 5] = [
    (
        "attention_bias",
        "self_attn.q_proj",
        &[
            Family::Llama,
            Family::SmolLm3,
            Family::Gemma3,
            Family::Olmo2,
            Family::Olmoe,
            Family::Qwen3Moe,
            Family::Qwen3Next,
            Family::Qwen35,
            Family::Qwen35Moe,
            Family::Granite,
            Family::GraniteHybrid,
            Family::Glm4,
            Family::Glm4Moe,
            Family::HunYuan,
            Family::SeedOss,
            Family::Arcee,
            Family::GptOss,
        ],
    ),
    ("attention_out_bias", "self_attn.o_proj", &[Family::SeedOss]),
    (
        "mlp_bias",
        "mlp.down_proj",
        &[Family::Llama, Family::SmolLm3, Family::Granite, Family::SeedOss, Family::Arcee],
    ),
    ("qkv_bias", "self_attn.q_proj", &[Family::Qwen2Moe]),
    ("use_bias", "self_attn.q_proj", &[Family::Ernie45]),
];

impl Gguf {
    /// Makes `config.json`.
    pub(crate) fn config(&self) -> Result<Value, GgufError> {
        let shape = Shape::of(self.metadata()).map_err(|problem| self.model(problem))?;
        let mut config = self.sizes(&shape).map_err(|problem| self.model(problem))?;
        if shape.family == Family::Gemma4 {
            let rope = self.proportional(&shape, &config)?;
            config["rope_parameters"]["full_attention"] = rope;
        } else if let Some(scaling) = self.scaling_in_tensors(&shape, &config)? {
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
        let mut known: Vec<(u64, &str)> = Vec::new();
        let mut id = 0;
        self.each_text(TOKENS_KEY, |token| {
            known.extend(ENDS.into_iter().find(|end| *end == token).map(|end| (id, end)));
            id += 1;
            Ok(())
        })?;

        // In Harmony, the format of gpt-oss, this token ends a message, after which the model goes on.
        let has = |text: &str| known.iter().any(|(_, known)| *known == text);
        let is_harmony = has("<|return|>") && has("<|call|>");
        for (id, text) in known {
            if is_harmony && text == "<|end|>" {
                ends.retain(|end| *end != id);
            } else if !ends.contains(&id) {
                ends.push(id);
            }
        }

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
        if experts.is_some() && shape.family.experts().is_none() {
            return Err(format!(
                "it is a mixture of experts of the architecture {}, which is not read from GGUF; expected \
                 llama, qwen2moe, qwen3moe, qwen3next, qwen35moe, olmoe, glm4moe, minimax-m2 or gpt-oss",
                shape.name
            ));
        }

        // The converter then changes the order of queries and keys.
        let sections = keys.key("rope.dimension_sections");
        let is_glm = matches!(shape.family, Family::Glm4 | Family::Glm4Moe);
        if is_glm && self.metadata().get(&sections).is_some() {
            return Err(format!(
                "it has {sections}, so it is the text part of a model that sees pictures, which is not read from GGUF"
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
        // llama.cpp passes over that of Gemma 4, whose scores are not scaled.
        let with_own = [Family::Gemma3, Family::Gemma4, Family::Granite, Family::GraniteHybrid];
        let scale = scale.filter(|_| !with_own.contains(&shape.family));
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
            Family::Llama
            | Family::Mixtral
            | Family::Gemma3
            | Family::Gemma4
            | Family::Olmo2
            | Family::Phi3
            | Family::Exaone4
            | Family::Lfm2
            | Family::GptOss => keys.size(WINDOW)?.filter(|&window| window > 0),
            _ => None,
        };

        let layers = keys.layers()?;
        let (model_type, class) = shape.family.class(window.is_some());
        let epsilon = keys.number(EPSILON)?.ok_or_else(|| keys.missing(EPSILON))?;

        let mut config = Map::new();
        let mut set = |field: &str, value: Value| drop(config.insert(field.into(), value));
        for (field, key) in SIZES {
            // These have no MLP besides their experts: a file of Qwen3.5 has no width of one, and llama.cpp passes over
            // that of gpt-oss.
            let key = match shape.family {
                Family::Qwen35Moe | Family::GptOss if key == "feed_forward_length" => {
                    "expert_feed_forward_length"
                }
                _ => key,
            };
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

        for (field, map, _) in BIASES.iter().filter(|(.., of)| of.contains(&shape.family)) {
            set(field, bias(map).into());
        }

        match shape.family {
            Family::Llama if window.is_none() => {}
            Family::Llama | Family::Mixtral | Family::Phi3 => set("sliding_window", json!(window)),
            Family::Gemma => set("hidden_activation", "gelu_pytorch_tanh".into()),
            _ => {}
        }

        if shape.family.experts().is_some() {
            self.of_experts(&keys, shape.family, experts, &mut config)?;
        }

        match shape.family {
            Family::Gemma3 => self.of_gemma3(&keys, shape, window, &mut config)?,
            Family::Gemma4 => self.of_gemma4(&keys, shape, window, &mut config)?,
            Family::Olmo2 if window.is_none() => {}
            Family::Olmo2 | Family::Exaone4 => self.of_windows(&keys, window, 4, &mut config)?,
            Family::Granite | Family::GraniteHybrid => of_granite(&keys, shape, &mut config)?,
            Family::Qwen3Next | Family::Qwen35 | Family::Qwen35Moe => {
                self.of_recurrences(&keys, layers, &mut config)?;
            }
            Family::Lfm2 => self.of_convolutions(&keys, window, &mut config)?,
            Family::GptOss => self.of_gpt_oss(&keys, window, &mut config)?,
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
            Family::Gemma4 => {
                if scaling.is_some() {
                    let key = keys.key("rope.scaling.factor");
                    return Err(format!("it has {key}, and no Gemma 4 with it is read from GGUF"));
                }
                let local = keys.number("rope.freq_base_swa")?;
                let local = local.map_or(config["rope_theta"].clone(), Into::into);
                // The rope of the other layers is in a tensor.
                let ropes = json!({
                    "sliding_attention": { "rope_type": "default", "rope_theta": local },
                });
                config.insert("rope_parameters".into(), ropes);
            }
            Family::Ministral3 => {
                let rope = rope::growing(&keys, scaling, &config)?;
                config.insert("rope_parameters".into(), rope);
            }
            Family::GptOss => {
                // A config.json that is silent would mean the scaling of the published models.
                let scaling = scaling.unwrap_or(json!({ "rope_type": "default" }));
                config.insert("rope_scaling".into(), scaling);
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

        self.of_windows(keys, window, 6, config)?;
        config.insert("sliding_window".into(), json!(window.unwrap_or(1)));
        Ok(())
    }

    /// Adds the fields that only Gemma 4 has. In a file, the sizes of heads without a mark are those of layers that see
    /// everything, and the number of key heads is listed layer by layer.
    fn of_gemma4(
        &self,
        keys: &Keys<'_>,
        shape: &Shape,
        window: Option<usize>,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let layers = keys.layers()?;
        let window = window.ok_or_else(|| keys.missing("attention.sliding_window"))?;
        let mut windows = keys.windows(self, layers, 6)?;
        // As in transformers, the last layer sees everything.
        if let Some(last) = windows.last_mut() {
            *last = false;
        }

        let head = keys.needed("attention.key_length_swa")?;
        for key in ["attention.value_length_swa", "rope.dimension_count_swa"] {
            let actual = keys.size(key)?.unwrap_or(head);
            if actual != head {
                return Err(format!(
                    "{} is {actual}, expected {head}, the size of a head with a window",
                    keys.key(key)
                ));
            }
        }

        let key_heads = self.key_heads_of(keys, shape, &windows, true)?;
        let global_key_heads = self.key_heads_of(keys, shape, &windows, false)?;
        let has_values = |layer: usize| {
            self.tensors().contains_key(&format!("model.layers.{layer}.self_attn.v_proj.weight"))
        };
        let global = windows.iter().position(|windowed| !windowed);
        let values_are_keys = global.is_some_and(|layer| !has_values(layer));

        let per_layer_input = keys.size("embedding_length_per_layer_input")?.unwrap_or(0);
        let per_layer_rows = match self.tensors().get("model.embed_tokens_per_layer.weight") {
            Some(table) => Some(table.shape[0]),
            None if per_layer_input == 0 => None,
            None => return Err("it has no per_layer_token_embd.weight".into()),
        };
        let shared_layers = keys.size("attention.shared_kv_layers")?.unwrap_or(0);
        let double_wide = self.shared_layers_are_wide(keys, layers, shared_layers)?;
        for (field, value) in [
            ("attention_k_eq_v", values_are_keys.into()),
            ("global_head_dim", shape.head.into()),
            ("head_dim", head.into()),
            ("hidden_activation", "gelu_pytorch_tanh".into()),
            ("hidden_size_per_layer_input", per_layer_input.into()),
            ("layer_types", attention_types(&windows)),
            ("num_global_key_value_heads", global_key_heads.into()),
            ("num_key_value_heads", key_heads.into()),
            ("num_kv_shared_layers", shared_layers.into()),
            ("sliding_window", Value::from(window)),
            ("use_double_wide_mlp", double_wide.into()),
        ] {
            config.insert(field.into(), value);
        }
        if let Some(rows) = per_layer_rows {
            config.insert("vocab_size_per_layer_input".into(), rows.into());
        }
        if let Some(cap) = keys.number("final_logit_softcapping")?.filter(|cap| *cap != 0.0) {
            config.insert("final_logit_softcapping".into(), cap.into());
        }

        // The class looks at num_global_key_value_heads only if values are keys.
        if !values_are_keys && global_key_heads != key_heads {
            let own = json!({ "head_dim": shape.head, "num_key_value_heads": global_key_heads });
            let global = windows.iter().enumerate().filter(|(_, windowed)| !**windowed);
            let by_layer: Map<String, Value> =
                global.map(|(layer, _)| (layer.to_string(), own.clone())).collect();
            config.insert("per_layer_config".into(), by_layer.into());
        }
        Ok(())
    }

    /// Tells whether the MLPs of the last `shared` layers are twice as wide as the others. A file whose MLPs are all
    /// alike has one width instead of a list.
    fn shared_layers_are_wide(
        &self,
        keys: &Keys<'_>,
        layers: usize,
        shared: usize,
    ) -> Result<bool, String> {
        let widths = self.mlp_widths();
        let (Some(first), Some(last)) = (widths.first(), widths.last()) else { return Ok(false) };

        let own = layers.saturating_sub(shared);
        let expected = |layer: usize| if layer < own { first } else { last };
        let fits = (0..widths.len()).all(|layer| widths[layer] == *expected(layer));
        if widths.len() == layers && fits && (last == first || *last == 2.0 * first) {
            return Ok(last != first);
        }
        Err(format!(
            "{:?} should have one width for each of {layers} layers, the same in all of them or twice as wide in the \
             last {shared}",
            keys.key("feed_forward_length")
        ))
    }

    /// Returns the number of key heads that all layers with a window have, or all others.
    fn key_heads_of(
        &self,
        keys: &Keys<'_>,
        shape: &Shape,
        windows: &[bool],
        windowed: bool,
    ) -> Result<usize, String> {
        let key = keys.key("attention.head_count_kv");
        let listed = self.key_heads();
        if !listed.is_empty() && listed.len() != windows.len() {
            let count = listed.len();
            let layers = windows.len();
            return Err(format!(
                "{key:?} has {count} numbers, expected one for each of {layers} layers"
            ));
        }

        let of_type = windows.iter().zip(listed).filter(|(it, _)| **it == windowed);
        let mut heads = of_type.map(|(_, heads)| *heads as usize);
        let first = heads.next().unwrap_or(shape.kv_heads);
        if heads.all(|heads| heads == first) {
            Ok(first)
        } else {
            Err(format!("{key:?} has different numbers for layers of one type"))
        }
    }

    /// Adds the window, and which layers have it: all but every one of `usual`, if the file does not say it.
    fn of_windows(
        &self,
        keys: &Keys<'_>,
        window: Option<usize>,
        usual: usize,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let layers = keys.layers()?;
        let types = match window {
            Some(_) => keys.windows(self, layers, usual)?,
            None => vec![false; layers.min(LAYERS)],
        };

        config.insert("sliding_window".into(), json!(window));
        config.insert("layer_types".into(), attention_types(&types));
        Ok(())
    }

    /// Adds the fields that only gpt-oss has. Every other layer has the window, from the first on.
    fn of_gpt_oss(
        &self,
        keys: &Keys<'_>,
        window: Option<usize>,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let window = window.ok_or_else(|| keys.missing(WINDOW))?;
        self.of_windows(keys, Some(window), 2, config)?;
        for (field, number) in SWIGLU {
            config.insert(field.into(), number.into());
        }
        Ok(())
    }

    /// Adds the experts. A layer of Qwen's models without a router has one MLP.
    fn of_experts(
        &self,
        keys: &Keys<'_>,
        family: Family,
        experts: Option<usize>,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        // Numbers of the format for a softmax over all experts, for a sigmoid, and for a softmax over the chosen ones.
        let (expected, function) = match family {
            Family::GptOss => (3, "a softmax"),
            _ if SIGMOIDS.contains(&family) => (2, "a sigmoid"),
            _ => (1, "a softmax"),
        };
        if let Some(actual) = keys.size("expert_gating_func")?.filter(|actual| *actual != expected)
        {
            let key = keys.key("expert_gating_func");
            return Err(format!("{key} is {actual}, expected {expected}, {function}"));
        }

        let scale = keys.number("expert_weights_scale")?.filter(|scale| *scale != 0.0);
        if let Some(actual) = scale.filter(|scale| family != Family::Glm4Moe && *scale != 1.0) {
            return Err(format!("{} is {actual}, expected 1", keys.key("expert_weights_scale")));
        }

        let mut set = |field: &str, value: Value| drop(config.insert(field.into(), value));
        let chosen = keys.needed("expert_used_count")?;
        let experts = experts.ok_or_else(|| keys.missing("expert_count"))?;
        set(family.experts().unwrap_or_default(), experts.into());
        set("num_experts_per_tok", chosen.into());
        if matches!(family, Family::Mixtral | Family::GptOss | Family::MiniMaxM2) {
            return Ok(());
        }
        if family == Family::Glm4Moe {
            return self.of_glm4_moe(keys, scale, config);
        }

        // In llama.cpp the weights of the chosen experts sum to 1 from Qwen3 on, and not in Qwen2 and OLMoE.
        let sums = !matches!(family, Family::Qwen2Moe | Family::Olmoe);
        let sums = keys.flag("expert_weights_norm")?.unwrap_or(sums);
        set("norm_topk_prob", sums.into());
        if family == Family::Olmoe {
            return Ok(());
        }

        // Older files state only the width of all chosen experts together.
        let width = keys.size("feed_forward_length")?.unwrap_or_default();
        let inner = keys.size("expert_feed_forward_length")?.unwrap_or(width / chosen.max(1));
        let dense = |layer: &usize| {
            !self.tensors().contains_key(&format!("model.layers.{layer}.mlp.gate.weight"))
        };
        let dense: Vec<usize> = (0..keys.layers()?.min(LAYERS)).filter(dense).collect();
        set("moe_intermediate_size", inner.into());
        set("decoder_sparse_step", 1.into());
        set("mlp_only_layers", dense.into());

        if SHARED.contains(&family) {
            let shared = keys.size("expert_shared_feed_forward_length")?.unwrap_or(width);
            set("shared_expert_intermediate_size", shared.into());
        }
        Ok(())
    }

    /// Adds what only GLM-4.5 has of experts. The weights of the chosen experts are multiplied by `scale`, if there is
    /// one.
    fn of_glm4_moe(
        &self,
        keys: &Keys<'_>,
        scale: Option<f64>,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let dense = keys.size("leading_dense_block_count")?.unwrap_or(0);
        let normed = "model.layers.0.self_attn.q_norm.weight";
        for (field, value) in [
            ("first_k_dense_replace", dense.into()),
            ("moe_intermediate_size", keys.needed("expert_feed_forward_length")?.into()),
            ("n_shared_experts", keys.needed("expert_shared_count")?.into()),
            // Without these keys, llama.cpp neither divides the weights by their sum nor multiplies them.
            ("norm_topk_prob", keys.flag("expert_weights_norm")?.unwrap_or(false).into()),
            ("routed_scaling_factor", scale.unwrap_or(1.0).into()),
            ("use_qk_norm", self.tensors().contains_key(normed).into()),
            // Blocks that predict further tokens are not read.
            ("num_nextn_predict_layers", Value::from(0)),
        ] {
            config.insert(field.into(), value);
        }
        Ok(())
    }

    /// Adds the recurrences of Qwen3-Next and Qwen3.5.
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

    /// Adds the fields that only LFM2 has. A layer without key heads has a convolution instead of attention, and the
    /// width of the MLP is rounded already.
    fn of_convolutions(
        &self,
        keys: &Keys<'_>,
        window: Option<usize>,
        config: &mut Map<String, Value>,
    ) -> Result<(), String> {
        if let Some(window) = window {
            let key = keys.key(WINDOW);
            return Err(format!("{key} is {window}, and no LFM2 with a window is read from GGUF"));
        }

        let layers = keys.layers()?;
        let heads = self.key_heads();
        if !heads.is_empty() && heads.len() != layers {
            let key = keys.key("attention.head_count_kv");
            let count = heads.len();
            return Err(format!(
                "{key:?} has {count} numbers, expected one for each of {layers} layers"
            ));
        }

        let convolves = |layer: usize| heads.get(layer).is_some_and(|heads| *heads == 0.0);
        let kind = |layer| if convolves(layer) { "conv" } else { "full_attention" };
        let epsilon = config["rms_norm_eps"].clone();
        for (field, value) in [
            ("layer_types", (0..layers.min(LAYERS)).map(kind).collect()),
            ("conv_L_cache", keys.needed("shortconv.l_cache")?.into()),
            ("block_auto_adjust_ff_dim", false.into()),
            ("norm_eps", epsilon),
        ] {
            config.insert(field.into(), value);
        }
        Ok(())
    }
}

/// Adds the factors of Granite, and what only Granite 4 has. What a file leaves out is 1, and for the scores what they
/// have in other families, as in llama.cpp.
fn of_granite(
    keys: &Keys<'_>,
    shape: &Shape,
    config: &mut Map<String, Value>,
) -> Result<(), String> {
    for (field, key) in FACTORS {
        let factor = keys.number(key)?.filter(|factor| *factor != 0.0);
        let usual = match field {
            "attention_multiplier" => 1.0 / (shape.head.max(1) as f64).sqrt(),
            _ => 1.0,
        };
        config.insert(field.into(), factor.unwrap_or(usual).into());
    }

    if shape.family == Family::GraniteHybrid {
        let rotates = keys.flag(ROTATES)?.unwrap_or(true);
        let positions = if rotates { "rope" } else { "nope" };
        config.insert("position_embedding_type".into(), positions.into());
        let types = vec!["attention"; keys.layers()?.min(LAYERS)];
        config.insert("layer_types".into(), types.into());
        config.insert("num_local_experts".into(), 0.into());
        // Sizes of recurrent layers, which transformers checks even if there are none.
        config.insert("mamba_expand".into(), 1.into());
        config.insert("mamba_n_heads".into(), 1.into());
        let width = config["intermediate_size"].clone();
        config.insert("shared_intermediate_size".into(), width);
    }
    Ok(())
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
