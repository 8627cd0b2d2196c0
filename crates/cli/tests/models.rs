//! Commands about a model: generate, inspect and plan.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use scratch::{Outcome, Scratch, repository};
use serde_json::Value;

/// Makes a scratch folder with the fixture `name` in the folder `model`.
fn with_model(name: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.fixture(name, "model");
    scratch
}

fn json(scratch: &Scratch, arguments: &[&str]) -> Value {
    serde_json::from_str(&scratch.succeed(arguments).stdout).unwrap()
}

#[test]
fn a_completion_streams_what_json_holds() {
    let scratch = with_model("qwen2-bf16");
    let ask = ["generate", "model", "What is 2 + 2?", "--max-tokens", "80"];
    let with = |more: &[&'static str]| [&ask, more].concat();

    let streamed = scratch.succeed(&ask);
    let object = json(&scratch, &with(&["--json"]));
    let text = object["text"].as_str().unwrap();
    assert_eq!(streamed.stdout.trim_end_matches('\n'), text.trim_end_matches('\n'));
    assert!(streamed.stdout.ends_with('\n') && !text.is_empty());
    assert!(streamed.stderr.contains("tokens/s"), "{}", streamed.stderr);
    assert!(object["logprob_sum"].as_f64().unwrap() < 0.0);
    assert_ne!(object["text"], json(&scratch, &with(&["--json", "--seed", "18"]))["text"]);

    // The file has 16 bits. Kept in 16 bits, the weights are the same; kept in 4 bits, they are others.
    let kept = |base: &'static str| {
        json(&scratch, &with(&["--json", "--base", base]))["logprob_sum"].clone()
    };
    assert_eq!(kept("bfloat16"), object["logprob_sum"]);
    assert_ne!(kept("int4"), object["logprob_sum"]);

    let prompt = |more: &[&'static str]| {
        json(&scratch, &with(&[&["--json"], more].concat()))["prompt"].clone()
    };
    assert_eq!(prompt(&["--plain"]), "What is 2 + 2?");
    assert!(prompt(&[]).as_str().unwrap().contains("<|im_start|>user"));
    let dated = prompt(&["--option", "dated=true", "--system", "Be brief."]);
    assert!(dated.as_str().unwrap().contains("It is "), "{dated}");
    assert!(dated.as_str().unwrap().contains("Be brief."), "{dated}");

    let refused = scratch.run(&with(&["--option", "datd=true"]));
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("--option names `datd`"), "{}", refused.stderr);
}

/// `echo` ends its text with a line break, which is no part of the question.
#[test]
fn a_prompt_of_standard_input_ends_before_its_last_line_break() {
    let scratch = with_model("qwen2-bf16");
    let mut child = Command::new(env!("CARGO_BIN_EXE_firebrick"))
        .args(["generate", "model", "--plain", "--json", "--max-tokens", "2", "-"])
        .current_dir(scratch.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();

    child.stdin.take().unwrap().write_all(b"One line\n\nand another\r\n").unwrap();
    let said = child.wait_with_output().unwrap();
    let object: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!(object["prompt"], "One line\n\nand another");
}

#[test]
fn pickled_weights_are_refused_with_the_way_out() {
    let scratch = with_model("qwen2-bf16");
    fs::rename(scratch.path("model/model.safetensors"), scratch.path("model/pytorch_model.bin"))
        .unwrap();

    let refused = scratch.run(&["generate", "model", "1"]);
    assert_eq!(refused.code, Some(1));
    for words in ["pytorch_model.bin is not read", "safe_serialization=True"] {
        assert!(refused.stderr.contains(words), "{}", refused.stderr);
    }
}

#[test]
fn a_reader_that_leaves_ends_a_completion() {
    let scratch = with_model("qwen2-bf16");
    let mut child = Command::new(env!("CARGO_BIN_EXE_firebrick"))
        .args(["generate", "model", "--plain", "1", "--max-tokens", "30000"])
        .current_dir(scratch.path(""))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();

    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("panic"), "{stderr}");
}

