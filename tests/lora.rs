//! Adapters next to frozen weights: compared with PEFT's numbers, in a training step, in files and merged.

#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use burn::{module::Module as _, tensor::Device};
use firebrick_core::{Prompt, Seed};
use firebrick_models::{
    CheckpointError, Decoder, Lora, Padding, PolicyModel as _, TokenBatch, adapter_config,
    check_adapter, load, load_adapter, parameters, save_adapter,
};
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};
use firebrick_tests::{
    close::{Tolerance, nested_pairs, pairs},
    computed::{
        GRADIENTS, LOGITS, LOSS, check_norms, logits, named_gradients, read, real, sample, updater,
    },
    expected::{AdapterGradients, Logits, unpad},
    fixture::{Fixture, for_each_adapter},
    tiny,
};
use firebrick_train::learner::{
    AdamW, CrossEntropy, OptimConfig, Optimizer, global_norm, sft_step,
};
use serde_json::{Value, json};

/// Merging adds the products before the sum over inputs instead of after it.
const MERGED: Tolerance = Tolerance { absolute: 5e-4, relative: 1e-4 };

#[test]
fn adapters_compute_what_peft_computes() {
    for_each_adapter("unmerged_logits", |fixture, expected: Logits| {
        check_logits(fixture, &adapted(fixture, &Device::flex()), &expected, "unmerged", LOGITS);
    });
    for_each_adapter("merged_logits", |fixture, expected: Logits| {
        let merged = adapted(fixture, &Device::flex()).merged();
        assert_eq!(merged.lora(), None);
        check_logits(fixture, &merged, &expected, "merged", MERGED);
    });
}

#[test]
fn only_adapters_have_gradients() {
    for_each_adapter("ce_lora", |fixture, expected: AdapterGradients| {
        let policy = adapted(fixture, &Device::flex().autodiff());
        let batch: Logits = fixture.block("unmerged_logits");
        let rows = unpad(&batch.right.input_ids, &batch.right.attention_mask);
        // A token is predicted from those before it, so the first token of a row has no label.
        let samples: Vec<_> =
            rows.iter().map(|row| sample(row[..1].to_vec(), row[1..].to_vec())).collect();

        let report = updater(CrossEntropy, 1.0).gradients(&policy, &samples).unwrap();
        let what = format!("{}: cross-entropy", fixture.name);
        LOSS.check(&what, [(report.loss, expected.loss)]);

        // The names are checked too, because no frozen weight, not even the head, may have a gradient.
        check_norms(&what, &named_gradients(&policy, &report.gradients), &expected.grad_norms);
        let norm = global_norm(&policy, &report.gradients).unwrap();
        GRADIENTS.check(&format!("{what}, norm"), [(norm, expected.total_grad_norm)]);
    });
}

#[test]
fn an_adapter_survives_its_files() {
    for_each_adapter("unmerged_logits", |fixture, _: Logits| {
        let decoder = adapted(fixture, &Device::flex());
        let folder = tempfile::tempdir().unwrap();
        let (_, base) = adapter_config(&fixture.folder).unwrap();
        save_adapter(&decoder, &base, folder.path()).unwrap();
        let again = load_adapter(base_of(fixture, &Device::flex()), folder.path()).unwrap();

        assert_eq!(values(&again), values(&decoder));
        assert_eq!(again.lora(), decoder.lora());
        assert_eq!(adapter_config(folder.path()).unwrap().1, base);
        let ours = tensors(folder.path());
        let theirs = tensors(&fixture.folder);
        assert_eq!(ours, theirs, "{}: the bytes of each tensor", fixture.name);
    });
}

