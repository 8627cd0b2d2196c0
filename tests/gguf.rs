//! GGUF files hold the same model as the folder that they were made from.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeSet, env, fs, path::Path};

use burn::tensor::Device;
use clap::Parser as _;
use firebrick_cli::{commands::Arguments, inspect::Inspection};
use firebrick_core::Seed;
use firebrick_data::{ChatTemplate, Tokenizer};
use firebrick_gguf::{BlockType, FileType, Gguf};
use firebrick_models::{
    Decoder, DecoderConfig, Family, Parameter, SaveOptions, Sizes, load, load_adapter, load_config,
    parameters, random, save, save_gguf,
};
use firebrick_tests::{
    expected::Tokens,
    fixture::for_each_checkpoint,
    gguf::{GgufFile, TensorOfFile, array_bytes, can_be_written, shares_the_width},
};
use serde_json::{Map, Value, json};

/// Fixtures that no file can hold, and the fields for which llama.cpp has a value of its own.
const UNSAID: [(&str, &str); 17] = [
    ("arcee-f32", "mlp_bias"),
    ("ernie4_5-f32", "use_bias"),
    ("exaone4-f32", "head_dim"),
    ("gemma3-f32", "query_pre_attn_scalar"),
    ("gemma3-f32-nested", "query_pre_attn_scalar"),
    ("gemma3-f32-pictures", "query_pre_attn_scalar"),
    ("gpt_oss-mxfp4", "swiglu_limit"),
    ("hunyuan-f32", "attention_bias"),
    ("olmo3-f32", "rope_scaling"),
    ("olmoe-f32", "num_key_value_heads"),
    ("qwen2_moe-f32", "mlp_only_layers"),
    ("qwen3-f32-yarn", "rope_scaling"),
    ("qwen3-moe-f32", "mlp_only_layers"),
    ("qwen3_next-f32", "mlp_only_layers"),
    ("seed_oss-f32", "attention_out_bias"),
    ("smollm3-f32", "no_rope_layers"),
    ("smollm3-f32-window", "layer_types"),
];

#[test]
fn a_checkpoint_as_gguf_is_the_same_model() {
    for_each_checkpoint("tokenizer", |fixture, expected: Tokens| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        if !can_be_written(fixture.config()) {
            return;
        }
        let pre = match fixture.config().family {
            // These fixtures cut texts as Llama 3 does. Only Llama 3's own merges may skip tokens.
            Family::Llama | Family::Mistral | Family::Gemma => "llama-bpe",
            _ => "qwen2",
        };

        fs::write(&path, GgufFile::of_folder(&fixture.folder, Some(pre)).bytes()).unwrap();
        let [ours, theirs] = [&path, &fixture.folder].map(|path| {
            let (mut config, _) = load_config(path).unwrap();
            // Hunyuan's base is computed, and has 32 bits in a file.
            if config.family == Family::HunYuan {
                config.rope.theta = f64::from(config.rope.theta as f32);
            }
            config
        });
        assert_eq!(ours, theirs, "{}", fixture.name);

        let values = |path: &Path| -> Vec<(String, Vec<f32>)> {
            let decoder = load(path, &Device::flex()).unwrap();
            let parameters = parameters(&decoder);
            parameters
                .iter()
                .map(|it| (it.path.clone(), it.values.to_data().try_to_vec::<f32>().unwrap()))
                .collect()
        };
        let ours = values(&path);
        let theirs = values(&fixture.folder);
        assert_eq!(ours.len(), theirs.len(), "{}", fixture.name);
        for ((name, ours), (other, theirs)) in ours.into_iter().zip(theirs) {
            assert_eq!((&name, ours.len()), (&other, theirs.len()), "{}", fixture.name);
            // The norms may be rounded because 1 was added and subtracted again. A logarithm rounds as well.
            let most = if name.ends_with(".decay") { 1e-6 } else { 2e-7 };
            let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() < most;
            assert!(ours.iter().zip(&theirs).all(near), "{}: {name}", fixture.name);
        }

        let template = |folder: &Path| ChatTemplate::from_folder(folder).unwrap().is_some();
        assert_eq!(template(&path), template(&fixture.folder), "{}", fixture.name);
        let tokenizer = Tokenizer::from_folder(&path).unwrap();
        assert_eq!(tokenizer.eos(), expected.eos_id, "{}", fixture.name);
        let ends = |tokenizer: &Tokenizer| -> BTreeSet<u32> {
            tokenizer.stop_tokens().iter().copied().collect()
        };
        assert_eq!(ends(&tokenizer), ends(&fixture.tokenizer()), "{}", fixture.name);

        for text in expected.encode {
            let ids = tokenizer.encode(&text.text, true).unwrap();
            assert_eq!(ids, text.ids, "{}: {:?}", fixture.name, text.text);
            assert_eq!(tokenizer.decode(&ids, true), text.decoded_skip_special, "{}", fixture.name);
        }
    });
}

