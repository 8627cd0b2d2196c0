//! The meaning of a recipe: values in range, and keys that agree with each other.

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    Aggregation, Data, Loss, Model, NewModel, Optim, Recipe, Reward, RewardKind, Task, Warmup,
    error::Problem,
};

/// The fault that comes first in the text; `name` is what the run would be called.
pub(super) fn first_problem(
    recipe: &Recipe,
    name: &str,
    document: &DeTable<'_>,
) -> Option<Problem> {
    let mut checks = Checks { document, problems: Vec::new() };
    checks.name(name);
    if let Model::New(model) = &recipe.model {
        checks.new_model(model, recipe.rollout.max_completion_tokens);
    }
    checks.data(&recipe.data);
    checks.warmup(&recipe.warmup);
    checks.rollout_and_sampling(recipe);
    checks.reward(&recipe.reward, recipe);
    checks.loss(&recipe.loss);
    checks.at_least("advantage.epsilon", recipe.advantage.epsilon, 0.0);
    checks.optim(&recipe.optim);
    checks.train(recipe);
    checks.eval_and_checkpoint(recipe);
    checks.problems.into_iter().min_by_key(|problem| problem.span.start)
}

struct Checks<'a> {
    document: &'a DeTable<'a>,
    problems: Vec<Problem>,
}

