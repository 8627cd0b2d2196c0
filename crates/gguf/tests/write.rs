//! A file that was written holds the model that it was written from.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{fs, path::Path};

use firebrick_gguf::{BlockType, FileType, Gguf, GgufError, NewGguf, NewModel, Vocabulary};
use serde_json::{Value, json};

/// A tokenizer of merges, with a template's tokens.
const TOKENIZER: &str = "../../tests/fixtures/qwen2-f32/tokenizer.json";

/// A model to write: its configuration, and its tensors with their values.
struct Model {
    config: Value,
    tensors: Vec<(String, Vec<usize>, Vec<f32>)>,
}

impl Model {
    /// Makes a model of one layer, whose embedding has `rows` rows, with a head of its own.
    fn new(model_type: &str, rows: usize, fields: Value) -> Self {
        let mut config = json!({
            "model_type": model_type,
            "vocab_size": rows,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_hidden_layers": 1,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 8,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10_000.0,
        });
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());

        let mut model = Model { config, tensors: Vec::new() };
        model.add("model.embed_tokens.weight", &[rows, 32]);
        model.add("lm_head.weight", &[rows, 32]);
        model.add("model.norm.weight", &[32]);
        model.add("model.layers.0.input_layernorm.weight", &[32]);
        model.add("model.layers.0.self_attn.q_proj.weight", &[32, 32]);
        model.add("model.layers.0.self_attn.q_proj.bias", &[32]);
        model.add("model.layers.0.self_attn.k_proj.weight", &[16, 32]);
        model
    }

    /// Adds a tensor with values of its own, each with few bits, so that f16 and 1 more hold it exactly.
    fn add(&mut self, name: &str, shape: &[usize]) {
        let seed = self.tensors.len() * 131;
        let value = |at: usize| ((at * 37 + seed) % 255) as f32 / 128.0 - 1.0;
        let values = (0..shape.iter().product()).map(value).collect();
        self.tensors.push((name.to_owned(), shape.to_vec(), values));
    }

    fn write(&self, path: &Path, tokenizer: &[u8], kind: FileType) -> Result<(), GgufError> {
        let shapes = self.tensors.iter().map(|(name, shape, _)| (name.clone(), shape.clone()));
        let vocabulary = Vocabulary {
            tokenizer,
            template: Some("{{ messages }}"),
            bos: None,
            adds_bos: false,
            adds_eos: false,
            pad: Some(1),
            ends: &[2],
        };
        let model =
            NewModel { name: "tiny", config: &self.config, tensors: shapes.collect(), vocabulary };

        let mut file = NewGguf::create(path, &model, kind)?;
        // The order of the values is not that of the file.
        for (name, _, values) in self.tensors.iter().rev() {
            file.write(name, values.clone())?;
        }
        file.finish()
    }
}

/// Reads the value of each of a model's tensors from a file.
fn read(file: &Gguf, name: &str) -> Vec<f32> {
    let mut values = Vec::new();
    assert!(file.read(name, &mut values).unwrap(), "{name}");
    values
}

