//! The table of SkyRL's keys, with the translation of each.

mod idle;

use super::{
    Draft, Row, Settings,
    rows::{by, lacks, nearly, read, same},
    translate::{
        self, CORRECTION, CRITIC_RATE, IMPORTANCE, PASSES, TURNS, adapters, betas, clip_low,
        completions, critic, estimator, eval_top_p, every, group, has_critic, importance, name,
        or_none, refilled, template, verifier,
    },
};

pub(super) use idle::IDLE;

/// Sources that the keys were read in.
pub(super) const SOURCE: &str = "\
    NovaSky-AI/SkyRL (2026): the guide `docs/content/docs/algorithms/dapo.mdx` at 9e8054b, \
    the scripts of `examples/train/algorithms/dapo` at 844019e with `main_dapo.py` at \
    1b19b04, and `skyrl/train/config/config.py` at 0012761, whose defaults these are. Keys \
    of older versions are listed too.";

const ALGORITHM: &str = "trainer.algorithm";
const TIS: &str = "trainer.algorithm.off_policy_correction.tis_ratio_type";

#[rustfmt::skip] // A table: a row to a line, or to two.
pub(super) static ROWS: &[Row] = &[
    // Model
    by("trainer.policy.model.path", "Qwen/Qwen2.5-1.5B-Instruct", "model.path",
        |_, draft| draft.take_path("model.path", "trainer.policy.model.path"), ""),
    by("trainer.policy.model.lora.rank", "0", "model.lora.rank",
        |settings, draft| {
            let key = |name| format!("trainer.policy.model.lora.{name}");
            adapters(&key("rank"), &key("alpha"), &key("target_modules"), settings, draft);
        }, ""),
    read("trainer.policy.model.lora.alpha", "16", "model.lora.alpha", ""),
    read("trainer.policy.model.lora.target_modules", "all-linear", "model.lora.targets",
        "`all-linear` is all seven projections; other names have to be among them."),
    lacks("trainer.policy.model.lora.dropout", "0", &["0", "0.0"], "There is no dropout."),
    lacks("trainer.policy.model.lora.init_method", "kaiming", &["kaiming"], "Adapters begin as in PEFT."),
    lacks("trainer.policy.model.lora.exclude_modules", "null", &["null"],
        "`model.lora.targets` lists the projections that get an adapter."),
    lacks("trainer.policy.model_config_kwargs.*", "", &["null"],
        "config.json is used as it is: change it in the model's folder."),
    by("generator.chat_template_kwargs.*", "", "data.template_options",
        |settings, draft| template(settings, draft, "generator.chat_template_kwargs."), ""),
    lacks("generator.chat_template.name_or_path", "null", &["null"],
        "The template is the model folder's: put it there as chat_template.jinja."),

    // Data
    by("data.train_data", "~/data/gsm8k/train.parquet", "data.train",
        |_, draft| draft.take_path("data.train", "data.train_data"), ""),
    by("data.val_data", "~/data/gsm8k/validation.parquet", "data.heldout",
        |_, draft| draft.take_path("data.heldout", "data.val_data"), ""),
    same("trainer.max_prompt_length", "512", "data.max_prompt_tokens"),
    lacks("generator.max_input_length", "null", &["null"], "A prompt is as long as `data.max_prompt_tokens` allows."),

    // Sampling
    same("trainer.train_batch_size", "1024", "sampling.prompts_per_step"),
    by("generator.n_samples_per_prompt", "5", "rollout.group_size",
        |settings, draft| group("generator.n_samples_per_prompt", "trainer.algorithm.advantage_estimator", settings, draft), ""),
    same("generator.sampling_params.max_generate_length", "1024", "rollout.max_completion_tokens"),
    same("generator.sampling_params.temperature", "1.0", "rollout.temperature"),
    same("generator.sampling_params.top_p", "1.0", "rollout.top_p"),
    by("generator.sampling_params.top_k", "-1", "rollout.top_k",
        |settings, draft| or_none("generator.sampling_params.top_k", "rollout.top_k", settings, draft), "Off is 0 here and -1 there."),
    lacks("generator.sampling_params.min_p", "0.0", &["0", "0.0"],
        "Sampling has top_p and top_k only."),
    lacks("generator.sampling_params.repetition_penalty", "1.0", &["1", "1.0"],
        "The policy samples without a penalty, from the distribution that it learns."),
    lacks("generator.sampling_params.stop", "null", &["null"],
        "A completion ends with the model's own stop tokens."),
    lacks("generator.max_turns", "1", &["1"], TURNS),
    lacks("generator.step_wise_trajectories", "false", &["false"], TURNS),
    lacks("generator.vision_language_generator", "false", &["false"], "Prompts are text."),
    by("trainer.algorithm.dynamic_sampling.type", "null", "sampling.dynamic", dynamic,
        "Both look at rewards before the punishment for length. Surplus groups are thrown away, as \
         in SkyRL: `sampling.carry_over = false`.").when(is_refilled),
    read("trainer.algorithm.dynamic_sampling.max_sample_batches", "30", "sampling.max_rounds",
        "A batch has train_batch_size prompts there. A round here has at most as many; later \
         rounds have as many as should fill the step. SkyRL ends with an error at the cap, so \
         `sampling.on_cap = \"error\"`; no cap is 0 here, and 0 or less there.")
        .when(is_refilled),
    read("trainer.algorithm.dynamic_sampling.min_replace_ratio", "0.3", "sampling.dynamic.min_ratio", ""),
    read("trainer.algorithm.zero_variance_filter", "false", "sampling.dynamic",
        "It becomes `drop`. Dynamic sampling, if it is on, removes groups without spread earlier.")
        .when(|settings| settings.truth("trainer.algorithm.zero_variance_filter")),
    read("trainer.algorithm.zero_variance_filter_tol", "1e-6", "sampling.tolerance",
        "The tolerance here is between the largest and the smallest base reward.")
        .when(|settings| settings.truth("trainer.algorithm.zero_variance_filter")),

    // Reward
    by("environment.env_class", "gsm8k", "reward.kind", environment, ""),
    by("trainer.algorithm.overlong_buffer_len", "", "reward.overlong.buffer", overlong,
        "This key is only in SkyRL's DAPO example. If a completion is longer than the limit, which \
         one turn cannot be, SkyRL's reward is 0; the paper and Firebrick give the whole \
         punishment."),
    read("trainer.algorithm.overlong_buffer_penalty_factor", "", "reward.overlong.penalty", ""),
    read("trainer.algorithm.overlong_buffer.len", "", "reward.overlong.buffer",
        "`overlong_buffer_len` in older versions, and in the guide."),
    read("trainer.algorithm.overlong_buffer.penalty_factor", "", "reward.overlong.penalty",
        "`overlong_buffer_penalty_factor` in older versions, and in the guide."),
    lacks("trainer.algorithm.max_response_length", "null", &["null"],
        "The punishment ends at `rollout.max_completion_tokens`."),
    nearly("generator.apply_overlong_filtering", "false", "reward.overlong.filter",
        "Firebrick leaves out completions that were cut off at the limit; SkyRL leaves out all \
         that do not end with a stop token. In one turn that is the same."),
    by("generator.zero_reward_on_non_stop", "false", "reward.stop.replace", non_stop,
        "The recipe has `form = \"as_written\"`: a 0 in place of a -1 is a bonus, which `sign_safe` \
         would not give."),

    // Advantage
    by("trainer.algorithm.advantage_estimator", "grpo", "advantage.kind",
        |settings, draft| {
            let key = |name| format!("{ALGORITHM}.{name}");
            estimator(&key("advantage_estimator"), &key("grpo_norm_by_std"), settings, draft);
            let keys = [
                ("advantage.gamma", "trainer.algorithm.gamma"),
                ("advantage.lambda", "trainer.algorithm.lambd"),
                ("critic.lr", "trainer.critic.optimizer_config.lr"),
                ("critic.clip", "trainer.algorithm.value_clip"),
            ];
            critic(&key("advantage_estimator"), &keys, settings, draft);
        }, ""),
    read("trainer.algorithm.grpo_norm_by_std", "true", "advantage.kind", "False is `mean_only`."),
    lacks("trainer.algorithm.advantage_batch_normalize", "false", &["false"],
        "`advantage.kind = \"reinforce_baseline\"` does so, without the group's deviation before it."),
    read("trainer.algorithm.gamma", "1.0", "advantage.gamma", ""),
    read("trainer.algorithm.lambd", "1.0", "advantage.lambda", ""),
    read("trainer.critic.optimizer_config.lr", "5e-6", "critic.lr", CRITIC_RATE).when(gae),
    read("trainer.algorithm.value_clip", "0.2", "critic.clip", ""),
    lacks("trainer.critic_mini_batch_size", "256", &[], "The critic learns in the policy's mini-batches.").when(gae),
    lacks("trainer.critic.optimizer_config.scheduler", "constant_with_warmup",
        &["constant_with_warmup", "constant"], "The critic has the policy's schedule, `optim.schedule`.").when(gae),
    lacks("trainer.critic.optimizer_config.*", "", &["null"],
        "The critic has the policy's settings, `optim`, except the learning rate.").when(gae),
    lacks("trainer.critic.model.path", "null", &["null"], "A separate critic begins with the policy's weights.").when(gae),
    lacks("trainer.critic.model.lora.rank", "0", &[], "The critic has adapters where the policy has some.").when(gae),
    lacks("trainer.critic.*", "", &["null"], "The critic has no such setting.").when(gae),
    lacks("trainer.algorithm.use_kl_in_reward", "false", &["false"],
        "The reward is the verifier's alone. A penalty on the distance is in the loss: `loss.kl`."),

    // Loss
    by("trainer.algorithm.policy_loss_type", "regular", "loss.kind", policy_loss, ""),
    by("trainer.algorithm.eps_clip_low", "0.2", "loss.clip_ratio_low",
        |settings, draft| clip("eps_clip_low", "loss.clip_ratio_low", settings, draft), ""),
    by("trainer.algorithm.eps_clip_high", "0.2", "loss.clip_ratio_high",
        |settings, draft| clip("eps_clip_high", "loss.clip_ratio_high", settings, draft), ""),
    read("trainer.algorithm.clip_ratio_c", "3.0", "loss.dual_clip",
        "Only `dual_clip` reads it there; here the key itself switches the bound on."),
    read("trainer.algorithm.cispo.cispo_eps_clip_low", "1.0", "loss.clip_ratio_low", "For `cispo` alone."),
    read("trainer.algorithm.cispo.cispo_eps_clip_high", "4.0", "loss.clip_ratio_high", "For `cispo` alone."),
    read("trainer.algorithm.dppo.dppo_type", "binary_tv", "loss.kind", "For `dppo` alone."),
    read("trainer.algorithm.dppo.delta_low", "0.2", "loss.delta_low", "For `dppo` alone."),
    read("trainer.algorithm.dppo.delta_high", "0.2", "loss.delta_high", "For `dppo` alone."),
    read("trainer.algorithm.sapo.tau_pos", "1.0", "loss.tau_pos", "For `sapo` alone."),
    read("trainer.algorithm.sapo.tau_neg", "1.05", "loss.tau_neg", "For `sapo` alone."),
    by("trainer.algorithm.loss_reduction", "token_mean", "loss.aggregation", reduction,
        "`token_mean_legacy`, used in SkyRL's DAPO scripts, is the mean of the means of micro-batches, \
         so it depends on how the batch was cut. Here `token_mean` is over the whole mini-batch, however it is cut.")
        .when(|settings| {
            let kind = settings.text("trainer.algorithm.loss_reduction");
            kind.as_deref() == Some("token_mean_legacy")
        }),
    read("trainer.algorithm.max_seq_len", "null", "loss.constant_length", ""),
    by("trainer.algorithm.use_kl_loss", "true", "loss.kl", kl, "By default on there, off here."),
    read("trainer.algorithm.kl_loss_coef", "0.001", "loss.kl.coef", ""),
    read("trainer.algorithm.kl_estimator_type", "k3", "loss.kl.kind", ""),
    by("trainer.algorithm.use_entropy_loss", "false", "loss.entropy_coef",
        |settings, draft| {
            if settings.truth(&format!("{ALGORITHM}.use_entropy_loss")) {
                draft.take("loss.entropy_coef", &format!("{ALGORITHM}.entropy_loss_coef"));
            }
        }, ""),
    read("trainer.algorithm.entropy_loss_coef", "0.01", "loss.entropy_coef", ""),
    lacks("trainer.algorithm.temperature", "null", &["null"], "The loss has the temperature of the rollout."),
    lacks("trainer.algorithm.cispo.cispo_anchor", "old", &["old"],
        "By default Firebrick samples with the trainer's weights and numerics: the two policies differ \
         only by rounding."),
    by("trainer.algorithm.use_tis", "false", "loss.tis_cap",
        |settings, draft| {
            let key = "trainer.algorithm.tis_imp_ratio_cap";
            if settings.truth("trainer.algorithm.use_tis") {
                match settings.number(key) {
                    Some(cap) if cap > 0.0 => draft.take("loss.tis_cap", key),
                    _ => draft.lacks(key, "Set `loss.tis_cap`, a number above 0."),
                }
            }
        }, IMPORTANCE).when(|settings| settings.truth("trainer.algorithm.use_tis")),
    read("trainer.algorithm.tis_imp_ratio_cap", "-1.0", "loss.tis_cap", ""),
    by("trainer.algorithm.off_policy_correction.tis_ratio_type", "null", "loss.tis_cap",
        |settings, draft| {
            let cap = "trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high";
            importance(TIS, cap, settings, draft);
        }, IMPORTANCE).when(|settings| settings.text(TIS).as_deref() == Some("token")),
    read("trainer.algorithm.off_policy_correction.token_tis_ratio_clip_high", "2.0",
        "loss.tis_cap", ""),
    lacks("trainer.algorithm.off_policy_correction.sequence_mask_metric", "null", &["null"],
        CORRECTION),

    // Optimizer
    same("trainer.policy.optimizer_config.lr", "1e-6", "optim.lr"),
    by("trainer.policy.optimizer_config.num_warmup_steps", "0", "optim.warmup_steps", warmup,
        "SkyRL counts optimizer updates, Firebrick counts rollout steps: the value is divided by the updates of a step, and rounded up."),
    nearly("trainer.policy.optimizer_config.weight_decay", "0.01", "optim.weight_decay",
        "Here it holds for matrices only, there for every parameter."),
    same("trainer.policy.optimizer_config.max_grad_norm", "1.0", "optim.max_grad_norm"),
    by("trainer.policy.optimizer_config.adam_betas", "[0.9, 0.999]", "optim.beta1, optim.beta2",
        |settings, draft| betas("trainer.policy.optimizer_config.adam_betas", settings, draft), ""),
    lacks("trainer.policy.optimizer_config.scheduler", "constant_with_warmup",
        &["constant_with_warmup", "constant"], "Choose `optim.schedule`: it lasts until `train.steps`."),

    // Updates
    by("trainer.policy_mini_batch_size", "256", "train.mini_batch",
        |settings, draft| {
            let group = "generator.n_samples_per_prompt";
            let step = settings.whole("trainer.train_batch_size");
            completions("trainer.policy_mini_batch_size", group, step, settings, draft);
        }, "SkyRL counts prompts, Firebrick counts completions: the value is multiplied by `generator.n_samples_per_prompt`."),
    lacks("trainer.update_epochs_per_batch", "1", &["1"], PASSES),
    lacks("trainer.ref.model.path", "trainer.policy.model.path", &["null", "${trainer.policy.model.path}"],
        "The reference of `loss.kl` is the policy that the run began with."),
    lacks("trainer.update_ref_every_epoch", "false", &["false"],
        "The reference of `loss.kl` is the policy that the run began with."),
    lacks("trainer.fully_async.enabled", "false", &["false"],
        "`rollout.max_staleness = 1` samples one step ahead."),

    // Run
    by("trainer.max_training_steps", "null", "train.steps",
        |_, draft| draft.take("train.steps", "trainer.max_training_steps"), ""),
    by("trainer.epochs", "1", "train.epochs", epochs,
        "The run ends when all prompts were drawn this many times, or after `train.steps`, whichever \
         comes first: raise `train.steps` as well. A pass takes as many steps as prompts divided by \
         `sampling.prompts_per_step`, and fewer with dynamic sampling."),
    same("trainer.seed", "42", "seed"),
    by("trainer.eval_interval", "5", "eval.every",
        |settings, draft| every("trainer.eval_interval", "eval.every", settings, draft), ""),
    by("trainer.eval.interval", "", "eval.every",
        |settings, draft| every("trainer.eval.interval", "eval.every", settings, draft), ""),
    lacks("trainer.eval_before_train", "true", &["true"], "There is always an evaluation before the first step."),
    lacks("trainer.eval.before_train", "", &["true"], "There is always an evaluation before the first step."),
    same("generator.eval_n_samples_per_prompt", "1", "eval.samples"),
    same("generator.eval_sampling_params.temperature", "0.0", "eval.temperature"),
    by("generator.eval_sampling_params.top_p", "1.0", "eval.top_p",
        |settings, draft| {
            let temperature = settings.number("generator.eval_sampling_params.temperature");
            eval_top_p("generator.eval_sampling_params.top_p", temperature, settings, draft);
        }, ""),
    lacks("generator.eval_sampling_params.top_k", "-1", &["-1", "0"], "Evaluation has no top_k."),
    by("generator.eval_sampling_params.max_generate_length", "", "rollout.max_completion_tokens", eval_length, ""),
    by("trainer.ckpt_interval", "10", "checkpoint.every",
        |settings, draft| every("trainer.ckpt_interval", "checkpoint.every", settings, draft), ""),
    by("trainer.max_ckpts_to_keep", "-1", "checkpoint.keep",
        |settings, draft| or_none("trainer.max_ckpts_to_keep", "checkpoint.keep", settings, draft), "-1 there and 0 here keep all of them."),
    lacks("trainer.hf_save_interval", "-1", &["-1"], "Every checkpoint is a Hugging Face folder."),
    by("trainer.run_name", "", "name",
        |settings, draft| name("trainer.run_name", settings, draft), ""),
    lacks("trainer.rope_scaling", "null", &["null"], "Positions are the model's own."),
    lacks("trainer.rope_scaling.*", "", &[], "Positions are the model's own."),
    lacks("trainer.rope_theta", "null", &["null"], "Positions are the model's own."),
];

