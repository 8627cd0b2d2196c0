//! Tests of what recipes mean: the recipes here are valid in either notation, and the schema is current. How
//! errors look is tested with the program.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use firebrick_recipe::{
    Advantage, Aggregation, CriticKind, Dynamic, Loaded, LossKind, OptimKind, Recipe, RecipeError,
    RewardKind, Schedule, TrainData, TrainSource,
};
use serde_json::Value;

const FILES: &str = r#"[model]
path = "model"

[data]
train = "train.jsonl"
"#;

fn with_files(tables: &str) -> String {
    format!("{FILES}\n{tables}\n")
}

#[test]
fn the_options_of_a_verifier_stand_next_to_its_kind() {
    use firebrick_recipe::{Extraction, Part, RewardKind};
    let text = with_files(
        r#"
[reward]
wrong = 0.0
kind = "weighted"
stop.scale = 0.5

[[reward.parts]]
name = "answer"
weight = 0.9
kind = "math"
extraction = "boxed"

[[reward.parts]]
name = "program"
weight = 1
kind = "command"
program = ["python3", "judge.py"]
"#,
    );
    let loaded = Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap();
    let reward = &loaded.recipe.reward;

    let math = RewardKind::Math {
        precision: 6,
        extraction: Extraction::Boxed,
        reduced_fractions: false,
        evaluated: None,
        budget: 2_000_000,
    };
    let command = RewardKind::Command {
        program: vec!["python3".into(), "judge.py".into()],
        time_limit: 10.0,
        restarts: 10,
        processes: 1,
    };
    let part = |name: &str, weight, kind| Part { name: name.into(), weight, kind };
    let parts = vec![part("answer", 0.9, math), part("program", 1.0, command)];

    assert_eq!(reward.kind, Some(RewardKind::Weighted { parts }));
    assert_eq!((reward.right, reward.wrong), (1.0, 0.0));

    // The written recipe means the same. A resumed run is compared by it, and a checkpoint keeps it.
    let written = loaded.recipe.to_toml();
    let again = Recipe::parse(Path::new("recipe.toml"), &written, &[]).unwrap();
    assert_eq!(again.recipe, loaded.recipe);
}

fn parse(tables: &str, overrides: &[&str]) -> Result<Recipe, RecipeError> {
    let overrides: Vec<String> = overrides.iter().map(|&set| set.to_owned()).collect();
    let loaded = Recipe::parse(Path::new("recipe.toml"), &with_files(tables), &overrides);
    loaded.map(|loaded| loaded.recipe)
}

/// Returns the meaning of a recipe, which is the same when the recipe is written out and read again.
fn valid(tables: &str) -> Recipe {
    let recipe = parse(tables, &[]).unwrap_or_else(|error| panic!("{tables}: {error}"));

    let again = Recipe::parse(Path::new("recipe.toml"), &recipe.to_toml(), &[]).unwrap();
    assert_eq!(again.recipe, recipe, "{}", recipe.to_toml());
    recipe
}

#[test]
fn a_table_without_a_kind_has_the_options_of_the_first() {
    let dapo = |clip_ratio_low, clip_ratio_high, dual_clip| LossKind::Dapo {
        clip_ratio_low,
        clip_ratio_high,
        dual_clip,
    };

    for (tables, kind) in [
        ("", dapo(0.2, 0.28, None)),
        ("loss = {}", dapo(0.2, 0.28, None)),
        ("loss = { dual_clip = 3.0 }", dapo(0.2, 0.28, Some(3.0))),
        ("loss = { aggregation = \"sequence_sum\", clip_ratio_low = 0 }", dapo(0.0, 0.28, None)),
        ("loss = { kind = \"dapo\", clip_ratio_high = 0.2 }", dapo(0.2, 0.2, None)),
        (
            "loss = { kind = \"gspo\" }",
            LossKind::Gspo { clip_ratio_low: 3e-4, clip_ratio_high: 4e-4 },
        ),
        (
            "loss = { kind = \"cispo\", clip_ratio_high = 5.0 }",
            LossKind::Cispo { clip_ratio_low: 1.0, clip_ratio_high: 5.0 },
        ),
    ] {
        // These keys stand before the first table of the file.
        let text = format!("{tables}\n{FILES}");
        let loaded = Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap();
        assert_eq!(loaded.recipe.loss.kind, kind, "{tables}");

        let written = loaded.recipe.to_toml();
        let again = Recipe::parse(Path::new("recipe.toml"), &written, &[]).unwrap();
        assert_eq!(again.recipe, loaded.recipe, "{written}");
    }

    let norm = |epsilon| Advantage::GroupNorm { epsilon };
    assert_eq!(valid("[advantage]").advantage, norm(1e-6));
    assert_eq!(valid("[advantage]\nepsilon = 0.5").advantage, norm(0.5));

    let gae = Advantage::Gae { gamma: 1.0, lambda: 0.5, normalise: true };
    assert_eq!(valid("[advantage]\nkind = \"gae\"\nlambda = 0.5").advantage, gae);
    for kind in ["mean_only", "leave_one_out", "batch_norm", "reinforce_baseline", "gdpo"] {
        valid(&format!("[advantage]\nkind = \"{kind}\""));
    }

    let critic = "[advantage]\nkind = \"gae\"\n[critic]\n";
    assert_eq!(
        valid(&format!("{critic}detach = true")).critic.kind,
        CriticKind::Head { detach: true }
    );
    assert_eq!(valid(&format!("{critic}kind = \"separate\"")).critic.kind, CriticKind::Separate);

    let muon = valid("[optim]\nkind = \"muon\"\nbeta1 = 0.8").optim.kind;
    let expected = OptimKind::Muon { momentum: 0.95, beta1: 0.8, beta2: 0.999, epsilon: 1e-8 };
    assert_eq!(muon, expected);
}

#[test]
fn a_kind_may_be_its_name_alone() {
    for (written, dynamic) in [
        ("true", Dynamic::Filter),
        ("\"filter\"", Dynamic::Filter),
        ("false", Dynamic::Off),
        ("\"off\"", Dynamic::Off),
        ("\"drop\"", Dynamic::Drop),
        ("\"replace\"", Dynamic::Replace { min_ratio: 0.3 }),
        ("{ kind = \"replace\" }", Dynamic::Replace { min_ratio: 0.3 }),
        ("{ kind = \"replace\", min_ratio = 0 }", Dynamic::Replace { min_ratio: 0.0 }),
    ] {
        let sampling = valid(&format!("[sampling]\ndynamic = {written}")).sampling;
        assert_eq!(sampling.dynamic, dynamic, "{written}");
    }

    for (written, schedule) in [
        ("\"constant\"", Schedule::Constant),
        ("\"linear\"", Schedule::Linear { end_ratio: 0.0 }),
        ("{ kind = \"cosine\", end_ratio = 0.1 }", Schedule::Cosine { end_ratio: 0.1 }),
    ] {
        let optim = valid(&format!("[optim]\nschedule = {written}")).optim;
        assert_eq!(optim.schedule, schedule, "{written}");
    }
}