#[test]
fn what_is_written_is_read_again() {
    let tokenizer = fs::read(TOKENIZER).unwrap();
    let experts = json!({
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": true,
    });
    let recurrent = json!({
        "layer_types": ["linear_attention"], "linear_num_key_heads": 2, "linear_num_value_heads": 6,
        "linear_key_head_dim": 4, "linear_value_head_dim": 5, "linear_conv_kernel_dim": 4,
        "partial_rotary_factor": 0.5,
    });
    let both = |fields: &Value, more: &Value| {
        let mut fields = fields.clone();
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fields
    };
    let convolutions = json!({
        "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"], "conv_L_cache": 3,
        "norm_eps": 1e-5, "block_auto_adjust_ff_dim": false,
    });
    let scaled = json!({"rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }});
    let windows = json!({
        "layer_types": ["sliding_attention"], "sliding_window": 7, "rope_local_base_freq": 500.0,
    });
    let global = json!({
        "attention_k_eq_v": true, "final_logit_softcapping": 2.5, "global_head_dim": 24,
        "hidden_size_per_layer_input": 0, "layer_types": ["sliding_attention", "full_attention"],
        "num_global_key_value_heads": 1, "num_hidden_layers": 2, "num_kv_shared_layers": 0,
        "sliding_window": 7,
        "rope_parameters": {
            "full_attention": {
                "rope_type": "proportional", "rope_theta": 10_000.0, "partial_rotary_factor": 0.5,
                "factor": 2.0,
            },
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
        },
    });

    let shared = json!({
        "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "norm_topk_prob": false,
        "shared_expert_intermediate_size": 48,
    });
    // The queries of Ministral 3 grow, whether or not the frequencies are scaled.
    let growing = json!({"rope_parameters": {
        "rope_type": "default", "rope_theta": 10_000.0, "original_max_position_embeddings": 64,
        "llama_4_scaling_beta": 0.5,
    }});
    let factors = json!({
        "attention_multiplier": 0.25, "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
    });
    let hybrid = json!({
        "layer_types": ["attention"], "num_local_experts": 0, "position_embedding_type": "nope",
        "shared_intermediate_size": 64,
    });
    let shared_and = |more: &Value| {
        let normalised = json!({"norm_topk_prob": true});
        both(&both(&shared, more), &normalised)
    };
    let sinks = json!({
        "num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 7,
        "num_local_experts": 3, "num_experts_per_tok": 2, "attention_bias": true, "tie_word_embeddings": false,
        "swiglu_limit": 7.0, "swiglu_alpha": 1.702,
        "rope_scaling": {
            "rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 64, "truncate": false,
        },
    });
    let dense_and_experts = json!({
        "attention_bias": true, "partial_rotary_factor": 0.5, "use_qk_norm": false,
        "first_k_dense_replace": 0, "n_routed_experts": 3, "num_experts_per_tok": 2, "n_shared_experts": 1,
        "moe_intermediate_size": 64, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
    });
    let corrected = json!({
        "num_local_experts": 3, "num_experts_per_tok": 2, "partial_rotary_factor": 0.5,
        "tie_word_embeddings": false,
    });
    let types: Vec<_> = (0..64)
        .map(|layer| if layer % 4 < 3 { "sliding_attention" } else { "full_attention" })
        .collect();

    for (model_type, fields) in [
        ("llama", scaled),
        ("mistral", json!({"sliding_window": 9})),
        ("qwen2", json!({})),
        (
            "qwen3",
            json!({"rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
            }}),
        ),
        ("qwen3_moe", experts),
        ("qwen3_next", shared_and(&recurrent)),
        ("qwen3_5_moe_text", shared_and(&recurrent)),
        ("qwen3_5_text", recurrent),
        ("gemma", json!({})),
        ("gemma3_text", windows),
        ("gemma4_text", global),
        ("mixtral", json!({"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 9})),
        ("qwen2_moe", shared),
        ("olmoe", json!({"num_experts": 3, "num_experts_per_tok": 2, "num_key_value_heads": 4})),
        ("ministral3", growing),
        ("granitemoehybrid", both(&hybrid, &factors)),
        ("granite", factors),
        ("glm4", json!({"attention_bias": true, "partial_rotary_factor": 0.5})),
        ("ernie4_5", json!({})),
        ("exaone4", json!({"num_hidden_layers": 64, "sliding_window": 7, "layer_types": types})),
        ("hunyuan_v1_dense", json!({})),
        ("seed_oss", json!({"attention_bias": true, "mlp_bias": false})),
        (
            "arcee",
            json!({"rope_scaling": {
                "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32,
            }}),
        ),
        ("lfm2", convolutions),
        ("gpt_oss", sinks),
        ("glm4_moe", dense_and_experts),
        ("minimax_m2", corrected),
    ] {
        let mut model = Model::new(model_type, 520, fields);
        let experts = match model_type {
            "qwen2_moe" | "qwen3_moe" | "qwen3_next" | "qwen3_5_moe_text" | "olmoe" => {
                Some(("mlp", "gate", ["up_proj", "down_proj"]))
            }
            "gpt_oss" => Some(("mlp", "router", ["up_proj", "down_proj"])),
            "glm4_moe" => Some(("mlp", "gate", ["up_proj", "down_proj"])),
            "mixtral" | "minimax_m2" => Some(("block_sparse_moe", "gate", ["w3", "w2"])),
            _ => None,
        };
        if let Some((part, router, [up, down])) = experts {
            model.add(&format!("model.layers.0.{part}.{router}.weight"), &[3, 32]);
            for (expert, map) in [(2, up), (0, up), (1, up), (0, down), (1, down), (2, down)] {
                let shape = if map == up { [64, 32] } else { [32, 64] };
                let name = format!("model.layers.0.{part}.experts.{expert}.{map}");
                model.add(&format!("{name}.weight"), &shape);
                if model_type == "gpt_oss" {
                    model.add(&format!("{name}.bias"), &shape[..1]);
                }
            }
        }
        let further: &[(&str, &[usize])] = match model_type {
            "qwen2_moe" | "qwen3_next" | "qwen3_5_moe_text" => &[
                ("mlp.shared_expert_gate.weight", &[1, 32]),
                ("mlp.shared_expert.up_proj.weight", &[48, 32]),
            ],
            "granitemoehybrid" => &[
                ("shared_mlp.input_linear.weight", &[128, 32]),
                ("shared_mlp.output_linear.weight", &[32, 64]),
            ],
            "glm4" => &[
                ("mlp.gate_up_proj.weight", &[128, 32]),
                ("post_self_attn_layernorm.weight", &[32]),
                ("post_mlp_layernorm.weight", &[32]),
            ],
            "exaone4" | "seed_oss" => &[("post_attention_layernorm.weight", &[32])],
            "gpt_oss" => &[
                ("post_attention_layernorm.weight", &[32]),
                ("self_attn.sinks", &[4]),
                ("mlp.router.bias", &[3]),
            ],
            "glm4_moe" => &[
                ("post_attention_layernorm.weight", &[32]),
                ("mlp.gate.e_score_correction_bias", &[3]),
                ("mlp.shared_experts.up_proj.weight", &[64, 32]),
                ("mlp.shared_experts.down_proj.weight", &[32, 64]),
            ],
            "minimax_m2" => &[("block_sparse_moe.e_score_correction_bias", &[3])],
            "gemma4_text" => &[
                ("post_attention_layernorm.weight", &[32]),
                ("pre_feedforward_layernorm.weight", &[32]),
                ("post_feedforward_layernorm.weight", &[32]),
                ("layer_scalar", &[1]),
            ],
            "hunyuan_v1_dense" => &[
                ("self_attn.query_layernorm.weight", &[8]),
                ("self_attn.key_layernorm.weight", &[8]),
            ],
            "lfm2" => &[
                ("operator_norm.weight", &[32]),
                ("ffn_norm.weight", &[32]),
                ("conv.conv.weight", &[32, 1, 3]),
                ("conv.in_proj.weight", &[96, 32]),
                ("self_attn.out_proj.weight", &[32, 32]),
                ("self_attn.q_layernorm.weight", &[8]),
                ("feed_forward.w3.weight", &[64, 32]),
            ],
            _ => &[],
        };
        for (name, shape) in further {
            model.add(&format!("model.layers.0.{name}"), shape);
        }
        if model_type == "lfm2" {
            // It has these norms under other names.
            let usual = ["model.norm.weight", "model.layers.0.input_layernorm.weight"];
            model.tensors.retain(|(name, ..)| !usual.contains(&name.as_str()));
            model.add("model.embedding_norm.weight", &[32]);
        }

        let projections: &[(&str, &[usize])] = match model_type {
            "qwen3_5_text" | "qwen3_5_moe_text" => {
                &[("in_proj_qkv.weight", &[2 * 2 * 4 + 6 * 5, 32])]
            }
            "qwen3_next" => &[
                ("in_proj_qkvz.weight", &[2 * 2 * 4 + 2 * 6 * 5, 32]),
                ("in_proj_ba.weight", &[2 * 6, 32]),
            ],
            _ => &[],
        };
        if !projections.is_empty() {
            let others: [(&str, &[usize]); 5] = [
                ("conv1d.weight", &[2 * 2 * 4 + 6 * 5, 1, 4]),
                ("A_log", &[6]),
                ("dt_bias", &[6]),
                ("out_proj.weight", &[32, 30]),
                ("norm.weight", &[5]),
            ];
            for (name, shape) in projections.iter().chain(&others) {
                model.add(&format!("model.layers.0.linear_attn.{name}"), shape);
            }
        }

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        model.write(&path, &tokenizer, FileType::F32).unwrap();

        let file = Gguf::open(&path).unwrap();
        let config = file.file("config.json").unwrap().unwrap();
        let config: Value = serde_json::from_slice(&config).unwrap();
        for (field, value) in model.config.as_object().unwrap() {
            let nested = field == "rope_local_base_freq";
            let actual = if nested {
                &config["rope_parameters"]["sliding_attention"]["rope_theta"]
            } else {
                &config[field]
            };
            assert_eq!(actual, value, "{model_type}: {field}");
        }

        for (name, shape, values) in &model.tensors {
            assert_eq!(file.tensors()[name].shape, *shape, "{model_type}: {name}");
            let read = read(&file, name);
            // A logarithm of an exponential is rounded, while 1 can be added to these values and subtracted again.
            let most = if name.ends_with("A_log") { 1e-6 } else { 0.0 };
            let near = |(one, two): (&f32, &f32)| (one - two).abs() <= most;
            assert!(values.iter().zip(&read).all(near), "{model_type}: {name}");
        }

        // Byte for byte the same file from what was read.
        let again = folder.path().join("again.gguf");
        let written = file.file("tokenizer.json").unwrap().unwrap();
        model.write(&again, &written, FileType::F32).unwrap();
        assert!(fs::read(&path).unwrap() == fs::read(&again).unwrap(), "{model_type}");
    }
}

#[test]
fn the_tokenizer_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let original = fs::read(TOKENIZER).unwrap();
    Model::new("llama", 520, json!({})).write(&path, &original, FileType::F16).unwrap();

    let file = Gguf::open(&path).unwrap();
    let written = file.file("tokenizer.json").unwrap().unwrap();
    let [original, written]: [Value; 2] =
        [original, written].map(|json| serde_json::from_slice(&json).unwrap());
    assert_eq!(original["model"]["merges"], written["model"]["merges"]);
    for (token, id) in original["model"]["vocab"].as_object().unwrap() {
        assert_eq!(written["model"]["vocab"][token], *id, "{token}");
    }

    let added = |json: &Value| -> Vec<(Value, Value, Value)> {
        let tokens = json["added_tokens"].as_array().unwrap().iter();
        let mut tokens: Vec<_> = tokens
            .map(|it| (it["id"].clone(), it["content"].clone(), it["special"].clone()))
            .collect();
        tokens.sort_by_key(|(id, ..)| id.as_u64());
        tokens
    };
    assert_eq!(added(&original), added(&written));

    let config = file.file("tokenizer_config.json").unwrap().unwrap();
    let config: Value = serde_json::from_slice(&config).unwrap();
    assert_eq!(config["bos_token"], Value::Null);
    assert_eq!(file.file("chat_template.jinja").unwrap().unwrap(), b"{{ messages }}");
}

/// Whether a piece that is a token is merged makes no difference, as long as merges make every token. The rules of Qwen2
/// merge such a piece.
#[test]
fn merges_that_nobody_needs_are_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&fs::read(TOKENIZER).unwrap()).unwrap();
    tokenizer["model"]["ignore_merges"] = true.into();
    let write = |tokenizer: &Value, name: &str| {
        let model = Model::new("llama", 520, json!({}));
        model.write(&folder.path().join(name), tokenizer.to_string().as_bytes(), FileType::F16)
    };
    write(&tokenizer, "whole.gguf").unwrap();

    // No merge makes this token of two others.
    tokenizer["model"]["vocab"]["qqq"] = 500.into();
    let message = write(&tokenizer, "unmade.gguf").unwrap_err().to_string();
    assert!(message.contains("cuts texts by rules"), "{message}");
}