/// The writer and the reader share their tables, so the reader is held against another writer above.
#[test]
fn a_saved_file_is_the_same_model() {
    for_each_checkpoint("tokenizer", |fixture, expected: Tokens| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let decoder = fixture.decoder(&Device::flex());
        let tokenizer = fixture.tokenizer();
        let template = ChatTemplate::from_folder(&fixture.folder).unwrap();
        let saved = save_gguf(
            &decoder,
            tokenizer.vocabulary(template.as_ref()),
            &fixture.name,
            &path,
            FileType::F32,
        );

        if let Some((_, field)) = UNSAID.iter().find(|(name, _)| *name == fixture.name) {
            let message = saved.unwrap_err().to_string();
            assert!(message.contains(&format!("its {field} is ")), "{}: {message}", fixture.name);
            return;
        }
        saved.unwrap();

        let read = load(&path, &Device::flex()).unwrap();
        for (ours, theirs) in parameters(&read).iter().zip(parameters(&decoder)) {
            let values = |it: &Parameter| it.values.to_data().try_to_vec::<f32>().unwrap();
            // 1 that is added and subtracted again, and a logarithm of an exponential, are rounded.
            let most = if ours.path.ends_with(".decay") { 1e-6 } else { 2e-7 };
            let near = |(a, b): (&f32, &f32)| a == b || (a - b).abs() < most;
            let [one, two] = [values(ours), values(&theirs)];
            assert_eq!((&ours.path, one.len()), (&theirs.path, two.len()), "{}", fixture.name);
            assert!(one.iter().zip(&two).all(near), "{}: {}", fixture.name, ours.path);
        }

        let written = Tokenizer::from_folder(&path).unwrap();
        tokenizer.check_written(&written).unwrap();
        for text in expected.encode {
            assert_eq!(written.encode(&text.text, true).unwrap(), text.ids, "{}", fixture.name);
        }
        let source = |template: Option<ChatTemplate>| template.map(|it| it.source().to_owned());
        assert_eq!(source(ChatTemplate::from_folder(&path).unwrap()), source(template));
    });
}

/// llama.cpp knows by itself which layers have a window, a recurrence or no rope, so its converter does not say.
#[test]
fn a_new_model_of_any_family_is_the_same_as_gguf() {
    for family in Family::ALL {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        let sizes = Sizes {
            vocab_size: 19,
            hidden_size: 24,
            layers: 7,
            heads: 4,
            kv_heads: 2,
            head_dim: if shares_the_width(family) { 6 } else { 8 },
            intermediate_size: 20,
            max_position_embeddings: 64,
            rope_theta: 10_000.0,
            tied: false,
        };

        let mut config = DecoderConfig::new(family, sizes);
        if family == Family::Mistral {
            // Without a window it is a Llama.
            config.kinds.iter_mut().for_each(|kind| kind.window = Some(3));
        }
        if family == Family::Olmo3 {
            // In a file, layers with a window have the base of the others, unless the file says otherwise.
            config.local_rope = Some(config.rope.clone());
        }
        if matches!(family, Family::Granite | Family::GraniteHybrid) {
            // A file has the scale of scores in 32 bits.
            config.query_scale = 0.5 * (config.head_dim as f64).sqrt();
        }

        let decoder = random(&config, Seed::run(3), &Device::flex()).unwrap();
        let json = config.to_json(None, 1);
        save(&decoder, &json, folder.path(), &SaveOptions::default()).unwrap();
        let (theirs, _) = load_config(folder.path()).unwrap();

        let mut file = GgufFile::of_folder(folder.path(), None);
        // The converter writes none of these, except those of Gemma 4.
        let silent = ["sliding_window_pattern", "recurrent_layers", "freq_base_swa"];
        file.keys.retain(|(key, ..)| {
            key.starts_with("gemma4.") || !silent.iter().any(|silent| key.ends_with(silent))
        });
        fs::write(&path, file.bytes()).unwrap();

        let (ours, _) = load_config(&path).unwrap();
        let of_theirs = match family {
            Family::Olmo3 => DecoderConfig { local_rope: ours.local_rope.clone(), ..theirs },
            _ => theirs,
        };
        assert_eq!(ours, of_theirs, "{family:?}");

        let read = load(&path, &Device::flex()).unwrap();
        for (ours, theirs) in parameters(&read).iter().zip(parameters(&decoder)) {
            let values = |it: &Parameter| it.values.to_data().try_to_vec::<f32>().unwrap();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
            let ours = values(ours);
            let theirs = values(&theirs);
            assert!(ours.iter().zip(&theirs).all(near), "{family:?}");
        }
    }
}

