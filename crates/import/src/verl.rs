//! The table of verl's keys, with the translation of each.

mod idle;

use super::{
    Draft, Row, Settings,
    rows::{by, lacks, nearly, read, same},
    settings::Value,
    translate::{
        self, CORRECTION, CRITIC_RATE, IMPORTANCE, PASSES, TURNS, adapters, betas, clip_low,
        completions, critic, estimator, eval_top_p, every, group, has_critic, importance, name,
        or_none, refilled, template, verifier,
    },
};

pub(super) use idle::IDLE;

/// Sources that the keys were read in.
pub(super) const SOURCE: &str = "\
    volcengine/verl, `recipe/dapo` at e2e729f (2025) and its script of March 2025, 03150d4; \
    verl-project/verl, `verl/trainer/config/_generated_ppo_trainer.yaml` at 01d4d76 and \
    `verl/trainer/ppo/core_algos.py` at 018f23b; verl-project/verl-recipe, `dapo` at e800faa \
    (2026). Defaults are those of `ppo_trainer.yaml`.";

const ACTOR: &str = "actor_rollout_ref.actor";
const ROLLOUT_IS: &str = "algorithm.rollout_correction.rollout_is";

#[rustfmt::skip] // A table: a row to a line, or to two.
pub(super) static ROWS: &[Row] = &[
    // Model
    by("actor_rollout_ref.model.path", "~/models/deepseek-llm-7b-chat", "model.path",
        |_, draft| draft.take_path("model.path", "actor_rollout_ref.model.path"), ""),
    by("actor_rollout_ref.model.lora_rank", "0", "model.lora.rank", lora, ""),
    read("actor_rollout_ref.model.lora_alpha", "16", "model.lora.alpha", ""),
    read("actor_rollout_ref.model.target_modules", "all-linear", "model.lora.targets",
        "`all-linear` is all seven projections; other names have to be among them."),
    lacks("actor_rollout_ref.model.override_config.attention_dropout", "", &["0", "0.0"], "There is no dropout."),
    lacks("actor_rollout_ref.model.override_config.embd_pdrop", "", &["0", "0.0"], "There is no dropout."),
    lacks("actor_rollout_ref.model.override_config.resid_pdrop", "", &["0", "0.0"], "There is no dropout."),
    lacks("actor_rollout_ref.model.override_config.*", "", &["null"],
        "config.json is used as it is: change it in the model's folder."),
    lacks("actor_rollout_ref.model.custom_chat_template", "null", &["null"],
        "The template is the model folder's: put it there as chat_template.jinja."),
    lacks("actor_rollout_ref.model.lora_adapter_path", "null", &["null"],
        "`model.path` names an adapter to continue from."),

    // Data
    by("data.train_files", "~/data/rlhf/gsm8k/train.parquet", "data.train",
        |_, draft| draft.take_path("data.train", "data.train_files"), ""),
    by("data.val_files", "", "data.heldout",
        |_, draft| draft.take_path("data.heldout", "data.val_files"), ""),
    by("data.prompt_key", "prompt", "data.columns.prompt", prompt_key, ""),
    same("data.max_prompt_length", "512", "data.max_prompt_tokens"),
    same("data.max_response_length", "512", "rollout.max_completion_tokens"),
    lacks("data.truncation", "error", &["error"],
        "Firebrick leaves out prompts that are too long, and does not cut them."),
    by("data.train_batch_size", "1024", "sampling.prompts_per_step", prompts_per_step,
        "0 is verl's asynchronous trainer, which takes ppo_mini_batch_size times require_batches prompts at \
         a time. A step here has as many, and samples them with its own weights; `rollout.max_staleness = 1` \
         samples one step ahead.").when(is_asynchronous),
    read("async_training.require_batches", "1", "sampling.prompts_per_step", ""),
    lacks("async_training.*", "", &["null"], "`rollout.max_staleness = 1` samples one step ahead."),
    lacks("data.gen_batch_size", "data.train_batch_size", &["null"],
        "A round asks for as many prompts as should fill the step by the share that was kept so far, \
         and at most for a whole step. There is no size to set. `sampling.max_rounds` bounds the \
         rounds."),
    lacks("data.shuffle", "true", &["true"], "Every epoch is shuffled."),
    lacks("data.train_max_samples", "-1", &["-1"], "All prompts of `data.train` are used."),
    by("data.val_max_samples", "-1", "eval.prompts", val_max_samples, ""),
    by("data.apply_chat_template_kwargs.*", "", "data.template_options", template_options, ""),
    lacks("data.seed", "null", &["null"], "One `seed` serves for everything."),
    lacks("data.custom_cls.path", "null", &["null"], "Data are files, or a name on the Hub."),
    lacks("data.tool_config_path", "null", &["null"], TURNS),

    // Sampling
    by("actor_rollout_ref.rollout.n", "1", "rollout.group_size", group_size, ""),
    same("actor_rollout_ref.rollout.temperature", "1.0", "rollout.temperature"),
    same("actor_rollout_ref.rollout.top_p", "1.0", "rollout.top_p"),
    by("actor_rollout_ref.rollout.top_k", "-1", "rollout.top_k",
        |settings, draft| or_none("actor_rollout_ref.rollout.top_k", "rollout.top_k", settings, draft), "Off is 0 here and -1 there."),
    lacks("actor_rollout_ref.rollout.do_sample", "true", &["true"], "Training always samples."),
    lacks("actor_rollout_ref.rollout.repetition_penalty", "1.0", &["1", "1.0"],
        "The policy samples without a penalty, from the distribution that it learns."),
    lacks("actor_rollout_ref.rollout.ignore_eos", "false", &["false"], "A completion ends with a stop token."),
    lacks("actor_rollout_ref.rollout.over_sample_rate", "0", &["0", "0.0"],
        "A step waits for every completion."),
    lacks("actor_rollout_ref.rollout.multi_turn.enable", "false", &["false"], TURNS),
    by("actor_rollout_ref.rollout.val_kwargs.do_sample", "false", "eval.temperature", val_sampling,
        "Without it verl takes the likeliest token: `eval.temperature = 0.0`."),
    read("actor_rollout_ref.rollout.val_kwargs.temperature", "0", "eval.temperature", ""),
    by("actor_rollout_ref.rollout.val_kwargs.top_p", "1.0", "eval.top_p", val_top_p, ""),
    lacks("actor_rollout_ref.rollout.val_kwargs.top_k", "-1", &["-1", "0"], "Evaluation has no top_k."),
    nearly("actor_rollout_ref.rollout.val_kwargs.n", "1", "eval.samples",
        "The published AIME file has each of its 30 prompts 32 times, and `data.deduplicate` keeps one \
         of each. So 1 there is 32 here, unless `data.deduplicate` is false.").when(is_aime),
    by("algorithm.filter_groups.enable", "false", "sampling.dynamic", filter_groups,
        "Firebrick keeps a group for the spread of its base rewards, the largest minus the smallest; \
         verl takes a standard deviation. Surplus groups are thrown away, as in verl: \
         `sampling.carry_over = false`.")
        .when(|settings| settings.truth("algorithm.filter_groups.enable")),
    read("algorithm.filter_groups.max_num_gen_batches", "0", "sampling.max_rounds",
        "verl counts batches of gen_batch_size, Firebrick counts rounds of at most \
         train_batch_size. The value is multiplied by the first, divided by the second, and \
         rounded up. verl ends with an error at the cap, so `sampling.on_cap = \"error\"`; the \
         default here trains on the groups that there are.")
        .when(|settings| settings.truth("algorithm.filter_groups.enable")),
    lacks("algorithm.filter_groups.metric", "null", &["acc", "null"],
        "Groups are kept for their base rewards, before any punishment for length."),
    lacks("algorithm.filter_groups.*", "", &["null", "1"], "Rounds follow one another."),

    // Reward
    by("reward_model.reward_manager", "naive", "reward.kind", reward,
        "verl's manager chooses a function by the rows' data_source; here the recipe names the verifier, \
         or one for each data set of `data.train`. For the DAPO data that is `dapo` with 1 and -1, for GSM8K `gsm8k` with 1 and 0."),
    read("reward.reward_manager.name", "", "reward.kind", "As `reward_model.reward_manager`."),
    by("reward_model.overlong_buffer.enable", "false", "reward.overlong",
        |settings, draft| overlong("reward_model.overlong_buffer", settings, draft), ""),
    read("reward_model.overlong_buffer.len", "0", "reward.overlong.buffer", ""),
    read("reward_model.overlong_buffer.penalty_factor", "0.0", "reward.overlong.penalty", ""),
    lacks("reward_model.overlong_buffer.log", "false", &["true", "false"],
        "`reward/mean` always includes the punishment."),
    by("custom_reward_function.overlong_buffer.enable", "", "reward.overlong",
        |settings, draft| overlong("custom_reward_function.overlong_buffer", settings, draft), ""),
    read("custom_reward_function.overlong_buffer.len", "", "reward.overlong.buffer", ""),
    read("custom_reward_function.overlong_buffer.penalty_factor", "", "reward.overlong.penalty", ""),
    by("reward.reward_kwargs.overlong_buffer_cfg.enable", "", "reward.overlong",
        |settings, draft| overlong("reward.reward_kwargs.overlong_buffer_cfg", settings, draft), ""),
    read("reward.reward_kwargs.overlong_buffer_cfg.len", "", "reward.overlong.buffer", ""),
    read("reward.reward_kwargs.overlong_buffer_cfg.penalty_factor", "", "reward.overlong.penalty", ""),
    lacks("reward.reward_kwargs.overlong_buffer_cfg.log", "", &["true", "false"],
        "`reward/mean` always includes the punishment."),
    by("reward_model.reward_kwargs.overlong_buffer_cfg.enable", "", "reward.overlong",
        |settings, draft| overlong("reward_model.reward_kwargs.overlong_buffer_cfg", settings, draft), ""),
    read("reward_model.reward_kwargs.overlong_buffer_cfg.len", "", "reward.overlong.buffer", ""),
    read("reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor", "", "reward.overlong.penalty", ""),
    lacks("reward_model.reward_kwargs.overlong_buffer_cfg.log", "", &["true", "false"],
        "`reward/mean` always includes the punishment."),
    lacks("reward.reward_kwargs.max_resp_len", "", &[],
        "The punishment ends at `rollout.max_completion_tokens`."),
    lacks("reward_model.reward_kwargs.max_resp_len", "", &[],
        "The punishment ends at `rollout.max_completion_tokens`."),
    lacks("custom_reward_function.path", "null", &["null"],
        "A function in Python becomes a program of its own: `reward.kind = \"command\"`."),
    lacks("custom_reward_function.name", "compute_score", &["null", "compute_score"],
        "See `custom_reward_function.path`."),
    lacks("sandbox_fusion.url", "null", &["null"], SANDBOX),
    lacks("reward.sandbox_fusion.url", "null", &["null"], SANDBOX),
    lacks("reward.custom_reward_function.path", "null", &["null"],
        "A function in Python becomes a program of its own: `reward.kind = \"command\"`."),
    lacks("reward.reward_kwargs.*", "", &["null"], "Options of a reward function in Python."),
    lacks("reward_model.reward_kwargs.*", "", &["null"], "Options of a reward function in Python."),
    lacks("reward_model.enable", "false", &["false", "null"],
        "A reward model is a verifier: `reward.kind = \"model\"` with its folder as `path`."),

    // Advantage
    by("algorithm.adv_estimator", "gae", "advantage.kind", advantage, ""),
    read("algorithm.norm_adv_by_std_in_grpo", "true", "advantage.kind",
        "False is `mean_only`."),
    read("algorithm.gamma", "1.0", "advantage.gamma", ""),
    read("algorithm.lam", "1.0", "advantage.lambda", ""),
    read("critic.optim.lr", "1e-5", "critic.lr", CRITIC_RATE).when(gae),
    read("critic.cliprange_value", "0.5", "critic.clip", ""),
    read("trainer.critic_warmup", "0", "critic.warmup_steps",
        "verl counts steps from 1, and the step of this number updates the policy too: the critic alone \
         has one step fewer.").when(gae),
    lacks("critic.ppo_mini_batch_size", "", &[], "The critic learns in the policy's mini-batches.").when(gae),
    lacks("critic.ppo_epochs", "", &[], "The critic makes the policy's updates, `train.adaptive`.").when(gae),
    lacks("critic.shuffle", "", &[], "The critic learns in the policy's mini-batches.").when(gae),
    lacks("critic.grad_clip", "1.0", &[], "The critic has the policy's bound, `optim.max_grad_norm`.").when(gae),
    lacks("critic.loss_agg_mode", "", &[], "The value loss has the policy's aggregation, `loss.aggregation`.").when(gae),
    lacks("critic.optim.lr_scheduler_type", "constant", &["constant"], "The critic has the policy's schedule, `optim.schedule`.").when(gae),
    lacks("critic.optim.*", "", &["null"],
        "The critic has the policy's settings, `optim`, except the learning rate.").when(gae),
    lacks("critic.model.path", "", &["null"], "A separate critic begins with the policy's weights.").when(gae),
    lacks("critic.model.lora_rank", "0", &[], "The critic has adapters where the policy has some.").when(gae),
    lacks("critic.*", "", &["null"], "The critic has no such setting.").when(gae),
    lacks("algorithm.use_kl_in_reward", "false", &["false"],
        "The reward is the verifier's alone. A penalty on the distance is in the loss: `loss.kl`."),
    lacks("algorithm.use_pf_ppo", "false", &["false"], "Completions are not weighted by their reward."),
    by("algorithm.rollout_correction.rollout_is", "null", "loss.tis_cap",
        |settings, draft| importance(ROLLOUT_IS, &format!("{ROLLOUT_IS}_threshold"), settings, draft),
        IMPORTANCE).when(|settings| settings.text(ROLLOUT_IS).as_deref() == Some("token")),
    read("algorithm.rollout_correction.rollout_is_threshold", "2.0", "loss.tis_cap", ""),
    lacks("algorithm.rollout_correction.*", "", &["null", "false", "2.0", "ppo_clip"], CORRECTION),

    // Loss
    by("actor_rollout_ref.actor.policy_loss.loss_mode", "vanilla", "loss.kind", loss_mode, ""),
    by("actor_rollout_ref.actor.clip_ratio_low", "0.2", "loss.clip_ratio_low",
        |settings, draft| clip("clip_ratio_low", "loss.clip_ratio_low", settings, draft), ""),
    by("actor_rollout_ref.actor.clip_ratio_high", "0.2", "loss.clip_ratio_high",
        |settings, draft| clip("clip_ratio_high", "loss.clip_ratio_high", settings, draft), ""),
    read("actor_rollout_ref.actor.clip_ratio", "0.2", "loss.clip_ratio_low, loss.clip_ratio_high",
        "verl takes this value for clip_ratio_low or clip_ratio_high if that key is null or left out. \
         Versions of verl in which both are 0.2 by default read it only with a null."),
    read("actor_rollout_ref.actor.clip_ratio_c", "3.0", "loss.dual_clip",
        "verl always has this bound, by default 3. Firebrick has it only if you set it. For `dppo_tv` and `dppo_kl` it \
         is `loss.ratio_cap`, and the two bounds above are `loss.delta_low` and `loss.delta_high`."),
    read("actor_rollout_ref.actor.tau_pos", "1.0", "loss.tau_pos", "For `sapo` alone."),
    read("actor_rollout_ref.actor.tau_neg", "1.05", "loss.tau_neg", "For `sapo` alone."),
    by("actor_rollout_ref.actor.loss_agg_mode", "token-mean", "loss.aggregation", aggregation,
        "verl's default workers take the mean inside each micro-batch and weigh these means by their rows, so its \
         loss depends on how the batch was cut. Here the mean is over the whole mini-batch, however it is cut.")
        .when(|settings| !is_normed(settings)),
    by("actor_rollout_ref.actor.use_token_level_loss", "", "loss.aggregation",
        |settings, draft| {
            let key = "actor_rollout_ref.actor.use_token_level_loss";
            if settings.is_given(key) {
                let mode = if settings.truth(key) { "token_mean" } else { "sequence_mean" };
                draft.set("loss.aggregation", mode, key);
            }
        }, "The older name of `loss_agg_mode`."),
    read("actor_rollout_ref.actor.loss_scale_factor", "null", "loss.constant_length", ""),
    same("actor_rollout_ref.actor.entropy_coeff", "0", "loss.entropy_coef"),
    by("actor_rollout_ref.actor.use_kl_loss", "false", "loss.kl", kl, ""),
    read("actor_rollout_ref.actor.kl_loss_coef", "0.001", "loss.kl.coef", ""),
    read("actor_rollout_ref.actor.kl_loss_type", "low_var_kl", "loss.kl.kind",
        "`kl` is k1, `mse` k2, `low_var_kl` k3."),

    // Optimizer
    same("actor_rollout_ref.actor.optim.lr", "1e-6", "optim.lr"),
    by("actor_rollout_ref.actor.optim.lr_warmup_steps", "-1", "optim.warmup_steps", warmup, ""),
    read("actor_rollout_ref.actor.optim.lr_warmup_steps_ratio", "0.0", "optim.warmup_steps",
        "A share of all steps there, a number of steps here."),
    nearly("actor_rollout_ref.actor.optim.weight_decay", "0.01", "optim.weight_decay",
        "Here it holds for matrices only, there for every parameter."),
    by("actor_rollout_ref.actor.optim.betas", "[0.9, 0.999]", "optim.beta1, optim.beta2",
        |settings, draft| betas("actor_rollout_ref.actor.optim.betas", settings, draft), ""),
    same("actor_rollout_ref.actor.grad_clip", "1.0", "optim.max_grad_norm"),
    by("actor_rollout_ref.actor.optim.lr_scheduler_type", "constant", "optim.schedule",
        |settings, draft| schedule("lr_scheduler_type", settings, draft), ""),
    by("actor_rollout_ref.actor.optim.warmup_style", "null", "optim.schedule",
        |settings, draft| schedule("warmup_style", settings, draft), ""),
    read("actor_rollout_ref.actor.optim.min_lr_ratio", "0.0", "optim.schedule.end_ratio", ""),
    lacks("actor_rollout_ref.actor.optim.num_cycles", "0.5", &["0.5", "null"],
        "A cosine schedule is half a period here."),
    lacks("actor_rollout_ref.actor.optim.override_optimizer_config", "null", &["null"], "The optimizer has the settings of `optim` only."),
    lacks("actor_rollout_ref.actor.optim.optimizer", "AdamW", &["AdamW"], "The recipe has AdamW; `optim.kind` can be AdamW or Muon."),

    // Teacher
    by("distillation.enabled", "false", "teacher", distillation, ""),
    read("distillation.teacher_models.teacher_model.model_path", "null", "teacher.path",
        "verl serves the teacher; here it is in this process, unless `teacher.kind` names servers."),
    read("distillation.distillation_loss.use_task_rewards", "true", "teacher.task_weight",
        "verl adds two losses, and Firebrick two advantages."),
    read("distillation.distillation_loss.distillation_loss_coef", "1.0", "teacher.weight",
        "verl reads it with `use_task_rewards` alone."),
    read("distillation.distillation_loss.loss_max_clamp", "null", "teacher.max_log_ratio", ""),
    lacks("distillation.teacher_models.*", "", &["null"],
        "One teacher is taken over, that of `teacher_model`. Others belong to data sets here: `data.train` is a list, and \
         each may have its `teacher`.").when(distills),
    lacks("distillation.distillation_loss.*", "", &["null"],
        "The clip bounds of `loss` are for both parts.").when(distills),
    by(LOSS_MODE, "k3", "teacher.loss", teacher_loss,
        "`forward_kl_topk` is over the whole vocabulary here, and nothing is clamped."),
    lacks("distillation.distillation_loss.use_policy_gradient", "false", &["true"], OWN_SAMPLES).when(|settings| {
        distills(settings) && !differentiates(settings)
    }),

    // Updates
    by("actor_rollout_ref.actor.ppo_mini_batch_size", "256", "train.mini_batch", mini_batch,
        "verl counts prompts, Firebrick counts completions: the value is multiplied by `rollout.n`."),
    lacks("actor_rollout_ref.actor.ppo_epochs", "1", &["1"], PASSES),
    lacks("actor_rollout_ref.actor.shuffle", "false", &["true"],
        "Mini-batches are drawn from the shuffled step."),

    // Run
    by("trainer.total_training_steps", "null", "train.steps",
        |_, draft| draft.take("train.steps", "trainer.total_training_steps"), ""),
    by("rollout.total_rollout_steps", "", "train.steps", rollout_steps,
        "verl's asynchronous trainer counts prompts: the value is divided by those of a step, and rounded up."),
    by("trainer.total_epochs", "30", "train.epochs", epochs,
        "The run ends when all prompts were drawn this many times, or after `train.steps`, whichever \
         comes first: raise `train.steps` as well. A pass takes as many steps as prompts divided by \
         `sampling.prompts_per_step`, and fewer with dynamic sampling."),
    by("trainer.test_freq", "-1", "eval.every",
        |settings, draft| every("trainer.test_freq", "eval.every", settings, draft), ""),
    by("trainer.save_freq", "-1", "checkpoint.every",
        |settings, draft| every("trainer.save_freq", "checkpoint.every", settings, draft), ""),
    by("trainer.max_actor_ckpt_to_keep", "null", "checkpoint.keep",
        |settings, draft| or_none("trainer.max_actor_ckpt_to_keep", "checkpoint.keep", settings, draft),
        "null there and 0 here keep all of them."),
    lacks("trainer.val_only", "false", &["false"], "`firebrick eval` measures a checkpoint."),
    lacks("trainer.val_before_train", "true", &["true"], "There is always an evaluation before the first step."),
    by("trainer.experiment_name", "", "name",
        |settings, draft| name("trainer.experiment_name", settings, draft), ""),
];