/// A vocabulary with a token for each byte is written with scores, from which the same merges follow.
#[test]
fn merges_become_scores_and_scores_the_same_merges() {
    let bytes: Vec<String> = (0..=255).map(|byte| format!("<0x{byte:02X}>")).collect();
    let tokens = ["<unk>", "<s>", "</s>"].map(String::from).into_iter().chain(bytes);
    let words = ["▁", "a", "b", "ab", "▁a", "▁ab"].map(String::from);
    let vocab: serde_json::Map<String, Value> =
        tokens.chain(words).enumerate().map(|(id, token)| (token, id.into())).collect();

    // ▁ab is made first, of either two others, and then its parts.
    let merges = json!([["▁a", "b"], ["▁", "ab"], ["▁", "a"], ["a", "b"]]);
    let special = |id: usize, content: &str| json!({"id": id, "content": content, "special": true});
    let tokenizer = json!({
        "added_tokens": [
            special(0, "<unk>"), special(1, "<s>"), special(2, "</s>"),
            {"id": 265, "content": "▁▁", "special": false},
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "model": {
            "type": "BPE", "vocab": vocab, "merges": merges, "unk_token": "<unk>", "byte_fallback": true,
        },
    });

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let model = Model::new("gemma", 266, json!({}));
    model.write(&path, tokenizer.to_string().as_bytes(), FileType::F32).unwrap();

    let file = Gguf::open(&path).unwrap();
    let written = file.file("tokenizer.json").unwrap().unwrap();
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written["model"]["merges"], merges);
    assert_eq!(written["model"]["unk_token"], "<unk>");
    assert_eq!(written["normalizer"], tokenizer["normalizer"]);
    assert_eq!(written["model"]["vocab"]["<0x0A>"], 3 + 10);
    // Two blanks are looked for in the text as it is.
    assert_eq!(written["added_tokens"][3]["content"], "  ");
}