/// Blocks that predict further tokens lie behind the layers, and are no part of the model.
#[test]
fn further_blocks_are_left_out() {
    let fixture = Path::new("fixtures/qwen3_5-f32");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut file = GgufFile::of_folder(fixture, Some("qwen2"));
    file.number("qwen35.block_count", 5);
    file.number("qwen35.nextn_predict_layers", 1);
    file.tensor("blk.4.attn_norm.weight", &[40], &[1.0; 40]);
    file.tensor("blk.4.nextn.eh_proj.weight", &[40, 80], &[0.5; 3200]);
    fs::write(&path, file.bytes()).unwrap();
    assert_eq!(load_config(&path).unwrap().0, load_config(fixture).unwrap().0);
    load(&path, &Device::flex()).unwrap();
    assert!(Inspection::read(&path).faults.is_empty(), "{:?}", Inspection::read(&path).faults);
}

/// The first files of Qwen3-Next have the first projection of a recurrence as a folder has it.
#[test]
fn an_older_file_of_qwen3_next_is_the_same_model() {
    let folder = tempfile::tempdir().unwrap();
    let [path, older] = ["model.gguf", "older.gguf"].map(|name| folder.path().join(name));
    let mut file = GgufFile::of_folder(Path::new("fixtures/qwen3_next-f32"), Some("qwen2"));
    fs::write(&path, file.bytes()).unwrap();

    let new = Gguf::open(&path).unwrap();
    let parts = ["attn_qkv", "attn_gate"];
    file.tensors.retain(|tensor| !parts.iter().any(|part| tensor.name.contains(part)));
    for (name, tensor) in new.tensors() {
        let Some((layer, _)) = name.split_once(".linear_attn.in_proj_qkvz.") else { continue };
        let mut values = Vec::new();
        new.read(name, &mut values).unwrap();
        let layer = layer.replace("model.layers", "blk");
        file.tensor(&format!("{layer}.ssm_in.weight"), &tensor.shape, &values);
    }
    fs::write(&older, file.bytes()).unwrap();

    let values = |path: &Path| {
        let decoder = load(path, &Device::flex()).unwrap();
        parameters(&decoder).into_iter().map(|it| it.values.to_data()).collect::<Vec<_>>()
    };
    assert_eq!(values(&older), values(&path));
}