fn lora(settings: &Settings, draft: &mut Draft) {
    let key = |name| format!("actor_rollout_ref.model.{name}");
    let rank = key("lora_rank");
    let alpha = key("lora_alpha");
    adapters(&rank, &alpha, &key("target_modules"), settings, draft);
}

const SANDBOX: &str = "Programs run in a sandbox on this machine: `reward.kind = \"code\"`.";
const LOSS_MODE: &str = "distillation.distillation_loss.loss_mode";
const OWN_SAMPLES: &str = "The teacher gives advantages here, as with `k1` and `use_policy_gradient`: no estimate of a \
    divergence is differentiated.";

fn distills(settings: &Settings) -> bool {
    settings.truth("distillation.enabled")
}

/// Tells whether a divergence is the loss, over the teacher's likeliest tokens.
fn differentiates(settings: &Settings) -> bool {
    settings.text(LOSS_MODE).as_deref() == Some("forward_kl_topk")
        && !settings.truth("distillation.distillation_loss.use_policy_gradient")
}

fn teacher_loss(settings: &Settings, draft: &mut Draft) {
    if !distills(settings) {
        return;
    }
    if differentiates(settings) {
        draft.set("teacher.loss", "forward_kl", LOSS_MODE);
    } else if !matches!(settings.text(LOSS_MODE).as_deref(), Some("k1" | "kl")) {
        draft.lacks(LOSS_MODE, OWN_SAMPLES);
    }
}