#[test]
fn a_new_adapter_changes_nothing_until_it_learns() {
    let device = Device::flex().autodiff();
    let base = tiny::policy(3, &device);
    let lora = Lora {
        rank: 4,
        alpha: 8.0,
        targets: vec!["q_proj".into(), "up_proj".into()],
        rslora: true,
        ..Lora::default()
    };
    let policy = base.clone().with_lora(lora.clone(), Seed::run(1));
    assert_eq!(lora.scale("model.layers.0.mlp.up_proj"), 4.0);

    // There are two layers and two targets, and A and B of each.
    let adapters = |decoder: &Decoder| -> Vec<String> {
        let paths = values(decoder).into_keys();
        paths.filter(|path| path.contains("adapters")).collect()
    };
    assert_eq!(adapters(&policy).len(), 8);

    let row: Vec<u32> = (1..20).collect();
    let batch = TokenBatch::new(&[&row], Padding::Right, &device);
    let flat = |decoder: &Decoder| read(decoder.logits(&batch).inner().reshape([-1]));
    assert_eq!(flat(&policy), flat(&base));

    let examples = [firebrick_core::SftExample::new(vec![1, 2], vec![3, 4, 5])];
    let mut optimizer = AdamW::new(OptimConfig { weight_decay: 0.0, ..OptimConfig::default() });
    let micro_batching = firebrick_tests::computed::MICRO_BATCHING;
    let (learnt, _, outcome) =
        sft_step(policy.clone(), &mut optimizer, &examples, 0.5, micro_batching).unwrap();
    assert!(outcome.grad_norm > 0.0);

    let before = values(&policy);
    let after = values(&learnt);
    for (path, values) in &before {
        // While B is 0, no gradient reaches A.
        let moves = path.contains("adapters") && path.ends_with(".b");
        assert_eq!(after[path] != *values, moves, "{path}");
    }

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    Optimizer::<Decoder>::save(&optimizer, &path).unwrap();
    let (header, _) = header(&path);
    let with_state = header.as_object().unwrap().keys();
    assert!(with_state.clone().all(|name| name.contains("adapters")), "{with_state:?}");

    // Sampling uses the adapters as they are, without merging.
    let merged = learnt.clone().merged();
    for policy in [&learnt, &merged] {
        assert_ne!(greedy(policy), greedy(&base));
    }
    assert_eq!(greedy(&learnt), greedy(&merged));
    LOGITS.check("merged", pairs(&flat(&merged), &flat(&learnt)));

    // A copy for sampling has only joined adapters, so its file would have none.
    let problem = save_adapter(&learnt.sampler(), &"base".into(), folder.path()).unwrap_err();
    assert!(problem.to_string().contains("a copy for sampling"), "{problem}");
}

#[test]
fn what_is_no_adapter_for_this_model_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let policy = tiny::policy(3, &Device::flex());
    let lora = Lora { rank: 2, alpha: 4.0, targets: vec!["v_proj".into()], ..Lora::default() };
    save_adapter(&policy.clone().with_lora(lora, Seed::run(1)), &"base".into(), folder.path())
        .unwrap();

    let config = folder.path().join("adapter_config.json");
    let good = fs::read_to_string(&config).unwrap();
    let problem = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        fs::write(&config, good.replace(from, to)).unwrap();
        let error = load_adapter(policy.clone(), folder.path()).unwrap_err();
        let message = error.to_string();
        assert!(message.contains("adapter_"), "{message}");
        message
    };

    for (from, to, expected) in [
        ("\"LORA\"", "\"LOHA\"", "it is of type LOHA, expected LORA"),
        ("\"use_dora\": false", "\"use_dora\": true", "use_dora = true is not implemented"),
        (
            "\"modules_to_save\": null",
            "\"modules_to_save\": [\"lm_head\"]",
            "lm_head is in modules_to_save, and",
        ),
        (
            "\"modules_to_save\": null",
            "\"modules_to_save\": [\"norm\"]",
            "modules_to_save has \"norm\", expected embed_tokens and lm_head",
        ),
        (
            "\"rank_pattern\": {}",
            "\"rank_pattern\": {\"v_proj\": 0}",
            "the rank of \"v_proj\" is 0, expected 1 to 1048576",
        ),
        (
            "\"rank_pattern\": {}",
            "\"rank_pattern\": {\"v_proj\": \"3\"}",
            "should be a whole number",
        ),
        (
            "\"alpha_pattern\": {}",
            "\"alpha_pattern\": {\"(\": 3}",
            "\"(\" is not a regular expression",
        ),
        (
            "\"lora_alpha\": 4",
            "\"lora_alpha\": 1e308",
            "\"lora_alpha\" should be a number that float32",
        ),
        (
            "\"lora_alpha\": 4",
            "\"lora_alpha\": -2e9",
            "the alpha of \"lora_alpha\" is -2e9, expected at most 1e9 in size",
        ),
        (
            "\"alpha_pattern\": {}",
            "\"alpha_pattern\": {\"v_proj\": 1e30}",
            "the alpha of \"v_proj\" is 1e30, expected at most 1e9",
        ),
        (
            "\"r\": 2",
            "\"r\": 3",
            "[2, 32], but the model and the rank make it F32, BF16 or F16 [3,",
        ),
        ("\"r\": 2", "\"r\": 0", "the rank of \"r\" is 0"),
        ("\"r\": 2", "\"r\": \"two\"", "\"r\" should be a whole number"),
        ("{", "", "not valid JSON"),
    ] {
        let message = problem(from, to);
        assert!(message.contains(expected), "{message}");
    }

    fs::write(&config, &good).unwrap();
    load_adapter(policy, folder.path()).unwrap();
    let shallow = load_adapter(tiny::shallow(3, &Device::flex()), folder.path()).unwrap_err();
    assert!(
        matches!(&shallow, CheckpointError::Adapter { problem, .. }
        if problem.contains("does not belong to a model with num_hidden_layers = 1")),
        "{shallow}"
    );
}