#[test]
fn an_option_belongs_to_its_kind() {
    for (tables, message, help) in [
        (
            "[loss]\nkind = \"gspo\"\ndual_clip = 3.0",
            "unknown key `dual_clip` in [loss] of kind \"gspo\"",
            "`dual_clip` is an option of kind = \"dapo\"",
        ),
        (
            "[advantage]\ngamma = 0.9",
            "unknown key `gamma` in [advantage]",
            "`gamma` is an option of kind = \"gae\", which has to be set too",
        ),
        (
            "[advantage]\nkind = \"mean_only\"\nepsilon = 1.0",
            "unknown key `epsilon` in [advantage] of kind \"mean_only\"",
            "`epsilon` is an option of kind = \"group_norm\", \"batch_norm\" or \"gdpo\"",
        ),
        (
            "[advantage]\nkind = \"gae\"\n[critic]\nkind = \"separate\"\ndetach = true",
            "unknown key `detach` in [critic] of kind \"separate\"",
            "`detach` is an option of kind = \"head\"",
        ),
        (
            "[optim]\nmomentum = 0.9",
            "unknown key `momentum` in [optim]",
            "`momentum` is an option of kind = \"muon\", which has to be set too",
        ),
        ("[loss]\nclip_ratio_hi = 0.3", "in [loss]", "did you mean `clip_ratio_high`?"),
        (
            "[loss]\nkind = \"grpo\"",
            "loss.kind is \"grpo\", expected \"dapo\", \"gspo\", \"cispo\",",
            "",
        ),
        ("[rollout]\nclip_ratio_low = 0.1", "in [rollout]", "is a key of [loss]"),
        ("[optim]\nlearning_rate = 1e-6", "in [optim]", "learning_rate is `lr`"),
        ("[train]\nnum_generations = 8", "in [train]", "is `rollout.group_size`"),
        ("[sft]\nlearning_rate = 1e-3", "in [sft]", "learning_rate is `lr`"),
        ("[sft]\nbatch_size = 8", "in [sft]", "did you mean `batch`?"),
        ("[train]\noutput_dir = 'a'", "in [train]", "leave it out: "),
        ("[loss]\nepsilon = 0.2", "in [loss]", "is `clip_ratio_low`"),
        (
            "[sampling]\nmin_replace_ratio = 0.5",
            "unknown key `min_replace_ratio` in [sampling]",
            "`dynamic = { kind = \"replace\", min_ratio = 0.3 }`",
        ),
        // Keys with an earlier name.
        ("[warmup]\nsteps = 3", "unknown table `warmup` in", "`[sft]`"),
        ("[environment]\nheard = \"a\"", "unknown key `heard` in [environment]", "`observation`"),
        (
            "[environment]\nmax_heard_tokens = 3",
            "unknown key `max_heard_tokens` in [environment]",
            "`max_observation_tokens`",
        ),
        ("[loss]\nimportance_cap = 2.0", "unknown key `importance_cap` in [loss]", "`tis_cap`"),
        (
            "[loss]\nimportance_range = [0.5, 2.0]",
            "unknown key `importance_range` in [loss]",
            "`tis_mask`",
        ),
        (
            "[sampling]\nmemory = { kind = \"variance\" }",
            "unknown table `memory` in [sampling]",
            "`[sampling.curriculum]`",
        ),
        ("[sampling]\nsurplus = \"drop\"", "unknown key `surplus` in [sampling]", "`carry_over`"),
        (
            "[sampling]\nmax_surplus_age = 2",
            "unknown key `max_surplus_age` in [sampling]",
            "`max_carry_over_age`",
        ),
        (
            "[sampling]\ndynamic = { min_ratio = 0.5 }",
            "[sampling.dynamic] has no `kind`",
            "add `kind`, \"replace\"",
        ),
        (
            "[sampling]\ndynamic = { kind = \"replace\", min_ratio = 1.0 }",
            "sampling.dynamic.min_ratio is 1.0, expected at least 0 and below 1",
            "",
        ),
        (
            "[sampling]\ndynamic = \"copy\"",
            "sampling.dynamic is \"copy\", expected \"filter\",",
            "",
        ),
        ("[sampling]\ndynamic = 3", "sampling.dynamic is an integer, expected \"filter\",", ""),
        ("[optim]\nschedule = true", "optim.schedule is a boolean, expected \"constant\",", ""),
        (
            "[optim]\nschedule = { kind = \"constant\", end_ratio = 0.5 }",
            "optim.schedule.kind is \"constant\", expected \"linear\" or \"cosine\"",
            "",
        ),
        (
            "[optim]\nschedule = \"linear\"\nwarmup_steps = 5\n[train]\nsteps = 5",
            "optim.schedule has no step to decay over",
            "lower optim.warmup_steps, or raise train.steps",
        ),
    ] {
        let error = parse(tables, &[]).unwrap_err();
        assert!(error.to_string().contains(message), "{tables}: {error}");
        assert!(error.help().unwrap_or_default().contains(help), "{tables}: {:?}", error.help());
    }
}

#[test]
fn a_critic_of_its_own_is_not_trained_in_float16() {
    let sets = ["advantage.kind=gae", "critic.kind=separate", "model.dtype=float16"];
    let error = parse("", &sets).unwrap_err();
    assert!(
        error.to_string().contains("expected \"head\" for model.dtype = \"float16\""),
        "{error}"
    );
    assert!(parse("", &sets[..2]).is_ok());
}