/// A key or tensor that no model here computes, or that contradicts another, is refused by its name.
#[test]
fn what_a_file_can_not_mean_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let refused = |fixture: &str, change: &dyn Fn(&mut GgufFile), words: &str| {
        let mut file = GgufFile::of_folder(&Path::new("fixtures").join(fixture), Some("qwen2"));
        change(&mut file);
        fs::write(&path, file.bytes()).unwrap();
        let message = load(&path, &Device::flex()).unwrap_err().to_string();
        assert!(message.contains("model.gguf") && message.contains(words), "{words}: {message}");
        let faults = Inspection::read(&path).faults;
        assert!(faults.iter().any(|fault| fault.contains(words)), "{words}: {faults:?}");
    };

    let without = |name: &'static str| {
        move |file: &mut GgufFile| file.tensors.retain(|tensor| tensor.name != name)
    };

    refused("phi3-f32", &without("rope_factors_long.weight"), "only one of rope_factors_long");
    refused(
        "phi3-f32",
        &|it| it.number("phi3.rope.dimension_count", 8),
        "rope_factors_long.weight",
    );
    refused("phi3-f32", &|it| it.text("phi3.rope.scaling.type", "yarn"), "or longrope");
    let without_factors = |file: &mut GgufFile| {
        file.tensors.retain(|tensor| !tensor.name.starts_with("rope_factors"));
    };
    refused("phi3-f32", &without_factors, "phi3.rope.scaling.attn_factor is 1.1, and");

    refused("qwen2-f32", &|it| it.float("qwen2.attention.scale", 0.5), "qwen2.attention.scale");
    refused(
        "qwen2-f32",
        &|it| it.key("qwen2.attention.causal", 7, vec![0]),
        "qwen2.attention.causal is false",
    );
    refused(
        "qwen2-f32",
        &|it| it.float("qwen2.rope.scaling.attn_factor", 1.5),
        "qwen2.rope.scaling.attn_factor is 1.5",
    );
    refused(
        "qwen2-f32",
        &|it| it.tensor("rope_factors_long.weight", &[8], &[2.0; 8]),
        "rope_factors_long",
    );

    refused(
        "qwen3-moe-f32",
        &|it| it.number("qwen3moe.expert_gating_func", 2),
        "expert_gating_func is 2",
    );
    refused(
        "qwen3-moe-f32",
        &|it| it.float("qwen3moe.expert_weights_scale", 2.5),
        "expert_weights_scale is 2.5",
    );
    refused("qwen3-moe-f32", &|it| it.number("qwen3moe.expert_count", 6), "experts.5.");
    refused("qwen3-moe-f32", &without("blk.0.ffn_up_exps.weight"), "up_proj");

    refused("qwen3_5-f32", &|it| it.number("qwen35.ssm.inner_size", 50), "ssm.inner_size");
    refused("qwen3_5-f32", &|it| it.number("qwen35.ssm.group_count", 4), "linear_attn.");
    refused("qwen3_5-f32", &|it| it.number("qwen35.ssm.group_count", 0), "ssm.group_count is 0");
    refused("qwen3_5-f32", &|it| it.number("qwen35.nextn_predict_layers", 9), "nextn_predict");
    refused(
        "qwen3_5-f32",
        &|it| it.flags("qwen35.attention.recurrent_layers", [1]),
        "recurrent_layers",
    );

    refused(
        "gemma3-f32",
        &|it| it.flags("gemma3.attention.sliding_window_pattern", [1, 0]),
        "sliding_window_pattern",
    );
    refused(
        "gemma3-f32",
        &|it| it.float("gemma3.final_logit_softcapping", 30.0),
        "final_logit_softcapping",
    );
    refused("gemma4-f32", &without("rope_freqs.weight"), "it has no rope_freqs.weight");
    refused(
        "gemma4-f32",
        &|it| it.number("gemma4.embedding_length_per_layer_input", 16),
        "it has no per_layer_token_embd.weight",
    );
    refused(
        "gemma4_e-f32",
        &|it| it.numbers("gemma4.feed_forward_length", &[40, 80, 80, 80, 80]),
        "feed_forward_length\" should have one width for each of 5 layers",
    );
    refused(
        "gemma4_e-f32",
        &|it| it.number("gemma4.attention.shared_kv_layers", 4),
        "feed_forward_length\" should have one width for each of 5 layers",
    );
    refused("gemma4_e-f32", &without("blk.4.inp_gate.weight"), "per_layer_input_gate");
    refused(
        "gemma4-f32",
        &|it| it.numbers("gemma4.attention.head_count_kv", &[2, 1, 1, 2, 1]),
        "head_count_kv\" has different numbers for layers of one type",
    );
    refused(
        "gemma4-f32",
        &|it| it.number("gemma4.attention.value_length_swa", 6),
        "value_length_swa is 6, expected 8",
    );
    refused(
        "olmo3-f32",
        &|it| it.float("olmo2.rope.scaling.yarn_ext_factor", 0.5),
        "yarn_ext_factor is 0.5",
    );
    refused("olmo2-f32", &without("blk.0.post_ffw_norm.weight"), "post_feedforward_layernorm");

    refused("granite-f32", &|it| it.number("granite.expert_count", 4), "mixture of experts");
    refused("granitemoehybrid-f32", &without("blk.0.ffn_up.weight"), "shared_mlp.input_linear");
    refused(
        "granitemoehybrid-f32",
        &|it| it.numbers("granite.attention.head_count_kv", &[2, 1]),
        "head_count_kv\" should be a whole number from 0, but is an array of 2 elements",
    );
    refused(
        "glm4-f32",
        &|it| it.numbers("glm4.rope.dimension_sections", &[2, 1, 1, 0]),
        "it has glm4.rope.dimension_sections",
    );
    refused("mixtral-f32", &|it| it.number("llama.expert_count", 0), "mlp.");

    refused("qwen3_next-f32", &without("blk.0.attn_gate.weight"), "linear_attn.in_proj_qkvz");
    refused("qwen3_next-f32", &|it| it.number("qwen3next.ssm.state_size", 7), "linear_attn.");
    refused("qwen3_5_moe-f32", &without("blk.0.ffn_up_shexp.weight"), "shared_expert.up_proj");
    refused(
        "lfm2-f32",
        &|it| it.numbers("lfm2.attention.head_count_kv", &[0, 2]),
        "head_count_kv\" has 2 numbers, expected one for each of 3 layers",
    );
    refused("lfm2-f32", &|it| it.numbers("lfm2.attention.head_count_kv", &[0, 0, 2]), "conv.");
    refused(
        "lfm2-f32",
        &|it| it.number("lfm2.attention.sliding_window", 7),
        "lfm2.attention.sliding_window is 7",
    );

    refused("gpt_oss-f32", &without("blk.0.attn_sinks.weight"), "self_attn.sinks");
    refused("gpt_oss-f32", &without("blk.0.ffn_down_exps.bias"), "mlp.experts.0.down_proj.bias");
    refused(
        "gpt_oss-f32",
        &|it| it.keys.retain(|(key, ..)| !key.ends_with(".sliding_window")),
        "it has no gpt-oss.attention.sliding_window",
    );
    refused(
        "gpt_oss-f32",
        &|it| it.number("gpt-oss.expert_gating_func", 1),
        "expert_gating_func is 1, expected 3",
    );

    for (fixture, name) in [("glm4_moe-f32", "glm4moe"), ("minimax_m2-f32", "minimax-m2")] {
        refused(
            fixture,
            &|it| it.number(&format!("{name}.expert_gating_func"), 1),
            "expert_gating_func is 1, expected 2, a sigmoid",
        );
        let correction = "e_score_correction_bias";
        refused(fixture, &without("blk.1.exp_probs_b.bias"), correction);
    }
}

