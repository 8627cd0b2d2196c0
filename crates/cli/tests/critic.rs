//! Actor-critic training through the program: PPO as an option of the same loop.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use std::fs;

use scratch::{Outcome, Scratch, assert_same, repository};

/// Trains the tiny recipe with advantages from a critic.
fn ppo(scratch: &Scratch, name: &str, more: &[&str]) -> Outcome {
    scratch.train_tiny(name, &[&["advantage.kind=gae"], more].concat())
}

#[track_caller]
fn succeed(scratch: &Scratch, name: &str, more: &[&str]) -> Outcome {
    ppo(scratch, name, more).success()
}

#[test]
fn every_variant_of_the_critic_runs_and_is_another_run() {
    let scratch = Scratch::new();
    // The learning rate of the first two steps is not 0, so that the second step shows the effect of the first.
    let short = ["train.steps=3", "checkpoint.every=100", "optim.warmup_steps=0"];
    let mut losses: Vec<(Vec<f64>, &[&str])> = Vec::new();
    for (index, variant) in [
        &[][..],
        &["critic.kind=separate"],
        &["critic.detach=true"],
        &["critic.coef=5.0"],
        &["critic.clip=0.01"],
        &["critic.lr=1e-2"],
        &["critic.warmup_steps=1"],
        &["advantage.gamma=0.9"],
        &["advantage.lambda=0.5"],
        &["advantage.normalise=false"],
        &["rollout.group_size=1", "sampling.dynamic=false", "train.mini_batch=4"],
        &["sampling.dynamic=false"],
        &["loss.kind=gspo"],
        &["loss.entropy_coef=0.01"],
        &["loss.aggregation=prompt_mean"],
        &["loss.kl={kind=\"k3\",coef=0.1}"],
        &["reward.overlong={filter=true}", "rollout.max_completion_tokens=2"],
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("variant-{index}");
        succeed(&scratch, &name, &[&short[..], variant].concat());

        let steps = scratch.metrics(&name);
        assert_eq!(steps.len(), 3, "{variant:?}");
        for (metric, value) in steps.iter().flatten() {
            assert!(value.is_number(), "{variant:?}: {metric} is {value}");
        }

        // A new head returns 0 everywhere, so it explains nothing.
        assert_eq!(scratch.values(&name, "critic/value_mean")[0], 0.0);
        assert_eq!(scratch.values(&name, "critic/explained_variance")[0], 0.0);

        let loss = [scratch.values(&name, "loss/total"), scratch.values(&name, "critic/loss")];
        let loss = loss.concat();
        let same = losses.iter().find(|(other, _)| *other == loss);
        assert!(same.is_none(), "{variant:?} is {:?}", same.map(|(_, other)| other));
        losses.push((loss, variant));
    }

    assert!(scratch.values("variant-4", "critic/clip_fraction").iter().any(|&cut| cut > 0.0));
    assert_eq!(scratch.values("variant-5", "critic/lr"), [1e-2; 3]);
}

/// While the policy stands still, the critic has the same to learn in every step. The reward is for the first
/// token, so from the second token on it is known.
#[test]
fn a_critic_is_warmed_up_while_the_policy_stands_still() {
    for (kind, least) in [("critic.kind=head", 0.1), ("critic.kind=separate", 0.4)] {
        let scratch = Scratch::new();
        let more = [
            kind,
            "critic.warmup_steps=40",
            "critic.lr=3e-3",
            "reward={kind='regex',pattern='^[0-4]',matches=true}",
            "sampling.dynamic=false",
            "sampling.prompts_per_step=16",
            "train.mini_batch=16",
            "checkpoint.keep=0",
        ];
        let outcome = succeed(&scratch, "warm", &[&more[..], &["train.steps=40"]].concat());
        assert!(!outcome.stderr.contains("No update"), "{}", outcome.stderr);

        let model = |step: u64| {
            let path = format!("runs/warm/checkpoints/step-{step:06}/model.safetensors");
            fs::read(scratch.path(&path)).unwrap()
        };

        assert!(model(0) == model(40), "{kind}: the policy was moved");
        assert_eq!(scratch.values("warm", "update/lr"), [0.0; 40]);
        assert_eq!(scratch.values("warm", "update/count"), [0.0; 40]);
        assert!(scratch.values("warm", "update/tokens").iter().all(|&tokens| tokens > 0.0));
        let trained = || scratch.json("runs/warm/summary.json")["completions"]["trained"].clone();
        assert_eq!(trained(), 0);

        let explained = scratch.values("warm", "critic/explained_variance");
        let last = explained[30..].iter().sum::<f64>() / 10.0;
        assert!(last > least, "{kind}: {explained:?}");

        succeed(&scratch, "warm", &[&more[..], &["train.steps=42", "--resume"]].concat());
        assert!(model(0) != model(42), "{kind}: the policy was not moved");
        // The policy's learning rate rises over two steps of its own. The critic's rate rose over the first two
        // steps.
        assert_eq!(scratch.values("warm", "update/lr")[40..], [5e-4, 1e-3]);
        assert_eq!(scratch.values("warm", "critic/lr")[..3], [1.5e-3, 3e-3, 3e-3]);
        assert!(scratch.values("warm", "update/count")[40..].iter().all(|&count| count > 0.0));
        assert_eq!(trained(), 2 * 16 * 4);
    }
}

