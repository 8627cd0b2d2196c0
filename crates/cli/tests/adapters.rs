//! Runs of adapters from end to end, and the uses of their checkpoints.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::fs;

use firebrick::burn::tensor::Device;
use firebrick_models::{Formats, WeightDtype, inventory, load, load_config, save_as};
use scratch::{Outcome, Scratch, assert_same, repository};
use serde_json::{Map, Value};

/// Makes a scratch folder with the fixture `name` in the folder `base`.
fn with_base(name: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.fixture(name, "base");
    scratch
}

/// Trains the model in `base` for two steps, in which every group has a spread.
fn train(scratch: &Scratch, name: &str, more: &[&str]) -> Outcome {
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    let name = format!("name={name}");
    let mut arguments = vec!["train".to_owned(), repository("recipes/gsm8k-tiny.toml")];

    let short = [
        "model.path=base",
        &data,
        &name,
        "train.steps=2",
        "rollout.max_completion_tokens=8",
        // Some completions of random weights have an e, and some have none.
        "reward={kind=\"regex\",pattern=\"e\",matches=true}",
        "optim.lr=0.05",
        "optim.warmup_steps=0",
        "sampling.max_rounds=1",
        "data.heldout_size=4",
    ];

    for set in short.iter().chain(more) {
        if *set == "--resume" {
            arguments.push((*set).to_owned());
        } else {
            arguments.extend(["--set".to_owned(), (*set).to_owned()]);
        }
    }
    scratch.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
}

#[track_caller]
fn succeed(scratch: &Scratch, name: &str, more: &[&str]) -> Outcome {
    let outcome = train(scratch, name, more);
    assert_eq!(outcome.code, Some(0), "{more:?}: {}", outcome.stderr);
    outcome
}

const LORA: &str = "model.lora={rank=4}";

fn values(scratch: &Scratch, run: &str, metric: &str) -> Vec<f64> {
    scratch.metrics(run).iter().map(|step| step[metric].as_f64().unwrap()).collect()
}

