//! Tests of plans against sums worked out by hand and against published runs.

use firebrick_models::{DecoderConfig, Family, Lora, Sizes};

use super::*;

/// Plans a run of Qwen2.5-0.5B, with a recipe's default sizes.
fn half_a_billion(recipe: &str) -> Plan {
    with_model("", recipe, Compute::F32)
}

/// Plans it with more keys of its model.
fn with_model(model: &str, recipe: &str, compute: Compute) -> Plan {
    let text = format!("[model]\npath = \"m\"\n{model}\n[data]\ntrain = \"t.jsonl\"\n{recipe}");
    of_recipe(&Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe, compute)
}

/// Plans a run of any recipe.
fn of_recipe(recipe: &Recipe, compute: Compute) -> Plan {
    with_memory(recipe, compute, None)
}

/// Plans a run for a machine with this much memory.
fn with_memory(recipe: &Recipe, compute: Compute, memory: Option<u64>) -> Plan {
    let lora = recipe.model.lora.as_ref().map(crate::model::adapters);
    let models =
        Models { policy: config(), lora, reward: 10 << 20, teachers: Vec::new(), published: false };
    Plan::new(&models, recipe, compute, memory)
}

fn config() -> DecoderConfig {
    let sizes = Sizes {
        vocab_size: 151_936,
        hidden_size: 896,
        layers: 24,
        heads: 14,
        kv_heads: 2,
        head_dim: 64,
        intermediate_size: 4864,
        max_position_embeddings: 32768,
        rope_theta: 1e6,
        tied: true,
    };
    DecoderConfig::new(Family::Qwen2, sizes)
}

fn part(plan: &Plan, name: &str, moment: Moment) -> u64 {
    let found = plan.parts.iter().find(|part| part.name == name);
    found.map_or(0, |part| part.bytes[moment as usize])
}

#[test]
fn what_is_counted_is_what_a_model_has() {
    let plan = half_a_billion("");
    let weights = 494_032_768 * 4;
    assert_eq!(part(&plan, "weights", Moment::Rollout), weights);
    assert_eq!(part(&plan, "moments of AdamW", Moment::Rollout), 2 * weights);
    assert_eq!(part(&plan, "reward model", Moment::Saving), 40 << 20);

    // Muon has one moment of the values in the layers: of all but the embedding, 151936 × 896, and the last
    // norm.
    let muon = half_a_billion("[optim]\nkind = \"muon\"");
    let layers = weights - 4 * (151_936 * 896 + 896);
    assert_eq!(part(&muon, "moments of Muon", Moment::Rollout), 2 * weights - layers);
    // A step of 64 × 16 completions is four updates of several micro-batches each.
    assert_eq!(part(&plan, "gradient", Moment::Gradient), weights);

    // The moments are in 8 bits, with a scale of 32 bits for every 64 of them.
    let narrow = half_a_billion("[optim]\nmoments = \"int8\"");
    assert_eq!(part(&narrow, "moments of AdamW", Moment::Rollout), weights / 4 * 2 * 17 / 16);

    // An engine that samples ahead has the policy's own weights until an update has changed them, and another may
    // follow. Other engines have none in an update.
    for (ahead, train, bytes) in [
        (0, "", 0),
        (1, "", weights),
        (1, "mini_batch = 1024", 0),
        (1, "mini_batch = 1024\nadaptive = { n_min = 1, n_max = 1 }", 0),
        (1, "mini_batch = 1024\nadaptive = {}", weights),
    ] {
        let plan = format!("[rollout]\nmax_staleness = {ahead}\n[train]\n{train}");
        let plan = half_a_billion(&plan);
        assert_eq!(part(&plan, "weights of the engine", Moment::Optimizer), bytes, "{train}");
    }
}