fn dynamic(settings: &Settings, draft: &mut Draft) {
    let key = |name: &str| format!("{ALGORITHM}.{name}");
    let kind = key("dynamic_sampling.type");
    let filter = key("zero_variance_filter");
    let cap = key("dynamic_sampling.max_sample_batches");

    match settings.text(&kind).as_deref() {
        Some(form @ ("filter" | "replace")) => {
            let here = if form == "replace" { "sampling.dynamic.kind" } else { "sampling.dynamic" };
            draft.set(here, form, &kind);
            refilled(settings.whole(&cap).unwrap_or(30), &cap, &kind, draft);

            let masks = "generator.apply_overlong_filtering";
            if form == "filter" && settings.truth(masks) {
                let says = "Completions that are left out of the loss count for the spread of their group \
                            there, and do not here.";
                draft.notes.differs(masks, "true", says);
            }

            if form == "replace" {
                let ratio = key("dynamic_sampling.min_replace_ratio");
                draft.take("sampling.dynamic.min_ratio", &ratio);
            }
        }
        // The filter alone drops groups and draws no others.
        Some("none") | None if settings.truth(&filter) => {
            draft.set("sampling.dynamic", "drop", &filter);
            draft.take("sampling.tolerance", &key("zero_variance_filter_tol"));
        }
        Some("none") | None => draft.set("sampling.dynamic", "off", &kind),
        Some(_) => draft.lacks(&kind, "Choose `sampling.dynamic`: filter, replace, drop or off."),
    }
}