fn distillation(settings: &Settings, draft: &mut Draft) {
    if !distills(settings) {
        return;
    }
    let key = |name| format!("distillation.distillation_loss.{name}");
    let path = "distillation.teacher_models.teacher_model.model_path";
    if settings.get(path) == Value::Null {
        return draft.lacks(path, "Name the teacher: `teacher.path`.");
    }
    draft.take_path("teacher.path", path);
    if !differentiates(settings) {
        draft.take("teacher.max_log_ratio", &key("loss_max_clamp"));
    } else if settings.is_given(&key("loss_max_clamp")) {
        draft.lacks(&key("loss_max_clamp"), "A divergence is not clamped.");
    }
    if settings.truth(&key("use_task_rewards")) {
        draft.set("teacher.task_weight", 1.0, &key("use_task_rewards"));
        draft.take("teacher.weight", &key("distillation_loss_coef"));
    } else {
        // Where rewards teach nothing, no group is dropped for them.
        draft.set("sampling.dynamic", "off", &key("use_task_rewards"));
    }
}

fn is_asynchronous(settings: &Settings) -> bool {
    settings.whole("data.train_batch_size") == Some(0)
}

/// Returns the number of prompts of a step, if the configuration says it.
fn step(settings: &Settings) -> Option<i64> {
    if !is_asynchronous(settings) {
        return settings.whole("data.train_batch_size").filter(|&prompts| prompts > 0);
    }

    // The asynchronous trainer takes this many mini-batches at a time.
    let prompts = settings.whole(&format!("{ACTOR}.ppo_mini_batch_size"))?;
    let batches = settings.whole("async_training.require_batches")?;
    Some(prompts.saturating_mul(batches)).filter(|&prompts| prompts > 0)
}