/// Every layer has 2 × 2 heads of 64, for the tokens of rows and, twice on the CPU, for those of their prompts.
#[test]
fn the_cache_is_that_of_the_step_or_of_the_largest_evaluation() {
    let plan_of = |settings: &[&str]| {
        let text = "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"";
        let set = [&["eval.prompts=8"][..], settings].concat();
        let set: Vec<String> = set.into_iter().map(str::to_owned).collect();
        let recipe = Recipe::parse("r.toml".as_ref(), text, &set).unwrap().recipe;
        let plan = of_recipe(&recipe, Compute::F32);
        (plan.facts.work.sequences, part(&plan, "KV cache", Moment::Rollout))
    };

    let few_prompts = |more: &[&'static str]| {
        [&["sampling.prompts_per_step=2", "train.mini_batch=32"][..], more].concat()
    };
    let set = "eval.sets=[{name='a',data='a.jsonl',samples=64}]";
    for (settings, rows, prompts) in [
        // A step has 1024 completions of 64 prompts.
        (vec![], 256, 16),
        // The held-out prompts are as many as the recipe allows: 500 by default, or all of a file or a split.
        (vec!["eval.prompts=0"], 256, 256),
        (vec!["eval.prompts=0", "data.heldout_size=128", "eval.samples=4"], 256, 64),
        (few_prompts(&[]), 32, 2),
        (few_prompts(&["eval.prompts=0", "data.heldout_size=48"]), 48, 48),
        (few_prompts(&["eval.prompts=0", "data.heldout='h.jsonl'"]), 256, 256),
        (few_prompts(&["eval.prompts=0", "data.heldout_split='test'"]), 256, 256),
        (few_prompts(&["eval.prompts=40", "data.heldout='h.jsonl'"]), 40, 40),
        (few_prompts(&[set]), 256, 4),
        (
            few_prompts(&["eval.samples=16", "eval.sets=[{name='a',data='a.jsonl',prompts=3}]"]),
            128,
            8,
        ),
    ] {
        let (sequences, actual) = plan_of(&settings);
        assert_eq!(sequences, rows, "{settings:?}");
        let rows = u64::try_from(rows).unwrap();
        let cache = 24 * 256 * (rows * 1024 + 2 * prompts * 512) * 4;
        assert!((cache..cache * 11 / 10).contains(&actual), "{settings:?}: {actual} of {cache}");
    }

    // A GPU has only the 8192 tokens of a prefill twice.
    let (_, actual) = plan_of(&["eval.prompts=0", "device.kind=vulkan"]);
    let cache = 24 * 256 * (256 * 1024 + (256 + 16) * 512) * 4;
    assert!((cache..cache * 11 / 10).contains(&actual), "{actual} of {cache}");
}

#[test]
fn what_is_not_trained_has_no_gradient_and_no_moments() {
    let recipe = "[loss]\nkl = { kind = \"k3\", coef = 0.1 }";
    let plan = with_model("lora = { rank = 16 }", recipe, Compute::F32);

    // The sums of the inputs and outputs of q, k, v, o, gate, up and down of every layer.
    let sides = 2 * (896 + 896) + 2 * (896 + 128) + 3 * (896 + 4864);
    let adapters = 24 * 16 * sides;

    assert_eq!(plan.facts.trainable, adapters);
    assert_eq!(part(&plan, "moments of AdamW", Moment::Optimizer) as u128, 8 * adapters);
    assert_eq!(part(&plan, "gradient", Moment::Optimizer) as u128, 4 * adapters);
    assert_eq!(part(&plan, "reference policy", Moment::Rollout) as u128, 4 * adapters);
}

/// Of the adapters of q, k and v, the joined one has all ranks at all inputs and outputs, and so has that of gate and up.
#[test]
fn adapters_of_the_same_input_are_joined_with_zeros_between_them() {
    let joined =
        24 * (48 * (896 + 1152) + 16 * (896 + 896) + 32 * (896 + 9728) + 16 * (4864 + 896));
    for (device, compute, bytes, layouts) in
        [("cpu", Compute::F32, 4, 1), ("cuda", Compute::F32, 4, 2), ("cuda", Compute::Bf16, 2, 2)]
    {
        let recipe = format!("[device]\nkind = \"{device}\"");
        let plan = with_model("lora = { rank = 16 }", &recipe, compute);
        let part = |name, moment| part(&plan, name, moment);
        assert_eq!(part("gradient", Moment::Gradient), 4 * joined, "{device}");
        assert_eq!(part("weights of the engine", Moment::Rollout), bytes * joined, "{device}");
        let of_update = part("joined adapters of an update", Moment::Gradient);
        assert_eq!(of_update, layouts * bytes * joined, "{device}");
    }
}

#[test]
fn a_critic_is_a_row_or_a_model() {
    let gae = |more: &str| format!("[advantage]\nkind = \"gae\"\n[critic]\n{more}");
    let critic = |plan: &Plan, moment| part(plan, "critic", moment);
    assert_eq!(critic(&half_a_billion(""), Moment::Rollout), 0);

    let head = half_a_billion(&gae(""));
    assert_eq!(critic(&head, Moment::Rollout), 3 * 897 * 4);
    let separate = half_a_billion(&gae("kind = \"separate\""));
    assert_eq!(critic(&separate, Moment::Backward), 4 * (494_032_768 + 897) * 4);

    // The critic has its own adapters next to weights that are the policy's.
    let recipe = gae("kind = \"separate\"");
    let adapters = with_model("lora = { rank = 16 }", &recipe, Compute::F32);
    let expected = 3 * (adapters.facts.trainable as u64 + 897) * 4;
    assert_eq!(critic(&adapters, Moment::Saving), expected);

    // Its gradient is added up in joined form, and split for the optimizer.
    let gradient = (adapters.facts.trainable as u64 + 897) * 4;
    let zeros = (adapters.facts.joined_adapters - adapters.facts.adapters) as u64 * 4;
    assert_eq!(critic(&adapters, Moment::Backward), expected + gradient + zeros);
    assert_eq!(critic(&adapters, Moment::Optimizer), expected + gradient);
}