/// Returns the names of the files in a folder, sorted.
fn files(scratch: &Scratch, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(scratch.path(folder)).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns the names of the tensors in a file.
fn tensors(scratch: &Scratch, file: &str) -> Vec<String> {
    let bytes = fs::read(scratch.path(file)).unwrap();
    let (length, rest) = bytes.split_first_chunk::<8>().unwrap();
    let header = &rest[..u64::from_le_bytes(*length) as usize];
    let header: Map<String, Value> = serde_json::from_slice(header).unwrap();
    header.keys().filter(|name| *name != "__metadata__").cloned().collect()
}

/// Returns the tokens that a model writes if it always takes the most likely one.
fn greedy(scratch: &Scratch, model: &str) -> Value {
    let ask = ["generate", model, "--plain", "What is 2 + 2?", "--temperature", "0"];
    let more = ["--max-tokens", "24", "--dtype", "float32", "--json"];
    let outcome = scratch.succeed(&[&ask[..], &more].concat());
    serde_json::from_str::<Value>(&outcome.stdout).unwrap()["tokens"].clone()
}

#[test]
fn an_interrupted_run_of_an_adapter_continues_with_a_base_that_was_moved() {
    // The weights are rounded. The adapters next to them stay in f32.
    let scratch = with_base("qwen2-bf16");
    let kl = "loss.kl={kind=\"k3\",coef=0.1}";
    let whole = [LORA, kl, "train.steps=4", "eval.every=1", "optim.lr=1e-3"];
    succeed(&scratch, "whole", &whole);
    assert!(values(&scratch, "whole", "update/count").iter().all(|&count| count > 0.0));

    let kl = values(&scratch, "whole", "loss/kl");
    assert!(kl[3].is_finite() && kl[3] != 0.0, "{kl:?}");

    let checkpoint = "runs/whole/checkpoints/step-000004";
    let expected = ["README.md", "adapter_config.json", "adapter_model.safetensors"];
    let found = files(&scratch, checkpoint);
    assert!(expected.iter().all(|name| found.iter().any(|file| file == name)), "{found:?}");
    assert!(!found.iter().any(|name| name == "model.safetensors"), "{found:?}");
    let trainer = format!("{checkpoint}/trainer");
    assert_eq!(
        files(&scratch, &trainer),
        ["SHA256SUMS", "optimizer.safetensors", "progress.json", "state.json"]
    );
    let state = tensors(&scratch, &format!("{trainer}/optimizer.safetensors"));
    assert!(!state.is_empty() && state.iter().all(|name| name.contains("adapters")), "{state:?}");
    let card = fs::read_to_string(scratch.path(&format!("{checkpoint}/README.md"))).unwrap();
    assert!(card.starts_with("---\nlibrary_name: peft\n"), "{card}");
    assert!(card.contains("The weights are float32."), "{card}");

    let half = [&whole[..2], &["train.steps=2"], &whole[3..]].concat();
    succeed(&scratch, "stopped", &half);
    fs::rename(scratch.path("base"), scratch.path("moved")).unwrap();
    let resume = [&whole[..], &["--resume"]].concat();

    let outcome = train(&scratch, "stopped", &resume);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("set model.path to the folder"), "{}", outcome.stderr);
    succeed(&scratch, "stopped", &[&resume[..], &["model.path=moved"]].concat());
    assert_same(&scratch.result("whole"), &scratch.result("stopped"));

    // The adapter of this run knows the new path, while that of the other run can't know it.
    greedy(&scratch, "runs/stopped/checkpoints/step-000004");
    let outcome = scratch.run(&["generate", checkpoint, "2"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("base_model_name_or_path"), "{}", outcome.stderr);
}

#[test]
fn checkpoints_and_exports_keep_the_format_of_each_tensor() {
    let scratch = with_base("qwen2-bf16");
    let base = scratch.path("base");
    let decoder = load(&base, &Device::flex()).unwrap();
    let (_, config) = load_config(&base).unwrap();

    let mut formats = inventory(&base).unwrap().formats();
    let names = tensors(&scratch, "base/model.safetensors");
    for norm in names.iter().filter(|name| name.ends_with("norm.weight")) {
        formats.set(norm, WeightDtype::F32);
    }
    save_as(&decoder, &config, &base, &formats, u64::MAX).unwrap();

    succeed(&scratch, "full", &["train.steps=1"]);
    succeed(&scratch, "adapter", &[LORA, "train.steps=1"]);
    let checkpoint = "runs/full/checkpoints/step-000001";
    let adapter = "runs/adapter/checkpoints/step-000001";
    scratch.succeed(&["export", checkpoint, "exported"]);
    scratch.succeed(&["export", adapter, "merged", "--merge"]);
    for folder in [checkpoint, "exported", "merged"] {
        assert_eq!(inventory(&scratch.path(folder)).unwrap().formats(), formats, "{folder}");
        assert_eq!(scratch.json(&format!("{folder}/config.json"))["dtype"], "bfloat16");
    }
    scratch.succeed(&["export", checkpoint, "wide", "--dtype", "float32"]);
    let wide = inventory(&scratch.path("wide")).unwrap().formats();
    assert_eq!(wide, Formats::all(WeightDtype::F32));
}

#[test]
fn an_adapter_is_measured_exported_and_merged() {
    let scratch = with_base("qwen2-f32");

    // A file has no parts, so the settings for the parts of a data set change nothing.
    let parts = ["data.subset=main", "data.split=train", "data.heldout_split=test"];
    let begun = succeed(&scratch, "a", &[&[LORA], &parts[..]].concat()).stderr;
    assert!(begun.contains(" of them trained (adapters of rank 4)"), "{begun}");

    let adapter = "runs/a/checkpoints/step-000002";
    let further = format!("model.path={adapter}");
    let recipe = repository("recipes/gsm8k-tiny.toml");
    let plan = scratch.succeed(&["plan", &recipe, "--set", &further, "--memory", "8GB", "--json"]);
    let plan: Value = serde_json::from_str(&plan.stdout).unwrap();
    assert_eq!(plan["facts"]["frozen"], true, "{plan}");
    scratch.succeed(&["eval", adapter, "--samples", "1"]);
    let shown = scratch.succeed(&["inspect", adapter, "--check"]).stdout;
    assert!(shown.contains("rank 4"), "{shown}");

    let tokens = greedy(&scratch, adapter);
    assert_ne!(tokens, greedy(&scratch, "base"), "nothing was learnt that could be lost");
    scratch.succeed(&["export", adapter, "plain"]);
    let without_trainer = |folder: &str| {
        let mut names = files(&scratch, folder);
        names.retain(|name| name != "trainer");
        names
    };
    assert_eq!(files(&scratch, "plain"), without_trainer(adapter));
    assert_eq!(greedy(&scratch, "plain"), tokens);
    scratch.succeed(&["export", adapter, "merged", "--merge"]);
    assert_eq!(greedy(&scratch, "merged"), tokens);
    assert_eq!(
        scratch.json("merged/config.json")["vocab_size"],
        scratch.json("base/config.json")["vocab_size"]
    );

    scratch.succeed(&["export", adapter, "half", "--merge", "--dtype", "bfloat16"]);
    assert_eq!(scratch.json("half/config.json")["torch_dtype"], "bfloat16");
    let size = |folder: &str| {
        fs::metadata(scratch.path(&format!("{folder}/model.safetensors"))).unwrap().len()
    };
    assert!(2 * size("half") < size("merged") + 8192);
    greedy(&scratch, "half");

    // The export of a whole model leaves out the files that only a resumed run needs.
    succeed(&scratch, "full", &["train.steps=1"]);
    let full = "runs/full/checkpoints/step-000001";
    scratch.succeed(&["export", full, "full"]);
    assert_eq!(files(&scratch, "full"), without_trainer(full));
    assert_eq!(greedy(&scratch, "full"), greedy(&scratch, full));

    for (arguments, message) in [
        (&["export", adapter, "plain"][..], "it exists already"),
        (&["export", "base", "out", "--merge"], "the model has no adapter to merge"),
        (&["export", adapter, "out", "--dtype", "float16"], "--dtype needs --merge"),
        (&["export", adapter, "out", "--merge", "--dtype", "q8_0"], "a file that ends in .gguf"),
        (&["export", "nowhere", "out"], "there is no such folder"),
        (&["export", "runs", "out"], "it has no config.json"),
    ] {
        let outcome = scratch.run(arguments);
        assert_eq!(outcome.code, Some(2), "{arguments:?}: {}", outcome.stderr);
        assert!(outcome.stderr.contains(message), "{arguments:?}: {}", outcome.stderr);
        assert!(!scratch.path("out").exists() && !scratch.path(".tmp-out").exists());
    }
}

#[test]
fn an_adapter_is_trained_on() {
    let scratch = with_base("qwen2-f32");
    succeed(&scratch, "first", &[LORA, "train.steps=1"]);
    let first = "model.path=runs/first/checkpoints/step-000001";
    let outcome = train(&scratch, "two", &[LORA, first]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("is an adapter already"), "{}", outcome.stderr);

    // The base weights may be packed, as they may be for a new adapter. A model without adapters has no such weights.
    let packed = ["model.base=int8", "train.steps=1"];
    succeed(&scratch, "packed", &[&[first], &packed[..]].concat());
    let outcome = train(&scratch, "whole", &packed);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let words =
        "model.base is set, expected only with model.lora, or with an adapter as model.path";
    assert!(outcome.said().contains(words), "{}", outcome.stderr);

    succeed(&scratch, "second", &[first, "train.steps=1"]);
    let checkpoint = |run: &str| format!("runs/{run}/checkpoints/step-000001");
    let weights = |run: &str| {
        fs::read(scratch.path(&format!("{}/adapter_model.safetensors", checkpoint(run)))).unwrap()
    };
    assert!(weights("first") != weights("second"), "the second run changed nothing");
    let config = |run: &str| scratch.json(&format!("{}/adapter_config.json", checkpoint(run)));
    assert_eq!(config("first"), config("second"));
    let base = config("second")["base_model_name_or_path"].clone();
    assert_eq!(
        fs::canonicalize(base.as_str().unwrap()).unwrap(),
        fs::canonicalize(scratch.path("base")).unwrap()
    );
}

/// If `generate` or `export` refuses something in a folder, `inspect` names it too.
#[test]
fn inspect_and_generate_agree_on_a_folder() {
    let scratch = with_base("qwen2-f32");
    scratch.fixture("lora-qwen2", "adapter");
    scratch.write("adapter/adapter_config.json", {
        let mut config = scratch.json("adapter/adapter_config.json");
        config["base_model_name_or_path"] = "../base".into();
        config.to_string()
    });

    // A folder with a model and an adapter counts as the model.
    scratch.fixture("qwen2-f32", "both");
    fs::copy(scratch.path("adapter/adapter_config.json"), scratch.path("both/adapter_config.json"))
        .unwrap();

    let kept: Vec<(&str, Vec<u8>)> = [
        "adapter/adapter_config.json",
        "adapter/adapter_model.safetensors",
        "base/config.json",
        "base/model.safetensors",
        "both/model.safetensors",
    ]
    .map(|file| (file, fs::read(scratch.path(file)).unwrap()))
    .into();

    let agree = |folder: &str, usable: bool, words: &str| {
        let inspected = scratch.run(&["inspect", folder]);
        let generated = scratch.run(&["generate", folder, "2", "--max-tokens", "1"]);
        let _ = fs::remove_dir_all(scratch.path("out"));
        let exported = scratch.run(&["export", folder, "out"]);
        for outcome in [&inspected, &generated, &exported] {
            assert_eq!(outcome.code == Some(0), usable, "{words}: {}", outcome.said());
        }
        assert!(inspected.stdout.contains(words), "{words}: {}", inspected.stdout);
    };

    let changed = |file: &str, from: &str, to: &str| {
        let bytes = fs::read(scratch.path(file)).unwrap();
        let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        // The file keeps its length, because a safetensors file states the length of its header.
        assert_eq!(from.len(), to.len());
        let bytes = [&bytes[..at], to.as_bytes(), &bytes[at + from.len()..]].concat();
        scratch.write(file, bytes);
    };

    let restored = || {
        for (file, bytes) in &kept {
            scratch.write(file, bytes);
        }
    };

    for folder in ["adapter", "base", "both"] {
        agree(folder, true, folder);
    }

    for (folder, file, from, to, words) in [
        ("adapter", kept[1].0, "q_proj.lora_A", "q_proj.lora_E", "is of no adapter"),
        (
            "adapter",
            kept[1].0,
            "layers.1.mlp.up_proj.lora_A",
            "layers.9.mlp.up_proj.lora_A",
            "only one",
        ),
        ("adapter", kept[1].0, "\"F32\"", "\"I32\"", "I32"),
        ("adapter", kept[0].0, "\"LORA\"", "\"LOHA\"", "it is of type LOHA"),
        ("adapter", kept[0].0, "\"../base\"", "\"../gone\"", "gone"),
        ("adapter", kept[2].0, "\"vocab_size\": 6", "\"vocab_size\": 7", "config.json"),
        ("adapter", kept[3].0, "\"F32\"", "\"I32\"", "I32"),
        ("base", kept[3].0, "\"F32\"", "\"I32\"", "I32"),
        ("base", kept[2].0, "\"intermediate_size\": 1", "\"intermediate_size\": 2", "config.json"),
        ("both", kept[4].0, "model.norm.weight", "model.nurm.weight", "model.norm.weight"),
    ] {
        changed(file, from, to);
        agree(folder, false, words);
        restored();
    }

    scratch.write("adapter/tokenizer.json", "{");
    agree("adapter", false, "tokenizer.json");
}

/// bfloat16 is slow on the processor, but a GPU computes like this.
#[test]
fn a_run_in_bfloat16_stays_near_one_in_float32() {
    let scratch = with_base("qwen2-f32");
    for (name, more) in [("full", None), ("lora", Some(LORA))] {
        let more: Vec<&str> = more.into_iter().chain(["optim.lr=1e-4"]).collect();
        succeed(&scratch, name, &[&more[..], &["model.dtype=bfloat16"]].concat());
        assert!(values(&scratch, name, "update/count").iter().all(|&count| count > 0.0));
        assert!(values(&scratch, name, "loss/total").iter().all(|loss| loss.is_finite()));

        // The sampler multiplies in other shapes than the update, but in the same format.
        let largest = values(&scratch, name, "rollout/logprob_diff_max");
        let mean = values(&scratch, name, "rollout/logprob_diff_mean");
        assert!(largest.iter().all(|&off| off < 0.1), "{largest:?}");
        assert!(mean.iter().all(|&off| off < 0.01), "{mean:?}");

        let wide = format!("{name}-f32");
        succeed(&scratch, &wide, &more);
        assert!(values(&scratch, &wide, "rollout/logprob_diff_max").iter().all(|&off| off < 1e-4));
    }
}

#[test]
fn every_family_is_made_new_and_opened_again() {
    let scratch = with_base("qwen2-f32");
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    for (family, model_type) in [
        ("qwen2", "qwen2"),
        ("qwen3", "qwen3"),
        ("qwen3_moe", "qwen3_moe"),
        ("qwen3_5", "qwen3_5_text"),
        ("llama", "llama"),
        ("mistral", "mistral"),
        ("gemma", "gemma"),
        ("gemma3", "gemma3_text"),
        ("smollm3", "smollm3"),
        ("olmo2", "olmo2"),
        ("olmo3", "olmo3"),
        ("phi3", "phi3"),
    ] {
        let recipe = format!(
            "[model.new]\nfamily = \"{family}\"\nhidden_size = 32\nlayers = 2\nheads = 4\n\
             kv_heads = 2\nintermediate_size = 48\ntokenizer = \"base\"\nvocab_size = 600\n\
             [data]\ntrain = \"x\"\nheldout_size = 4\n[rollout]\ngroup_size = 4\n\
             max_completion_tokens = 8\n[sampling]\nprompts_per_step = 2\nmax_rounds = 1\n\
             [reward]\nkind = \"regex\"\npattern = \"e\"\nmatches = true\n\
             [train]\nsteps = 1\nmini_batch = 8\n"
        );

        scratch.write("new.toml", recipe);
        let name = format!("name={family}");
        scratch.succeed(&["train", "new.toml", "--set", &data, "--set", &name]);
        assert!(values(&scratch, family, "update/count")[0] > 0.0, "{family}");

        let checkpoint = format!("runs/{family}/checkpoints/step-000001");
        let config = scratch.json(&format!("{checkpoint}/config.json"));
        let expected = (&model_type.into(), &600.into());
        assert_eq!((&config["model_type"], &config["vocab_size"]), expected);

        greedy(&scratch, &checkpoint);
        let shown = scratch.succeed(&["inspect", &checkpoint, "--check"]).stdout;
        assert!(shown.contains(config["architectures"][0].as_str().unwrap()), "{shown}");
    }

    // Experts have no adapters, and this model has no other MLP.
    let experts = "model.path=runs/qwen3_moe/checkpoints/step-000001";
    let outcome = train(&scratch, "none", &[experts, "model.lora={rank=2,targets=['up_proj']}"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("nothing would be trained"), "{}", outcome.stderr);

    let few = ["train", "new.toml", "--set", &data, "--set", "model.new.vocab_size=100"];
    let outcome = scratch.run(&few);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("model.new.vocab_size is 100"), "{}", outcome.stderr);
}