/// A file without a tokenizer takes the one in its folder.
#[test]
fn a_tokenizer_may_lie_beside_the_file() {
    let fixture = Path::new("fixtures/qwen2-f32");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, GgufFile::of_folder(fixture, None).bytes()).unwrap();
    let problem = Tokenizer::from_folder(&path).err().unwrap().to_string();
    assert!(problem.contains("holds no tokenizer") && problem.contains("next to it"), "{problem}");

    for name in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }

    // A template in the folder wins over the one in the file.
    let mut file = GgufFile::of_folder(fixture, None);
    file.text("tokenizer.chat_template", "{{ messages[0].content }}");
    fs::write(&path, file.bytes()).unwrap();

    let template = || Gguf::open(&path).unwrap().file("chat_template.jinja").unwrap();
    let config = folder.path().join("tokenizer_config.json");
    let mut fields: Map<String, Value> =
        serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
    fields.insert("chat_template".into(), "{{ 1 }}".into());
    fs::write(&config, serde_json::to_vec(&fields).unwrap()).unwrap();
    assert_eq!(template(), None);
    fields.remove("chat_template");
    fs::write(&config, serde_json::to_vec(&fields).unwrap()).unwrap();
    assert_eq!(template().unwrap(), b"{{ messages[0].content }}");

    let beside = Tokenizer::from_folder(&path).unwrap();
    let own = Tokenizer::from_folder(fixture).unwrap();
    assert_eq!(beside.encode("2 + 2", true).unwrap(), own.encode("2 + 2", true).unwrap());
}

/// Tokens with scores are merged as sentencepiece does, with blanks as `▁`.
#[test]
fn a_vocabulary_of_scores_is_merged_by_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut file = GgufFile::of_folder(Path::new("fixtures/qwen2-f32"), None);
    let tokens: Vec<(String, f32, i32)> = ["<unk>", "<s>", "</s>"]
        .map(|text| (text.to_owned(), 0.0, if text == "<unk>" { 2 } else { 3 }))
        .into_iter()
        .chain((0..=255).map(|byte| (format!("<0x{byte:02X}>"), 0.0, 6)))
        .chain(
            [("▁a", -1.0), ("ab", -2.0), ("▁ab", -3.0), ("▁", -4.0), ("a", -5.0), ("b", -6.0)]
                .map(|(text, score)| (text.to_owned(), score, 1)),
        )
        .collect();

    file.text("tokenizer.ggml.model", "llama");
    file.texts("tokenizer.ggml.tokens", tokens.iter().map(|(text, ..)| text.as_str()));
    let scores: Vec<u8> = tokens.iter().flat_map(|(_, score, _)| score.to_le_bytes()).collect();
    file.key("tokenizer.ggml.scores", 9, array_bytes(6, tokens.len() as u64, &scores));
    let kinds: Vec<i32> = tokens.iter().map(|(.., kind)| *kind).collect();
    file.numbers("tokenizer.ggml.token_type", &kinds);

    for (name, id) in [("unknown", 0), ("bos", 1), ("eos", 2)] {
        file.number(&format!("tokenizer.ggml.{name}_token_id"), id);
    }
    fs::write(&path, file.bytes()).unwrap();
    let tokenizer = Tokenizer::from_folder(&path).unwrap();

    // A blank is put before the text. ▁ab is one token, b is one, and é is two bytes.
    let ids = tokenizer.encode("ab bé", true).unwrap();
    assert_eq!(ids, [1, 261, 262, 264, 3 + 0xC3, 3 + 0xA9]);
    assert_eq!(tokenizer.decode(&ids, true), "ab bé");
    assert_eq!(tokenizer.decode(&[0, 263], true), "a");
}