/// Each case has settings that change nothing, and what they need. With that, the recipe is valid.
#[test]
fn a_setting_without_effect_is_refused_with_what_would_give_it_one() {
    let length = "reward.length.target=9";
    for (settings, key, needs, with) in [
        (&["critic.coef=0.5"][..], "[critic]", "advantage.kind = \"gae\"", "advantage.kind=gae"),
        (
            &["loss.constant_length=9"],
            "loss.constant_length",
            "loss.aggregation = \"constant\"",
            "loss.aggregation=constant",
        ),
        (
            &["sampling.dynamic=off", "sampling.max_rounds=3"],
            "sampling.max_rounds",
            "sampling.dynamic = \"filter\" or \"replace\"",
            "sampling.dynamic=replace",
        ),
        (
            &["sampling.dynamic=drop", "sampling.on_cap=error"],
            "sampling.on_cap",
            "sampling.dynamic = \"filter\" or \"replace\"",
            "sampling.dynamic=filter",
        ),
        (
            &["sampling.dynamic=drop", "sampling.carry_over=true"],
            "sampling.carry_over",
            "sampling.dynamic = \"filter\" or \"replace\"",
            "sampling.dynamic=true",
        ),
        (
            &["sampling.dynamic=false", "sampling.max_carry_over_age=2"],
            "sampling.max_carry_over_age",
            "sampling.dynamic = \"filter\" or \"replace\"",
            // If nothing is left of a group, it is sampled again.
            "reward.overlong.filter=true",
        ),
        (
            &["sampling.max_rounds=0", "sampling.on_cap=stop"],
            "sampling.on_cap",
            "sampling.max_rounds above 0",
            "sampling.max_rounds=1",
        ),
        (
            &["sampling.carry_over=false", "sampling.max_carry_over_age=1"],
            "sampling.max_carry_over_age",
            "sampling.carry_over = true",
            "sampling.carry_over=true",
        ),
        (
            &["sampling.dynamic=off", "sampling.tolerance=0.5"],
            "sampling.tolerance",
            "sampling.dynamic other than \"off\", or sampling.curriculum",
            "sampling.curriculum.kind=posterior",
        ),
        (
            &["eval.temperature=0.0", "eval.top_p=0.7"],
            "eval.top_p",
            "eval.temperature above 0",
            "eval.temperature=0.6",
        ),
        (&["sft.data=rows.jsonl"], "sft.data", "sft.steps above 0", "sft.steps=3"),
        (&["sft={steps=3,split='test'}"], "sft.split", "sft.data", "sft.data=rows"),
        (&["sft={steps=3,subset='main'}"], "sft.subset", "sft.data", "sft.data=rows"),
        (&["sft={steps=3,columns={}}"], "[sft.columns]", "sft.data", "sft.data=rows"),
        (&["sft.batch=8"], "sft.batch", "sft.steps above 0", "sft.steps=3"),
        (&["sft.lr=0.1"], "sft.lr", "sft.steps above 0", "sft.steps=3"),
        (&["sft.stop_at=0.5"], "sft.stop_at", "sft.steps above 0", "sft.steps=3"),
        (&["sft.every=5"], "sft.every", "sft.steps above 0", "sft.steps=3"),
        (&["sft.samples=5"], "sft.samples", "sft.steps above 0", "sft.steps=3"),
        (
            &["reward.overlong.buffer=64"],
            "reward.overlong.buffer",
            "reward.overlong.penalty above 0",
            "reward.overlong.penalty=1.0",
        ),
        (
            &[length, "reward.length.max_cut=0.0", "reward.length.ramp_factor=1.0"],
            "reward.length.ramp_factor",
            "reward.length.max_cut above 0",
            "reward.length.max_cut=0.5",
        ),
        (
            &[length, "reward.length.max_cut=0.0", "reward.length.free_factor=1.0"],
            "reward.length.free_factor",
            "reward.length.max_cut above 0",
            "reward.length.max_cut=0.5",
        ),
        (
            &[length, "reward.length.max_cut=0.0", "reward.length.truncation_cut=0.0"],
            "[reward.length]",
            "max_cut or truncation_cut above 0",
            "reward.length.truncation_cut=0.5",
        ),
        (
            &["reward={kind='regex',pattern='(a)',matches=true}", "reward.group=1"],
            "reward.group",
            "matches = false",
            "reward.matches=false",
        ),
        (
            &["reward={kind='code',command=['sh','main.sh']}", "reward.python=python3.12"],
            "reward.python",
            "no command",
            "reward.command=[]",
        ),
        (
            &[
                "reward={kind='code',command=['sh','main.sh'],checker=['./check']}",
                "reward.tolerance=0.1",
            ],
            "reward.tolerance",
            "no checker",
            "reward.checker=[]",
        ),
        (
            &["reward={kind='code',sandbox='none'}", "reward.mounts=['/opt']"],
            "reward.mounts",
            "sandbox = \"bwrap\"",
            "reward.sandbox=bwrap",
        ),
        (
            &["reward={kind='regex',pattern='(a)',matches=true}", "reward.tail=9"],
            "reward.tail",
            "matches = false",
            "reward.matches=false",
        ),
        (
            &["train.adaptive.weight_entropy=0.0", "train.adaptive.max_entropy_term=1.0"],
            "train.adaptive.max_entropy_term",
            "train.adaptive.weight_entropy above 0",
            "train.adaptive.weight_entropy=0.1",
        ),
        (
            &["train.adaptive={n_min=4,n_max=4}", "train.adaptive.n_base=9"],
            "train.adaptive.n_base",
            "train.adaptive.n_min below n_max",
            "train.adaptive.n_max=5",
        ),
        (
            &["train.adaptive={n_min=1,n_max=1}", "train.adaptive.kl_stop=0.1"],
            "train.adaptive.kl_stop",
            "train.adaptive.n_max above 1",
            "train.adaptive.n_max=2",
        ),
        (
            &["optim.warmup_steps=0", "optim.warmup_from_zero=true"],
            "optim.warmup_from_zero",
            "optim.warmup_steps above 0",
            "optim.warmup_steps=2",
        ),
        (&["rollout.graphs=true"], "rollout.graphs", "device.kind other", "device.kind=vulkan"),
        (
            &["device.kind=vulkan", "reward={kind='model',path='judge'}", "rollout.graphs=true"],
            "rollout.graphs",
            "no reward model",
            "reward={kind='regex',pattern='(a)'}",
        ),
        (
            &["device.kind=vulkan", "rollout.max_staleness=1", "rollout.graphs=true"],
            "rollout.graphs",
            "rollout.max_staleness = 0",
            "rollout.max_staleness=0",
        ),
        (
            &[NEW_MODEL, "model.base='int8'"],
            "model.base",
            "model.lora, or with an adapter as model.path",
            // This may be one.
            "model={path='adapter',base='int8'}",
        ),
        (&["data.train_size=9"], "data.train_size", "data.task", GENERATED),
        (
            &["data.heldout=\"h.jsonl\"", "data.heldout_size=9"],
            "data.heldout_size",
            "no data.heldout, so that held-out prompts are generated or split off",
            "data={train='train.jsonl',heldout_size=9}",
        ),
        (&[GENERATED, "data.heldout=\"h.jsonl\""], "data.heldout", "data.train", READ),
        (&[GENERATED, "data.deduplicate=false"], "data.deduplicate", "data.train", READ),
        (
            &["data={task={kind='addition',digits=2,worked=false}}", "data.task.second_look=0.5"],
            "data.task.second_look",
            "data.task.worked = true",
            "data.task.worked=true",
        ),
    ] {
        let error = parse("", settings).unwrap_err().to_string();
        let message = format!("{key} is set, expected only with {needs}");
        assert!(error.contains(&message), "{settings:?}: {error}");
        assert!(error.contains("(set by --set "), "{error}");

        let repaired = [settings, &[with]].concat();
        let recipe = parse("", &repaired).unwrap_or_else(|error| panic!("{repaired:?}: {error}"));

        // A recipe that is written out lacks the settings that change nothing.
        let again = Recipe::parse(Path::new("recipe.toml"), &recipe.to_toml(), &[]).unwrap();
        assert_eq!(again.recipe.to_toml(), recipe.to_toml());
    }

    // In a file the error points at the setting, even in a list.
    let part = "[reward]\nkind = \"weighted\"\n[[reward.parts]]\nname = \"a\"\nweight = 1\n\
                kind = \"regex\"\npattern = \"a\"\nmatches = true\ntail = 9";
    let error = parse(part, &[]).unwrap_err().to_string();
    assert!(error.starts_with("recipe.toml:15:8: reward.parts.0.tail is set"), "{error}");
}

const NEW_MODEL: &str = "model={new={hidden_size=64,layers=2,heads=4,kv_heads=2,intermediate_size=128,\
                         max_position_embeddings=4096,alphabet='ab'}}";
const GENERATED: &str = "data={task={kind='addition',digits=2},train_size=9}";
const READ: &str = "data={train='train.jsonl',heldout='h.jsonl',deduplicate=false}";

