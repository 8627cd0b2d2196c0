//! GGUF files as llama.cpp's converter writes them, and files that are wrong in one place.

#![allow(clippy::unwrap_used, reason = "what cannot be written fails the test")]

use std::{collections::BTreeMap, path::Path};

use burn::tensor::Device;
use firebrick_gguf::BlockType;
use firebrick_models::{
    Decoder, DecoderConfig, Family, KvSharing, LayerKind, RopeKind, RopeScaling, RouterScores,
    load, named_tensors, parameters,
};
use serde_json::Value;

/// A file to be written: keys with their values and tensors with their bytes, in their order.
#[derive(Clone, Default)]
pub struct GgufFile {
    /// Bytes that the file begins with.
    pub magic: [u8; 4],
    /// Version that the file claims.
    pub version: u32,
    /// Number of keys that the file claims; the true number if this is `None`.
    pub says_keys: Option<u64>,
    /// Number of tensors that the file claims; the true number if this is `None`.
    pub says_tensors: Option<u64>,
    /// Each key with the type and the bytes of its value.
    pub keys: Vec<(String, u32, Vec<u8>)>,
    /// Tensors, in their order.
    pub tensors: Vec<TensorOfFile>,
    /// Alignment: offsets of tensors are multiples of it.
    pub align: u64,
}

/// A tensor of a file to be written.
#[derive(Clone)]
pub struct TensorOfFile {
    /// Its name.
    pub name: String,
    /// Its type, as the format numbers it.
    pub kind: u32,
    /// Its sizes, the innermost first.
    pub sizes: Vec<u64>,
    /// Its values.
    pub bytes: Vec<u8>,
    /// Offset at which it claims to begin; the true one if this is `None`.
    pub says_at: Option<u64>,
}

/// Tells whether a file can describe such a model completely: llama.cpp fixes which layers of SmolLM3 rotate
/// nothing, and gives no layer of Qwen2 with experts a window.
pub fn can_be_written(config: &DecoderConfig) -> bool {
    let ropes = |(layer, kind): (usize, &LayerKind)| {
        (kind.rope == RopeKind::None) == ((layer + 1) % 4 == 0)
    };
    match config.family {
        Family::SmolLm3 => config.kinds.iter().enumerate().all(ropes),
        Family::Qwen2Moe => config.kinds.iter().all(|kind| kind.window.is_none()),
        Family::GptOss => config.swiglu_clamp.is_none_or(|clamp| clamp.limit == 7.0),
        _ => true,
    }
}

/// Tells whether the converter passes over the width of a head, or finds none: a head then has its share of the hidden
/// size.
pub fn shares_the_width(family: Family) -> bool {
    matches!(
        family,
        Family::Phi3
            | Family::Qwen2Moe
            | Family::Olmoe
            | Family::Granite
            | Family::GraniteHybrid
            | Family::Lfm2
    )
}

impl GgufFile {
    /// Makes an empty file.
    pub fn new() -> Self {
        GgufFile { magic: *b"GGUF", version: 3, align: 32, ..GgufFile::default() }
    }

    /// Adds a text.
    pub fn text(&mut self, key: &str, text: &str) {
        self.key(key, 8, text_bytes(text));
    }

    /// Adds a number of 32 bits.
    pub fn number(&mut self, key: &str, number: u32) {
        self.key(key, 4, number.to_le_bytes().to_vec());
    }

    /// Adds a number with a fraction.
    pub fn float(&mut self, key: &str, number: f32) {
        self.key(key, 6, number.to_le_bytes().to_vec());
    }