/// What the tables ask for.
impl Checks<'_> {
    fn name(&mut self, name: &str) {
        if let Err(error) = firebrick_runs::check_name(name) {
            self.fail(
                &["name"],
                error.to_string(),
                "no name for a folder",
                "set `name`, or --set name=…, to letters, digits, `-`, `_` and `.`",
            );
        }
    }

    fn new_model(&mut self, model: &NewModel, max_completion_tokens: usize) {
        let NewModel { hidden_size, heads, kv_heads, .. } = *model;
        let sizes = [
            ("model.new.hidden_size", hidden_size),
            ("model.new.layers", model.layers),
            ("model.new.heads", heads),
            ("model.new.kv_heads", kv_heads),
            ("model.new.intermediate_size", model.intermediate_size),
        ];
        for (key, size) in sizes {
            self.positive(key, size as u64);
        }
        self.above("model.new.rope_theta", model.rope_theta, 0.0);
        if sizes.iter().any(|&(_, size)| size == 0) {
            return; // The remainders below would divide by it.
        }
        if !hidden_size.is_multiple_of(heads) {
            self.fail(
                &["model.new.hidden_size", "model.new.heads"],
                format!(
                    "model.new.hidden_size is {hidden_size}, expected a multiple of heads = {heads}"
                ),
                "every head gets hidden_size / heads",
                &format!("the next multiple is {}", hidden_size.next_multiple_of(heads)),
            );
        } else if !(hidden_size / heads).is_multiple_of(2) {
            let width = hidden_size / heads;
            self.fail(
                &["model.new.heads", "model.new.hidden_size"],
                format!("a head is hidden_size / heads = {hidden_size} / {heads} = {width} wide, expected an even number"),
                "the rotary embedding turns pairs",
                "change `heads` or `hidden_size`",
            );
        }
        if !heads.is_multiple_of(kv_heads) {
            self.fail(
                &["model.new.kv_heads", "model.new.heads"],
                format!("model.new.kv_heads is {kv_heads}, expected a divisor of heads = {heads}"),
                "heads share keys and values in equal parts",
                &format!("`kv_heads = {heads}` gives every head its own"),
            );
        }
        if max_completion_tokens >= model.max_position_embeddings {
            self.fail(
                &["model.new.max_position_embeddings", "rollout.max_completion_tokens"],
                format!(
                    "model.new.max_position_embeddings is {}, expected room for a prompt and \
                     rollout.max_completion_tokens = {max_completion_tokens}",
                    model.max_position_embeddings
                ),
                "too short for a completion",
                "raise it, or lower rollout.max_completion_tokens",
            );
        }
    }

    fn data(&mut self, data: &Data) {
        match (&data.train, &data.task) {
            (Some(_), Some(_)) => self.fail(
                &["data.task", "data.train"],
                "[data] has both `train` and `task`, expected one of them".into(),
                "one too many",
                "remove one: `train` reads a JSONL file, `task` generates problems",
            ),
            (None, None) => self.fail(
                &["data"],
                "[data] has neither `train` nor `task`, expected one of them".into(),
                "no prompts",
                "add `train = \"prompts.jsonl\"`, or `task = { kind = \"addition\", digits = 3 }`",
            ),
            _ => {}
        }
        if data.columns.is_some() && data.train.is_none() && data.heldout.is_none() {
            self.fail(
                &["data.columns"],
                "[data] has `columns` and no file".into(),
                "a task has no columns",
                "remove `columns`",
            );
        }
        if data.heldout.is_none() {
            self.positive("data.heldout_size", data.heldout_size as u64);
        }
        if data.prompt.as_ref().is_some_and(|pattern| !pattern.contains("{prompt}")) {
            self.fail(
                &["data.prompt"],
                "data.prompt does not contain `{prompt}`".into(),
                "every prompt would be this text",
                "put `{prompt}` where the question goes",
            );
        }
        self.positive("data.max_prompt_tokens", data.max_prompt_tokens as u64);
        match data.task {
            Some(Task::Addition { digits, .. } | Task::Multiplication { digits, .. }) => {
                self.positive("data.task.digits", u64::from(digits));
            }
            Some(Task::Countdown { numbers, max_number, max_target }) => {
                if numbers < 2 {
                    self.out_of_range(
                        "data.task.numbers",
                        numbers,
                        "2 or more",
                        "there is nothing to combine",
                    );
                }
                for (key, bound) in
                    [("data.task.max_number", max_number), ("data.task.max_target", max_target)]
                {
                    self.positive(key, bound.map_or(1, u64::from));
                }
            }
            None => {}
        }
    }

    fn warmup(&mut self, warmup: &Warmup) {
        self.positive("warmup.batch", warmup.batch as u64);
        self.at_least("warmup.lr", warmup.lr, 0.0);
        self.share("warmup.stop_at", warmup.stop_at);
        self.positive("warmup.every", warmup.every);
        self.positive("warmup.samples", warmup.samples as u64);
    }

    fn rollout_and_sampling(&mut self, recipe: &Recipe) {
        let rollout = &recipe.rollout;
        if rollout.group_size < 2 {
            self.fail(
                &["rollout.group_size"],
                format!("rollout.group_size is {}, expected 2 or more", rollout.group_size),
                "a group of one has no advantage",
                "the advantage compares the completions of a prompt with each other: try 8 or 16",
            );
        }
        self.positive("rollout.max_completion_tokens", rollout.max_completion_tokens as u64);
        self.above("rollout.temperature", rollout.temperature, 0.0);
        self.top_p("rollout.top_p", rollout.top_p);
        self.positive("rollout.max_sequences", rollout.max_sequences as u64);
        self.positive("sampling.prompts_per_step", recipe.sampling.prompts_per_step as u64);
        self.at_least("sampling.tolerance", recipe.sampling.tolerance, 0.0);
    }

    fn reward(&mut self, reward: &Reward, recipe: &Recipe) {
        let kind = reward.kind.unwrap_or(match recipe.data.task {
            Some(Task::Addition { .. } | Task::Multiplication { .. }) => RewardKind::Integer,
            Some(Task::Countdown { .. }) => RewardKind::Countdown,
            None => RewardKind::Gsm8k,
        });
        for (key, owner, name) in [
            ("reward.marker", RewardKind::Integer, "integer"),
            ("reward.use_all", RewardKind::Countdown, "countdown"),
        ] {
            if kind != owner && self.is_set(key) {
                self.fail(
                    &[key, "reward.kind"],
                    format!("{key} is set, and the verifier is not `{name}`"),
                    "would change nothing",
                    &format!("remove it, or set reward.kind to \"{name}\""),
                );
            }
        }
        if !(reward.right.is_finite() && reward.wrong.is_finite() && reward.right > reward.wrong) {
            self.fail(
                &["reward.right", "reward.wrong"],
                format!(
                    "reward.right is {:?}, expected a finite number above reward.wrong = {:?}",
                    reward.right, reward.wrong
                ),
                "teaches the wrong answers",
                "the usual pairs are 1.0 and -1.0, or 1.0 and 0.0",
            );
        }
        let overlong = &reward.overlong;
        let longest = recipe.rollout.max_completion_tokens;
        self.at_least("reward.overlong.penalty", overlong.penalty, 0.0);
        if overlong.buffer > longest {
            self.fail(
                &["reward.overlong.buffer", "rollout.max_completion_tokens"],
                format!("reward.overlong.buffer is {}, expected at most rollout.max_completion_tokens = {longest}", overlong.buffer),
                "longer than a completion",
                "the punishment grows over the last `buffer` tokens of a completion: a quarter of it is usual",
            );
        } else if overlong.buffer == 0 && overlong.penalty > 0.0 {
            self.fail(
                &["reward.overlong.penalty", "reward.overlong.buffer"],
                format!("reward.overlong.penalty is {:?} and the buffer is 0, expected a buffer above 0", overlong.penalty),
                "would punish nothing",
                &format!("add a buffer, such as `buffer = {}`", (longest / 4).max(1)),
            );
        }
    }

    fn loss(&mut self, loss: &Loss) {
        self.share("loss.clip_ratio_low", Some(loss.clip_ratio_low));
        self.at_least("loss.clip_ratio_high", loss.clip_ratio_high, 0.0);
        if let Some(bound) = loss.dual_clip {
            self.above("loss.dual_clip", bound, 1.0);
        }
        if let Some(length) = loss.constant_length {
            self.positive("loss.constant_length", length as u64);
            if loss.aggregation != Aggregation::Constant {
                self.fail(
                    &["loss.constant_length", "loss.aggregation"],
                    "loss.constant_length is set, and loss.aggregation is not \"constant\"".into(),
                    "would change nothing",
                    "remove it, or set loss.aggregation to \"constant\"",
                );
            }
        }
        self.at_least("loss.entropy_coef", loss.entropy_coef, 0.0);
        if let Some(kl) = &loss.kl {
            self.at_least("loss.kl.coef", kl.coef, 0.0);
        }
    }

    fn optim(&mut self, optim: &Optim) {
        self.at_least("optim.lr", optim.lr, 0.0);
        for (key, beta) in [("optim.beta1", optim.beta1), ("optim.beta2", optim.beta2)] {
            if !(0.0..1.0).contains(&beta) {
                self.out_of_range(key, beta, "at least 0 and below 1", "no weighted mean");
            }
        }
        self.above("optim.epsilon", optim.epsilon, 0.0);
        self.at_least("optim.weight_decay", optim.weight_decay, 0.0);
        self.above("optim.max_grad_norm", optim.max_grad_norm, 0.0);
    }

    fn train(&mut self, recipe: &Recipe) {
        let train = &recipe.train;
        self.positive("train.steps", train.steps);
        self.positive("train.mini_batch", train.mini_batch as u64);
        self.positive("train.micro_batch_tokens", train.micro_batch_tokens as u64);
        self.share("train.stop_at", train.stop_at);

        let (prompts, group) = (recipe.sampling.prompts_per_step, recipe.rollout.group_size);
        let batch = prompts.saturating_mul(group);
        if train.mini_batch > batch && batch > 0 {
            let standing = if self.is_set("train.mini_batch") { "" } else { " by default" };
            self.fail(
                &["train.mini_batch", "sampling.prompts_per_step", "rollout.group_size"],
                format!(
                    "train.mini_batch is {}{standing}, expected at most prompts_per_step × group_size = {prompts} × {group} = {batch}",
                    train.mini_batch
                ),
                "a step has fewer completions",
                &format!("`mini_batch = {batch}` under [train] makes one update of a step"),
            );
        }
    }

    fn eval_and_checkpoint(&mut self, recipe: &Recipe) {
        self.positive("eval.every", recipe.eval.every);
        self.positive("eval.samples", recipe.eval.samples as u64);
        self.at_least("eval.temperature", recipe.eval.temperature, 0.0);
        self.top_p("eval.top_p", recipe.eval.top_p);
        self.positive("checkpoint.every", recipe.checkpoint.every);
    }
}