#[test]
fn an_override_keeps_the_comments() {
    let text = r#"#:schema ./recipe.schema.json
# Learns to add.

[model]
path = "model" # small

[data]
task = { kind = "addition", digits = 2 } # sums

[rollout]
# More is slower.
group_size = 16 # per prompt
"#;
    let overrides = [
        "seed=3",
        "rollout.group_size=8",
        "data.task.digits=4",
        "device.kind=cuda",
        "reward.overlong.filter=true",
    ];
    let loaded = Recipe::parse(Path::new("runs/add.toml"), text, &overrides.map(String::from));
    let loaded = loaded.unwrap();

    assert_eq!((loaded.name.as_str(), loaded.recipe.seed), ("add", 3));
    insta::assert_snapshot!(loaded.text, @r#"
    #:schema ./recipe.schema.json
    # Learns to add.

    seed = 3
    [model]
    path = "model" # small

    [data]
    task = { kind = "addition", digits = 4 } # sums

    [rollout]
    # More is slower.
    group_size = 8 # per prompt

    [device]
    kind = "cuda"

    [reward.overlong]
    filter = true
    "#);

    // The run folder keeps a recipe that means the same.
    let again = Recipe::parse(Path::new("recipe.toml"), &loaded.text, &[]).unwrap();
    assert_eq!(again.recipe, loaded.recipe);
}

/// Without this, nobody could turn off a setting of a built-in recipe that another key of it needs.
#[test]
fn an_override_without_a_value_takes_a_key_out() {
    let toml = "[model]\npath = 'model'\n\n[data]\ntask = { kind = 'addition', digits = 2 }\n\n\
                [sampling]\n# At most.\nmax_rounds = 3 # rounds\n";
    let yaml = "model: {path: model}\ndata: {task: {kind: addition, digits: 2}}\nsampling: {max_rounds: 3}\n";

    for (name, text) in [("add.toml", toml), ("add.yaml", yaml)] {
        let parse = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|it| (*it).to_owned()).collect();
            Recipe::parse(Path::new(name), text, &overrides)
        };

        let idle = parse(&["sampling.dynamic=false"]).unwrap_err().help().unwrap();
        assert!(idle.contains("`--set sampling.max_rounds=`"), "{idle}");

        let loaded = parse(&["sampling.dynamic=false", "sampling.max_rounds="]).unwrap();
        let again = Recipe::parse(Path::new("recipe.toml"), &loaded.text, &[]).unwrap();
        assert_eq!(again.recipe, loaded.recipe);
        assert!(!loaded.text.contains("max_rounds"), "{}", loaded.text);

        // A table goes as well as a key does.
        let inline = parse(&["data.task=", "data.train='t.jsonl'", "reward.kind='exact'"]).unwrap();
        assert_eq!(inline.recipe.data.task, None);

        for absent in ["sampling.max_round=", "sampling.max_rounds.most=", "eval.every="] {
            let nothing = parse(&[absent]).unwrap_err().to_string();
            assert!(nothing.contains("the recipe does not set"), "{nothing}");
        }
    }
}

#[test]
fn paths_begin_at_the_recipe_and_those_of_set_at_the_current_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    for file in ["judge.py", "qwen/tiny/config.json", "data/train.jsonl"] {
        fs::create_dir_all(here.join(file).parent().unwrap()).unwrap();
        fs::write(here.join(file), "").unwrap();
    }

    let text = "[model]\npath = 'qwen/tiny' # next to it\n[data]\ntrain = 'data/train.jsonl'\n\
                heldout = 'openai/gsm8k'\n[sft]\nsteps = 1\ndata = 'data/train.jsonl'\n[reward]\nkind = 'weighted'\n[[reward.parts]]\n\
                name = 'own'\nweight = 1\nkind = 'command'\nprogram = ['python3', 'judge.py', '-v']\n";
    fs::write(here.join("own.toml"), text).unwrap();

    let read = |set: &[&str]| {
        let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
        Recipe::load(&here.join("own.toml"), &set).unwrap()
    };

    let loaded = read(&[]);
    let joined = |name: &str| Some(here.join(name));
    assert_eq!(loaded.recipe.model.path, joined("qwen/tiny"));
    assert_eq!(trained_on(&loaded.recipe), joined("data/train.jsonl"));
    assert_eq!(loaded.recipe.sft.data, joined("data/train.jsonl"));

    // This is a name on the Hub, because no such path exists.
    assert_eq!(loaded.recipe.data.heldout.as_deref(), Some(Path::new("openai/gsm8k")));

    // A word of a program that leads to a file next to the recipe is a path, and other words stay.
    let Some(RewardKind::Weighted { parts }) = &loaded.recipe.reward.kind else { panic!() };
    let RewardKind::Command { program, .. } = &parts[0].kind else { panic!() };
    assert_eq!(program[..], ["python3", here.join("judge.py").to_str().unwrap(), "-v"]);

    // The run's copy means the same wherever it lies, and keeps its comments.
    assert!(loaded.text.contains("qwen/tiny\" # next to it"), "{}", loaded.text);
    assert_eq!(
        Recipe::parse(Path::new("a.toml"), &loaded.text, &[]).unwrap().recipe,
        loaded.recipe
    );

    // Only a text that the Hub may have is a name, and a revision may have slashes.
    for (name, is_path) in [("org/set@refs/pr/1", false), ("rows.ndjson", true), ("qwen", true)] {
        let text = format!("[model]\npath = 'org/m'\n[data]\ntrain = '{name}'\n");
        let loaded = Recipe::load_text(&here.join("a.toml"), &text, &[]).unwrap();
        assert_eq!(trained_on(&loaded.recipe).unwrap().is_absolute(), is_path, "{name}");
        assert_eq!(loaded.text.contains(here.to_str().unwrap()), is_path, "{name}");
    }

    let set = read(&["data.train=rows/train.jsonl", "model={ path = 'qwen' }"]);
    assert_eq!(trained_on(&set.recipe), Some("rows/train.jsonl".into()));
    assert_eq!(set.recipe.model.path.as_deref(), Some(Path::new("qwen")));

    // The kept text has absolute paths for overrides, too.
    let kept = Recipe::parse(Path::new("a.toml"), &set.text, &[]).unwrap().recipe;
    assert!(trained_on(&kept).unwrap().is_absolute());
    assert_eq!(kept, set.recipe.with_absolute_paths());
}

/// Returns where a recipe's only data set is.
fn trained_on(recipe: &Recipe) -> Option<PathBuf> {
    match recipe.data.train.clone()? {
        TrainData::One(path) => Some(path),
        TrainData::Several(_) => None,
    }
}