    /// Adds an array of texts.
    pub fn texts<'a>(&mut self, key: &str, texts: impl IntoIterator<Item = &'a str>) {
        let texts: Vec<Vec<u8>> = texts.into_iter().map(text_bytes).collect();
        self.key(key, 9, array_bytes(8, texts.len() as u64, &texts.concat()))
    }

    /// Adds an array of numbers of 32 bits.
    pub fn numbers(&mut self, key: &str, numbers: &[i32]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.key(key, 9, array_bytes(5, numbers.len() as u64, &bytes))
    }

    /// Adds an array of flags.
    pub fn flags(&mut self, key: &str, flags: impl IntoIterator<Item = u8>) {
        let flags: Vec<u8> = flags.into_iter().collect();
        self.key(key, 9, array_bytes(7, flags.len() as u64, &flags));
    }

    /// Adds a key, or replaces it.
    pub fn key(&mut self, key: &str, kind: u32, bytes: Vec<u8>) {
        self.keys.retain(|(known, ..)| known != key);
        self.keys.push((key.to_owned(), kind, bytes));
    }

    /// Adds a tensor in f32. `shape` is its shape in a model folder.
    pub fn tensor(&mut self, name: &str, shape: &[usize], values: &[f32]) {
        self.tensors.push(TensorOfFile {
            name: name.to_owned(),
            kind: 0,
            sizes: shape.iter().rev().map(|&size| size as u64).collect(),
            bytes: values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            says_at: None,
        });
    }

    /// Writes the bytes of the file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = [&self.magic[..], &self.version.to_le_bytes()].concat();
        let counts = [
            self.says_tensors.unwrap_or(self.tensors.len() as u64),
            self.says_keys.unwrap_or(self.keys.len() as u64),
        ];
        file.extend(counts.iter().flat_map(|count| count.to_le_bytes()));

        for (key, kind, value) in &self.keys {
            file.extend(text_bytes(key));
            file.extend(kind.to_le_bytes());
            file.extend(value);
        }

        // Each tensor's offset counts from the end of the header, so the descriptions all come before the data.
        let mut at = 0u64;
        for tensor in &self.tensors {
            file.extend(text_bytes(&tensor.name));
            file.extend((tensor.sizes.len() as u32).to_le_bytes());
            file.extend(tensor.sizes.iter().flat_map(|size| size.to_le_bytes()));
            file.extend(tensor.kind.to_le_bytes());
            file.extend(tensor.says_at.unwrap_or(at).to_le_bytes());
            at = (at + tensor.bytes.len() as u64).next_multiple_of(self.align);
        }

        for tensor in &self.tensors {
            file.resize(file.len().next_multiple_of(self.align as usize), 0);
            file.extend(&tensor.bytes);
        }
        file
    }

    /// Makes a file of the model in a folder, as the converter writes it in f32. If `pre` is given, the file
    /// has the folder's tokenizer, whose texts are cut by the rules of that name.
    pub fn of_folder(folder: &Path, pre: Option<&str>) -> Self {
        let decoder = load(folder, &Device::flex()).unwrap();
        let config = decoder.config().clone();
        let name = match config.family {
            Family::Llama | Family::Mistral | Family::Mixtral => "llama",
            Family::Ministral3 => "mistral3",
            Family::Qwen2 => "qwen2",
            Family::Qwen2Moe => "qwen2moe",
            Family::Qwen3 => "qwen3",
            Family::Qwen3Moe => "qwen3moe",
            Family::Qwen3Next => "qwen3next",
            Family::Qwen35 => "qwen35",
            Family::Qwen35Moe => "qwen35moe",
            Family::Gemma => "gemma",
            Family::Gemma3 => "gemma3",
            Family::Gemma4 => "gemma4",
            Family::SmolLm3 => "smollm3",
            Family::Olmo2 | Family::Olmo3 => "olmo2",
            Family::Olmoe => "olmoe",
            Family::Phi3 => "phi3",
            // Without recurrent layers, Granite 4 has the architecture of Granite 3.
            Family::Granite | Family::GraniteHybrid => "granite",
            Family::Glm4 => "glm4",
            Family::Glm4Moe => "glm4moe",
            Family::MiniMaxM2 => "minimax-m2",
            Family::Ernie45 => "ernie4_5",
            Family::Exaone4 => "exaone4",
            Family::HunYuan => "hunyuan-dense",
            Family::SeedOss => "seed_oss",
            Family::Arcee => "arcee",
            Family::Lfm2 => "lfm2",
            Family::GptOss => "gpt-oss",
        };

        let mut file = GgufFile::new();
        file.text("general.architecture", name);
        for (key, size) in [
            ("block_count", config.layers),
            ("context_length", config.max_position_embeddings),
            ("embedding_length", config.hidden_size),
            ("feed_forward_length", config.intermediate_size),
            ("attention.head_count", config.heads),
            ("attention.head_count_kv", config.kv_heads),
        ] {
            file.number(&format!("{name}.{key}"), size as u32);
        }

        if config.family == Family::Qwen35Moe {
            // The folder has no width of an MLP besides the experts, so the converter writes none.
            file.keys.retain(|(key, ..)| !key.ends_with(".feed_forward_length"));
        }
        if let Some(tokens) = config.convolution {
            file.number(&format!("{name}.shortconv.l_cache"), tokens as u32);
            let attends = config.kinds.iter().map(|kind| i32::from(!kind.recurrent));
            let key_heads: Vec<i32> = attends.map(|it| it * config.kv_heads as i32).collect();
            file.numbers(&format!("{name}.attention.head_count_kv"), &key_heads);
        }

        if !shares_the_width(config.family) {
            file.number(&format!("{name}.attention.key_length"), config.head_dim as u32);
        }
        file.float(&format!("{name}.rope.freq_base"), config.rope.theta as f32);
        let epsilon = format!("{name}.attention.layer_norm_rms_epsilon");
        file.float(&epsilon, config.norm_epsilon as f32);

        let window = config.kinds.iter().find_map(|kind| kind.window);
        if let Some(window) = window.filter(|_| config.family != Family::Qwen2) {
            file.number(&format!("{name}.attention.sliding_window"), window as u32);
        }

        if let Some(local) = &config.local_rope {
            file.float(&format!("{name}.rope.freq_base_swa"), local.theta as f32);
        }
        if config.local_rope.is_some() || (config.family == Family::Exaone4 && window.is_some()) {
            let windows = config.kinds.iter().map(|kind| u8::from(kind.window.is_some()));
            file.flags(&format!("{name}.attention.sliding_window_pattern"), windows);
        }

        if name == "granite" {
            // The model has the whole scale beyond 1/√head_dim, and the inverse of what the logits are divided by.
            let scale = config.query_scale / (config.head_dim as f64).sqrt();
            for (key, factor) in [
                ("attention.scale", scale),
                ("embedding_scale", config.embedding_scale),
                ("residual_scale", config.residual_scale),
                ("logit_scale", 1.0 / config.logit_scale),
            ] {
                file.float(&format!("{name}.{key}"), factor as f32);
            }
        }
        if config.family == Family::GraniteHybrid {
            // The converter takes it that all models without recurrent layers rotate, and llama.cpp asks this key.
            let rotates = config.kinds.iter().all(|kind| kind.rope != RopeKind::None);
            file.key("granite.rope.scaling.finetuned", 7, vec![u8::from(rotates)]);
            // It lists the key heads of each layer, although all are alike.
            let key_heads = vec![config.kv_heads as i32; config.layers];
            file.numbers("granite.attention.head_count_kv", &key_heads);
        }

        if let Some(growth) = &config.query_growth {
            file.float(&format!("{name}.attention.temperature_scale"), growth.beta as f32);
        }

        if config.family == Family::Gemma3 && config.query_scale != 1.0 {
            // A file has the whole scale, and the model only its part beyond 1/√head_dim.
            let scale = config.query_scale / (config.head_dim as f64).sqrt();
            file.float(&format!("{name}.attention.scale"), scale as f32);
        }
        if let Some(global) = config.global_heads {
            let reuses = |kind: &&LayerKind| kind.kv == KvSharing::Reuse;
            let shared = config.kinds.iter().filter(reuses).count();
            // Keys without a mark are of layers that see everything.
            for (key, size) in [
                ("attention.key_length", global.head_dim),
                ("attention.value_length", global.head_dim),
                ("attention.key_length_swa", config.head_dim),
                ("attention.value_length_swa", config.head_dim),
                ("attention.shared_kv_layers", shared),
                ("embedding_length_per_layer_input", config.per_layer.map_or(0, |it| it.width)),
                ("rope.dimension_count", global.head_dim),
                ("rope.dimension_count_swa", config.head_dim),
            ] {
                file.number(&format!("{name}.{key}"), size as u32);
            }
            let key_heads: Vec<i32> =
                config.kinds.iter().map(|kind| config.heads_of(*kind).key as i32).collect();
            file.numbers(&format!("{name}.attention.head_count_kv"), &key_heads);
            if config.double_wide_mlp {
                let widths = config.kinds.iter().map(|kind| config.mlp_width(*kind) as i32);
                let widths: Vec<i32> = widths.collect();
                file.numbers(&format!("{name}.feed_forward_length"), &widths);
            }
        }
        if let Some(cap) = config.logit_cap {
            file.float(&format!("{name}.final_logit_softcapping"), cap as f32);
        }

        if config.rope.share != 1.0 && config.global_heads.is_none() {
            let rotated = (config.rope.share * config.head_dim as f64).round();
            file.number(&format!("{name}.rope.dimension_count"), rotated as u32);
        }

        if let Some(experts) = config.experts {
            for (key, size) in [
                ("expert_count", experts.count),
                ("expert_used_count", experts.chosen),
                ("expert_feed_forward_length", experts.inner),
                (
                    "expert_shared_feed_forward_length",
                    experts.shared.filter(|shared| shared.gated).map_or(0, |shared| shared.inner),
                ),
            ] {
                // The experts of other families are as wide as the key for a single MLP says.
                let has_key = name.starts_with("qwen")
                    || ["gpt-oss", "glm4moe", "minimax-m2"].contains(&name);
                if (has_key && size > 0) || !key.ends_with("length") {
                    file.number(&format!("{name}.{key}"), size as u32);
                }
            }

            if let RouterScores::Sigmoid { scale } = experts.scores {
                file.number(&format!("{name}.expert_gating_func"), 2);
                if let Some(shared) = experts.shared {
                    let dense = config.kinds.iter().filter(|kind| !kind.sparse).count();
                    let shared = shared.inner / experts.inner;
                    file.number(&format!("{name}.leading_dense_block_count"), dense as u32);
                    file.number(&format!("{name}.expert_shared_count"), shared as u32);
                    file.float(&format!("{name}.expert_weights_scale"), scale as f32);
                    let normalised = vec![u8::from(experts.normalised)];
                    file.key(&format!("{name}.expert_weights_norm"), 7, normalised);
                }
            }
        }

        if let Some(delta) = config.delta {
            for (key, size) in [
                ("conv_kernel", delta.kernel),
                ("state_size", delta.key_dim),
                ("group_count", delta.key_heads),
                ("time_step_rank", delta.value_heads),
                ("inner_size", delta.value_heads * delta.value_dim),
            ] {
                file.number(&format!("{name}.ssm.{key}"), size as u32);
            }
            let recurrent = config.kinds.iter().map(|kind| u8::from(kind.recurrent));
            file.flags(&format!("{name}.attention.recurrent_layers"), recurrent);
        }

        match &config.rope.scaling {
            RopeScaling::None => {}
            RopeScaling::Linear { factor } => {
                file.float(&format!("{name}.rope.scaling.factor"), *factor as f32);
            }
            RopeScaling::Proportional { factor } => {
                let head = config.global_heads.map_or(config.head_dim, |it| it.head_dim);
                let rotated = (config.rope.share * head as f64) as usize / 2;
                let divisor = |pair| if pair < rotated { *factor as f32 } else { 1e30 };
                let divisors: Vec<f32> = (0..head / 2).map(divisor).collect();
                file.tensor("rope_freqs.weight", &[divisors.len()], &divisors);
            }
            RopeScaling::Llama3(scaling) => {
                let context = scaling.original_max_position_embeddings as u32;
                file.number(&format!("{name}.rope.scaling.original_context_length"), context);
                file.tensor("rope_freqs.weight", &[config.head_dim / 2], &factors(&config));
            }
            RopeScaling::Yarn(yarn) => {
                file.text(&format!("{name}.rope.scaling.type"), "yarn");
                let context = yarn.original_max_position_embeddings as u32;
                file.number(&format!("{name}.rope.scaling.original_context_length"), context);
                // Ministral 3 has a field by which the factor of queries and keys is made smaller.
                let grown = 0.1 * yarn.factor.ln();
                let attention = match config.family {
                    Family::Ministral3 => {
                        let smaller = ((grown + 1.0) / yarn.attention_factor - 1.0) / grown;
                        ("yarn_log_multiplier", smaller)
                    }
                    _ => ("yarn_attn_factor", yarn.attention_factor),
                };
                for (key, value) in [
                    ("factor", yarn.factor),
                    ("yarn_beta_fast", yarn.beta_fast),
                    ("yarn_beta_slow", yarn.beta_slow),
                    attention,
                ] {
                    file.float(&format!("{name}.rope.scaling.{key}"), value as f32);
                }
            }
            RopeScaling::LongRope(long) => {
                let context = long.original_max_position_embeddings as u32;
                file.number(&format!("{name}.rope.scaling.original_context_length"), context);
                let attention = long.attention_factor as f32;
                file.float(&format!("{name}.rope.scaling.attn_factor"), attention);
                for (key, factors) in [("long", &long.long_factor), ("short", &long.short_factor)] {
                    let factors: Vec<f32> = factors.iter().map(|factor| *factor as f32).collect();
                    let tensor = format!("rope_factors_{key}.weight");
                    file.tensor(&tensor, &[factors.len()], &factors);
                }
            }
            other => panic!("GGUF files do not say {other:?}"),
        }

        if let Some(pre) = pre {
            file.tokenizer(folder, pre, config.vocab_size as u64);
        }
        file.weights(&decoder);
        file
    }

    /// Makes a file of a few kilobytes with a tensor of every type, and with a tokenizer of scores or else of
    /// merges. Its keys are all that a model of one layer needs, although its tensors are not those of such a model.
    pub fn of_every_type(architecture: &str, scores: bool) -> Self {
        let mut file = GgufFile::new();
        file.text("general.architecture", architecture);
        for (key, size) in [
            ("block_count", 1),
            ("context_length", 64),
            ("embedding_length", 256),
            ("feed_forward_length", 256),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            file.number(&format!("{architecture}.{key}"), size);
        }
        file.float(&format!("{architecture}.attention.layer_norm_rms_epsilon"), 1e-5);

        let tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "▁", "▁ab"];
        file.texts("tokenizer.ggml.tokens", tokens);
        file.numbers("tokenizer.ggml.token_type", &[2, 3, 3, 1, 1, 1, 1, 1]);

        if scores {
            file.text("tokenizer.ggml.model", "llama");
            let scores: Vec<u8> = (0..8).flat_map(|id| (-(id as f32)).to_le_bytes()).collect();
            file.key("tokenizer.ggml.scores", 9, array_bytes(6, 8, &scores));
        } else {
            file.text("tokenizer.ggml.model", "gpt2");
            file.text("tokenizer.ggml.pre", "smollm");
            file.texts("tokenizer.ggml.merges", ["a b", "▁ ab"]);
        }

        for (name, id) in [("unknown", 0), ("bos", 1), ("eos", 2)] {
            file.number(&format!("tokenizer.ggml.{name}_token_id"), id);
        }
        file.text("tokenizer.chat_template", "{{ messages[0].content }}");

        let recurs = ["qwen35", "qwen3next"].contains(&architecture);
        let has_experts =
            architecture.ends_with("moe") || ["qwen3next", "gpt-oss"].contains(&architecture);
        for (key, size) in [
            ("expert_count", 4),
            ("expert_used_count", 2),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 2),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 4),
            ("ssm.inner_size", 4),
        ] {
            let is_own = if key.starts_with("ssm") { recurs } else { has_experts };
            if is_own {
                file.number(&format!("{architecture}.{key}"), size);
            }
        }

        if has_experts {
            file.tensor("blk.0.ffn_gate_up_exps.weight", &[4, 2, 3], &[0.5; 24]);
            file.tensor("blk.0.ffn_gate_inp_shexp.weight", &[4], &[0.5; 4]);
        }
        if architecture == "gpt-oss" {
            file.number("gpt-oss.expert_feed_forward_length", 3);
            file.number("gpt-oss.attention.sliding_window", 7);
            file.tensor("blk.0.ffn_gate_up_exps.bias", &[4, 2], &[0.5; 8]);
            file.tensor("blk.0.attn_sinks.weight", &[4], &[0.5; 4]);
        }
        if architecture == "granite" {
            // Its gate and up, which are of two types, are one tensor in a folder.
            file.key("granite.rope.scaling.finetuned", 7, vec![1]);
        }
        if architecture == "lfm2" {
            file.numbers("lfm2.attention.head_count_kv", &[2]);
            file.number("lfm2.shortconv.l_cache", 3);
            file.tensor("blk.0.shortconv.conv.weight", &[4, 3], &[0.5; 12]);
        }
        if recurs {
            file.tensor("blk.0.ssm_conv1d.weight", &[12, 4], &[0.5; 48]);
            file.tensor("blk.0.ssm_out.weight", &[3, 4], &[0.5; 12]);
            file.tensor("blk.0.ssm_a", &[4], &[-0.5; 4]);
        }
        if architecture == "qwen3next" {
            // A folder has both as one.
            file.tensor("blk.0.attn_qkv.weight", &[12, 3], &[0.5; 36]);
            file.tensor("blk.0.attn_gate.weight", &[4, 3], &[0.5; 12]);
        }

        let names = [
            "token_embd",
            "output_norm",
            "blk.0.attn_norm",
            "blk.0.attn_q",
            "blk.0.attn_k",
            "blk.0.attn_v",
            "blk.0.attn_output",
            "blk.0.ffn_norm",
            "blk.0.ffn_gate",
            "blk.0.ffn_up",
            "blk.0.ffn_down",
            "output",
        ];

        for (name, kind) in names.into_iter().zip(BlockType::ALL) {
            let bytes = 8 * 256 / kind.values() * kind.bytes();
            file.tensors.push(TensorOfFile {
                name: format!("{name}.weight"),
                kind: kind.number(),
                sizes: vec![256, 8],
                // All exponents are small, whatever part of a block they are.
                bytes: (0..bytes).map(|at| (at * 7 % 60) as u8).collect(),
                says_at: None,
            });
        }
        file
    }

    fn weights(&mut self, decoder: &Decoder) {
        let config = decoder.config();
        // The matrices of all experts of a layer are one tensor, expert by expert, and so are their biases.
        let mut stacked: BTreeMap<String, (Vec<usize>, Vec<f32>)> = BTreeMap::new();
        for parameter in parameters(decoder) {
            let values = parameter.values.to_data().try_to_vec::<f32>().unwrap();
            for tensor in named_tensors(config, &parameter.path, &parameter.shape, &values) {
                if let Some(layer) = tensor.name.strip_suffix(".shared_mlp.input_linear.weight") {
                    let layer = layer.replace("model.layers", "blk");
                    let shape = [tensor.shape[0] / 2, tensor.shape[1]];
                    let (gate, up) = tensor.values.split_at(tensor.values.len() / 2);
                    self.tensor(&format!("{layer}.ffn_gate.weight"), &shape, gate);
                    self.tensor(&format!("{layer}.ffn_up.weight"), &shape, up);
                    continue;
                }
                if let Some(layer) = tensor.name.strip_suffix(".linear_attn.in_proj_qkvz.weight") {
                    let layer = layer.replace("model.layers", "blk");
                    let width = tensor.shape[1];
                    let [channels, gates] = by_kind(config, &tensor.values);
                    for (part, values) in [("attn_qkv", channels), ("attn_gate", gates)] {
                        let shape = [values.len() / width, width];
                        self.tensor(&format!("{layer}.{part}.weight"), &shape, &values);
                    }
                    continue;
                }

                let values = converted(config, &tensor.name, &tensor.shape, tensor.values);
                let name = in_file(config.family, &tensor.name);
                let mut shape = tensor.shape;
                // The file leaves out the size of 1 in a convolution's kernel.
                shape.retain(|&size| size != 1 || !name.contains("conv"));

                if let Some((layer, rest)) = name.split_once(".ffn_experts.") {
                    // The rest is the expert's number, the map, and `weight` or `bias`.
                    let (_, map) = rest.split_once('.').unwrap();
                    let map = map.replace('.', "_exps.");
                    let all = stacked.entry(format!("{layer}.ffn_{map}")).or_default();
                    all.0 = shape;
                    all.1.extend(values);
                    continue;
                }
                self.tensor(&name, &shape, &values);
            }
        }

        for (name, (shape, values)) in stacked {
            let count = values.len() / shape.iter().product::<usize>();
            self.tensor(&name, &[&[count], &shape[..]].concat(), &values);
        }
    }

    fn tokenizer(&mut self, folder: &Path, pre: &str, rows: u64) {
        let read = |name: &str| -> Value {
            serde_json::from_slice(&std::fs::read(folder.join(name)).unwrap()).unwrap()
        };
        let tokenizer = read("tokenizer.json");
        let special = read("special_tokens_map.json");

        // The format's types: 1 normal, 3 control, 4 added by the user, 5 unused.
        let mut tokens: Vec<(u64, String, i32)> = Vec::new();
        for token in tokenizer["added_tokens"].as_array().unwrap() {
            let kind = if token["special"].as_bool().unwrap() { 3 } else { 4 };
            let text = token["content"].as_str().unwrap().to_owned();
            tokens.push((token["id"].as_u64().unwrap(), text, kind));
        }
        for (text, id) in tokenizer["model"]["vocab"].as_object().unwrap() {
            let id = id.as_u64().unwrap();
            if tokens.iter().all(|(known, ..)| *known != id) {
                tokens.push((id, text.clone(), 1));
            }
        }
        tokens.sort();

        // The converter fills holes and the end with tokens that nobody writes.
        for id in 0..rows {
            if tokens.iter().all(|(known, ..)| *known != id) {
                tokens.push((id, format!("[PAD{id}]"), 5));
            }
        }
        tokens.sort();

        let merges: Vec<String> = tokenizer["model"]["merges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|merge| match merge {
                Value::Array(parts) => {
                    format!("{} {}", parts[0].as_str().unwrap(), parts[1].as_str().unwrap())
                }
                merge => merge.as_str().unwrap().to_owned(),
            })
            .collect();

        self.text("tokenizer.ggml.model", "gpt2");
        self.text("tokenizer.ggml.pre", pre);
        self.texts("tokenizer.ggml.tokens", tokens.iter().map(|(_, text, _)| text.as_str()));
        let kinds: Vec<i32> = tokens.iter().map(|(.., kind)| *kind).collect();
        self.numbers("tokenizer.ggml.token_type", &kinds);
        self.texts("tokenizer.ggml.merges", merges.iter().map(String::as_str));

        for (key, name) in [("eos", "eos_token"), ("bos", "bos_token"), ("padding", "pad_token")] {
            let text = special[name].as_str().or(special[name]["content"].as_str());
            let id = tokens.iter().find(|(_, token, _)| Some(token.as_str()) == text);
            if let Some((id, ..)) = id {
                self.number(&format!("tokenizer.ggml.{key}_token_id"), *id as u32);
            }
        }

        // A post-processor with a special token puts it before each text.
        let begins = tokenizer["post_processor"].to_string().contains("SpecialToken");
        self.key("tokenizer.ggml.add_bos_token", 7, vec![u8::from(begins)]);

        // A template is a file of its own, or stands in the tokenizer's configuration.
        let alone = std::fs::read_to_string(folder.join("chat_template.jinja")).ok();
        let config = read("tokenizer_config.json");
        let within = config["chat_template"].as_str().map(str::to_owned);
        if let Some(template) = alone.or(within) {
            self.text("tokenizer.chat_template", &template);
        }
    }
}