#[test]
fn bfloat16_is_a_copy_of_the_weights_and_half_of_the_cache() {
    let full = half_a_billion("");
    let half = with_model("", "", Compute::Bf16);
    assert_eq!(part(&half, "weights of the engine", Moment::Rollout), 494_032_768 * 2);

    // A base that is not trained is kept once, in the matmul precision.
    let adapters = 8_798_208;
    let joined = 13_418_496;
    let base = 494_032_768 - 151_936 * 896;
    for (model, bytes) in [
        ("", 494_032_768 * 2),
        ("base = \"float32\"", 494_032_768 * 4),
        ("base = \"int8\"", 151_936 * 896 * 2 + base * 17 / 16),
        ("base = \"int4\"", 151_936 * 896 * 2 + base * 9 / 16),
    ] {
        let plan = with_model(&format!("lora = {{ rank = 16 }}\n{model}"), "", Compute::Bf16);
        assert_eq!(part(&plan, "weights", Moment::Rollout), bytes + adapters * 4, "{model}");
        let own = if model.contains("float32") { 494_032_768 + joined } else { joined };
        assert_eq!(part(&plan, "weights of the engine", Moment::Rollout), own * 2, "{model}");
    }

    let cache = |plan| part(plan, "KV cache", Moment::Rollout);
    assert!(cache(&half) * 2 >= cache(&full) && cache(&half) < cache(&full));
}

#[test]
fn packed_weights_are_unpacked_once_for_sampling_where_there_is_room() {
    let plan_of = |kind: &str, base: &str, compute: Compute, memory: Option<u64>| {
        let text = format!(
            "[model]\npath = \"m\"\nlora = {{ rank = 16 }}\nbase = \"{base}\"\n[data]\n\
             train = \"t.jsonl\"\n[device]\nkind = \"{kind}\""
        );
        let recipe = Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe;
        with_memory(&recipe, compute, memory)
    };
    let engine = |plan: &Plan| part(plan, "weights of the engine", Moment::Rollout);
    let matrix = |plan: &Plan| part(plan, "an unpacked matrix", Moment::Rollout);

    // The engine rounds the joined adapters. With room, it also unpacks all weights but the embedding.
    let adapters = 2 * 13_418_496;
    let base = 2 * (494_032_768 - 151_936 * 896);
    for kept in ["int8", "int4"] {
        let roomy = plan_of("cuda", kept, Compute::Bf16, Some(1 << 40));
        assert_eq!((engine(&roomy), matrix(&roomy)), (adapters + base, 0), "{kept}");

        // A quarter of the memory stays free.
        let mut unpacks = Vec::new();
        for memory in (1..=64).map(|gibibytes| gibibytes << 30) {
            let plan = plan_of("cuda", kept, Compute::Bf16, Some(memory));
            let facts = Facts { unpacks_once: true, ..plan.facts.clone() };
            let needed = Plan::from_facts(facts).sum(Moment::Rollout);
            unpacks.push(engine(&plan) > adapters);
            assert_eq!(unpacks.last(), Some(&(needed <= memory - memory / 4)), "{kept}");
        }
        assert!(!unpacks[0] && unpacks[63] && unpacks.is_sorted(), "{kept}: {unpacks:?}");

        let unknown = plan_of("cuda", kept, Compute::Bf16, None);
        let on_cpu = plan_of("cpu", kept, Compute::Bf16, Some(1 << 40));
        assert_eq!((engine(&unknown), engine(&on_cpu)), (adapters, adapters), "{kept}");
        let in_f32 = plan_of("cuda", kept, Compute::F32, Some(1 << 40));
        assert_eq!(engine(&in_f32), 2 * adapters, "{kept}");
    }
    assert_eq!(engine(&plan_of("cuda", "bfloat16", Compute::Bf16, Some(1 << 40))), adapters);
}

#[test]
fn what_is_kept_of_the_layers_is_their_inputs_or_more_where_there_is_room() {
    let plan_of = |recompute: &str, memory: Option<u64>| {
        let text = format!(
            "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\n[eval]\nprompts = 8\n\
             [train]\nrecompute = \"{recompute}\""
        );
        let recipe = Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe;
        with_memory(&recipe, Compute::F32, memory)
    };

    let layers = plan_of("layers", None);
    let none = plan_of("none", None);
    assert_eq!((layers.facts.work.whole_layers, none.facts.work.whole_layers), (0, 24));
    let tokens = layers.facts.tokens() as u64;
    // The inputs of 24 layers, and a gradient of that width.
    assert_eq!(part(&layers, "kept of the layers", Moment::Backward), tokens * 25 * 896 * 4);

    let most = none.peak().0;
    assert_eq!(plan_of("auto", Some(2 * most)).facts.work.whole_layers, 24);
    let some = plan_of("auto", Some(most));
    assert!((1..24).contains(&some.facts.work.whole_layers), "{:?}", some.facts.work);
    assert!(some.peak().0 <= most - most / 10);
    assert_eq!(plan_of("auto", Some(1)).facts.work.whole_layers, 0);
}