#[test]
fn several_data_sets_keep_their_names_wherever_the_recipe_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let read = |list: &str| {
        let text =
            format!("[model]\npath = 'qwen'\n[data]\ntrain = [{list}]\n[reward]\nkind = 'math'\n");
        Recipe::load_text(&here.join("own.toml"), &text, &[])
    };
    let names = |recipe: &Recipe| -> Vec<String> {
        recipe.train_sources().iter().map(TrainSource::name).collect()
    };

    let judge = "reward = { kind = 'python', file = 'judge.py' }";
    let list = format!(
        "{{ path = 'train.jsonl' }}, {{ path = 'sets/data.csv', {judge} }}, {{ path = 'org/set@v1' }}, \
         {{ path = 'a@b.jsonl', name = 'own' }}"
    );
    let loaded = read(&list).unwrap();
    assert_eq!(names(&loaded.recipe), ["train", "data", "set", "own"]);
    let kept = Recipe::parse(Path::new("a.toml"), &loaded.text, &[]).unwrap().recipe;
    assert_eq!(names(&kept), names(&loaded.recipe));
    let [first, second, ..] = kept.train_sources() else { panic!() };
    assert_eq!(first.path, here.join("train.jsonl"));
    let Some(RewardKind::Python { file, .. }) = &second.reward else { panic!() };
    assert_eq!(*file, here.join("judge.py"));

    for (list, problem) in [
        ("", "is empty"),
        ("{ path = 'a/x.csv' }, { path = 'b/x.csv' }", "two sources named \"x\""),
        ("{ path = 'a.csv', name = 'ö' }", "expected letters, digits, -, _ and ."),
        ("{ path = 'a.csv', weight = 2 }, { path = 'b.csv' }", "1 of 2 sources with a `weight`"),
        ("{ path = 'a.csv', weight = 1e5 }, { path = 'b.csv', weight = 1 }", "a thousandth"),
        ("{ path = 'a.csv', share = 1 }", "unknown key `share` in [[data.train]]"),
        ("{ weight = 1 }", "[[data.train]] has no key `path`"),
        ("{ path = 'a.csv', reward = { kind = 'environment' } }", "is that of the environment"),
    ] {
        let error = read(list).unwrap_err().to_string();
        assert!(error.contains(problem), "{list}: {error}");
    }
}

#[test]
fn a_recipe_that_is_not_there() {
    let error = Recipe::load(Path::new("recipes/none.toml"), &[]).unwrap_err();
    assert!(matches!(error, RecipeError::Read { .. }));

    let help = error.help().unwrap();
    assert!(error.to_string().starts_with("can't read the recipe recipes/none.toml: "), "{error}");
    assert!(help.contains("relative to the current directory"), "{help}");
}

#[test]
fn a_program_may_leave_out_what_a_file_may_not() {
    let made = Recipe { seed: 3, ..Recipe::default() };
    let loaded = Loaded::from(made.clone());
    assert_eq!((loaded.name.as_str(), &loaded.recipe), ("run", &made));
    assert_eq!(toml::from_str::<Recipe>(&loaded.text).unwrap(), made);

    let error = Recipe::parse(Path::new("run.toml"), &loaded.text, &[]).unwrap_err().to_string();
    assert!(error.contains("[model] has neither `path` nor `new`"), "{error}");

    let named = Recipe { name: Some("mine".into()), ..made };
    assert_eq!(Loaded::from(named).name, "mine");
}

/// A number without a bound can end the process where a list of so many entries is made.
#[test]
fn every_whole_number_has_a_bound() {
    fn walk(schema: &Value, at: &str, unbounded: &mut Vec<String>) {
        let is_whole = schema["type"] == "integer";
        if is_whole && schema.get("maximum").is_none() {
            unbounded.push(at.to_owned());
        }
        match schema {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, inner)| walk(inner, name, unbounded));
            }
            Value::Array(items) => items.iter().for_each(|inner| walk(inner, at, unbounded)),
            _ => {}
        }
    }

    let mut unbounded = Vec::new();
    walk(&Recipe::schema(), "", &mut unbounded);
    assert_eq!(unbounded, ["seed"]);
}

#[test]
fn what_no_memory_holds_is_refused_with_the_bound() {
    const NEW: &str = "model.new={hidden_size=64,layers=2,heads=4,kv_heads=2,intermediate_size=128";
    let new = |more: &str| format!("{NEW}{more}}}");
    for (set, problem) in [
        (
            &["rollout.group_size=1000000000"][..],
            "group_size is 1000000000, expected at least 1 and at most 65536",
        ),
        (&["sampling.prompts_per_step=100000000"], "at most 16777216"),
        (
            &["rollout.group_size=65536", "sampling.prompts_per_step=257"],
            "sampling.prompts_per_step × rollout.group_size is 257 × 65536 = 16842752, expected at \
             most 16777216 completions in a step",
        ),
        (
            &["eval.samples=65536"],
            "eval.prompts × eval.samples is 500 × 65536 = 32768000, expected at most 16777216 \
             completions in an evaluation",
        ),
        (
            &["eval.samples=65536", "eval.prompts=0"],
            "data.heldout_size × eval.samples is 500 × 65536",
        ),
        (
            &["eval.samples=60000", "data.heldout_size=280"],
            "data.heldout_size × eval.samples is 280",
        ),
        (
            &[&new(",vocab_size=40000000")],
            "vocab_size is 40000000, expected at least 1 and at most 16777216",
        ),
        (
            &[&new(",vocab_size=16000000"), "model.new.hidden_size=400"],
            "a matrix of 6400000000 values",
        ),
        (
            &[&new(""), "model.new.layers=65536", "model.new.hidden_size=16384"],
            "values, expected at most 1099511627776",
        ),
        (
            &[&new(""), "model.new.layers=1000000000000"],
            "layers is 1000000000000, expected at least 1 and at most 65536",
        ),
        (&["train.mini_batch=9000000000000000000"], "at most 16777216"),
        (&["data.train_size=9000000000000000000"], "at most 16777216"),
        (&["sft.batch=1000000000000"], "at most 65536"),
    ] {
        let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
        let text = if set[0].starts_with("model.new") {
            "data.train = \"train.jsonl\"\nrollout.max_completion_tokens = 8\n".into()
        } else {
            with_files("")
        };

        let error = Recipe::parse(Path::new("recipe.toml"), &text, &set).unwrap_err().to_string();
        assert!(error.contains(problem), "{set:?}: {error}");
    }

    // These are the largest numbers that are accepted.
    let most = ["rollout.group_size=65536", "sampling.prompts_per_step=256", "eval.samples=33554"];
    let most = most.map(str::to_owned);
    assert!(Recipe::parse(Path::new("recipe.toml"), &with_files(""), &most).is_ok());
}

/// Rewards, losses and steps are computed in float32, which ends at 3.4e38 and begins at 1.2e-38.
#[test]
fn a_number_is_bounded_in_the_type_that_it_is_computed_in() {
    for (set, problem) in [
        ("reward.right=1e308", "reward.right is 1e308, expected at most 1e9"),
        ("reward.wrong=-1e308", "reward.wrong is -1e308, expected at most 1e9 in size"),
        ("reward.overlong.penalty=1e308", "expected at least 0 and at most 1e9"),
        ("optim.lr=1e39", "optim.lr is 1e39, expected at least 0 and at most 1e9"),
        ("optim.lr=1e-400", "optim.lr is 1e-400, expected 0, or at least 1e-30"),
        ("rollout.temperature=1e-39", "temperature is 1e-39, expected at least 1e-30"),
        ("optim.max_grad_norm=1000000000001", "at most 1e9"),
        (
            "optim.beta2=0.99999999999",
            "beta2 is 0.99999999999 (1 in float32), expected at least 0 and below 1",
        ),
        (
            "loss.dual_clip=1.00000000001",
            "dual_clip is 1.00000000001 (1 in float32), expected above 1",
        ),
        (
            "model.lora={rank=4, alpha=1e300}",
            "model.lora.alpha is 1e300, expected above 0 and at most 1e9",
        ),
        ("loss.tis_mask=[1e-50, 2.0]", "expected 0, or at least 1e-30 in size"),
    ] {
        let set = [set.to_owned()];
        let text = with_files("");
        let error = Recipe::parse(Path::new("recipe.toml"), &text, &set).unwrap_err().to_string();
        assert!(error.contains(problem), "{set:?}: {error}");
    }

    let most = ["reward.right=1e9", "optim.lr=1e-30", "train.adaptive={kl_stop=1e9}"];
    let most = most.map(str::to_owned);
    assert!(Recipe::parse(Path::new("recipe.toml"), &with_files(""), &most).is_ok());
}