fn prompts_per_step(settings: &Settings, draft: &mut Draft) {
    let key = "data.train_batch_size";
    match step(settings) {
        Some(prompts) if is_asynchronous(settings) => {
            draft.set("sampling.prompts_per_step", prompts, key);
        }
        _ => draft.take("sampling.prompts_per_step", key),
    }
}

fn rollout_steps(settings: &Settings, draft: &mut Draft) {
    let key = "rollout.total_rollout_steps";
    match (settings.whole(key), step(settings)) {
        (Some(prompts @ 1..), Some(step)) => {
            draft.set("train.steps", (prompts as u64).div_ceil(step as u64) as i64, key);
        }
        _ if settings.is_given(key) => draft.lacks(key, "Set `train.steps`."),
        _ => {}
    }
}

fn prompt_key(settings: &Settings, draft: &mut Draft) {
    let key = "data.prompt_key";
    if settings.text(key).is_some_and(|column| column != "prompt") {
        draft.take("data.columns.prompt", key);
    }
}

fn val_max_samples(settings: &Settings, draft: &mut Draft) {
    let key = "data.val_max_samples";
    draft.set("eval.prompts", settings.whole(key).unwrap_or(-1).max(0), key);
}

fn template_options(settings: &Settings, draft: &mut Draft) {
    template(settings, draft, "data.apply_chat_template_kwargs.");
}