#[test]
fn a_step_that_is_sampled_ahead_takes_its_memory_during_the_updates() {
    let plan_of = |staleness: u64, memory: Option<u64>| {
        let text = format!(
            "[model]\npath = \"m\"\nlora = {{ rank = 16 }}\nbase = \"int8\"\n[data]\ntrain = \"t.jsonl\"\n\
             [eval]\nprompts = 8\n[rollout]\nmax_staleness = {staleness}\n[device]\nkernels = \"reference\""
        );
        let recipe = Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe;
        with_memory(&recipe, Compute::F32, memory)
    };

    let fresh = plan_of(0, None);
    let ahead = plan_of(1, None);
    for name in ["KV cache", "prefill and decoding", "logits", "an unpacked matrix"] {
        let sampled = part(&fresh, name, Moment::Rollout);
        assert!(sampled > 0, "{name}");
        assert_eq!(part(&ahead, name, Moment::Rollout), sampled, "{name}");
        for moment in [Moment::Head, Moment::Backward, Moment::Gradient, Moment::Optimizer] {
            let more = part(&ahead, name, moment) - part(&fresh, name, moment);
            assert_eq!(more, sampled, "{name} {moment:?}");
        }
        assert_eq!(part(&ahead, name, Moment::Saving), 0, "{name}");
    }

    // The layers get the memory that the engine leaves.
    let memory = plan_of(0, Some(1 << 40)).peak().0 * 10 / 9 + 10;
    let whole = |staleness| plan_of(staleness, Some(memory)).facts.work.whole_layers;
    assert!(whole(1) < whole(0), "{} {}", whole(1), whole(0));

    // Advice that is followed makes room for both at the same time.
    let small = 5 << 30;
    let plan = plan_of(1, Some(small));
    let advice = plan.advice(small);
    assert_eq!(advice.first().map(|advice| advice.key), Some("rollout.max_sequences"));
    let mut facts = plan.facts.clone();
    advice.iter().for_each(|advice| advice.follow(&mut facts));
    assert!(!plan.fits(small) && Plan::from_facts(facts).fits(small), "{advice:?}");
}

/// An environment's tokens are part of a completion, but do not count towards `rollout.max_completion_tokens`.
#[test]
fn the_longest_completion_leaves_room_for_what_is_heard() {
    let observed = "[environment]\nkind = \"calculator\"\nmax_observation_tokens = 8192";
    let most = |recipe: &str| half_a_billion(recipe).longest(1 << 40).unwrap();
    let alone = most("");
    let talking = most(observed);
    assert_eq!((alone.model, alone.completion), (32768 - 512, 32768 - 512));
    assert_eq!((talking.model, talking.completion), (32768 - 512 - 8192, 32768 - 512 - 8192));

    // The same number of tokens takes the same memory, whoever writes them.
    let [alone, talking] =
        ["", observed].map(|recipe| half_a_billion(recipe).longest(12 << 30).unwrap().completion);
    // Both are rounded down to two digits.
    assert!((8192 - 1000..8192 + 1000).contains(&(alone - talking)), "{alone} {talking}");

    // A run needs room for a prompt.
    let models =
        Models { policy: config(), lora: None, reward: 0, teachers: Vec::new(), published: false };
    let refused = |completion: usize| {
        let text = format!(
            "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\n{observed}\n[rollout]\n\
             max_completion_tokens = {completion}"
        );
        let recipe = Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe;
        models.check_context(&recipe).is_err()
    };
    assert!(!refused(32768 - 8192 - 1) && refused(32768 - 8192));
}

#[test]
fn the_longest_completion_is_as_long_as_the_memory() {
    let plan = half_a_billion("");
    let of = |memory: u64| plan.longest(memory).map(|longest| longest.completion);
    let some = of(10 << 30).unwrap();
    let more = of(11 << 30).unwrap();
    assert!(some < more && of(4 << 30).is_none(), "{some} {more}");

    // Completions that are a tenth longer do not fit.
    let longer = |completion: u128| {
        let least = plan.least().facts;
        Plan::from_facts(Facts {
            work: Work { completion, whole_layers: 0, ..least.work },
            ..least
        })
    };
    assert!(longer(some).fits(10 << 30) && !longer(some * 11 / 10).fits(10 << 30));

    let most = plan.longest(1 << 40).unwrap();
    assert_eq!((most.completion, most.rollout), (32768 - 512, most.model));
}