/// While the policy stands still, its number of updates of a mini-batch does not apply.
#[test]
fn a_critic_is_warmed_up_in_one_pass() {
    let scratch = Scratch::new();
    let more = ["critic.warmup_steps=2", "optim.warmup_steps=0", "train.steps=3"];
    succeed(&scratch, "plain", &more);
    succeed(&scratch, "adaptive", &[&more[..], &["train.adaptive={kl_stop=100.0}"]].concat());

    let losses = |run| scratch.values(run, "critic/loss");
    assert_eq!(losses("adaptive")[..2], losses("plain")[..2]);
    assert_ne!(losses("adaptive")[2], losses("plain")[2]);

    let repeated = |step: &serde_json::Map<_, _>| step.contains_key("adaptive/score");
    let repeated: Vec<bool> = scratch.metrics("adaptive").iter().map(repeated).collect();
    assert_eq!(repeated, [false, false, true]);
}

#[test]
fn a_resumed_critic_continues_as_if_nothing_had_happened() {
    let scratch = Scratch::new();
    for kind in ["critic.kind=head", "critic.kind=separate"] {
        let more = [kind, "critic.warmup_steps=1", "critic.clip=0.2"];
        let (whole, stopped) = (format!("whole-{kind}"), format!("stopped-{kind}"));
        succeed(&scratch, &whole, &[&more[..], &["train.steps=6"]].concat());
        succeed(&scratch, &stopped, &[&more[..], &["train.steps=1"]].concat());

        // The checkpoint that is left is from before the first step, when there was no critic yet.
        let first = scratch.path(&format!("runs/{stopped}/checkpoints/step-000001"));
        fs::remove_dir_all(first).unwrap();
        for steps in ["train.steps=3", "train.steps=6"] {
            succeed(&scratch, &stopped, &[&more[..], &[steps, "--resume"]].concat());
        }

        let result = scratch.result(&whole);
        assert!(result.iter().any(|(name, _)| name.ends_with("critic.safetensors")));
        assert_same(&result, &scratch.result(&stopped));
    }
}