/// Each rule that the format names cuts texts differently.
#[test]
fn texts_are_cut_by_the_rules_that_a_file_names() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut file = GgufFile::of_every_type("llama", false);
    let tokens = ["1", "2", "3", "4", "a", "B", "12", "34", "1234", "aB", "<s>", "</s>"];
    file.texts("tokenizer.ggml.tokens", tokens);
    file.numbers("tokenizer.ggml.token_type", &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 3]);
    file.texts("tokenizer.ggml.merges", ["1 2", "3 4", "12 34", "a B"]);
    file.number("tokenizer.ggml.bos_token_id", 10);
    file.number("tokenizer.ggml.eos_token_id", 11);
    file.number("tokenizer.ggml.unknown_token_id", u32::MAX);

    for (pre, digits, letters) in [
        ("gpt-2", &["1234"][..], &["aB"][..]),
        ("smollm", &["1", "2", "3", "4"], &["aB"]),
        ("llama-bpe", &["12", "3", "4"], &["aB"]),
        ("qwen2", &["1", "2", "3", "4"], &["aB"]),
        ("tekken", &["1", "2", "3", "4"], &["a", "B"]),
        ("gpt-4o", &["12", "3", "4"], &["a", "B"]),
    ] {
        file.text("tokenizer.ggml.pre", pre);
        fs::write(&path, file.bytes()).unwrap();
        let tokenizer = Tokenizer::from_folder(&path).unwrap();

        let ids = |parts: &[&str]| -> Vec<u32> {
            let id = |part: &&str| tokens.iter().position(|token| token == part).unwrap() as u32;
            parts.iter().map(id).collect()
        };
        assert_eq!(tokenizer.encode("1234", false).unwrap(), ids(digits), "{pre}");
        assert_eq!(tokenizer.encode("aB", false).unwrap(), ids(letters), "{pre}");

        // If the file does not say so, only the rules of Llama 3 and Tekken begin a text with a token.
        let begun = tokenizer.encode("1", true).unwrap();
        assert_eq!(begun.len(), 1 + usize::from(["llama-bpe", "tekken"].contains(&pre)), "{pre}");
    }
}

/// A message of gpt-oss ends with a token after which the model goes on to the next one.
#[test]
fn the_end_of_a_message_is_no_end_of_a_text() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let ends = |call: &str| -> Value {
        let mut file = GgufFile::of_every_type("llama", false);
        file.texts("tokenizer.ggml.tokens", ["a", "<|end|>", "<|return|>", call]);
        file.number("tokenizer.ggml.eos_token_id", 2);
        fs::write(&path, file.bytes()).unwrap();
        let config = Gguf::open(&path).unwrap().file("generation_config.json").unwrap().unwrap();
        serde_json::from_slice::<Value>(&config).unwrap()["eos_token_id"].clone()
    };
    assert_eq!(ends("<|call|>"), json!([2, 3]));
    assert_eq!(ends("b"), json!([2, 1]));
}

/// Rows of blocks are reordered as rows of numbers are, even behind the first few thousand blocks.
#[test]
fn blocks_are_read_as_the_numbers_that_they_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let rows = 512;
    let width = 512;
    // Whole numbers from −125 to 125, which 8 bits hold exactly.
    let number = |at: usize| (at * 31 % 251) as i32 - 125;

    let read = |kind: BlockType, bytes: Vec<u8>| {
        let mut file = GgufFile::of_every_type("llama", false);
        file.tensors = vec![TensorOfFile {
            name: "blk.0.attn_q.weight".into(),
            kind: kind.number(),
            sizes: vec![width as u64, rows as u64],
            bytes,
            says_at: None,
        }];
        fs::write(&path, file.bytes()).unwrap();
        let mut values = Vec::new();
        let gguf = Gguf::open(&path).unwrap();
        gguf.read("model.layers.0.self_attn.q_proj.weight", &mut values).unwrap();
        values
    };

    let all = 0..rows * width;
    let plain = all.clone().flat_map(|at| (number(at) as f32).to_le_bytes()).collect();
    let blocks = all.collect::<Vec<_>>();
    // A block is a scale of 1 in 16 bits, and 32 numbers of 8 bits.
    let blocks = blocks.chunks(32).flat_map(|block| {
        let numbers = block.iter().map(|&at| number(at) as i8 as u8);
        0x3c00u16.to_le_bytes().into_iter().chain(numbers)
    });

    let plain = read(BlockType::F32, plain);
    assert_eq!(plain, read(BlockType::Q8_0, blocks.collect()));

    // Row 1 of the first head is the third row in the file: rows of the two halves take turns there.
    assert_eq!(plain[width], number(2 * width) as f32);
    assert_eq!(plain[rows / 8 * width], number(width) as f32);
}