#[test]
fn the_cheapest_change_comes_first() {
    let parsed = |text: &str, set: &[String]| {
        let path = if text.contains("new = ") { "" } else { "path = \"m\"\n" };
        let text = format!(
            "[model]\n{path}{text}\n[data]\ntrain = \"t.jsonl\"\n[device]\nkind = \"vulkan\"\n[rollout]\n\
             max_completion_tokens = 16384\n[train]\nrecompute = \"none\"\nmicro_batch_tokens = 65536"
        );
        Recipe::parse("r.toml".as_ref(), &text, set).unwrap().recipe
    };

    // The path may be an adapter's, which the recipe does not say.
    let an_adapter = "# an adapter";
    let keys = |text: &str, gibibytes: f64| -> Vec<&'static str> {
        let recipe = parsed(text, &[]);
        let begun = (text == an_adapter).then(|| crate::recipe::Lora::of_rank(16));
        let lora = recipe.model.lora.as_ref().or(begun.as_ref()).map(crate::model::adapters);
        let models =
            Models { policy: config(), lora, reward: 0, teachers: Vec::new(), published: false };
        let judged = Models { reward: 10 << 20, ..models.clone() };
        let plan = Plan::new(&judged, &recipe, Compute::F32, None);
        let memory = (gibibytes * f64::from(1 << 30)) as u64;
        let remedy = remedy(&models, &recipe, Compute::F32, memory);
        assert!(!plan.least().fits(memory));

        remedy.map_or(Vec::new(), |remedy| {
            assert!(remedy.plan.fits(memory), "{text} {gibibytes}");
            // The recipe takes these settings.
            let settings = remedy.settings.iter().map(|(key, value)| format!("{key}={value}"));
            parsed(text, &settings.collect::<Vec<_>>());
            let keys = remedy.settings.into_iter().map(|(key, _)| key);
            keys.filter(|key| !key.ends_with("sequences") && !key.ends_with("tokens")).collect()
        })
    };

    let adapters = "lora = { rank = 16 }";
    let layers = "train.recompute";
    let offload = "train.offload";
    let base = "model.base";
    let lora = "model.lora";
    let of_weights = "\n[optim]\nlr = 1e-6";
    assert_eq!(keys("", 14.0), [layers]);
    assert_eq!(keys("", 9.2), [layers, offload]);
    assert_eq!(keys("", 8.7), [layers, "optim.moments"]);
    assert_eq!(keys("", 6.0), [layers, lora]);
    assert_eq!(keys("", 4.0), [layers, lora, offload]);
    assert_eq!(keys("", 2.5), [layers, lora, base, offload]);
    assert_eq!(keys(of_weights, 6.0), [layers, lora, "optim.lr"]);
    assert_eq!(keys(adapters, 6.0), [layers]);
    assert_eq!(keys(adapters, 4.0), [layers, offload]);
    assert_eq!(keys(adapters, 2.5), [layers, base, offload]);
    assert_eq!(keys(adapters, 0.5), [""; 0]);
    assert_eq!(keys(an_adapter, 2.5), [layers, base, offload]);

    let new = "new = { hidden_size = 896, layers = 24, heads = 14, kv_heads = 2, intermediate_size = 4864, \
               max_position_embeddings = 32768, alphabet = \"ab\" }";
    assert_eq!(keys(new, 9.2), [layers, offload]);
    assert_eq!(keys(new, 8.7), [layers, "optim.moments"]);
    assert_eq!(keys(new, 6.0), [""; 0]);
}

#[test]
fn sizes_beyond_all_measure_are_too_large_and_no_panic() {
    // No file can have such sizes, but a program can.
    let mut recipe = Recipe::default();
    recipe.rollout.max_sequences = usize::MAX;
    recipe.rollout.group_size = usize::MAX;
    recipe.rollout.max_completion_tokens = usize::MAX;
    recipe.train.micro_batch_tokens = usize::MAX;
    recipe.train.mini_batch = usize::MAX;

    let plan = of_recipe(&recipe, Compute::F32);
    assert_eq!(plan.peak().0, u64::MAX);
}

#[test]
fn advice_that_is_followed_makes_it_fit() {
    let memory = 12 << 30;
    let plan =
        half_a_billion("[rollout]\nmax_sequences = 1024\n[train]\nmicro_batch_tokens = 65536");
    assert!(!plan.fits(memory));

    let advice = plan.advice(memory);
    let keys: Vec<&str> = advice.iter().map(|advice| advice.key).collect();
    assert_eq!(keys, ["rollout.max_sequences", "train.micro_batch_tokens"]);

    let mut facts = plan.facts.clone();
    for advice in &advice {
        assert!(advice.to < advice.from, "{advice:?}");
        advice.follow(&mut facts);
    }
    assert!(Plan::from_facts(facts).fits(memory));

    // No batch is small enough for weights and moments that are too large.
    assert!(!plan.least().fits(4 << 30) && plan.advice(4 << 30).is_empty());
}