fn is_refilled(settings: &Settings) -> bool {
    let form = settings.text("trainer.algorithm.dynamic_sampling.type");
    form.is_some_and(|form| form == "filter" || form == "replace")
}

fn gae(settings: &Settings) -> bool {
    has_critic("trainer.algorithm.advantage_estimator", settings)
}

fn environment(settings: &Settings, draft: &mut Draft) {
    let key = "environment.env_class";
    match settings.text(key).unwrap_or_default().as_str() {
        "gsm8k" => verifier(draft, "gsm8k", 0.0, key),
        "aime" => verifier(draft, "dapo", -1.0, key),
        _ => draft.lacks(
            key,
            "Choose `reward.kind`; an environment in Python becomes a program, `reward.kind = \"command\"`.",
        ),
    }
}

fn overlong(settings: &Settings, draft: &mut Draft) {
    let key = |name: &str| {
        let flat = format!("{ALGORITHM}.overlong_buffer_{name}");
        let nested = format!("{ALGORITHM}.overlong_buffer.{name}");
        settings.first_of(&[&flat, &nested]).to_owned()
    };

    let length = key("len");
    let factor = key("penalty_factor");
    if settings.is_given(&length) || settings.is_given(&factor) {
        // SkyRL's example has these values if one of the two is left out.
        let defaults = (Some(512), Some(1.0));
        translate::overlong([&length, &factor], defaults, settings, draft);
    }
}

