//! Settings of other programs, and their counterparts here.

/// Returns what to write for a key of another program. `valid` are the keys of the table that it is in.
pub(super) fn foreign_key_help(key: &str, valid: &[&str]) -> Option<String> {
    if let Some((_, why)) = NOT_NEEDED.iter().find(|(name, _)| *name == key) {
        return Some(format!("leave it out: {why}"));
    }

    let (_, here) = RENAMED.iter().find(|(name, _)| *name == key)?;
    // If the table itself has a key of that name, such as the critic's `lr`, that one is meant.
    let last = here.split('`').nth(1)?.rsplit('.').next()?;
    let here = if valid.contains(&last) { format!("`{last}`") } else { (*here).to_owned() };
    Some(format!("other programs' {key} is {here}"))
}

/// Settings by their names in TRL and similar programs, with their keys here. The text names a unit that
/// differs.
const RENAMED: [(&str, &str); 36] = [
    ("beta", "`loss.kl`, with a kind and a coefficient"),
    ("bf16", "`model.dtype`"),
    ("dataset_config", "`data.subset`"),
    ("dataset_name", "`data.train`"),
    ("delta", "`loss.dual_clip`"),
    ("epsilon", "`loss.clip_ratio_low`, and `loss.clip_ratio_high` above it"),
    ("epsilon_high", "`loss.clip_ratio_high`"),
    ("epsilon_low", "`loss.clip_ratio_low`"),
    ("eval_steps", "`eval.every`"),
    ("generation_batch_size", "`sampling.prompts_per_step`, which counts prompts"),
    ("gradient_checkpointing", "`train.recompute`"),
    ("importance_sampling_level", "`loss.kind`"),
    ("learning_rate", "`optim.lr`"),
    ("lora_alpha", "`model.lora.alpha`"),
    ("lora_r", "`model.lora.rank`"),
    ("loss_type", "`loss.kind` and `loss.aggregation`"),
    ("lr_scheduler_type", "`optim.schedule`"),
    ("mask_truncated_completions", "`reward.overlong.filter`"),
    ("max_completion_length", "`rollout.max_completion_tokens`"),
    ("max_new_tokens", "`rollout.max_completion_tokens`"),
    ("max_assistant_turns", "`environment.max_turns`"),
    ("max_concurrent_envs", "`environment.sessions`"),
    ("max_prompt_length", "`data.max_prompt_tokens`"),
    ("max_steps", "`train.steps`"),
    ("model_name_or_path", "`model.path`"),
    ("num_generations", "`rollout.group_size`"),
    ("num_iterations", "`train.adaptive`"),
    ("num_train_epochs", "`train.epochs`"),
    ("per_device_train_batch_size", "`train.mini_batch`, which counts completions"),
    ("reward_funcs", "`reward.kind`"),
    ("reward_weights", "`reward.kind`: weighted, with parts"),
    ("save_steps", "`checkpoint.every`"),
    ("save_total_limit", "`checkpoint.keep`"),
    ("scale_rewards", "`advantage.kind`"),
    ("target_modules", "`model.lora.targets`"),
    ("warmup_ratio", "`optim.warmup_steps`, in steps"),
];

/// Settings of other programs that nobody needs here.
const NOT_NEEDED: [(&str, &str); 9] = [
    (
        "gradient_accumulation_steps",
        "`train.micro_batch_tokens` splits an update, which does not change the result",
    ),
    ("log_completions", "`run.db` has every completion"),
    ("logging_steps", "every step has its line"),
    ("lora_dropout", "adapters have no dropout"),
    ("output_dir", "runs are in the folder that --runs names"),
    ("report_to", "`firebrick metrics` writes for TensorBoard and W&B"),
    (
        "steps_per_generation",
        "it follows from sampling.prompts_per_step, rollout.group_size and train.mini_batch",
    ),
    ("use_vllm", "`rollout.engine` names servers; by default the same process samples"),
    ("vllm_mode", "`rollout.engine` names servers; by default the same process samples"),
];

#[cfg(test)]
mod tests {
    use crate::Recipe;

    use super::*;

    #[test]
    fn keys_that_are_named_for_others_are_there() {
        let tables = "[model]\npath = 'a'\n[data]\ntrain = 'b'\n";
        for (name, here) in RENAMED {
            for key in here.split('`').skip(1).step_by(2) {
                // The error for a key that exists says that this list is not its type, and not that the key
                // is unknown.
                let set = [format!("{key}=[[]]")];
                let error = Recipe::parse("a.toml".as_ref(), tables, &set).unwrap_err();
                assert!(!error.to_string().contains("unknown"), "{name}: {error}");
            }
        }
    }
}