/// A step has 1,024 completions, and a tenth of the memory has to be left.
#[test]
fn a_card_with_room_may_decode_more_sequences() {
    let plan_of = |device: &str, sequences: u128, more: &str| {
        let recipe = format!(
            "[eval]\nprompts = 8\n[device]\nkind = \"{device}\"\n[rollout]\nmax_sequences = {sequences}\n{more}"
        );
        with_model("lora = { rank = 16 }", &recipe, Compute::Bf16)
    };
    let most =
        |plan: &Plan, memory: u64| plan.more_sequences(memory).map(|more| (more.from, more.to));

    let large = 80 << 30;
    assert_eq!(most(&plan_of("vulkan", 32, ""), large), Some((32, 512)));
    assert_eq!(most(&plan_of("vulkan", 500, ""), large), None);
    // No more than a step has completions.
    let small = "[sampling]\nprompts_per_step = 4\n[train]\nmini_batch = 64";
    assert_eq!(most(&plan_of("vulkan", 32, small), large), Some((32, 64)));
    assert_eq!(most(&plan_of("cpu", 32, ""), large), None);
    let servers = "engine = { kind = \"vllm\", servers = [\"http://a:1\"] }";
    assert_eq!(most(&plan_of("vulkan", 32, servers), large), None);

    let memory = 6 << 30;
    let room = memory - memory / 10;
    let more = plan_of("vulkan", 32, "").more_sequences(memory).unwrap();
    assert!((100..500).contains(&more.to), "{}", more.to);
    let taken = |sequences| plan_of("vulkan", sequences, "").sum(Moment::Rollout);
    assert_eq!(more.plan.sum(Moment::Rollout), taken(more.to));
    // The number is rounded down to two digits.
    assert!(taken(more.to) <= room && room < taken(more.to + 10));

    // Less than a fifth more is not worth a change.
    let few = more.to * 5 / 6;
    assert_eq!(most(&plan_of("vulkan", few, ""), memory), Some((few, more.to)));
    assert_eq!(most(&plan_of("vulkan", few + 1, ""), memory), None);
    // Where a run does not fit, other advice comes first.
    let plan = plan_of("vulkan", 32, "");
    assert_eq!(most(&plan, plan.peak().0 - 1), None);
}

#[test]
fn steps_are_recorded_unless_the_host_takes_part_in_them() {
    let recorded = |family, more: &str| {
        let text = format!(
            "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\n[device]\nkind = \"cuda\"\n{more}"
        );
        let recipe = Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe;
        let plan = Plan::new(&of_family_models(family), &recipe, Compute::Bf16, None);
        plan.facts.work.graphs
    };
    assert!(recorded(Family::Qwen3, ""));
    assert!(!recorded(Family::Qwen3, "[rollout]\ngraphs = false"));
    assert!(!recorded(Family::Qwen3, "kernels = \"reference\""));
    assert!(!recorded(Family::Qwen3Moe, "") && !recorded(Family::Qwen35, ""));
}

/// Returns a family's own sizes, from its widths alone.
fn of_family_models(family: Family) -> Models {
    let sizes = Sizes {
        vocab_size: 4096,
        hidden_size: 1024,
        layers: 4,
        heads: 8,
        kv_heads: 2,
        head_dim: 256,
        intermediate_size: 3584,
        max_position_embeddings: 4096,
        rope_theta: 1e6,
        tied: true,
    };
    Models {
        policy: DecoderConfig::new(family, sizes),
        lora: None,
        reward: 0,
        teachers: Vec::new(),
        published: false,
    }
}

fn of_family(family: Family) -> Plan {
    let text = "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"";
    let recipe = Recipe::parse("r.toml".as_ref(), text, &[]).unwrap().recipe;
    Plan::new(&of_family_models(family), &recipe, Compute::F32, None)
}

#[test]
fn recurrent_layers_have_states_instead_of_keys() {
    let qwen3 = of_family(Family::Qwen3);
    let recurrent = of_family(Family::Qwen35);
    let cache = |plan: &Plan| part(plan, "KV cache", Moment::Rollout);
    // One of four layers attends. Both models also lay out the keys of one layer next to the pages.
    assert!(2 * cache(&recurrent) < cache(&qwen3));

    let states = part(&recurrent, "states of recurrent layers", Moment::Rollout);
    // An evaluation has a prompt for each row.
    let rows = 2 * recurrent.facts.work.sequences;
    // A row has eight matrices of 256 × 256, and three tokens of 2 · 512 + 2048 channels, the state of a convolution of
    // four tokens.
    assert_eq!(u128::from(states), 4 * rows * (8 * 256 * 256 + 3 * 3072) * 4);
    assert_eq!(part(&qwen3, "states of recurrent layers", Moment::Rollout), 0);

    let of_layer = |plan: &Plan| part(plan, "one layer's passes", Moment::Backward);
    assert!(of_layer(&recurrent) > of_layer(&qwen3));
}