/// Policy and critic have adapters of their own on the same frozen weights.
#[test]
fn a_separate_critic_of_adapters_has_adapters_of_its_own() {
    let scratch = Scratch::new();
    let model = format!("model.path={}", repository("tests/fixtures/qwen2-f32"));
    let data = format!("data.train={}", repository("crates/cli/tests/data/gsm8k-style.jsonl"));
    let train = |name: &str, steps: u64, resume: &[&str]| {
        let (name, steps) = (format!("name={name}"), format!("train.steps={steps}"));
        let mut arguments = vec!["train".to_owned(), repository("recipes/gsm8k-tiny.toml")];

        for set in [
            &name,
            &steps,
            &model,
            &data,
            "model.lora={rank=2,targets=[\"q_proj\",\"down_proj\"]}",
            "advantage.kind=gae",
            "critic.kind=separate",
            "sft={}",
            "rollout.max_completion_tokens=8",
            "reward={kind=\"regex\",pattern=\"e\",matches=true}",
            "optim.warmup_steps=0",
            "sampling.max_rounds=1",
        ] {
            arguments.extend(["--set".to_owned(), set.to_owned()]);
        }
        arguments.extend(resume.iter().map(|&argument| argument.to_owned()));
        scratch.succeed(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    };

    train("whole", 3, &[]);
    train("stopped", 2, &[]);
    train("stopped", 3, &["--resume"]);
    assert_same(&scratch.result("whole"), &scratch.result("stopped"));

    let bytes =
        fs::read(scratch.path("runs/whole/checkpoints/step-000003/trainer/critic.safetensors"))
            .unwrap();
    // A safetensors file begins with the length of its header, which is JSON.
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header = String::from_utf8_lossy(&bytes[8..header]).into_owned();
    let header: serde_json::Value = serde_json::from_str(&header).unwrap();

    let names = || header.as_object().unwrap().keys().filter(|name| *name != "__metadata__");
    assert!(names().any(|name| name.contains("adapters")), "{header}");
    let others = names().filter(|name| !name.contains("adapters") && !name.starts_with("head."));
    assert_eq!(others.count(), 0, "{header}");
}

#[test]
fn what_makes_no_sense_is_refused_with_a_way_out() {
    let scratch = Scratch::new();
    let plain = |sets: &[&str]| {
        let recipe = repository("recipes/ci/tiny.toml");
        let mut arguments = vec!["train", &recipe];
        for argument in sets {
            if *argument != "--resume" {
                arguments.push("--set");
            }
            arguments.push(argument);
        }
        scratch.run(&arguments)
    };

    let gae = "advantage.kind=gae";
    for (sets, problem) in [
        (&["critic.kind=head"][..], "[critic] is set, expected only with advantage.kind = \"gae\""),
        (&["advantage.lambda=0.95"], "`lambda` is an option of kind = \"gae\""),
        (
            &["sampling.min_replace_ratio=0.3"],
            "`dynamic = { kind = \"replace\", min_ratio = 0.3 }`",
        ),
        (&["rollout.group_size=1"], "rollout.group_size is 1, expected at least 2"),
        (&[gae, "rollout.group_size=1", "train.mini_batch=4"], "sampling.dynamic is \"filter\""),
        (
            &[gae, "rollout.group_size=1", "train.mini_batch=4", "sampling.dynamic=drop"],
            "sampling.dynamic is \"drop\", expected \"off\"",
        ),
        (
            &[
                gae,
                "rollout.group_size=1",
                "train.mini_batch=4",
                "sampling={prompts_per_step=4,dynamic=false,curriculum={kind='posterior'}}",
            ],
            "sampling.curriculum is set, expected only with rollout.group_size above 1",
        ),
        (
            &[gae, "critic.kind=separate", "critic.detach=true"],
            "`detach` is an option of kind = \"head\"",
        ),
        (&[gae, "advantage.gamma=1.1"], "advantage.gamma is 1.1"),
        (&[gae, "critic.coef=0.0"], "critic.coef is 0.0"),
    ] {
        let outcome = plain(sets);
        assert_eq!(outcome.code, Some(2), "{sets:?}: {}", outcome.stderr);
        assert!(outcome.said().contains(problem), "{sets:?}: {}", outcome.stderr);
    }

    // A critic can't join in the middle of a run, and can't be replaced by another one.
    assert_eq!(plain(&["name=late", "train.steps=2"]).code, Some(0));
    let outcome = ppo(&scratch, "late", &["--resume"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    let flat = outcome.stderr.split_whitespace().collect::<Vec<_>>().join(" ").replace("│ ", "");
    assert!(flat.contains("late can't continue with advantage.kind = \"gae\" (was"), "{flat}");
    assert!(!flat.contains("critic.kind"), "{flat}");
    assert!(flat.contains("firebrick train runs/late/recipe.toml --resume"), "{flat}");
    succeed(&scratch, "other", &["train.steps=2"]);
    let outcome = ppo(&scratch, "other", &["critic.kind=separate", "--resume"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("critic.kind"), "{}", outcome.stderr);

    // A run can't continue without the critic that it had.
    let outcome = plain(&["name=other", "--resume"]);
    assert_eq!(outcome.code, Some(2), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("advantage.kind = "), "{}", outcome.stderr);

    // The critic's file is cut short, or the critic has values that are not finite.
    let file = "runs/other/checkpoints/step-000002/trainer/critic.safetensors";
    // With sums the program would pass over a damaged checkpoint.
    fs::remove_file(scratch.path("runs/other/checkpoints/step-000002/trainer/SHA256SUMS")).unwrap();
    let whole = fs::read(scratch.path(file)).unwrap();
    fs::write(scratch.path(file), &whole[..whole.len() - 4]).unwrap();

    let outcome = ppo(&scratch, "other", &["--resume"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("is not a complete safetensors file"), "{}", outcome.stderr);

    let mut broken = whole;
    let last = broken.len() - 4;
    broken[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    fs::write(scratch.path(file), &broken).unwrap();
    let outcome = ppo(&scratch, "other", &["train.steps=3", "--resume"]);
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    assert!(outcome.said().contains("expected finite numbers"), "{}", outcome.stderr);
}