fn non_stop(settings: &Settings, draft: &mut Draft) {
    let key = "generator.zero_reward_on_non_stop";
    if settings.truth(key) {
        draft.set("reward.stop.replace", 0.0, key);
        draft.set("reward.stop.form", "as_written", key);
    }
}

fn policy_loss(settings: &Settings, draft: &mut Draft) {
    let key = format!("{ALGORITHM}.policy_loss_type");

    match settings.text(&key).unwrap_or_default().as_str() {
        "regular" => draft.set("loss.kind", "dapo", &key),
        "dual_clip" => {
            draft.set("loss.kind", "dapo", &key);
            draft.take("loss.dual_clip", &format!("{ALGORITHM}.clip_ratio_c"));
        }
        "gspo" => draft.set("loss.kind", "gspo", &key),
        "cispo" => {
            draft.set("loss.kind", "cispo", &key);
            let key = |bound| format!("{ALGORITHM}.cispo.cispo_eps_clip_{bound}");
            clip_low(&key("low"), "loss.clip_ratio_low", settings, draft);
            draft.take("loss.clip_ratio_high", &key("high"));
        }
        "dppo" => {
            let kind = match settings.text(&format!("{ALGORITHM}.dppo.dppo_type")).as_deref() {
                Some("binary_kl") => "dppo_kl",
                _ => "dppo_tv",
            };
            draft.set("loss.kind", kind, &key);
            // There the ratio has no other bound than e²⁰.
            draft.set("loss.ratio_cap", 5e8, &key);
            draft.take("loss.delta_low", &format!("{ALGORITHM}.dppo.delta_low"));
            draft.take("loss.delta_high", &format!("{ALGORITHM}.dppo.delta_high"));
        }
        "sapo" => {
            draft.set("loss.kind", "sapo", &key);
            draft.take("loss.tau_pos", &format!("{ALGORITHM}.sapo.tau_pos"));
            draft.take("loss.tau_neg", &format!("{ALGORITHM}.sapo.tau_neg"));
        }
        _ => draft.lacks(
            &key,
            "The losses here are dapo (regular, dual_clip), gspo, cispo, dppo and sapo; the recipe has dapo.",
        ),
    }
}