#[test]
fn the_plain_message_says_where() {
    let text = with_files("[rollout]\ngroup_siz = 8");
    let error = Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap_err();
    assert_eq!(error.to_string(), "recipe.toml:8:1: unknown key `group_siz` in [rollout]");
}

#[test]
fn a_byte_order_mark_is_skipped_and_utf_16_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let yaml = "model: {path: org/m}\ndata: {train: d}\n";
    for (name, text) in [("r.toml", with_files("")), ("r.yaml", yaml.to_owned())] {
        let path = folder.path().join(name);
        let load = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            Recipe::load(&path, &[])
        };

        let marked = format!("\u{feff}{text}");
        assert_eq!(load(marked.as_bytes()).unwrap(), load(text.as_bytes()).unwrap());

        let little: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> = marked.encode_utf16().flat_map(u16::to_be_bytes).collect();
        for bytes in [little, big] {
            let error = load(&bytes).unwrap_err();
            assert!(matches!(error, RecipeError::Read { .. }), "{error}");
            assert!(error.to_string().contains("it is UTF-16 text, expected UTF-8"), "{error}");
        }
    }
}

/// A recipe is an untrusted file: whatever stands in it, it is read or refused.
#[test]
fn no_text_makes_the_reader_panic() {
    let text = r#"name = "ä"
[model]
new = { hidden_size = 64, layers = 2, heads = 4, kv_heads = 2, intermediate_size = 128 }
[data]
task = { kind = "countdown", numbers = 3 }
[reward]
overlong.buffer = 0x10
kind = "weighted"
parts = [{ name = "a", weight = 1, kind = "regex", pattern = "(ä)", group = 1 }]
"#;
    const YAML: &str =
        "name: ä\nmodel:\n  new: {hidden_size: 64, layers: 2}\ndata:\n- task: >\n    ä\n";

    let read_as = |path: &str, text: &str| {
        for overrides in [&[][..], &["model.new.heads=0".into(), "data.task='ü'".into()]] {
            if let Err(error) = Recipe::parse(Path::new(path), text, overrides) {
                assert!(!error.to_string().is_empty());
                if let RecipeError::Invalid(fault) = &error
                    && let Some(label) = &fault.label
                {
                    assert!(fault.text.get(label.span.clone()).is_some(), "{error}");
                }
            }
        }
    };

    let read = |text: &str| read_as("recipe.toml", text);
    let read_yaml = |text: &str| read_as("recipe.yaml", text);
    let depth = 100_000;

    for (at, _) in YAML.char_indices() {
        read_yaml(&YAML[..at]);
        for noise in
            ["\0", ":", "{", "]", "\"", "&a", "*a", "ü", "\n", "\t", "- ", "? ", "!x ", "|", "#"]
        {
            read_yaml(&format!("{}{noise}{}", &YAML[..at], &YAML[at..]));
        }
    }

    for deep in ["[", "{a=", "a.", "[a]\na={b=["] {
        read(&format!("a = {}", deep.repeat(depth)));
        read(&format!("{}a = 1", deep.repeat(depth)));
    }

    for (at, _) in text.char_indices() {
        read(&text[..at]);
        for noise in ["\0", "=", "{", "]", "\"", "-9e99", "ü", "\n", "."] {
            read(&format!("{}{noise}{}", &text[..at], &text[at..]));
        }
    }
}

#[test]
fn every_recipe_here_is_valid_and_means_the_same_in_yaml() {
    let overrides = [
        "seed=3",
        "eval={ samples = 8, top_p = 0.9 }",
        "loss.kl.kind=k3",
        "loss.kl.coef=1e-3",
        "name=run",
    ];
    for path in every_recipe() {
        let text = fs::read_to_string(&path).unwrap();

        // The same recipe is written in YAML's block style, and in JSON, which is YAML too.
        let table: toml::Table = toml::from_str(&text).unwrap();
        let as_yaml = yaml(&serde_json::to_value(&table).unwrap(), 0);
        let as_json = serde_json::to_string_pretty(&table).unwrap(); // JSON is YAML too.
        for overrides in [&[][..], &overrides.map(String::from)] {
            let read = |path: &Path, text: &str| {
                Recipe::parse(path, text, overrides).unwrap_or_else(|error| {
                    panic!("{error}\n{text}");
                })
            };

            let loaded = read(&path, &text);

            for text in [&as_yaml, &as_json] {
                let other = read(&path.with_extension("yaml"), text);
                assert_eq!(other.recipe, loaded.recipe, "{}", path.display());
                assert_eq!(other.name, loaded.name);

                // The run folder keeps TOML, which means the same.
                let kept = Recipe::parse(Path::new("recipe.toml"), &other.text, &[]).unwrap();
                assert_eq!(kept.recipe, loaded.recipe, "{}", other.text);
            }
        }
    }
}

fn every_recipe() -> Vec<std::path::PathBuf> {
    let mut folders = vec![recipes()];
    let mut found = Vec::new();

    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "toml")
                && !path.ends_with("Cargo.toml")
            {
                found.push(path);
            }
        }
    }

    found
}

/// Writes a value in YAML's block style, as people do.
fn yaml(value: &serde_json::Value, depth: usize) -> String {
    use serde_json::Value;
    let indent = "  ".repeat(depth);

    match value {
        Value::Object(entries) if !entries.is_empty() => {
            let lines = entries.iter().map(|(key, value)| {
                let gap = if value.is_object() || value.is_array() { "\n" } else { " " };
                format!("{indent}{key}:{gap}{}", yaml(value, depth + 1))
            });
            lines.collect()
        }
        Value::Array(items) if !items.is_empty() => {
            let lines = items.iter().map(|item| {
                let item = yaml(item, depth + 1);
                format!("{indent}- {}", item.trim_start())
            });
            lines.collect()
        }
        Value::String(text) if text.chars().all(|c| c.is_ascii_alphabetic()) => format!("{text}\n"),
        Value::Number(_) | Value::Bool(_) => format!("{value}\n"),
        _ => format!("{indent}{value}\n"),
    }
}

