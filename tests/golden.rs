//! Numbers of verl, trl, SkyRL, OpenRLHF and PyTorch that training must reproduce, through the functions that
//! training itself calls. `golden/` holds them; `FIREBRICK_GOLDEN_DIR` names another folder of the same kind.

mod golden_cases;

use firebrick_tests::golden::{Case, failures, files};
use firebrick_train::algorithm::Divergence;
use golden_cases::{
    adaptive, advantage, critic, curriculum, distillation, kl, length, logprob, optim, overlong,
    policy_loss, sampling,
};

#[test]
fn golden_a_advantages() {
    run("a");
}

#[test]
fn golden_b1_policy_loss() {
    run("b1");
}

#[test]
fn golden_b2_policy_loss_extreme() {
    run("b2");
}

#[test]
fn golden_b3_gspo() {
    run("b3");
}

#[test]
fn golden_b4_cispo() {
    run("b4");
}

#[test]
fn golden_b5_micro_batches() {
    run("b5");
}

#[test]
fn golden_b6_prompt_mean() {
    run("b6");
}

#[test]
fn golden_c_overlong() {
    run("c");
}

#[test]
fn golden_d_dynamic_sampling() {
    run("d");
}

#[test]
fn golden_e_kl_entropy() {
    run("e");
}

#[test]
fn golden_f_token_logprobs() {
    run("f");
}

#[test]
fn golden_g_gae_value_adaptive() {
    run("g");
}

#[test]
fn golden_h_variance_sampler() {
    run("h");
}

#[test]
fn golden_i_lr_adamw() {
    run("i");
}

#[test]
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
fn golden_j_dppo_sapo() {
    // These vectors are our own, and another folder may lack them.
    if files(|name| name == "j").is_empty() && std::env::var_os("FIREBRICK_GOLDEN_DIR").is_some() {
        return eprintln!("SKIPPED: FIREBRICK_GOLDEN_DIR has no file j_*.json");
    }
    run("j");
}

/// The numbers are TRL's; verl's divergences in one direction agree with them.
#[test]
fn golden_l_distillation() {
    let text = include_str!("golden/l_distillation.json");
    distillation::check(&serde_json::from_str(text).unwrap());
}

/// A folder may split these topics into more files than those above.
#[test]
fn golden_other_files_of_these_topics() {
    let others = files(|topic| {
        topic.starts_with(|letter| ('a'..='j').contains(&letter)) && !TOPICS.contains(&topic)
    });
    for file in others {
        report(&failures(&file, case));
    }
}

const TOPICS: [&str; 15] =
    ["a", "b1", "b2", "b3", "b4", "b5", "b6", "c", "d", "e", "f", "g", "h", "i", "j"];

fn run(topic: &str) {
    let files = files(|name| name == topic);
    let folder = firebrick_tests::golden::folder();
    assert!(!files.is_empty(), "no file {topic}_*.json in {}", folder.display());
    report(&files.iter().flat_map(|file| failures(file, case)).collect::<Vec<_>>());
}

fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} do not hold:\n{}", failures.len(), failures.join("\n"));
}

fn case(case: &Case) {
    match case.function.as_str() {
        "group_advantage" => advantage::of_rewards(case),
        "token_advantage" => advantage::of_tokens(case),
        "ppo_clip_loss" | "ppo_clip_loss_prompt_mean" => policy_loss::dapo(case),
        "ppo_clip_loss_micro_batches" => policy_loss::micro_batches(case),
        "gspo_loss" => policy_loss::gspo(case),
        "cispo_loss" => policy_loss::cispo(case),
        "dppo_tv_loss" => policy_loss::dppo(case, Divergence::Tv),
        "dppo_kl_loss" => policy_loss::dppo(case, Divergence::Kl),
        "sapo_loss" => policy_loss::sapo(case),
        "soft_overlong_penalty" => overlong::penalty(case),
        "shaped_reward" => overlong::shaped_reward(case),
        "filter_groups" => sampling::filter(case),
        "filter_groups_metric" => sampling::filter_by_base_reward(case),
        "fill_batch" => sampling::fill(case),
        "kl_estimate" => kl::estimate(case),
        "entropy_from_logits" => logprob::entropy(case),
        "gae" => critic::gae(case),
        "value_loss" => critic::value_loss(case),
        "token_logp" => logprob::of_labels(case),
        "logits_to_loss" => logprob::to_loss(case),
        "adaptive_update_count" => adaptive::count(case),
        "adaptive_update" => adaptive::update(case),
        "target_length_penalty" => length::target(case),
        "variance_sampler" => curriculum::select(case),
        "constant_with_warmup" => optim::schedule(case),
        "adamw_steps" => optim::steps(case),
        unknown => case.fail(format!("no test knows \"{unknown}\"")),
    }
}