fn group_size(settings: &Settings, draft: &mut Draft) {
    group("actor_rollout_ref.rollout.n", "algorithm.adv_estimator", settings, draft);
}

fn gae(settings: &Settings) -> bool {
    has_critic("algorithm.adv_estimator", settings)
}

fn is_aime(settings: &Settings) -> bool {
    let file = settings.get("data.val_files").to_string().to_lowercase();
    file.contains("aime") && settings.whole("actor_rollout_ref.rollout.val_kwargs.n") == Some(1)
}

fn val_sampling(settings: &Settings, draft: &mut Draft) {
    let key = "actor_rollout_ref.rollout.val_kwargs.do_sample";
    if settings.truth(key) {
        draft.take("eval.temperature", "actor_rollout_ref.rollout.val_kwargs.temperature");
    } else {
        draft.set("eval.temperature", 0.0, key);
    }
}

fn val_top_p(settings: &Settings, draft: &mut Draft) {
    let key = |name| format!("actor_rollout_ref.rollout.val_kwargs.{name}");
    // Without sampling, verl takes the likeliest token.
    let temperature = if settings.truth(&key("do_sample")) {
        settings.number(&key("temperature"))
    } else {
        Some(0.0)
    };
    eval_top_p(&key("top_p"), temperature, settings, draft);
}