#[test]
fn experts_count_whole_and_a_token_goes_through_some() {
    let plan = of_family(Family::Qwen3Moe);
    let expert = 3 * 1024 * 1792;
    assert_eq!(plan.facts.parameters - plan.facts.active, 4 * (8 - 2) * expert);
    assert_eq!(plan.facts.shape.inner, 1792);

    let dense = of_family(Family::Qwen3).facts;
    assert_eq!((dense.active, dense.shape.inner), (dense.parameters, 3584));
}

#[test]
fn a_matrix_that_is_trained_whole_has_two_moments_and_is_there_once() {
    let facts_of = |family, lora: Option<Lora>| {
        let models = Models { lora, ..of_family_models(family) };
        let text = "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\n[optim]\nkind = \"muon\"";
        let recipe = Recipe::parse("r.toml".as_ref(), text, &[]).unwrap().recipe;
        Plan::new(&models, &recipe, Compute::F32, None).facts
    };
    let adapters = |whole: &[&str]| {
        let lora = crate::model::adapters(&crate::recipe::Lora::of_rank(4));
        Lora { modules_to_save: whole.iter().map(ToString::to_string).collect(), ..lora }
    };

    let plain = facts_of(Family::Qwen3, Some(adapters(&[])));
    let with_head = facts_of(Family::Qwen3, Some(adapters(&["lm_head"])));
    let matrix = 4096 * 1024;

    assert_eq!(with_head.trainable, plain.trainable + matrix);
    assert_eq!(with_head.frozen_bytes, plain.frozen_bytes - 4 * matrix);
    assert_eq!((with_head.parameters, with_head.one_moment), (plain.parameters, plain.one_moment));
    assert_eq!((with_head.largest, with_head.largest_in_layer), (matrix, plain.largest_in_layer));
    assert!(plain.frozen && !with_head.frozen);
}

#[test]
fn servers_take_the_memory_of_sampling() {
    let recipe = "[rollout]\nmax_sequences = 1024\n";
    let engine = "engine = { kind = \"vllm\", servers = [\"http://a:1\"] }\n";
    let [here, there] = [recipe.to_owned(), format!("{recipe}{engine}")]
        .map(|recipe| with_model("", &recipe, Compute::Bf16));

    for name in ["weights of the engine", "KV cache", "prefill and decoding"] {
        assert!(part(&here, name, Moment::Rollout) > 0, "{name}");
        assert_eq!(part(&there, name, Moment::Rollout), 0, "{name}");
    }
    assert_eq!(part(&there, "logits", Moment::Rollout), 0);
    // An update takes the same memory.
    assert_eq!(part(&there, "logits", Moment::Head), part(&here, "logits", Moment::Head));

    // Fewer sequences would not help it.
    assert!(there.advice(1 << 30).iter().all(|advice| advice.key != "rollout.max_sequences"));
}

/// Returns a Qwen2.5 of these sizes.
fn wide(sizes: Sizes) -> Models {
    Models {
        policy: DecoderConfig::new(Family::Qwen2, sizes),
        lora: None,
        reward: 0,
        teachers: Vec::new(),
        published: false,
    }
}

/// Plans DAPO's batch: 512 prompts, 16 completions of each, 16 updates.
fn of_dapo(models: &Models, completion: usize, load: Load) -> Engines {
    let text = format!(
        "[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\nmax_prompt_tokens = 2048\n[rollout]\n\
         max_completion_tokens = {completion}\n[sampling]\nprompts_per_step = 512\n[loss]\ntis_cap = 2.0\n\
         [train]\nmini_batch = 512\nrecompute = \"layers\"\n"
    );
    let recipe = Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe;
    let facts = Plan::new(models, &recipe, Compute::Bf16, None).facts;
    Engines::new(&facts, &recipe, load)
}

/// verl's documentation (`docs/advance/fully_async.md`, October 2025) has the seconds of a step of DAPO with
/// Qwen2.5-Math-7B, completions of up to 28k tokens, on 32, 64 and 128 H20: sampling 357, 151 and 178, updates
/// 314, 133 and 114. It does not say how long completions were, but the update on 32 cards shows it. The other
/// numbers follow from that.
#[test]
fn the_balance_of_a_published_run_follows_from_its_sizes() {
    let models = wide(Sizes {
        vocab_size: 152_064,
        hidden_size: 3584,
        layers: 28,
        heads: 28,
        kv_heads: 4,
        head_dim: 128,
        intermediate_size: 18_944,
        max_position_embeddings: 32_768,
        rope_theta: 1e6,
        tied: false,
    });

    let h20 = Card::named("h20").unwrap();
    let engines_on = |cards: f64, mean_tokens: f64| {
        let load = Load { mean_tokens, sampled: 1.0, trainer: h20, trainers: cards, server: h20 };
        of_dapo(&models, 28 << 10, load)
    };
    let mean = (100..10_000)
        .map(f64::from)
        .find(|&mean| engines_on(32.0, mean).update_seconds > 313.8)
        .unwrap();
    assert!((800.0..1500.0).contains(&mean), "{mean} tokens");

    // With 64 or more cards, sampling takes as long as its longest completion.
    for (cards, sampling, update) in [(64.0, 150.7, 133.4), (128.0, 177.9, 113.8)] {
        let engines = engines_on(cards, mean);
        assert_eq!(engines.cards, 1.0);
        let near = |actual: f64, published: f64, most: f64| {
            let off = actual / published;
            assert!((1.0 / most..most).contains(&off), "{cards}: {actual} and {published}");
        };

        near(engines.sample_seconds(cards), sampling, 1.25);
        near(engines.update_seconds, update, 1.5);
    }
}