/// Returns a tensor's name in a GGUF file.
fn in_file(family: Family, name: &str) -> String {
    let behind_attention = match family {
        Family::Gemma3
        | Family::Gemma4
        | Family::Olmo2
        | Family::Olmo3
        | Family::Qwen3Next
        | Family::Qwen35
        | Family::Qwen35Moe
        | Family::Exaone4
        | Family::SeedOss
        | Family::Glm4Moe
        | Family::GptOss => "post_attention_norm",
        _ => "ffn_norm",
    };

    if let Some((layer, part)) = name.split_once(".conv.") {
        return format!("{}.shortconv.{part}", layer.replace("model.layers", "blk"));
    }

    // These keep a word that the others lose.
    if let Some(rest) = name.strip_prefix("model.per_layer_") {
        return format!("per_layer_{}", rest.replace("projection", "proj"));
    }

    let name = name
        .replace("model.embed_tokens_per_layer", "per_layer_token_embd")
        .replace("per_layer_input_gate", "inp_gate")
        .replace("per_layer_projection", "proj")
        .replace("post_per_layer_input_norm", "post_norm")
        .replace("model.embed_tokens", "token_embd")
        .replace("model.embedding_norm", "token_embd_norm")
        .replace("model.norm", "output_norm")
        .replace("lm_head", "output")
        .replace("model.layers.", "blk.")
        .replace("post_attention_layernorm", behind_attention)
        .replace("post_self_attn_layernorm", "post_attention_norm")
        .replace("post_mlp_layernorm", "post_ffw_norm")
        .replace("pre_feedforward_layernorm", "ffn_norm")
        .replace("post_feedforward_layernorm", "post_ffw_norm")
        .replace("input_layernorm", "attn_norm")
        .replace("operator_norm", "attn_norm")
        .replace("self_attn.sinks", "attn_sinks.weight")
        .replace("self_attn.o_proj", "attn_output")
        .replace("self_attn.out_proj", "attn_output")
        .replace("self_attn.query_layernorm", "attn_q_norm")
        .replace("self_attn.key_layernorm", "attn_k_norm")
        .replace("self_attn.q_layernorm", "attn_q_norm")
        .replace("self_attn.k_layernorm", "attn_k_norm")
        .replace("mlp.gate.e_score_correction_bias", "exp_probs_b.bias")
        .replace("block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias")
        .replace("mlp.gate.", "ffn_gate_inp.")
        .replace("mlp.router.", "ffn_gate_inp.")
        .replace("mlp.shared_expert_gate", "ffn_gate_inp_shexp")
        .replace("mlp.shared_experts.", "mlp.shared_expert.")
        .replace("mlp.shared_expert.gate_proj", "ffn_gate_shexp")
        .replace("mlp.shared_expert.up_proj", "ffn_up_shexp")
        .replace("mlp.shared_expert.down_proj", "ffn_down_shexp")
        .replace("block_sparse_moe.gate.", "ffn_gate_inp.")
        .replace("block_sparse_moe.experts", "ffn_experts")
        .replace(".w1.", ".gate.")
        .replace(".w2.", ".down.")
        .replace(".w3.", ".up.")
        .replace("feed_forward.", "ffn_")
        .replace("shared_mlp.output_linear", "ffn_down")
        .replace("mlp.gate_up_proj", "ffn_up")
        .replace("linear_attn.in_proj_qkv", "attn_qkv")
        .replace("linear_attn.in_proj_z", "attn_gate")
        .replace("linear_attn.in_proj_ba", "ssm_ba")
        .replace("linear_attn.in_proj_b", "ssm_beta")
        .replace("linear_attn.in_proj_a", "ssm_alpha")
        .replace("linear_attn.out_proj", "ssm_out")
        .replace("layer_scalar", "layer_output_scale.weight")
        .replace("linear_attn.dt_bias", "ssm_dt.bias")
        .replace("linear_attn.A_log", "ssm_a")
        .replace("linear_attn.", "ssm_");
    name.replace("self_attn.", "attn_").replace("mlp.", "ffn_").replace("_proj", "")
}