/// The experts of a published gpt-oss are blocks of MXFP4, those of all experts in one tensor.
#[test]
fn stacked_blocks_are_read_expert_by_expert() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let [experts, rows, blocks] = [3, 2, 2];
    // A block's scale tells the expert, 2 to the power of its number, and its codes tell the row: 1 is 0.5, and 2 is 1.
    let block = |number: usize| {
        let code = (number / blocks % rows + 1) as u8;
        let exponent = 127 + (number / blocks / rows) as u8;
        [vec![exponent], vec![code | (code << 4); 16]].concat()
    };

    let mut file = GgufFile::of_every_type("gpt-oss", false);
    file.tensors = vec![TensorOfFile {
        name: "blk.0.ffn_down_exps.weight".into(),
        kind: BlockType::MXFP4.number(),
        sizes: vec![32 * blocks as u64, rows as u64, experts as u64],
        bytes: (0..experts * rows * blocks).flat_map(block).collect(),
        says_at: None,
    }];
    fs::write(&path, file.bytes()).unwrap();

    let gguf = Gguf::open(&path).unwrap();
    for expert in 0..experts {
        let mut values = Vec::new();
        let name = format!("model.layers.0.mlp.experts.{expert}.down_proj.weight");
        gguf.read(&name, &mut values).unwrap();
        let scale = 2f32.powi(expert as i32);
        assert_eq!(values, [[0.5 * scale; 64], [scale; 64]].concat(), "{name}");
    }
}

/// A factor of 0 or 1 scales nothing. Any other is linear if no type is given, even under the older key.
#[test]
fn what_scales_the_positions_is_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let scaling = |change: &dyn Fn(&mut GgufFile)| -> Value {
        let mut file = GgufFile::of_every_type("llama", false);
        change(&mut file);
        fs::write(&path, file.bytes()).unwrap();
        let config = Gguf::open(&path).unwrap().file("config.json").unwrap().unwrap();
        serde_json::from_slice::<Value>(&config).unwrap()["rope_scaling"].clone()
    };
    let factor = |key: &'static str, factor: f32| {
        move |file: &mut GgufFile| file.float(&format!("llama.rope.{key}"), factor)
    };

    for nothing in [0.0, 1.0] {
        assert_eq!(scaling(&factor("scaling.factor", nothing)), Value::Null);
    }
    for key in ["scaling.factor", "scale_linear"] {
        assert_eq!(scaling(&factor(key, 4.0)), json!({ "rope_type": "linear", "factor": 4.0 }));
    }

    let none = |file: &mut GgufFile| {
        factor("scaling.factor", 4.0)(file);
        file.text("llama.rope.scaling.type", "none");
    };
    assert_eq!(scaling(&none), Value::Null);

    let yarn = |file: &mut GgufFile| {
        factor("scaling.factor", 4.0)(file);
        file.number("llama.rope.scaling.original_context_length", 128);
        file.text("llama.rope.scaling.type", "yarn");
    };
    let expected =
        json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128 });
    assert_eq!(scaling(&yarn), expected);
}

#[test]
fn an_adapter_is_exported_as_one_file_that_is_never_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("merged.gguf");
    let export = |more: &[&str]| {
        let out = out.to_str().unwrap();
        let program = [&["firebrick", "export", "fixtures/lora-qwen2", out], more].concat();
        Arguments::try_parse_from(program).unwrap().command.run().map_err(|it| it.to_string())
    };
    assert_eq!(export(&["--dtype", "f32"]), Ok(0));

    let base = load(Path::new("fixtures/qwen2-f32"), &Device::flex()).unwrap();
    let merged = load_adapter(base, Path::new("fixtures/lora-qwen2")).unwrap().merged();
    let values = |decoder: &Decoder| {
        parameters(decoder).into_iter().map(|it| it.values.to_data()).collect::<Vec<_>>()
    };
    assert_eq!(values(&load(&out, &Device::flex()).unwrap()), values(&merged));

    let before = fs::read(&out).unwrap();
    assert!(export(&["--dtype", "q8_0"]).unwrap_err().contains("it exists already"));
    assert_eq!(fs::read(&out).unwrap(), before);
    // Nothing is left beside it.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_file_is_exported_as_a_folder() {
    let fixture = Path::new("fixtures/qwen2-f32");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let out = folder.path().join("out");
    fs::write(&path, GgufFile::of_folder(fixture, Some("qwen2")).bytes()).unwrap();

    let found = Inspection::read(&path);
    assert!(found.faults.is_empty(), "{:?}", found.faults);

    let [from, to] = [&path, &out].map(|path| path.to_str().unwrap());
    let program = Arguments::try_parse_from(["firebrick", "export", from, to]).unwrap();
    assert_eq!(program.command.run().unwrap(), 0);

    let values = |folder: &Path| {
        let decoder = load(folder, &Device::flex()).unwrap();
        parameters(&decoder).into_iter().map(|it| it.values.to_data()).collect::<Vec<_>>()
    };
    assert_eq!(values(&out), values(fixture));

    let text = "What is 17 + 25?";
    let ids = |folder: &Path| Tokenizer::from_folder(folder).unwrap().encode(text, true).unwrap();
    assert_eq!(ids(&out), ids(fixture));
}