fn filter_groups(settings: &Settings, draft: &mut Draft) {
    let key = "algorithm.filter_groups.enable";
    let cap = "algorithm.filter_groups.max_num_gen_batches";
    let form = if settings.truth(key) { "filter" } else { "off" };
    draft.set("sampling.dynamic", form, key);

    if settings.truth(key) {
        let batches = settings.whole(cap).unwrap_or(0).max(0);
        let size = |key| settings.whole(key).filter(|&size| size > 0);
        let step = step(settings).unwrap_or(1);
        // verl caps batches of gen_batch_size, while a round here is at most a step's prompts.
        let prompts = batches.saturating_mul(size("data.gen_batch_size").unwrap_or(step));
        let rounds = (prompts as u64).div_ceil(step as u64) as i64;
        refilled(rounds, cap, key, draft);
    }
}

fn reward(settings: &Settings, draft: &mut Draft) {
    let key = settings.first_of(&["reward_model.reward_manager", "reward.reward_manager.name"]);
    let manager = settings.text(key).unwrap_or_default();
    let data = settings.get("data.train_files").to_string().to_lowercase();

    // Either the manager or the data tells which function verl would choose.
    if manager == "dapo" || data.contains("dapo") {
        verifier(draft, "dapo", -1.0, key);
    } else if data.contains("gsm8k") {
        verifier(draft, "gsm8k", 0.0, key);
    } else {
        draft.lacks(
            key,
            "There the rows' data_source chooses the judge. Here choose `reward.kind`, or a `reward` for each data set of \
             `data.train`.",
        );
    }
}