/// Classes of transformers name the text model of a model that sees pictures in three ways.
#[test]
fn an_adapter_beside_a_model_that_sees_pictures_is_read_by_any_names() {
    for (fixture, own) in [
        ("gemma3-f32-pictures", "model.language_model.layers."),
        ("gemma4-f32-pictures", "model.language_model.layers."),
        ("mistral3-f32-pictures", "model.language_model.layers."),
        ("qwen3_5-f32-pictures", "model.layers."),
    ] {
        let base = load(Path::new(&format!("fixtures/{fixture}")), &Device::flex()).unwrap();
        let targets = ["q_proj", "o_proj", "down_proj"].map(String::from).to_vec();
        let lora = Lora { rank: 2, alpha: 4.0, targets, ..Lora::default() };
        let adapted = base.clone().with_lora(lora, Seed::run(1));
        let folder = tempfile::tempdir().unwrap();
        save_adapter(&adapted, &"base".into(), folder.path()).unwrap();

        let begins = format!("base_model.model.{own}");
        let names: Vec<String> = tensors(folder.path()).into_keys().collect();
        assert!(names.iter().all(|name| name.starts_with(&begins)), "{fixture}: {names:?}");

        for prefix in ["model.", "model.language_model.", "language_model.model."] {
            let other = format!("base_model.model.{prefix}layers.");
            renamed(folder.path(), |name| {
                let name = name.replacen(&begins, &other, 1);
                // Some programs save the names of the model's state, with the adapter's name in them.
                name.replace(".weight", ".default.weight")
            });
            let read = load_adapter(base.clone(), folder.path()).unwrap();
            assert_eq!(values(&read), values(&adapted), "{fixture}: {prefix}");

            let again = tempfile::tempdir().unwrap();
            save_adapter(&read, &"base".into(), again.path()).unwrap();
            assert_eq!(tensors(again.path()).into_keys().collect::<Vec<_>>(), names, "{prefix}");
            save_adapter(&adapted, &"base".into(), folder.path()).unwrap();
        }
    }
}

