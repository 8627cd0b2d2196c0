use firebrick_models::Family;

use super::*;

/// Qwen2.5-0.5B, with a recipe's default sizes.
fn half_a_billion(recipe: &str) -> Plan {
    let config = DecoderConfig {
        family: Family::Qwen2,
        vocab_size: 151_936,
        hidden_size: 896,
        layers: 24,
        heads: 14,
        kv_heads: 2,
        head_dim: 64,
        intermediate_size: 4864,
        max_position_embeddings: 32768,
        rope_theta: 1e6,
        norm_epsilon: 1e-6,
        tied: true,
        qkv_bias: true,
    };
    let text = format!("[model]\npath = \"m\"\n[data]\ntrain = \"t.jsonl\"\n{recipe}");
    Plan::new(&config, &Recipe::parse("r.toml".as_ref(), &text, &[]).unwrap().recipe)
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
    // A step of 64 × 16 completions is four updates of several micro-batches each.
    assert_eq!(part(&plan, "weights of the engine", Moment::Optimizer), weights);
    assert_eq!(part(&plan, "gradient", Moment::Gradient), 2 * weights);
    let whole = half_a_billion("[train]\nmini_batch = 1024");
    assert_eq!(part(&whole, "weights of the engine", Moment::Optimizer), 0);
    // Of every layer, 256 rows of 2 × 2 heads of 64 for 512 + 1024 tokens.
    let cache = 24 * 256 * 256 * 1536 * 4;
    let came = part(&plan, "KV cache", Moment::Rollout);
    assert!((cache..cache * 6 / 5).contains(&came), "{came} for a cache of {cache}");
}

#[test]
fn what_is_not_trained_has_no_gradient_and_no_moments() {
    let mut facts = half_a_billion("[loss]\nkl = { kind = \"k3\", coef = 0.1 }").facts;
    (facts.trainable, facts.largest, facts.largest_in_layer) = (1000, 100, 100);
    facts.weight_bytes = 2;
    let plan = Plan::of(facts);
    assert_eq!(part(&plan, "moments of AdamW", Moment::Optimizer), 8000);
    assert_eq!(part(&plan, "reference policy", Moment::Rollout), 494_032_768 * 2);
}

#[test]
fn sizes_beyond_all_measure_are_too_large_and_no_panic() {
    let plan = half_a_billion(
        "[rollout]\nmax_sequences = 90000000000000000\ngroup_size = 90000000000000000\n\
         max_completion_tokens = 90000000000000000\n\
         [train]\nmicro_batch_tokens = 90000000000000000\nmini_batch = 90000000000000000",
    );
    assert_eq!(plan.peak().0, u64::MAX);
}

#[test]
fn advice_that_is_followed_makes_it_fit() {
    let memory = 24 << 30;
    let plan = half_a_billion("[rollout]\nmax_sequences = 1024");
    assert!(!plan.fits(memory));
    let advice = plan.advice(memory);
    let keys: Vec<&str> = advice.iter().map(|advice| advice.key).collect();
    assert_eq!(keys, ["rollout.max_sequences", "train.micro_batch_tokens"]);
    let mut facts = plan.facts.clone();
    for advice in &advice {
        assert!(advice.to < advice.from, "{advice:?}");
        advice.follow(&mut facts);
    }
    assert!(Plan::of(facts).fits(memory));
    // No batch is small enough for weights and moments that are too large.
    assert!(!plan.least().fits(4 << 30) && plan.advice(4 << 30).is_empty());
}