#[test]
fn matrices_have_the_type_that_was_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let tokenizer = fs::read(TOKENIZER).unwrap();
    let mut model = Model::new("gemma", 520, json!({}));
    model.add("model.layers.0.mlp.down_proj.weight", &[32, 63]);

    for (kind, half_step) in
        [(FileType::F16, 0.0), (FileType::BF16, 2f32.powi(-9)), (FileType::Q8_0, 0.6 / 127.0)]
    {
        let path = folder.path().join(format!("{kind:?}.gguf"));
        model.write(&path, &tokenizer, kind).unwrap();
        let file = Gguf::open(&path).unwrap();

        for (name, shape, values) in &model.tensors {
            let actual = file.tensors()[name].kind;
            match (shape.as_slice(), kind) {
                ([_], _) => assert_eq!(actual, BlockType::F32, "{name}"),
                // 63 values are no whole blocks.
                ([_, 63], FileType::Q8_0) => assert_eq!(actual, BlockType::F16, "{name}"),
                _ => assert_eq!(actual, kind.block(), "{name}"),
            }

            // Values are at most 1, and f16 holds each.
            let most = if actual == kind.block() { half_step } else { 0.0 };
            let near = |(one, two): (&f32, &f32)| (one - two).abs() <= most;
            assert!(values.iter().zip(&read(&file, name)).all(near), "{kind:?}: {name}");
        }
    }
}