/// verl's documentation (`docs/advance/one_step_off.md`, July 2025) describes DAPO with 32 billion weights on
/// 128 cards that sample and train in turn: sampling takes about 70 % of a step, and more cards do not make it
/// faster.
#[test]
fn the_papers_run_spends_most_of_its_time_on_sampling() {
    let models = wide(Sizes {
        vocab_size: 152_064,
        hidden_size: 5120,
        layers: 64,
        heads: 40,
        kv_heads: 8,
        head_dim: 128,
        intermediate_size: 27_648,
        max_position_embeddings: 32_768,
        rope_theta: 1e6,
        tied: false,
    });

    let h800 = Card::named("h100").unwrap();
    // Two batches are sampled for each that is trained on; the published recipe allows three.
    let load =
        Load { mean_tokens: 5000.0, sampled: 2.0, trainer: h800, trainers: 128.0, server: h800 };
    let engines = of_dapo(&models, 20 << 10, load);
    assert_eq!(engines.cards, 2.0);

    let sampling = engines.sample_seconds(128.0 / engines.cards);
    let share = sampling / (sampling + engines.train_seconds());
    assert!((0.6..0.8).contains(&share), "{share:.2} of a step");
}

/// The book's page on SmolLM2 has the first step of a run with adapters on two cores: 384 completions of 41.8 tokens
/// were sampled in 20.9 s, and an update on 80 of them took 8.6 s. Two such cores reach 500 GFLOP/s in a product.
#[test]
fn the_time_of_a_step_is_that_of_a_run_within_a_half() {
    let text = "[model]\npath = \"m\"\nlora = { rank = 16 }\n[data]\ntrain = \"t.jsonl\"\nmax_prompt_tokens = 64\n\
                [rollout]\ngroup_size = 8\nmax_completion_tokens = 48\n[sampling]\nprompts_per_step = 10\n\
                [train]\nmini_batch = 80\nmicro_batch_tokens = 1536\nsteps = 100\n";
    let time_with = |more: &str| {
        let recipe = Recipe::parse("r.toml".as_ref(), &format!("{text}{more}"), &[]);
        let recipe = recipe.unwrap().recipe;
        let name = firebrick_data::HubName::parse("HuggingFaceTB/SmolLM2-135M-Instruct").unwrap();
        let models = Models {
            policy: crate::published::sizes(&name).unwrap(),
            lora: recipe.model.lora.as_ref().map(crate::model::adapters),
            reward: 0,
            teachers: Vec::new(),
            published: true,
        };
        let facts = Plan::new(&models, &recipe, Compute::F32, Some(16 << 30)).facts;
        let limits = crate::bench::Limits { flops: 500e9, bandwidth: 20e9, launch: None };
        let lengths = Lengths { mean_tokens: 41.8, sampled: 4.8 };
        StepTime::new(&facts, &recipe, Speed::of_cpu(&limits), lengths)
    };

    let time = time_with("").unwrap();
    for (actual, measured) in [(time.rollout, 20.9), (time.update, 8.6)] {
        let off = actual / measured;
        assert!((1.0 / 1.5..1.5).contains(&off), "{actual} and {measured}");
    }
    assert_eq!((time.step, time.run), (time.rollout + time.update, 100.0 * time.step));

    // Every layer goes forward once more: two passes, because frozen weights have no gradient, become three.
    let again = time_with("recompute = \"layers\"").unwrap();
    assert!((again.update / time.update - 1.5).abs() < 1e-9, "{again:?}");
}

#[test]
fn a_memory_is_that_of_cards_in_either_unit() {
    let names =
        |bytes: f64| Card::with_memory(bytes as u64).map(|card| card.name).collect::<Vec<_>>();
    let gib = f64::from(1 << 30);
    for memory in [24e9, 24.0 * gib] {
        assert_eq!(names(memory), ["rtx4090", "rx7900xtx"]);
    }
    assert_eq!(names(80e9), ["h100", "a100"]);
    assert_eq!(names(16.0 * gib), ["rtx4080"]);
    assert_eq!(names(64e9), [""; 0]);
}