/// Ranges. NaN fails them all, because each asks what must hold.
impl Checks<'_> {
    fn positive(&mut self, key: &str, value: u64) {
        if value == 0 {
            self.out_of_range(key, value, "1 or more", "nothing would be done");
        }
    }

    fn at_least(&mut self, key: &str, value: f64, least: f64) {
        if !(value >= least && value.is_finite()) {
            self.out_of_range(
                key,
                value,
                &format!("a finite number of at least {least}"),
                "out of range",
            );
        }
    }

    fn above(&mut self, key: &str, value: f64, bound: f64) {
        if !(value > bound && value.is_finite()) {
            self.out_of_range(
                key,
                value,
                &format!("a finite number above {bound}"),
                "out of range",
            );
        }
    }

    fn share(&mut self, key: &str, value: Option<f64>) {
        if let Some(value) = value.filter(|value| !(0.0..=1.0).contains(value)) {
            self.out_of_range(key, value, "a number from 0 to 1", "out of range");
        }
    }

    fn top_p(&mut self, key: &str, value: f64) {
        if !(value > 0.0 && value <= 1.0) {
            self.out_of_range(
                key,
                value,
                "above 0 and at most 1",
                "no token would be left, or all are already",
            );
        }
    }

    fn out_of_range(
        &mut self,
        key: &str,
        value: impl std::fmt::Debug,
        expected: &str,
        label: &str,
    ) {
        self.fail(&[key], format!("{key} is {value:?}, expected {expected}"), label, "");
    }
}

/// Places.
impl Checks<'_> {
    /// Blames the first of `keys` that stands in the text, with the value it has there.
    fn fail(&mut self, keys: &[&str], message: String, label: &str, help: &str) {
        let span = keys.iter().find_map(|key| self.find(key)).map(Spanned::span);
        self.problems.push(Problem {
            label: if span.is_some() { label.into() } else { String::new() },
            span: span.unwrap_or_default(),
            keys: keys.iter().map(|key| key.split('.').map(str::to_owned).collect()).collect(),
            message,
            help: (!help.is_empty()).then(|| help.to_owned()),
        });
    }

    fn is_set(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    fn find(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        let (tables, last) = key.rsplit_once('.').unwrap_or(("", key));
        let mut table = self.document;
        for name in tables.split('.').filter(|name| !name.is_empty()) {
            table = table.get(name)?.get_ref().as_table()?;
        }
        table.get(last)
    }
}