/// An adapter may belong to a GGUF file, whose path stands in the adapter's folder.
#[test]
fn an_adapter_is_merged_into_a_file_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let adapter = folder.path().join("adapter");
    let merged = |base: &str, out: &str| {
        let config = fs::read_to_string("fixtures/lora-qwen2/adapter_config.json").unwrap();
        let config = config.replace("../qwen2-f32", base);
        fs::write(adapter.join("adapter_config.json"), config).unwrap();
        let [from, to] =
            [&adapter, &folder.path().join(out)].map(|path| path.display().to_string());
        let program = ["firebrick", "export", &from, &to, "--merge"];
        assert_eq!(Arguments::try_parse_from(program).unwrap().command.run().unwrap(), 0);
        let decoder = load(Path::new(&to), &Device::flex()).unwrap();
        parameters(&decoder).into_iter().map(|it| it.values.to_data()).collect::<Vec<_>>()
    };

    fs::create_dir(&adapter).unwrap();
    let weights = "adapter_model.safetensors";
    fs::copy(Path::new("fixtures/lora-qwen2").join(weights), adapter.join(weights)).unwrap();

    let fixture = fs::canonicalize("fixtures/qwen2-f32").unwrap();
    let file = GgufFile::of_folder(&fixture, Some("qwen2"));
    fs::write(folder.path().join("model.gguf"), file.bytes()).unwrap();
    let of_file = merged("../model.gguf", "of-file");
    let of_folder = merged(fixture.to_str().unwrap(), "of-folder");
    assert_eq!(of_file, of_folder);
}

/// Six readers open the file, but only the first one's complaint is reported.
#[test]
fn a_broken_file_is_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let bytes = GgufFile::of_folder(Path::new("fixtures/qwen2-f32"), Some("qwen2")).bytes();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    let faults = Inspection::read(&path).faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert!(faults[0].contains("model.gguf"), "{faults:?}");
}

/// A tensor that is not refused has as many values as its shape says, whatever its bits are.
#[test]
fn any_bits_are_read_or_refused() {
    let scaled = GgufFile::of_folder(Path::new("fixtures/llama3-f32-scaled"), Some("llama-bpe"));
    let mut good = vec![("scaled".to_owned(), scaled.bytes())];
    for architecture in [
        "llama",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma3",
        "phi3",
        "qwen2moe",
        "qwen3moe",
        "qwen35",
        "granite",
        "qwen3next",
        "lfm2",
        "gpt-oss",
    ] {
        for scores in [false, true] {
            let name = format!("{architecture}-{}", if scores { "scores" } else { "merges" });
            good.push((name, GgufFile::of_every_type(architecture, scores).bytes()));
        }
    }

    if let Some(seeds) = env::var_os("FIREBRICK_GGUF_SEEDS") {
        fs::create_dir_all(&seeds).unwrap();
        for (name, bytes) in &good[1..] {
            fs::write(Path::new(&seeds).join(name), bytes).unwrap();
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut state = 17u64;
    // A linear congruential generator, with Knuth's numbers.
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };

    let mut taken = 0;
    for round in 0..1200 {
        let mut bytes = good[round % good.len()].1.clone();
        for _ in 0..1 + next() % 3 {
            // Most changes hit the bytes in which the file describes itself.
            let most = if round % good.len() == 0 { 20_000 } else { 1500 };
            let at = if next() % 4 == 0 { next() } else { next() % most };
            let at = at % bytes.len();
            bytes[at] = (next() & 255) as u8;
        }

        fs::write(&path, &bytes).unwrap();
        firebrick_gguf::fuzzing::open(&path);
        taken += usize::from(Gguf::open(&path).is_ok());
    }
    assert!((100..1180).contains(&taken), "{taken} of 1200 were taken");
}