#[test]
fn a_recipe_in_yaml_with_overrides() {
    let text = "\
# Learns to add.
model:
  path: model
data: {task: {kind: addition, digits: 2}}
reward:
  kind: weighted
  parts:
  - name: answer # right or wrong
    weight: .5
    kind: integer
  - {name: form, weight: 1e-1, kind: format, boxed: true}
rollout:
  group_size: 16
  temperature: 1.";
    let overrides = [
        "seed=3",
        "rollout.group_size=8",
        "data.task.digits=4",
        "device.kind=cuda",
        "reward.overlong={ penalty = 0.5, buffer = 8 }",
    ];

    let loaded = Recipe::parse(Path::new("runs/add.yml"), text, &overrides.map(String::from));
    let loaded = loaded.unwrap();
    assert_eq!((loaded.name.as_str(), loaded.recipe.seed), ("add", 3));

    insta::assert_snapshot!(loaded.text, @r#"
    # From a recipe in YAML, whose comments are not kept.

    seed = 3

    [model]
    path = "model"

    [data.task]
    kind = "addition"
    digits = 4

    [reward]
    kind = "weighted"

    [[reward.parts]]
    name = "answer"
    weight = 0.5
    kind = "integer"

    [[reward.parts]]
    name = "form"
    weight = 1e-1
    kind = "format"
    boxed = true

    [reward.overlong]
    penalty = 0.5
    buffer = 8

    [rollout]
    group_size = 8
    temperature = 1.0

    [device]
    kind = "cuda"
    "#);

    let again = Recipe::parse(Path::new("recipe.toml"), &loaded.text, &[]).unwrap();
    assert_eq!(again.recipe, loaded.recipe);
}

/// Checks the numbers of section 4.1 of Yu et al. 2025, one by one.
#[test]
fn the_paper_s_run_has_the_paper_s_numbers() {
    let path = recipes().join("paper/dapo-qwen2.5-32b.toml");
    let recipe = Recipe::load(&path, &[]).unwrap().recipe;
    let Recipe { rollout, sampling, reward, loss, optim, train, eval, .. } = &recipe;

    assert_eq!((sampling.prompts_per_step, rollout.group_size), (512, 16));
    assert_eq!((train.mini_batch, 512 * 16 / train.mini_batch), (512, 16));
    assert_eq!((optim.lr, optim.warmup_steps), (Some(1e-6), 20));
    assert_eq!(rollout.max_completion_tokens, 16_384 + 4096);

    assert_eq!((reward.overlong.buffer, reward.overlong.penalty), (4096, 1.0));
    assert!(!reward.overlong.filter);
    assert_eq!((reward.right, reward.wrong), (1.0, -1.0));

    assert_eq!(loss.kind.clip_ratios(), Some((0.2, 0.28)));
    assert_eq!(loss.aggregation, Aggregation::TokenMean);
    assert_eq!((loss.entropy_coef, loss.kl.is_none()), (0.0, true));
    assert!(sampling.dynamic == Dynamic::Filter && sampling.max_rounds == 0);
    assert_eq!((rollout.temperature, rollout.top_p), (1.0, 1.0));
    assert_eq!((eval.samples, eval.temperature, eval.top_p), (32, 1.0, 0.7));

    // The scaled-down recipes are the same but for sizes.
    for card in ["24gb", "80gb"] {
        let path = recipes().join(format!("paper/dapo-{card}.toml"));
        let scaled = Recipe::load(&path, &[]).unwrap().recipe;

        // A step has as many updates, of smaller mini-batches.
        let updates = scaled.sampling.prompts_per_step * 16 / scaled.train.mini_batch;
        assert_eq!((scaled.rollout.group_size, updates), (16, 16));

        assert_eq!(scaled.loss, recipe.loss);
        let (tokens, samples) = if card == "80gb" { (20_480, 32) } else { (8192, 16) };
        assert_eq!((scaled.rollout.max_completion_tokens, scaled.eval.samples), (tokens, samples));
        assert_eq!(scaled.sampling.carry_over, recipe.sampling.carry_over);
    }
}

#[test]
fn schema_is_current() {
    let path = recipes().join("recipe.schema.json");
    let schema = serde_json::to_string_pretty(&Recipe::schema()).unwrap() + "\n";
    if std::env::var_os("FIREBRICK_UPDATE").is_some() {
        fs::write(&path, &schema).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored.replace("\r\n", "\n") == schema,
        "recipes/recipe.schema.json is not the schema of the recipe's types; regenerate it with\n\
         FIREBRICK_UPDATE=1 cargo test -p firebrick-recipe schema"
    );
}

fn recipes() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes")
}

/// A template prints the keys of tools in the order in which it gets them, and a model was trained with one order.
#[test]
fn tools_have_their_keys_in_the_order_of_the_recipe() {
    let toml = with_files(
        "[[data.template_options.tools]]\ntype = \"function\"\n\
         [data.template_options.tools.function]\nname = \"lookup\"\ndescription = \"Finds.\"\n\
         [data.template_options.tools.function.parameters]\ntype = \"object\"\nrequired = [\"word\"]\n\
         [data.template_options.tools.function.parameters.properties.word]\ntype = \"string\"\n\
         [data.template_options.tools.function.parameters.properties.at]\ntype = \"integer\"\n",
    );
    let inline = "[{type=\"function\", function={name=\"lookup\", description=\"Finds.\", parameters={\
                  type=\"object\", required=[\"word\"], properties={word={type=\"string\"}, at={type=\"integer\"}}}}}]";
    let dotted = with_files(&format!("[data.template_options]\ntools = {inline}\n"));
    let yaml = "model: {path: m}\ndata:\n  train: d\n  template_options:\n    tools:\n      - type: function\n        \
                function:\n          name: lookup\n          description: Finds.\n          parameters:\n            \
                type: object\n            required: [word]\n            properties:\n              \
                word: {type: string}\n              at: {type: integer}\n";
    let expected = r#"{"tools":[{"type":"function","function":{"name":"lookup","description":"Finds.","parameters":{"type":"object","required":["word"],"properties":{"word":{"type":"string"},"at":{"type":"integer"}}}}}]}"#;

    let set = [format!("data.template_options.tools={inline}")];
    let bare = "model: {path: m}\ndata: {train: d}\n";
    for (name, text, set) in [
        ("r.toml", toml.as_str(), &[][..]),
        ("r.toml", &dotted, &[]),
        ("r.yaml", yaml, &[]),
        ("r.toml", &with_files(""), &set),
        ("r.yaml", bare, &set),
    ] {
        let loaded = Recipe::parse(Path::new(name), text, set).unwrap();

        // The run's folder has the text, and a program without a file writes the recipe.
        for text in [loaded.text.clone(), loaded.recipe.to_toml()] {
            let again = Recipe::parse(Path::new("r.toml"), &text, &[]).unwrap();
            for recipe in [&loaded.recipe, &again.recipe] {
                let options = serde_json::to_string(&recipe.data.template_options).unwrap();
                assert_eq!(options, expected, "{name} {set:?}\n{text}");
            }
        }
    }

    // An override replaces the value where it stands.
    let set = ["data.template_options.a.x=3".to_owned(), "data.template_options.a.z=4".to_owned()];
    let toml = with_files("[data.template_options]\na = { x = 1, y = 2 }\n");
    let yaml = "model: {path: m}\ndata: {train: d, template_options: {a: {x: 1, y: 2}}}\n";

    for (name, text) in [("r.toml", toml.as_str()), ("r.yaml", yaml)] {
        let options =
            Recipe::parse(Path::new(name), text, &set).unwrap().recipe.data.template_options;
        assert_eq!(
            serde_json::to_string(&options).unwrap(),
            r#"{"a":{"x":3,"y":2,"z":4}}"#,
            "{name}"
        );
    }

    // Tables stand behind values in TOML, and still keep their position here.
    let between = "model: {path: m}\ndata:\n  train: d\n  template_options:\n    tools:\n      - function: {name: a}\n        \
                   strict: 8.0\n        also: [{b: 1, a: {}}, 2]\n";
    let loaded = Recipe::parse(Path::new("r.yaml"), between, &[]).unwrap();
    for text in [loaded.text, loaded.recipe.to_toml()] {
        let again = Recipe::parse(Path::new("r.toml"), &text, &[]).unwrap().recipe;
        let options = serde_json::to_string(&again.data.template_options).unwrap();
        let expected =
            r#"{"tools":[{"function":{"name":"a"},"strict":8.0,"also":[{"b":1,"a":{}},2]}]}"#;
        assert_eq!(options, expected, "{text}");
    }
}