/// Tensors that PEFT skips because of the adapter's own fields add nothing here either.
#[test]
fn an_adapter_is_beside_the_modules_that_its_file_selects() {
    let base = load(Path::new("fixtures/qwen2-f32"), &Device::flex()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let fixture = Path::new("fixtures/lora-qwen2");
    for name in ["adapter_config.json", "adapter_model.safetensors"] {
        fs::copy(fixture.join(name), folder.path().join(name)).unwrap();
    }

    let path = folder.path().join("adapter_config.json");
    let good: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let with = |fields: Value| {
        let mut config = good.clone();
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        fs::write(&path, config.to_string()).unwrap();
        load_adapter(base.clone(), folder.path())
    };

    let beside = |decoder: &Decoder| -> BTreeSet<String> {
        let again = tempfile::tempdir().unwrap();
        save_adapter(decoder, &"base".into(), again.path()).unwrap();
        let names = tensors(again.path()).into_keys();
        let module = |name: String| {
            let inner = name.strip_prefix("base_model.model.model.layers.").unwrap();
            inner.split_once(".lora_").unwrap().0.to_owned()
        };
        names.map(module).collect()
    };

    let all = beside(&with(json!({})).unwrap());
    assert!(all.len() >= 14, "{all:?}");
    type Wanted<'a> = &'a dyn Fn(&str) -> bool;
    let some = |wanted: Wanted| -> BTreeSet<String> {
        all.iter().filter(|name| wanted(name)).cloned().collect()
    };
    let of_layer = |name: &str| name.starts_with("1.");
    let queries = |name: &str| name.ends_with(".q_proj");

    let cases: [(Value, Wanted); 9] = [
        (json!({ "layers_to_transform": [1] }), &of_layer),
        (json!({ "layers_to_transform": 1, "layers_pattern": "layers" }), &of_layer),
        (json!({ "layers_to_transform": [1, 70], "layers_pattern": ["h", "layers"] }), &of_layer),
        (json!({ "exclude_modules": ["q_proj"] }), &|name| !queries(name)),
        (json!({ "exclude_modules": ["layers.0.self_attn.q_proj"] }), &|name| {
            name != "0.self_attn.q_proj"
        }),
        (json!({ "exclude_modules": r".*\.0\..*" }), &|name| !name.starts_with("0.")),
        (json!({ "target_modules": r"model\.layers\.\d+\.self_attn\.(?!k|v|o).*" }), &queries),
        (json!({ "target_modules": ["model.layers.1.mlp.up_proj"] }), &|name| {
            name == "1.mlp.up_proj"
        }),
        (json!({ "target_modules": "all-linear" }), &|_| true),
    ];

    for (fields, wanted) in cases {
        let read = with(fields.clone()).unwrap();
        assert_eq!(beside(&read), some(wanted), "{fields}");
        let left_out = check_adapter(folder.path(), base.config()).unwrap();
        assert_eq!(left_out.len(), 2 * (all.len() - some(wanted).len()), "{fields}");

        let again = tempfile::tempdir().unwrap();
        save_adapter(&read, &"base".into(), again.path()).unwrap();
        let saved = fs::read(again.path().join("adapter_config.json")).unwrap();
        let saved: Value = serde_json::from_slice(&saved).unwrap();
        for (field, value) in fields.as_object().unwrap() {
            assert_eq!(saved[field], *value, "{field}");
        }
        let read_again = load_adapter(base.clone(), again.path()).unwrap();
        assert_eq!(values(&read_again), values(&read), "{fields}");
    }

    for (fields, words) in [
        (json!({ "layers_to_transform": [9] }), "selects none of the tensors"),
        (json!({ "layers_to_transform": "all" }), "expected the number of a layer"),
        (json!({ "layers_pattern": "layers" }), "layers_pattern needs layers_to_transform"),
        (
            json!({ "layers_to_transform": [1], "target_modules": ".*q_proj" }),
            "needs a list of names as target_modules",
        ),
        (json!({ "exclude_modules": 7 }), "exclude_modules is 7, expected a list of names"),
        (json!({ "target_modules": "(" }), "is not a regular expression"),
        (json!({ "kasa_config": { "beta": 1 } }), "kasa_config = {\"beta\":1} is not implemented"),
    ] {
        let message = with(fields.clone()).unwrap_err().to_string();
        assert!(message.contains("adapter_config.json") && message.contains(words), "{message}");
    }
}

/// Names that PEFT would skip are either read or refused with the reason.
#[test]
fn names_of_an_adapter_that_mean_nothing_are_refused() {
    let base = tiny::policy(3, &Device::flex());
    let lora = Lora { rank: 2, alpha: 4.0, targets: vec!["v_proj".into()], ..Lora::default() };
    let adapted = base.clone().with_lora(lora, Seed::run(1));
    let folder = tempfile::tempdir().unwrap();
    let first = "model.layers.0.self_attn.v_proj.lora_A";

    for (from, to, words) in [
        ("base_model.model.", "model.", "does not begin with base_model.model."),
        (first, "model.layers.0.self_attn.v_proj.lora_E", "is of no adapter that is implemented"),
        (first, "model.layers.0.self_attn.v_proj.lora_A.a.b", "is of no adapter"),
        (first, "model.layers.0.self_attn.w_proj.lora_A", "is of no projection"),
        (first, "model.embed_tokens.lora_embedding_A", "is an adapter of the embedding"),
        (first, "model.language_model.layers.0.self_attn.v_proj.lora_A", "for two classes"),
        (first, &format!("{first}.default"), "of an adapter without a name and of the adapter"),
        ("lora_A.weight", "lora_magnitude_vector.weight", "is a magnitude of DoRA"),
        ("lora_A.weight", "base_layer.bias", "is a bias that was trained"),
        (
            first,
            "lm_head",
            "is a matrix that was trained in full, expected lm_head in modules_to_save",
        ),
        ("lora_A", "lora_B.default", "is of the same matrix as"),
    ] {
        save_adapter(&adapted, &"base".into(), folder.path()).unwrap();
        renamed(folder.path(), |name| name.replace(from, to));
        let message = load_adapter(base.clone(), folder.path()).unwrap_err().to_string();
        assert!(message.contains(words), "{from} as {to}: {message}");
    }
}

fn adapted(fixture: &Fixture, device: &Device) -> Decoder {
    load_adapter(base_of(fixture, device), &fixture.folder).unwrap()
}

fn base_of(fixture: &Fixture, device: &Device) -> Decoder {
    let (_, base) = adapter_config(&fixture.folder).unwrap();
    load(&fixture.folder.join(base.name), device).unwrap()
}

fn check_logits(
    fixture: &Fixture,
    decoder: &Decoder,
    expected: &Logits,
    which: &str,
    tolerance: Tolerance,
) {
    let vocab = decoder.config().vocab_size;
    let mask = &expected.right.attention_mask;
    let reference: Vec<Vec<f32>> = fixture
        .tensor(&format!("{which}_logits_right"))
        .chunks(vocab)
        .map(<[f32]>::to_vec)
        .collect();
    let ours = logits(decoder, &expected.right, Padding::Right);
    let what = format!("{}: {which} logits", fixture.name);
    tolerance.check(&what, nested_pairs(&real(&ours, mask), &real(&reference, mask)));

    // With padding on the left, every row ends in the last column.
    let left = logits(decoder, &expected.left, Padding::Left);
    let width = expected.left.input_ids[0].len();
    let last: Vec<f32> = left.chunks(width).flat_map(|row| row[width - 1].clone()).collect();
    let reference = fixture.tensor(&format!("{which}_logits_left_last"));
    tolerance.check(&format!("{what}, padded left"), pairs(&last, &reference));
}

fn greedy(policy: &Decoder) -> Vec<u32> {
    let prompt = Prompt { tokens: vec![1, 2], ..Prompt::default() };
    let sampling = Sampling::greedy(12, Vec::new());
    let requests = GroupRequest::of_prompts([(0, prompt)], 1, &sampling, Seed::run(0));
    let mut engine = LocalEngine::new(policy, tiny::numbers(), 4, 64, SampleOn::Host);
    let groups = generate(&mut engine, requests, &mut |_| {}).unwrap();
    groups[0].completions[0].tokens.clone()
}

/// Reads every parameter's values by its path.
fn values(decoder: &Decoder) -> BTreeMap<String, Vec<f32>> {
    let all = parameters(&decoder.valid()).into_iter();
    all.map(|parameter| (parameter.path, read(parameter.values))).collect()
}

/// Reads the bytes of each tensor in a folder's adapter.
fn tensors(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (header, data) = header(&folder.join("adapter_model.safetensors"));
    let tensors = header.as_object().unwrap().iter().filter(|(name, _)| *name != "__metadata__");
    let bytes = tensors.map(|(name, info)| {
        let at = |end: usize| info["data_offsets"][end].as_u64().unwrap() as usize;
        (name.clone(), data[at(0)..at(1)].to_vec())
    });
    bytes.collect()
}

/// Renames the tensors of a folder's adapter.
fn renamed(folder: &Path, name: impl Fn(&str) -> String) {
    let path = folder.join("adapter_model.safetensors");
    let (header, data) = header(&path);
    let named = |(old, info): (&String, &Value)| match old.as_str() {
        "__metadata__" => (old.clone(), info.clone()),
        old => (name(old), info.clone()),
    };
    let header: Value = header.as_object().unwrap().iter().map(named).collect();

    let mut text = header.to_string().into_bytes();
    // The format aligns the data to 8 bytes.
    text.resize(text.len().next_multiple_of(8), b' ');
    let length = (text.len() as u64).to_le_bytes();
    fs::write(&path, [&length[..], &text, &data].concat()).unwrap();
}

fn header(path: &Path) -> (serde_json::Value, Vec<u8>) {
    let bytes = fs::read(path).unwrap();
    let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    (serde_json::from_slice(&bytes[8..8 + length]).unwrap(), bytes[8 + length..].to_vec())
}