/// Translates a clipping bound of every loss except those that have their own bounds.
fn clip(bound: &str, here: &str, settings: &Settings, draft: &mut Draft) {
    let kind = settings.text(&format!("{ALGORITHM}.policy_loss_type"));
    let key = format!("{ALGORITHM}.{bound}");
    match kind.as_deref() {
        Some("cispo" | "dppo" | "sapo") => {}
        _ if here == "loss.clip_ratio_low" => clip_low(&key, here, settings, draft),
        _ => draft.take(here, &key),
    }
}

fn reduction(settings: &Settings, draft: &mut Draft) {
    let key = format!("{ALGORITHM}.loss_reduction");

    let here = match settings.text(&key).unwrap_or_default().as_str() {
        "token_mean" | "token_mean_legacy" => "token_mean",
        "sequence_mean" => "sequence_mean",
        "prompt_mean" => "prompt_mean",
        "seq_mean_token_sum_norm" => {
            draft.take("loss.constant_length", &format!("{ALGORITHM}.max_seq_len"));
            "constant"
        }
        _ => {
            return draft
                .lacks(&key, "There is no such aggregation here; the recipe has token_mean.");
        }
    };
    draft.set("loss.aggregation", here, &key);
}

fn kl(settings: &Settings, draft: &mut Draft) {
    let key = |name| format!("{ALGORITHM}.{name}");
    if !settings.truth(&key("use_kl_loss")) {
        return;
    }

    let estimator = key("kl_estimator_type");
    match settings.text(&estimator) {
        Some(kind) if ["k1", "k2", "k3"].contains(&kind.as_str()) => {
            draft.set("loss.kl.kind", kind, &estimator);
            draft.take("loss.kl.coef", &key("kl_loss_coef"));
        }
        _ => {
            draft.lacks(&estimator, "The estimates here are k1, k2 and k3: set `loss.kl` yourself.")
        }
    }
}