/// In double quotes a backslash begins an escape: `\n` is a line break, and `\m` is nothing.
#[test]
fn a_path_of_windows_needs_single_quotes() {
    for (path, refused) in [
        (r#""C:\models\qwen""#, true),
        (r#""D:\Users\x\train.jsonl""#, true),
        (r#""C:\new\table""#, true),
        (r#""C:\folder\base""#, true),
        (r#""C:\runs""#, true),
        (r#""\\server\share""#, true),
        (r#"'C:\new\table'"#, false),
        (r#""C:\\new\\table""#, false),
        (r#""C:/new/table""#, false),
    ] {
        let toml = format!("[model]\npath = {path}\n[data]\ntrain = \"d\"\n");
        let yaml = format!("model: {{path: {path}}}\ndata: {{train: d}}\n");
        let set = [format!("model.path={path}")];
        for (name, text, set) in [
            ("r.toml", toml.as_str(), &[][..]),
            ("r.yaml", &yaml, &[]),
            ("r.toml", &with_files(""), &set),
            ("r.yaml", "model: {path: m}\ndata: {train: d}\n", &set),
        ] {
            match Recipe::parse(Path::new(name), text, set) {
                Ok(_) => assert!(!refused, "{name}: {path} passes"),
                Err(error) => {
                    let help = error.help().unwrap_or_default();
                    assert!(
                        refused && help.contains("single quotes"),
                        "{name}: {path}: {error}: {help}"
                    );
                }
            }
        }
    }

    // Every path is checked.
    let data = "[data]\ntrain = \"d\"\n";
    let model = "[model]\npath = \"m\"\n";
    for (text, key) in [
        (format!("{model}[data]\ntrain = \"a\\b\"\n"), "data.train"),
        (format!("{model}{data}heldout = \"a\\b\"\n"), "data.heldout"),
        (
            format!("{model}{data}[[eval.sets]]\nname = \"a\"\ndata = \"a\\b\"\n"),
            "eval.sets.0.data",
        ),
        (format!("{model}{data}[reward]\nkind = \"model\"\npath = \"a\\b\"\n"), "reward.path"),
        (
            format!(
                "{model}{data}[rollout.engine]\nkind = \"vllm\"\nservers = [\"http://a\"]\nweights_there = \"a\\b\"\n"
            ),
            "rollout.engine.weights_there",
        ),
    ] {
        let error = Recipe::parse(Path::new("r.toml"), &text, &[]).unwrap_err().to_string();
        assert!(error.contains(&format!("{key} has a control character in it")), "{error}");
    }
}

/// The system takes no NUL in an argument, and would only say so when the run starts.
#[test]
fn a_program_gets_no_control_characters() {
    let alone = |words: &str| format!("[reward]\nkind = 'command'\nprogram = [{words}]");
    let part = |words: &str| {
        format!(
            "[reward]\nkind = 'weighted'\n[[reward.parts]]\nname = 'a'\nweight = 1\n\
             kind = 'command'\nprogram = [{words}]"
        )
    };

    for escape in ["\\u0000", "\\b", "\\u001b", "\\u0085"] {
        let words = format!("'grep', '-e', \"a{escape}c\"");
        for (table, key) in
            [(alone(&words), "reward.program.2"), (part(&words), "reward.parts.0.program.2")]
        {
            let error = parse(&table, &[]).unwrap_err();
            let expected = format!("{key} has the control character ");
            assert!(error.to_string().contains(&expected), "{error}");
            assert!(error.help().unwrap().contains("single quotes"), "{error}");
        }

        let first = parse(&alone(&format!("\"a{escape}c\"")), &[]).unwrap_err().to_string();
        assert!(first.contains("reward.program.0 has a control character in it"), "{first}");
    }

    // A script is a word too.
    parse(&alone("'sh', '-c', \"read -r line\\n\\techo $line\\r\\n\""), &[]).unwrap();
}

/// An option goes to the template as it stands, or not at all.
#[test]
fn an_option_that_json_has_no_place_for_is_refused() {
    for number in ["18446744073709551615", "10000000000000000000000000000031", "inf", "2026-01-01"]
    {
        let yaml = number.replace("inf", ".inf");
        let files = [
            ("r.toml", with_files(&format!("[data.template_options]\na = [{{ n = {number} }}]\n"))),
            (
                "r.yaml",
                format!(
                    "model: {{path: m}}\ndata: {{train: d, template_options: {{a: [{{n: {yaml}}}]}}}}\n"
                ),
            ),
        ];

        for (name, text) in files {
            // YAML has no dates: one without quotes is a text.
            let is_text = name == "r.yaml" && number.contains('-');
            match Recipe::parse(Path::new(name), &text, &[]) {
                Ok(loaded) => assert!(is_text, "{name}: {:?}", loaded.recipe.data.template_options),
                Err(error) => {
                    let message = format!("data.template_options.a.n is {number}, expected a");
                    assert!(!is_text && error.to_string().contains(&message), "{name}: {error}");
                    assert!(error.help().unwrap().contains("in quotes"));
                }
            }
        }
    }

    let largest = with_files(&format!("[data.template_options]\nn = {}\n", i64::MAX));
    assert_eq!(
        Recipe::parse(Path::new("r.toml"), &largest, &[]).unwrap().recipe.data.template_options["n"],
        i64::MAX
    );
}

#[test]
fn a_key_is_set_by_a_text_or_an_override_and_not_by_its_default() {
    let text = "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\n";
    let sets = |more: &str, set: &[&str], key: &str| {
        let set: Vec<String> = set.iter().map(|&it| it.to_owned()).collect();
        Recipe::parse("r.toml".as_ref(), &format!("{text}{more}"), &set).unwrap().sets(key)
    };
    assert!(!sets("", &[], "device") && sets("", &[], "model.path"));
    assert!(sets("[device]\nkind = \"cpu\"", &[], "device.kind"));
    assert!(!sets("[device]\nkind = \"cpu\"", &[], "device.index"));
    assert!(sets("", &["device.kind=cpu"], "device") && !sets("", &[], "model.path.x"));

    let yaml = "model: {path: m}\ndata: {train: t.jsonl}\ndevice: {kind: cpu}\n";
    assert!(Recipe::parse("r.yaml".as_ref(), yaml, &[]).unwrap().sets("device.kind"));
}