#[test]
fn weights_that_are_no_numbers_are_reported_before_a_completion() {
    let scratch = with_model("qwen2-f32");
    let file = scratch.path("model/model.safetensors");
    let mut weights = fs::read(&file).unwrap();
    let last = weights.len() - 4;
    weights[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(file, weights).unwrap();

    let ask = ["generate", "model", "2 + 2", "--max-tokens", "2"];
    let stderr = scratch.run(&ask).stderr;
    assert!(stderr.contains("1 of its tensors hold NaN or infinite values"), "{stderr}");
}

/// Returns a field of `config.json` with its number, as it stands there.
fn size(config: &str, field: &str) -> String {
    let line = config.lines().find(|line| line.contains(field)).unwrap();
    line.trim().trim_end_matches(',').to_owned()
}

#[test]
fn an_inspection_says_what_is_there_and_what_is_unusual() {
    for name in ["qwen2-f32", "qwen2-bf16", "qwen3-moe-f32", "qwen3_5-f32"] {
        let scratch = with_model(name);
        insta::assert_snapshot!(name, scratch.succeed(&["inspect", "model", "--check"]).stdout);
        let object = json(&scratch, &["inspect", "model", "--json", "--tensors"]);
        let weights = &object["weights"];
        assert_eq!(weights["count"], weights["tensors"].as_array().unwrap().len());
    }

    // The broken files are named, and the rest is shown.
    let scratch = with_model("qwen2-f32");
    fs::remove_file(scratch.path("model/model.safetensors")).unwrap();
    scratch.write("model/tokenizer.json", "{");
    let outcome = scratch.run(&["inspect", "model"]);
    assert_eq!(outcome.code, Some(1));
    for word in ["Qwen2ForCausalLM", "unusable", "model.safetensors", "tokenizer.json"] {
        assert!(outcome.stdout.contains(word), "{word} is not in {}", outcome.stdout);
    }

    // The weights have another size, or other names, than config.json says.
    let scratch = with_model("qwen2-f32");
    let config = fs::read_to_string(scratch.path("model/config.json")).unwrap();
    let wrong = |from: &str, to: &str, words: &str| {
        assert!(config.contains(from), "{config}");
        scratch.write("model/config.json", config.replace(from, to));
        let outcome = scratch.run(&["inspect", "model"]);
        assert_eq!(outcome.code, Some(1), "{to}");
        assert!(outcome.stdout.contains(words), "{}", outcome.stdout);
    };

    let intermediate = size(&config, "intermediate_size");
    wrong(&intermediate, &format!("{intermediate}0"), "they belong to different models");
    let layers = size(&config, "num_hidden_layers");
    wrong(&layers, &format!("{layers}0"), "unusable");

    scratch.write("adapter/adapter_config.json", "{}");
    assert_eq!(scratch.run(&["inspect", "adapter"]).code, Some(1));

    scratch.write("model/config.json", "{");
    let text = scratch.run(&["inspect", "model"]).stdout;
    assert_eq!(text.matches("model/config.json").count(), 1, "{text}");
    assert_eq!(scratch.run(&["inspect", "nowhere"]).code, Some(2));
}

#[test]
fn a_plan_says_whether_a_recipe_fits() {
    let scratch = Scratch::new();
    let quickstart = repository("recipes/quickstart.toml");
    let fits =
        scratch.succeed(&["plan", &quickstart, "--memory", "2GiB", "--device", "cpu"]).stdout;
    assert!(fits.contains("\nfits: ") && fits.contains("149,312 parameters"), "{fits}");
    let object =
        json(&scratch, &["plan", &quickstart, "--memory", "2GiB", "--device", "cpu", "--json"]);
    let weights = object["parts"].as_array().unwrap().iter().find(|part| part["name"] == "weights");
    assert_eq!(weights.unwrap()["bytes"]["rollout"], 4 * 149_312);
    assert_eq!(object["fits"], true);

    // The model consists of a config.json alone, which has its sizes.
    let config = fs::read(repository("tests/fixtures/qwen2-f32/config.json")).unwrap();
    let mut config: Value = serde_json::from_slice(&config).unwrap();
    for (key, size) in [("hidden_size", 896), ("intermediate_size", 4864), ("vocab_size", 151_936)]
    {
        config[key] = size.into();
    }
    config["num_attention_heads"] = 14.into();
    config["num_hidden_layers"] = 24.into();
    scratch.write("large/config.json", config.to_string());
    // A recipe that names the CPU is planned for it, whatever memory is given.
    let recipe =
        "[model]\npath = \"large\"\n[data]\ntrain = \"t.jsonl\"\n[device]\nkind = \"cpu\"\n";
    scratch.write("r.toml", recipe);

    let wide = "train.micro_batch_tokens=400000";
    let refused = scratch.run(&["plan", "r.toml", "--memory", "24GiB", "--set", wide]);
    assert_eq!(refused.code, Some(1), "{}", refused.stderr);
    assert!(refused.stdout.contains("does not fit"), "{}", refused.stdout);
    let advice = refused.stdout.lines().find(|line| line.contains("set train.micro_batch_tokens"));
    let value = advice.unwrap().split_whitespace().nth(3).unwrap();
    let set = format!("train.micro_batch_tokens={value}");
    let after = scratch.run(&["plan", "r.toml", "--memory", "24GiB", "--set", &set]);
    assert_eq!(after.code, Some(0), "{}", after.stdout);

    let never = scratch.run(&["plan", "r.toml", "--memory", "500MiB"]);
    assert!(never.stdout.contains("the smallest batches still need"), "{}", never.stdout);
    assert!(!never.stdout.contains("model.lora"), "{}", never.stdout);

    // Training all weights does not fit with any batch. Training adapters fits with the smallest batches.
    let adapters = scratch.run(&["plan", "r.toml", "--memory", "6gib"]).stdout;
    assert!(adapters.contains("the smallest batches still need 9.7"), "{adapters}");
    assert!(adapters.contains("set model.lora = { rank = 16 }"), "{adapters}");
    let again = ["plan", "r.toml", "--memory", "6G", "--set", "model.lora.rank=16"];
    let again = scratch.run(&again).stdout;
    assert!(again.contains("does not fit") && !again.contains("set model.lora"), "{again}");

    // The longest completion that is said to fit does fit.
    let fit = scratch.succeed(&["plan", "r.toml", "--memory", "12GiB", "--fit"]).stdout;
    let tokens = fit.split_whitespace().nth(2).unwrap();
    let set =
        ["rollout.max_completion_tokens", "rollout.max_sequences", "train.micro_batch_tokens"];
    let set: Vec<String> =
        set.iter().zip([tokens, "1", "1"]).map(|(key, value)| format!("{key}={value}")).collect();
    let plan = ["plan", "r.toml", "--memory", "12GiB", "--set", &set[0], "--set", &set[1]];
    scratch.succeed(&[&plan[..], &["--set", &set[2]]].concat());

    // The texts of an environment need room as well, and are no part of that length.
    let observed = ["environment.kind=calculator", "environment.max_observation_tokens=8192"];
    let talking = |more: &[&'static str]| {
        let plan =
            ["plan", "r.toml", "--memory", "1000GiB", "--set", observed[0], "--set", observed[1]];
        scratch.run(&[&plan[..], more].concat())
    };
    let fit = talking(&["--fit"]).stdout;
    assert!(fit.starts_with("rollout.max_completion_tokens = 24064 is"), "{fit}");
    assert!(fit.contains("in addition to 8,192 tokens of an environment"), "{fit}");
    assert_eq!(talking(&["--set", "rollout.max_completion_tokens=24064"]).code, Some(0));

    // A run whose completions fill the context does not begin.
    let refused = talking(&["--set", "rollout.max_completion_tokens=24576"]);
    assert_eq!(refused.code, Some(2), "{}", refused.stdout);
    assert!(
        refused.said().contains("completions of 32768 tokens leave no room")
            && refused.said().contains("environment.max_observation_tokens"),
        "{}",
        refused.stderr
    );

    let none = scratch.run(&["plan", "r.toml", "--memory", "1GiB", "--fit"]);
    assert!(none.code == Some(1) && none.stdout.contains("no completion fits"), "{}", none.stdout);

    let unit = scratch.run(&["plan", "r.toml", "--memory", "24"]);
    assert!(unit.code == Some(2) && unit.stderr.contains("say 24GiB"), "{}", unit.stderr);
}

/// Makes a scratch folder with the published shapes of the models that recipes name, where a built-in recipe finds
/// them.
fn published() -> Scratch {
    let scratch = Scratch::new();
    for (name, sizes, tied) in [
        ("Qwen2.5-32B", [5120, 64, 40, 8, 27648, 152_064, 131_072], false),
        ("Qwen2.5-7B", [3584, 28, 28, 4, 18944, 152_064, 131_072], false),
        ("Qwen2.5-0.5B-Instruct", [896, 24, 14, 2, 4864, 151_936, 32_768], true),
        ("Qwen2.5-1.5B-Instruct", [1536, 28, 12, 2, 8960, 151_936, 32_768], true),
        ("Qwen2.5-3B-Instruct", [2048, 36, 16, 2, 11008, 151_936, 32_768], true),
        ("Qwen3-4B-Instruct-2507", [2560, 36, 32, 8, 9728, 151_936, 262_144], true),
    ] {
        let folder = format!("Qwen/{name}");
        scratch.shape(&folder, sizes, tied);

        if name.starts_with("Qwen3") {
            let mut config = scratch.json(&format!("{folder}/config.json"));
            config["model_type"] = "qwen3".into();
            config["architectures"] = serde_json::json!(["Qwen3ForCausalLM"]);
            config["head_dim"] = 128.into();
            scratch.write(&format!("{folder}/config.json"), config.to_string());
        }
    }
    scratch
}

/// Compares the memory that a plan computes with the headers of these recipes, and with the book's page on devices.
#[test]
fn recipes_fit_the_cards_that_they_name() {
    let scratch = published();
    let page = fs::read_to_string(repository("book/src/devices.md")).unwrap();
    for (name, memory, by_vulkan, by_cuda, sequences, more) in [
        ("gsm8k", "12GB", "10.6", "10.2", 128, None),
        ("cards/8gb", "8GB", "7.0", "6.6", 24, Some(50)),
        ("cards/12gb", "12GB", "10.6", "8.3", 28, Some(110)),
        ("cards/16gb", "16GB", "14.0", "12.3", 68, Some(110)),
        ("cards/24gb", "24GB", "21.2", "15.3", 20, Some(38)),
        ("cards/48gb", "48GB", "41.6", "24.7", 44, Some(100)),
        ("cards/80gb", "80GB", "70.1", "66.6", 272, Some(330)),
    ] {
        let header = fs::read_to_string(repository(&format!("recipes/{name}.toml"))).unwrap();
        let row = page.lines().find(|line| line.contains(&format!("| `{name}` |"))).unwrap();
        let up_to = more.map_or_else(|| "–".to_owned(), |more: usize| more.to_string());
        let cells = format!("| {by_vulkan} GiB | {by_cuda} GiB | {sequences} | {up_to} |");
        assert!(row.ends_with(&cells), "devices.md: {row}");
        let room = more.map(|more| format!("room for {more} sequences"));
        assert!(room.is_none_or(|room| header.contains(&room)), "{name} says another number");

        for (device, needed, more) in [("vulkan:0", by_vulkan, None), ("cuda:0", by_cuda, more)] {
            let outcome = scratch.run(&["plan", name, "--memory", memory, "--device", device]);
            assert_eq!(outcome.code, Some(0), "{name}: {}{}", outcome.stdout, outcome.stderr);
            let said = format!("needs {needed} GiB (peak");
            assert!(outcome.stdout.contains(&said), "{name} on {device}: {}", outcome.stdout);
            assert!(header.contains(needed), "{name} says another number for {device}");

            let now = format!("{sequences} sequences at once");
            assert!(outcome.stdout.contains(&now), "{name} on {device}: {}", outcome.stdout);
            let advised = outcome.stdout.lines().find_map(|line| line.split_once("raised to "));
            let advised = advised.and_then(|(_, rest)| rest.split(' ').next());
            assert_eq!(advised, more.map(|more| more.to_string()).as_deref(), "{name}, {device}");
        }
    }
}

/// The sizes are in the program, and nothing is asked of the Hub. A memory without a device is that of a card.
#[test]
fn a_published_model_is_planned_for_a_card_without_a_network() {
    let scratch = Scratch::new();
    let plan = |more: &[&str]| {
        let mut command =
            scratch.command(&[&["plan", "cards/16gb", "--memory", "16GB"], more].concat());
        command.env("HF_HOME", scratch.path("hf")).env("HF_ENDPOINT", "http://127.0.0.1:9");
        Outcome::of(command.output().unwrap())
    };

    let card = plan(&[]);
    assert_eq!(card.code, Some(0), "{}{}", card.stdout, card.stderr);
    for said in [
        "on a card\n",
        "for a card with 14.9 GiB",
        "sizes are built in",
        "needs 12.3 GiB",
        "  rtx4080: about",
    ] {
        assert!(card.stdout.contains(said), "{said}: {}", card.stdout);
    }

    let cpu = plan(&["--device", "cpu"]).stdout;
    assert!(cpu.contains(", on cpu\n") && cpu.contains("  this CPU, "), "{cpu}");
    assert!(!cpu.contains("steps of decoding"), "{cpu}");
    for (device, set, recorded) in [
        ("cuda:0", "name=a", "are recorded and repeated"),
        ("cuda:0", "rollout.graphs=false", "are not recorded (rollout.graphs = false)"),
        (
            "cuda:0",
            "rollout.max_staleness=1",
            "are not recorded, because the device has other work",
        ),
        ("cuda:0", "device.kernels=reference", "are not recorded, because the host"),
        ("vulkan:0", "name=a", "are not recorded (rollout.graphs, true by default"),
        ("vulkan:0", "rollout.graphs=true", "are recorded and repeated"),
    ] {
        let text = plan(&["--device", device, "--set", set]).stdout;
        let said = format!("\nsteps of decoding {recorded}");
        assert!(text.contains(&said), "{device}, {set}: {text}");
    }
    let object: Value = serde_json::from_str(&plan(&["--json"]).stdout).unwrap();
    assert_eq!((&object["published_sizes"], &object["device"]), (&true.into(), &"cuda:0".into()));
    let time = &object["time"]["steps"][0]["seconds"];
    assert_eq!(
        time["step"].as_f64().unwrap(),
        time["rollout"].as_f64().unwrap() + time["update"].as_f64().unwrap()
    );

    // The model of this machine comes first.
    scratch.shape("Qwen/Qwen2.5-3B-Instruct", [896, 24, 14, 2, 4864, 151_936, 32_768], true);
    let here = plan(&[]).stdout;
    assert!(!here.contains("built in") && here.starts_with("16gb: 5"), "{here}");
}

/// A page shows the beginning of the list of drivers as the program prints it.
#[test]
fn the_drivers_of_the_page_are_the_program_s() {
    let page = fs::read_to_string(repository("book/src/install.md")).unwrap().replace("\r\n", "\n");
    let shown = page.split("```text\nDebian, Ubuntu\n").nth(1).unwrap();
    let shown = shown.split("  …").next().unwrap();

    let said = Scratch::new().succeed(&["doctor", "--drivers"]).stdout;
    assert!(
        said.contains(&format!("Debian, Ubuntu\n{shown}")),
        "install.md shows another list than\n{said}"
    );
}

/// Compares the memory that a plan computes, for the published shapes of the models, with the recipes' headers.
#[test]
fn the_paper_s_recipes_fit_their_cards_but_the_paper_s_own() {
    let scratch = published();
    for (name, memory, fits, needed) in [
        ("dapo-qwen2.5-32b", "80GB", false, "603.5 GiB"),
        ("dapo-80gb", "80GB", true, "65.4 GiB"),
        ("dapo-24gb", "24GB", true, "19.6 GiB"),
    ] {
        let path = repository(&format!("recipes/paper/{name}.toml"));
        // The paths of a built-in recipe begin at the current folder, which has the models.
        let built_in = format!("paper/{name}");
        let plan = ["plan", &built_in, "--memory", memory, "--device", "cuda:0"];
        let outcome = scratch.run(&plan);
        assert_eq!(outcome.code, Some(i32::from(!fits)), "{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains(&format!("needs {needed} (peak")), "{}", outcome.stdout);
        let header = fs::read_to_string(&path).unwrap();
        assert!(header.contains(needed.trim_end_matches(" GiB")), "{name} says another number");
    }

    // A plan for a device that is not there takes the format that the recipe asks for, or else the likely one. Every
    // device computes in float32.
    let path = "paper/dapo-24gb";
    for (device, dtype, needed, assumed) in [
        ("cuda:0", "bfloat16", "19.6 GiB", true),
        ("cuda:0", "auto", "19.6 GiB", true),
        ("vulkan:0", "auto", "26.5 GiB", true),
        ("vulkan:0", "float32", "26.5 GiB", false),
    ] {
        let dtype = format!("model.dtype={dtype}");
        let plan = ["plan", path, "--memory", "24GB", "--device", device, "--set", &dtype];
        let said = scratch.run(&plan).stdout;
        assert!(said.contains(&format!("needs {needed} (peak")), "{device} {dtype}: {said}");
        assert_eq!(said.contains("(assumed"), assumed, "{device} {dtype}: {said}");
    }

    // Memory is not all that a model needs: through Vulkan its embedding is larger than a tensor may be.
    let plan = ["plan", path, "--memory", "80GB", "--device", "vulkan:0"];
    let outcome = scratch.run(&plan);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stdout);
    assert!(outcome.stdout.contains("loads only on such a card"), "{}", outcome.stdout);
    assert!(!outcome.stdout.contains("\nfits"), "{}", outcome.stdout);

    let object: Value =
        serde_json::from_str(&scratch.run(&[&plan[..], &["--json"]].concat()).stdout).unwrap();
    assert_eq!(object["fits"], false);
    let fit = scratch.run(&[&plan[..], &["--fit"]].concat());
    assert!(fit.code == Some(1) && fit.stdout.contains("loads only on"), "{}", fit.stdout);
}