/// Converts a tensor's values to those of a GGUF file.
fn converted(config: &DecoderConfig, name: &str, shape: &[usize], values: Vec<f32>) -> Vec<f32> {
    if name.contains(".linear_attn.") {
        return of_recurrence(config, name, shape, values);
    }
    // llama.cpp multiplies by the norm's weight as it is, while these families add 1 to it first.
    let adds_one = matches!(
        config.family,
        Family::Gemma | Family::Gemma3 | Family::Qwen3Next | Family::Qwen35 | Family::Qwen35Moe
    );
    if adds_one && name.ends_with("norm.weight") {
        return values.into_iter().map(|value| value + 1.0).collect();
    }

    let paired = matches!(
        config.family,
        Family::Llama
            | Family::Mistral
            | Family::Mixtral
            | Family::Ministral3
            | Family::SmolLm3
            | Family::Granite
            | Family::GraniteHybrid
            | Family::Arcee
    );
    let heads = match name {
        _ if !paired => return values,
        name if name.contains("q_proj") => config.heads,
        name if name.contains("k_proj") => config.kv_heads,
        _ => return values,
    };

    // A head's rows, ordered by half and then by index, become rows by index and then by half.
    let half = shape[0] / heads / 2;
    let width = values.len() / shape[0];
    let mut interleaved = vec![0.0; values.len()];
    for row in 0..shape[0] {
        let head = row / (2 * half);
        let which = row / half % 2;
        let index = row % half;
        let to = (head * 2 * half + 2 * index + which) * width;
        interleaved[to..][..width].copy_from_slice(&values[row * width..][..width]);
    }
    interleaved
}