#[test]
fn what_the_format_can_not_say_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let tokenizer = fs::read_to_string(TOKENIZER).unwrap();
    let model = |fields: Value| Model::new("llama", 520, fields);
    let refused = |model: Model, tokenizer: &str, words: &str| {
        let message = model.write(&path, tokenizer.as_bytes(), FileType::F16).unwrap_err();
        assert!(message.to_string().contains(words), "{words}: {message}");
        let _ = fs::remove_file(&path);
    };

    refused(Model::new("bloom", 520, json!({})), &tokenizer, "which is none of the architectures");
    refused(model(json!({"rope_scaling": {"rope_type": "dynamic"}})), &tokenizer, "\"dynamic\"");
    refused(model(json!({"head_dim": null})), &tokenizer, "\"head_dim\"");
    let dense = json!({"mlp_only_layers": [0]});
    refused(Model::new("qwen3_moe", 520, dense), &tokenizer, "its mlp_only_layers is [0]");
    let biased = json!({"mlp_bias": true});
    refused(Model::new("arcee", 520, biased), &tokenizer, "its mlp_bias is true");
    refused(Model::new("olmoe", 520, json!({})), &tokenizer, "its num_key_value_heads is 2");
    let narrow = json!({"head_dim": 4, "layer_types": ["full_attention"]});
    refused(Model::new("exaone4", 520, narrow), &tokenizer, "its head_dim is 4");
    let gated = json!({"attention_bias": true});
    refused(Model::new("qwen3_next", 520, gated), &tokenizer, "its attention_bias is true");
    let narrow = json!({"head_dim": 4, "layer_types": ["conv"]});
    refused(Model::new("lfm2", 520, narrow), &tokenizer, "its head_dim is 4");
    let small = json!({"sliding_window": 7, "layer_types": ["sliding_attention"]});
    refused(Model::new("exaone4", 520, small), &tokenizer, "its sliding_window is 7");
    let alternate = json!(["sliding_attention", "full_attention"]);
    for (field, value, words) in [
        ("swiglu_limit", json!(5.0), "its swiglu_limit is 5, and llama.cpp expects 7"),
        ("attention_bias", json!(false), "its attention_bias is false"),
        ("tie_word_embeddings", json!(true), "its tie_word_embeddings is true"),
        ("sliding_window", Value::Null, "a size as \"sliding_window\""),
        (
            "layer_types",
            json!(["full_attention", "sliding_attention"]),
            "its layer_types is [\"full",
        ),
    ] {
        let mut fields = json!({
            "num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": 7, "layer_types": alternate,
        });
        fields[field] = value;
        refused(Model::new("gpt_oss", 520, fields), &tokenizer, words);
    }
    let divided = json!({"rope_scaling": {"rope_type": "llama3"}});
    refused(Model::new("glm4", 520, divided), &tokenizer, "\"llama3\"");
    refused(Model::new("llama", 7, json!({})), &tokenizer, "its embedding 7 rows");
    refused(model(json!({})), &tokenizer.replace("\"BPE\"", "\"Unigram\""), "\"Unigram\"");
    refused(
        model(json!({})),
        &tokenizer.replace("\\\\p{N}|", "\\\\p{N}{2}|"),
        "cuts texts by rules",
    );
    refused(
        model(json!({})),
        &tokenizer.replace("\"NFC\"", "\"Lowercase\""),
        "cuts texts by rules",
    );

    let mut large = model(json!({}));
    large.tensors[0].2[9] = 70000.0;
    refused(
        large,
        &tokenizer,
        "\"model.embed_tokens.weight\" holds 7e4, which is beyond F16: take BF16",
    );
    let mut strange = model(json!({}));
    strange.add("model.layers.0.self_attn.sinks", &[4]);
    refused(strange, &tokenizer, "llama has no tensor for model.layers.0.self_attn.sinks");

    fs::write(&path, "mine").unwrap();
    let error = model(json!({})).write(&path, tokenizer.as_bytes(), FileType::F16);
    assert!(matches!(error, Err(GgufError::Write { .. })));
    assert_eq!(fs::read(&path).unwrap(), b"mine");
}
