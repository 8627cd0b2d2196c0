//! Settings without effect, in one list. A recipe that sets one is refused, and a recipe that is written out
//! leaves them out.

use firebrick_core::device::Kind;

use super::{
    AdaptiveUpdates, Aggregation, Dynamic, EnvironmentKind, LengthPenalty, Recipe, Recompute,
    RewardKind, SandboxKind, Task,
};

/// A key that changes nothing in its recipe, whatever its value.
#[derive(Debug)]
pub(super) struct UnusedKey {
    /// Dotted key. The entries of a list are named by their indices.
    pub(super) key: String,
    /// Keys that switch it off.
    pub(super) switches: &'static [&'static str],
    /// Setting that would give it an effect.
    pub(super) needs: &'static str,
}

/// Whether a key has an effect, the key, the keys that decide this, and the setting that it needs.
type Rule = (bool, &'static str, &'static [&'static str], &'static str);

impl Recipe {
    /// Returns the keys that change nothing in this recipe.
    pub(super) fn unused_keys(&self) -> Vec<UnusedKey> {
        let rules = [
            self.data_rules(),
            self.engine_rules(),
            self.environment_rules(),
            self.sampling_rules(),
            self.reward_rules(),
            self.training_rules(),
        ];

        // Several rules may name one key: each is a separate condition.
        let unused = rules.into_iter().flatten().filter(|(has_effect, ..)| !has_effect);
        let mut unused: Vec<UnusedKey> = unused
            .map(|(_, key, switches, needs)| UnusedKey { key: key.into(), switches, needs })
            .collect();

        if let Some(kind) = &self.reward.kind {
            add_unused_verifier_keys("reward", kind, &mut unused);
        }
        for (index, source) in self.train_sources().iter().enumerate() {
            if let Some(kind) = &source.reward {
                add_unused_verifier_keys(&format!("data.train.{index}.reward"), kind, &mut unused);
            }
        }
        unused
    }

    fn data_rules(&self) -> Vec<Rule> {
        let data = &self.data;
        let generated = data.task.is_some() && data.train.is_none();
        // A recipe with both or neither is refused elsewhere, and no key of it is called unused.
        let read = data.train.is_some() && data.task.is_none();
        let looks = !matches!(data.task, Some(Task::Addition { worked: false, .. }));
        let splits = !matches!(data.task, Some(Task::Environment { split: None, .. }));
        let task = &["data.task"][..];
        let spelt = self.model.new.as_ref().is_none_or(|new| new.tokenizer.is_none());

        let tunes = self.sft.steps > 0;
        let sft = |key| (tunes, key, &["sft.steps"][..], "sft.steps above 0");
        let of_rows = |key| (self.sft.data.is_some(), key, &["sft.data"][..], "sft.data");

        vec![
            (spelt, "model.new.alphabet", &["model.new.tokenizer"], "no model.new.tokenizer"),
            (!generated, "data.heldout", task, "data.train"),
            (!generated, "data.deduplicate", task, "data.train"),
            (!read, "data.train_size", &["data.train"], "data.task"),
            (
                data.heldout.is_none(),
                "data.heldout_size",
                &["data.heldout"],
                "no data.heldout, so that held-out prompts are generated or split off",
            ),
            (splits, "data.task.heldout_split", &["data.task.split"], "data.task.split"),
            (looks, "data.task.second_look", &["data.task.worked"], "data.task.worked = true"),
            sft("sft.data"),
            of_rows("sft.subset"),
            of_rows("sft.split"),
            of_rows("sft.columns"),
            sft("sft.batch"),
            sft("sft.lr"),
            sft("sft.stop_at"),
            sft("sft.every"),
            sft("sft.samples"),
        ]
    }

    fn engine_rules(&self) -> Vec<Rule> {
        let servers = |key| {
            let remote = self.rollout.engine.is_remote();
            (
                remote,
                key,
                &["rollout.engine.kind"][..],
                "rollout.engine.kind = \"vllm\" or \"sglang\"",
            )
        };

        vec![
            servers("rollout.engine.servers"),
            servers("rollout.engine.weights"),
            servers("rollout.engine.weights_there"),
            servers("rollout.engine.key_variable"),
            servers("rollout.engine.deadline"),
            servers("rollout.engine.patience"),
            servers("rollout.engine.tolerance"),
            (
                !self.rollout.engine.is_remote(),
                "rollout.graphs",
                &["rollout.engine.kind"],
                "rollout.engine.kind = \"local\"",
            ),
        ]
    }

    fn environment_rules(&self) -> Vec<Rule> {
        let environment = &self.environment;
        let kind = &["environment.kind"][..];
        let with_environment =
            |key| (environment.is_there(), key, kind, "environment.kind other than \"none\"");
        let served = environment.kind == EnvironmentKind::OpenEnv;
        let with_server = |key| (served, key, kind, "environment.kind = \"openenv\"");
        let openings = matches!(self.data.task, Some(Task::Environment { .. }));

        vec![
            with_environment("environment.max_turns"),
            with_environment("environment.max_turn_tokens"),
            with_environment("environment.max_observation_tokens"),
            with_environment("environment.stop"),
            with_environment("environment.role"),
            with_server("environment.servers"),
            with_server("environment.sessions"),
            with_server("environment.reset"),
            with_server("environment.action"),
            with_server("environment.observation"),
            with_server("environment.time_limit"),
            with_server("environment.patience"),
            with_server("environment.key_variable"),
            (openings, "environment.opening", &["data.task"], "data.task.kind = \"environment\""),
        ]
    }

    /// A step has several rounds only if it wants all its groups. Otherwise it has one, which neither reaches
    /// a cap nor has groups to spare.
    fn sampling_rules(&self) -> Vec<Rule> {
        let sampling = &self.sampling;
        let compares = sampling.dynamic != Dynamic::Off || sampling.curriculum.is_some();
        let refills = match sampling.dynamic {
            Dynamic::Filter | Dynamic::Replace { .. } => true,
            Dynamic::Off => sampling.curriculum.is_none() && self.reward.overlong.filter,
            Dynamic::Drop => false,
        };

        let keeps = !refills || sampling.carry_over;
        let capped = !refills || sampling.max_rounds > 0;
        let refill = |key| {
            let switches =
                &["sampling.dynamic", "sampling.curriculum", "reward.overlong.filter"][..];
            (refills, key, switches, "sampling.dynamic = \"filter\" or \"replace\"")
        };

        vec![
            refill("sampling.max_rounds"),
            refill("sampling.on_cap"),
            (capped, "sampling.on_cap", &["sampling.max_rounds"], "sampling.max_rounds above 0"),
            refill("sampling.carry_over"),
            refill("sampling.max_carry_over_age"),
            (
                keeps,
                "sampling.max_carry_over_age",
                &["sampling.carry_over"],
                "sampling.carry_over = true",
            ),
            (
                compares,
                "sampling.tolerance",
                &["sampling.dynamic"],
                "sampling.dynamic other than \"off\", or sampling.curriculum",
            ),
        ]
    }

    fn reward_rules(&self) -> Vec<Rule> {
        let overlong = &self.reward.overlong;
        let punishes = overlong.penalty > 0.0 || overlong.buffer == 0;
        let cuts = |cut: fn(&LengthPenalty) -> bool| self.reward.length.as_ref().is_none_or(cut);

        let by_length = cuts(|length| length.max_cut > 0.0);
        let at_all = cuts(|length| length.max_cut > 0.0 || length.truncation_cut > 0.0);
        let max_cut = &["reward.length.max_cut"][..];
        let needs_cut = "reward.length.max_cut above 0";

        vec![
            (
                punishes,
                "reward.overlong.buffer",
                &["reward.overlong.penalty"],
                "reward.overlong.penalty above 0",
            ),
            (at_all, "reward.length", max_cut, "max_cut or truncation_cut above 0"),
            (by_length, "reward.length.free_factor", max_cut, needs_cut),
            (by_length, "reward.length.ramp_factor", max_cut, needs_cut),
        ]
    }

    fn training_rules(&self) -> Vec<Rule> {
        let adaptive =
            |holds: fn(&AdaptiveUpdates) -> bool| self.train.adaptive.as_ref().is_none_or(holds);
        let samples = self.eval.temperature > 0.0;
        let rises = self.optim.warmup_steps > 0;

        let constant = self.loss.aggregation == Aggregation::Constant;
        let compared = self.loss.tis_cap.is_some();

        // Without advantages there is no policy loss.
        let has_policy_loss = !(self.has_divergence() && self.rewards_only_measure());
        let advantages = |key| {
            let needs = "teacher.task_weight above 0, or teacher.loss = \"policy_gradient\"";
            (has_policy_loss, key, &["teacher.loss", "teacher.task_weight"][..], needs)
        };

        vec![
            advantages("loss.top_entropy_quantile"),
            (
                !self.has_divergence(),
                "teacher.max_log_ratio",
                &["teacher.loss"],
                "teacher.loss = \"policy_gradient\"",
            ),
            (
                !compared,
                "train.old_logprobs",
                &["loss.tis_cap"],
                "no loss.tis_cap, which has them recomputed",
            ),
            (
                compared,
                "loss.tis_mask",
                &["loss.tis_cap"],
                "loss.tis_cap, which has the two policies compared",
            ),
            (
                compared,
                "loss.tis_gate",
                &["loss.tis_cap"],
                "loss.tis_cap, which has the two policies compared",
            ),
            // A recipe can't know whether its path is an adapter's. The run can, when it opens the folder.
            (
                self.model.lora.is_some() || self.model.path.is_some(),
                "model.base",
                &["model.lora"],
                "model.lora, or with an adapter as model.path",
            ),
            (self.has_critic(), "critic", &["advantage.kind"], "advantage.kind = \"gae\""),
            (
                constant,
                "loss.constant_length",
                &["loss.aggregation"],
                "loss.aggregation = \"constant\"",
            ),
            (
                self.device.kind != Kind::Cpu,
                "rollout.graphs",
                &["device.kind"],
                "device.kind other than \"cpu\"",
            ),
            // A reward model judges meanwhile, on the same device, and its launches would be recorded too.
            (
                self.reward_models().is_empty(),
                "rollout.graphs",
                &["reward.kind"],
                "no reward model",
            ),
            // So would the update's launches, and CUDA ends a recording in which another thread asks for memory.
            (
                self.rollout.max_staleness == 0,
                "rollout.graphs",
                &["rollout.max_staleness"],
                "rollout.max_staleness = 0",
            ),
            (
                self.device.kind != Kind::Cpu,
                "train.offload",
                &["device.kind"],
                "device.kind other than \"cpu\"",
            ),
            (
                self.train.recompute != Recompute::None,
                "train.offload",
                &["train.recompute"],
                "train.recompute other than \"none\"",
            ),
            (
                adaptive(|it| it.weight_entropy > 0.0),
                "train.adaptive.max_entropy_term",
                &["train.adaptive.weight_entropy"],
                "train.adaptive.weight_entropy above 0",
            ),
            (
                adaptive(|it| it.n_min < it.n_max),
                "train.adaptive.n_base",
                &["train.adaptive.n_min", "train.adaptive.n_max"],
                "train.adaptive.n_min below n_max",
            ),
            (
                adaptive(|it| it.n_max > 1),
                "train.adaptive.kl_stop",
                &["train.adaptive.n_max"],
                "train.adaptive.n_max above 1",
            ),
            (
                rises,
                "optim.warmup_from_zero",
                &["optim.warmup_steps"],
                "optim.warmup_steps above 0",
            ),
            (samples, "eval.top_p", &["eval.temperature"], "eval.temperature above 0"),
        ]
    }
}

/// Adds the options that change nothing of the verifier in the table at `path`.
fn add_unused_verifier_keys(path: &str, kind: &RewardKind, unused: &mut Vec<UnusedKey>) {
    let mut add = |option: &str, switches, needs| {
        unused.push(UnusedKey { key: format!("{path}.{option}"), switches, needs });
    };
    match kind {
        RewardKind::Regex { matches: true, .. } => {
            for option in ["group", "tail"] {
                add(option, &["reward.matches"], "matches = false");
            }
        }
        RewardKind::Code(options) => {
            if !options.command.is_empty() {
                add("python", &["reward.command"], "no command");
            }
            // Without a command, rows may have tests of functions too, which no checker judges.
            if !options.command.is_empty() && !options.checker.is_empty() {
                add("tolerance", &["reward.checker"], "no checker");
            }
            if options.sandbox == SandboxKind::None {
                add("mounts", &["reward.sandbox"], "sandbox = \"bwrap\"");
            }
        }
        RewardKind::Weighted { parts } => {
            for (index, part) in parts.iter().enumerate() {
                add_unused_verifier_keys(&format!("{path}.parts.{index}"), &part.kind, unused);
            }
        }
        _ => {}
    }
}