/// Converts the values of a recurrence's tensor. Heads of values that share a head of keys follow one another in a
/// folder, while in a file they are as far apart as there are heads of keys, except in Qwen3-Next.
fn of_recurrence(
    config: &DecoderConfig,
    name: &str,
    shape: &[usize],
    values: Vec<f32>,
) -> Vec<f32> {
    let delta = config.delta.unwrap();
    let keys = delta.key_heads;
    let shared = match config.family {
        Family::Qwen3Next => 1,
        _ => delta.value_heads / delta.key_heads,
    };
    let position = |head: usize| (head % shared) * keys + head / shared;

    let (before, of_head, by_column) = match name.split_once(".linear_attn.").unwrap().1 {
        "in_proj_qkv.weight" | "conv1d.weight" => (2 * delta.keys(), delta.value_dim, false),
        "in_proj_z.weight" => (0, delta.value_dim, false),
        "in_proj_b.weight" | "in_proj_a.weight" | "A_log" | "dt_bias" => (0, 1, false),
        "out_proj.weight" => (0, delta.value_dim, true),
        _ => return values,
    };
    let width = values.len() / shape[0];
    let mut moved = values.clone();

    for (index, value) in values.into_iter().enumerate() {
        let row = index / width;
        let column = index % width;
        let at = if by_column { column } else { row };
        let Some(number) = at.checked_sub(before) else { continue };
        let to = before + position(number / of_head) * of_head + number % of_head;
        let (row, column) = if by_column { (row, to) } else { (to, column) };
        moved[row * width + column] = value;
    }

    if name.ends_with("A_log") {
        return moved.into_iter().map(|value| -f64::from(value).exp() as f32).collect();
    }
    moved
}