fn warmup(settings: &Settings, draft: &mut Draft) {
    let key = "trainer.policy.optimizer_config.num_warmup_steps";
    let batch = settings.whole("trainer.train_batch_size").unwrap_or(0);
    let mini = settings.whole("trainer.policy_mini_batch_size").unwrap_or(0);
    let epochs = settings.whole("trainer.update_epochs_per_batch").unwrap_or(1);

    match settings.whole(key) {
        Some(updates) if updates >= 0 && batch > 0 && mini > 0 && epochs > 0 => {
            // A step has an update for each mini-batch, in each of its epochs.
            let of_a_step = (batch / mini).max(1).saturating_mul(epochs);
            draft.set(
                "optim.warmup_steps",
                (updates as u64).div_ceil(of_a_step as u64) as i64,
                key,
            );
        }
        _ => draft.lacks(key, "Set `optim.warmup_steps`, in rollout steps."),
    }
}

fn epochs(settings: &Settings, draft: &mut Draft) {
    let key = "trainer.epochs";
    if settings.is_given(key) {
        draft.take("train.epochs", key);
    } else if settings.whole("trainer.max_training_steps").is_none() {
        draft.lacks(
            key,
            "The key is left out, and is 1 there. Set `train.epochs` or `train.steps` yourself.",
        );
    }
}

fn eval_length(settings: &Settings, draft: &mut Draft) {
    let key = "generator.eval_sampling_params.max_generate_length";
    let training = settings.whole("generator.sampling_params.max_generate_length");
    if settings.is_given(key) && settings.whole(key) != training {
        draft.lacks(key, "Evaluation has the length of training.");
    }
}