fn overlong(table: &str, settings: &Settings, draft: &mut Draft) {
    if settings.truth(&format!("{table}.enable")) {
        let length = format!("{table}.len");
        let factor = format!("{table}.penalty_factor");
        translate::overlong([&length, &factor], (None, None), settings, draft);
    }
}

fn advantage(settings: &Settings, draft: &mut Draft) {
    let key = "algorithm.adv_estimator";
    estimator(key, "algorithm.norm_adv_by_std_in_grpo", settings, draft);
    let keys = [
        ("advantage.gamma", "algorithm.gamma"),
        ("advantage.lambda", "algorithm.lam"),
        ("critic.lr", "critic.optim.lr"),
        ("critic.clip", "critic.cliprange_value"),
        ("critic.warmup_steps", "trainer.critic_warmup"),
    ];
    critic(key, &keys, settings, draft);

    // verl counts steps from 1, and the step of this number updates the policy already.
    let warmup = "trainer.critic_warmup";
    if gae(settings)
        && let Some(first) = settings.whole(warmup)
    {
        draft.set("critic.warmup_steps", (first - 1).max(0), warmup);
    }
}

fn clip(bound: &str, here: &str, settings: &Settings, draft: &mut Draft) {
    let both = format!("{ACTOR}.clip_ratio");
    let bound = format!("{ACTOR}.{bound}");
    // `clip_ratio` counts for a bound that is null, or that is left out while `clip_ratio` itself is given.
    let is_set = settings.is_given(&bound) && settings.get(&bound) != Value::Null;
    let is_default = !settings.is_given(&bound) && !settings.is_given(&both);
    let key = if is_set || is_default { &bound } else { &both };

    match (mode(settings).as_deref(), here) {
        (Some("sapo"), _) => {}
        (Some("dppo_tv" | "dppo_kl"), _) => draft.take(&here.replace("clip_ratio", "delta"), key),
        (_, "loss.clip_ratio_low") => clip_low(key, here, settings, draft),
        _ => draft.take(here, key),
    }
}

fn mode(settings: &Settings) -> Option<String> {
    settings.text("actor_rollout_ref.actor.policy_loss.loss_mode")
}

fn loss_mode(settings: &Settings, draft: &mut Draft) {
    let key = "actor_rollout_ref.actor.policy_loss.loss_mode";
    match mode(settings).unwrap_or_default().as_str() {
        "vanilla" => {
            draft.set("loss.kind", "dapo", key);
            draft.take("loss.dual_clip", &format!("{ACTOR}.clip_ratio_c"));
        }
        "gspo" => {
            draft.set("loss.kind", "gspo", key);
            draft.set("loss.aggregation", "sequence_mean", key);
        }
        "cispo" => draft.set("loss.kind", "cispo", key),
        kind @ ("dppo_tv" | "dppo_kl") => {
            draft.set("loss.kind", kind, key);
            draft.take("loss.ratio_cap", &format!("{ACTOR}.clip_ratio_c"));
        }
        "sapo" => {
            draft.set("loss.kind", "sapo", key);
            draft.take("loss.tau_pos", &format!("{ACTOR}.tau_pos"));
            draft.take("loss.tau_neg", &format!("{ACTOR}.tau_neg"));
            draft.set("loss.aggregation", "sequence_mean", key);
        }
        _ => draft.lacks(
            key,
            "The losses here are dapo (vanilla), gspo, cispo, dppo_tv, dppo_kl and sapo; the recipe has dapo.",
        ),
    }
}