/// Takes apart the first projection of Qwen3-Next's recurrence, in which a folder has one head of keys after the other:
/// first the rows of all queries, then those of all keys and of all values; and the rows of all gates.
fn by_kind(config: &DecoderConfig, values: &[f32]) -> [Vec<f32>; 2] {
    let delta = config.delta.unwrap();
    let width = values.len() / (delta.channels() + delta.values());
    let of_head = delta.values() / delta.key_heads;
    let widths = [delta.key_dim, delta.key_dim, of_head, of_head];

    let mut kinds: [Vec<f32>; 4] = Default::default();
    for head in values.chunks(values.len() / delta.key_heads) {
        let mut rest = head;
        for (kind, rows) in kinds.iter_mut().zip(widths) {
            let (own, others) = rest.split_at(rows * width);
            kind.extend(own);
            rest = others;
        }
    }
    let [queries, keys, values, gates] = kinds;
    [[queries, keys, values].concat(), gates]
}

/// Computes the numbers by which Llama 3.1's scaling divides the frequencies.
fn factors(config: &DecoderConfig) -> Vec<f32> {
    let RopeScaling::Llama3(scaling) = &config.rope.scaling else { return Vec::new() };
    let context = scaling.original_max_position_embeddings as f64;

    let factor = |pair: usize| {
        let turns = config.rope.theta.powf(-2.0 * pair as f64 / config.head_dim as f64);
        let wave = std::f64::consts::TAU / turns;
        let low = scaling.low_freq_factor;
        let high = scaling.high_freq_factor;

        // Short waves stay, long ones are stretched, and those between are interpolated.
        if wave < context / high {
            1.0
        } else if wave > context / low {
            scaling.factor
        } else {
            let smooth = (context / wave - low) / (high - low);
            1.0 / ((1.0 - smooth) / scaling.factor + smooth)
        }
    };
    (0..config.head_dim / 2).map(|pair| factor(pair) as f32).collect()
}

fn text_bytes(text: &str) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes()].concat()
}

/// Writes an array's bytes. `count` is the length that it claims.
pub fn array_bytes(kind: u32, count: u64, elements: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &count.to_le_bytes(), elements].concat()
}