fn aggregation(settings: &Settings, draft: &mut Draft) {
    let key = "actor_rollout_ref.actor.loss_agg_mode";
    if matches!(mode(settings).as_deref(), Some("gspo" | "sapo")) {
        return; // For these verl takes the mean of completions, whatever is set.
    }

    match settings.text(key).unwrap_or_default().as_str() {
        "token-mean" => draft.set("loss.aggregation", "token_mean", key),
        "seq-mean-token-sum" => draft.set("loss.aggregation", "sequence_sum", key),
        "seq-mean-token-mean" => draft.set("loss.aggregation", "sequence_mean", key),
        "seq-mean-token-sum-norm" => {
            draft.set("loss.aggregation", "constant", key);
            draft.take("loss.constant_length", &format!("{ACTOR}.loss_scale_factor"));
            let says = "verl divides the sum of a batch by the constant alone; Firebrick divides it by \
                        the number of completions too. `optim.max_grad_norm` sees the difference, AdamW \
                        does not.";
            draft.notes.differs(key, "seq-mean-token-sum-norm", says);
        }
        _ => draft.lacks(key, "There is no such aggregation here; the recipe has token_mean."),
    }
}

fn is_normed(settings: &Settings) -> bool {
    let key = "actor_rollout_ref.actor.loss_agg_mode";
    settings.text(key).as_deref() == Some("seq-mean-token-sum-norm")
}

fn kl(settings: &Settings, draft: &mut Draft) {
    if !settings.truth(&format!("{ACTOR}.use_kl_loss")) {
        return;
    }

    let key = format!("{ACTOR}.kl_loss_type");
    let kind = match settings.text(&key).unwrap_or_default().as_str() {
        "kl" | "k1" => "k1",
        "mse" | "k2" => "k2",
        "low_var_kl" | "k3" => "k3",
        _ => {
            return draft
                .lacks(&key, "The estimates here are k1, k2 and k3: set `loss.kl` yourself.");
        }
    };

    draft.set("loss.kl.kind", kind, &key);
    draft.take("loss.kl.coef", &format!("{ACTOR}.kl_loss_coef"));
}

fn warmup(settings: &Settings, draft: &mut Draft) {
    let key = format!("{ACTOR}.optim.lr_warmup_steps");
    let ratio = format!("{ACTOR}.optim.lr_warmup_steps_ratio");
    let share = settings.number(&ratio).unwrap_or(0.0);

    // A count takes precedence over the share, which also needs the number of all steps.
    match (settings.whole(&key), settings.whole("trainer.total_training_steps")) {
        (Some(steps), _) if steps >= 0 => rising(steps, &key, draft),
        (_, Some(all)) => rising((share * all as f64) as i64, &ratio, draft),
        _ if share == 0.0 => rising(0, &ratio, draft),
        _ => draft.lacks(
            &ratio,
            "It is a share of all steps, and the file does not say how many: set `optim.warmup_steps`, \
             which the recipe leaves at its default, 20.",
        ),
    }
}

/// Sets a warm-up. verl's line begins at 0, while ours begins at the first step's share.
fn rising(steps: i64, key: &str, draft: &mut Draft) {
    draft.set("optim.warmup_steps", steps, key);
    if steps > 0 {
        draft.set("optim.warmup_from_zero", true, key);
    }
}

fn schedule(name: &str, settings: &Settings, draft: &mut Draft) {
    let key = format!("{ACTOR}.optim.{name}");

    match settings.text(&key).unwrap_or_default().as_str() {
        "constant" | "null" | "" => {}
        // A schedule without a step left for it is refused. The recipe's default is 200 steps.
        "cosine" if warmup_takes_all(settings) => {
            draft.lacks(
                &key,
                "Set `optim.schedule` and `train.steps`: it decays after the warm-up.",
            );
        }
        "cosine" => {
            draft.set("optim.schedule.kind", "cosine", &key);
            draft.take("optim.schedule.end_ratio", &format!("{ACTOR}.optim.min_lr_ratio"));
        }
        _ => draft.lacks(
            &key,
            "The schedules here are constant, linear and cosine; the recipe has constant.",
        ),
    }
}

fn warmup_takes_all(settings: &Settings) -> bool {
    let warmup = settings.whole(&format!("{ACTOR}.optim.lr_warmup_steps")).unwrap_or(0);
    warmup >= settings.whole("trainer.total_training_steps").unwrap_or(200)
}

fn mini_batch(settings: &Settings, draft: &mut Draft) {
    let key = format!("{ACTOR}.ppo_mini_batch_size");
    completions(&key, "actor_rollout_ref.rollout.n", step(settings), settings, draft);
}

fn epochs(settings: &Settings, draft: &mut Draft) {
    let key = "trainer.total_epochs";
    if settings.is_given(key) {
        draft.take("train.epochs", key);
    } else if settings.whole("trainer.total_training_steps").is_none() {
        draft.lacks(
            key,
            "The key is left out, and is 30 there. Set `train.epochs` or `train.steps` yourself.",
        );
    }
}
