//! Checks that the keys of a recipe agree with each other.
//!
//! Conditions on one value alone are in the schema, and `schema_check` has checked them.

mod bounds;
mod critic;
mod engine;
mod environment;
mod sampling;
mod teacher;

use firebrick_reward::{Regex, RegexGroup, RegexOptions, RewardError, Weighted};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{
    AdaptiveUpdates, Advantage, CodeOptions, JudgeAnswer, LengthPenalty, NewModel, Recipe,
    RewardKind, Schedule, Task, TrainSource,
    data::is_name_letter,
    error::{BACKSLASH, Problem},
    paths,
    unused::UnusedKey,
};

/// Returns every fault of agreement. `name` is the name that the run would have.
pub(super) fn problems(recipe: &Recipe, name: &str, document: &DeTable<'_>) -> Vec<Problem> {
    let mut checks = Checks { recipe, document, problems: Vec::new() };
    checks.name(name);
    checks.paths();
    checks.model();
    checks.data();
    checks.train_sources();
    checks.reward();
    checks.overlong();
    checks.critic();
    checks.teachers();
    checks.curriculum();
    checks.sampling();
    checks.engine();
    checks.update_engine();
    checks.environment();
    checks.importance();
    checks.unused_keys();
    checks.schedule();
    checks.mini_batch();
    checks.bounds();
    checks.adaptive();
    checks.observe();
    checks.eval_sets();

    checks.problems
}

/// Smallest share of the drawn prompts that a source may have.
const SMALLEST_SHARE: f64 = 1e-3;

struct Checks<'a> {
    recipe: &'a Recipe,
    document: &'a DeTable<'a>,
    problems: Vec<Problem>,
}

impl Checks<'_> {
    fn name(&mut self, name: &str) {
        if let Err(error) = firebrick_core::check_run_name(name) {
            self.fail(
                &["name"],
                error.to_string(),
                "not a name for a folder",
                "set `name` to letters, digits, `-`, `_` and `.`",
            );
        }
    }

    fn paths(&mut self) {
        let there = self.recipe.rollout.engine.weights_there.clone();
        let there = there.map(|path| ("rollout.engine.weights_there".to_owned(), path));
        for (key, path) in paths::all_paths(self.recipe).into_iter().chain(there) {
            let text = path.to_string_lossy();
            if text.contains(char::is_control) {
                self.fail(
                    &[&key],
                    format!("{key} has a control character in it: {text:?}"),
                    "a backslash and a letter became one character",
                    BACKSLASH,
                );
            }
        }
    }

    fn model(&mut self) {
        let model = &self.recipe.model;
        match (&model.path, &model.new) {
            (Some(_), Some(_)) => self.fail(
                &["model.new", "model.path"],
                "[model] has both `path` and `new`, expected one of them".into(),
                "one too many",
                "`path` starts from a checkpoint, `new` from random weights",
            ),
            (None, None) => self.fail(
                &["model"],
                "[model] has neither `path` nor `new`, expected one of them".into(),
                "no model",
                "add `path = \"Qwen/Qwen2.5-0.5B-Instruct\"`, or a table [model.new]",
            ),
            (None, Some(new)) => self.new_model(new),
            (Some(_), None) => {}
        }

        if model.lora.is_some() && model.path.is_none() {
            self.fail(
                &["model.lora"],
                "model.lora is set, expected only together with a `path`".into(),
                "adapters for random weights that nobody else has",
                "remove it: all weights of a new model are trained",
            );
        }

        if model.revision.is_some() && model.path.is_none() {
            self.fail(
                &["model.revision"],
                "model.revision is set, expected only together with a `path` on the Hub".into(),
                "would change nothing",
                "remove it",
            );
        }
    }

    fn new_model(&mut self, model: &NewModel) {
        let NewModel { hidden_size, heads, kv_heads, max_position_embeddings, .. } = *model;
        let width = hidden_size / heads; // The schema wants at least one head.

        if !hidden_size.is_multiple_of(heads) {
            self.fail(
                &["model.new.hidden_size", "model.new.heads"],
                format!(
                    "model.new.hidden_size is {hidden_size}, expected a multiple of heads = {heads}"
                ),
                "every head gets hidden_size / heads",
                &format!("the next multiple is {}", hidden_size.next_multiple_of(heads)),
            );
        } else if !width.is_multiple_of(2) {
            self.fail(
                &["model.new.heads", "model.new.hidden_size"],
                format!("a head is {hidden_size} / {heads} = {width} wide, expected an even width"),
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

        // Prompt and completion share the positions, and a prompt has at least one token.
        let longest = self.recipe.longest_completion();
        if longest >= max_position_embeddings {
            let completion = self.recipe.rollout.max_completion_tokens;
            let sum = match self.recipe.environment.observation_tokens() {
                0 => format!("rollout.max_completion_tokens = {longest}"),
                observed => format!(
                    "rollout.max_completion_tokens + environment.max_observation_tokens = {completion} + {observed}"
                ),
            };

            self.fail(
                &["model.new.max_position_embeddings", "rollout.max_completion_tokens"],
                format!(
                    "model.new.max_position_embeddings is {max_position_embeddings}, expected more \
                     than {sum}"
                ),
                "no room for a prompt",
                "a sequence is a prompt and a completion: raise max_position_embeddings, or \
                 shorten completions",
            );
        }
    }

    fn data(&mut self) {
        let data = &self.recipe.data;
        match (&data.train, &data.task) {
            (Some(_), Some(_)) => self.fail(
                &["data.task", "data.train"],
                "[data] has both `train` and `task`, expected one of them".into(),
                "one too many",
                "`train` reads a data set, `task` generates problems",
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
                "[data] has `columns`, expected a file that has them".into(),
                "a task has no columns",
                "remove `columns`",
            );
        }

        // Each of these names a part of something else, which has to be there too.
        let parts = [
            ("subset", data.subset.is_some(), data.train.is_some()),
            ("split", data.split.is_some(), data.train.is_some()),
            ("heldout_subset", data.heldout_subset.is_some(), data.heldout.is_some()),
            (
                "heldout_split",
                data.heldout_split.is_some(),
                data.heldout.is_some() || data.train.is_some(),
            ),
        ];

        for (key, is_given, has_whole) in parts {
            if is_given && !has_whole {
                let whole = if key == "heldout_subset" { "heldout" } else { "train" };
                self.fail(
                    &[&format!("data.{key}")],
                    format!("[data] has `{key}`, expected only together with `{whole}`"),
                    "a part of nothing",
                    &format!("add `{whole}`, or remove `{key}`"),
                );
            }
        }

        let trained_on = |split: &Option<String>| {
            data.heldout_split.as_deref() == Some(split.as_deref().unwrap_or("train"))
        };
        let sources = self.recipe.train_sources();
        let same = match sources {
            [] => trained_on(&data.split),
            sources => sources.iter().any(|source| trained_on(&source.split)),
        };
        if data.heldout.is_none() && data.heldout_split.is_some() && same {
            self.fail(
                &["data.heldout_split"],
                "data.heldout_split is the split that is trained on".into(),
                "would measure what was memorised",
                "name another split, or leave it out: then some of `train` is held out",
            );
        }

        if data.prompt.as_ref().is_some_and(|pattern| !pattern.contains("{prompt}")) {
            self.fail(
                &["data.prompt"],
                "data.prompt has no `{prompt}` in it".into(),
                "every prompt would be this text",
                "put `{prompt}` where the question goes",
            );
        }

        if let Some(Task::Countdown { max_number, max_target, .. }) = data.task
            && max_target < max_number
        {
            self.fail(
                &["data.task.max_target", "data.task.max_number"],
                format!(
                    "data.task.max_target is {max_target}, expected at least max_number = \
                     {max_number}"
                ),
                "below a number that may be given",
                "raise `max_target` or lower `max_number`",
            );
        }
    }

    fn train_sources(&mut self) {
        let recipe = self.recipe;
        let sources = recipe.train_sources();
        if sources.is_empty() {
            return;
        }

        for (key, given) in [("subset", &recipe.data.subset), ("split", &recipe.data.split)] {
            if given.is_some() {
                self.fail(
                    &[&format!("data.{key}")],
                    format!("data.{key} is given, expected none next to a list in data.train"),
                    "of which of them?",
                    &format!("write `{key}` into the tables of data.train"),
                );
            }
        }

        let names: Vec<String> = sources.iter().map(TrainSource::name).collect();
        for (index, message, label) in bad_names("data.train", "source", &names, &[]) {
            let keys = [format!("data.train.{index}.name"), "data.train".to_owned()];
            self.fail(
                &keys.each_ref().map(String::as_str),
                message,
                label,
                "give it another `name`",
            );
        }

        self.source_weights(sources);
        self.source_rewards(sources);
    }

    fn source_weights(&mut self, sources: &[TrainSource]) {
        let weighted = sources.iter().filter(|source| source.weight.is_some()).count();
        if weighted > 0 && weighted < sources.len() {
            self.fail(
                &["data.train"],
                format!(
                    "data.train has {weighted} of {} sources with a `weight`, expected one for each, or none",
                    sources.len()
                ),
                "shares of what?",
                "without weights, each source is drawn from as often as its number of prompts",
            );
        }

        let sum: f64 = sources.iter().filter_map(|source| source.weight).sum();
        for (index, source) in sources.iter().enumerate() {
            if let Some(weight) = source.weight.filter(|weight| weight / sum < SMALLEST_SHARE) {
                self.fail(
                    &[&format!("data.train.{index}.weight"), "data.train"],
                    format!(
                        "the weight {weight} of a source is less than a thousandth of the sum of all weights, {sum}"
                    ),
                    "is hardly ever drawn",
                    &format!("give it at least {:.3}, or take it out", sum * SMALLEST_SHARE),
                );
            }
        }
    }

    fn judge_answer(&mut self, key: &str, answer: &JudgeAnswer) {
        let problem = match answer {
            JudgeAnswer::YesNo => return,
            JudgeAnswer::Number { min, max } => {
                let right = min < max && (max - min).is_finite();
                (!right).then(|| format!("min = {min:?} and max = {max:?}, expected min below max"))
            }
            JudgeAnswer::Label { labels } => {
                // As they are compared: without signs, and in small letters.
                let words = |name: &str| {
                    let words = name.split(|c: char| !c.is_alphanumeric());
                    words
                        .filter(|word| !word.is_empty())
                        .collect::<Vec<_>>()
                        .join(" ")
                        .to_lowercase()
                };
                if labels.len() < 2 {
                    return self.fail(
                        &[key],
                        format!("{key}.labels has {} labels, expected at least 2", labels.len()),
                        "nothing to choose from",
                        "`labels = { right = 1.0, wrong = 0.0 }`",
                    );
                }
                let wrong = labels.iter().find(|(name, credit)| {
                    let same = labels.keys().filter(|other| words(other) == words(name)).count();
                    !(0.0..=1.0).contains(*credit) || words(name).is_empty() || same > 1
                });
                wrong.map(|(name, credit)| {
                    format!("{name:?} = {credit:?}, expected a word of its own with a credit from 0 to 1")
                })
            }
        };
        if let Some(problem) = problem {
            self.fail(
                &[key],
                format!("{key} has {problem}"),
                "gives no credit",
                "`{ kind = \"number\", min = 0, max = 10 }` or `{ kind = \"label\", labels = { right = 1.0, wrong = 0.0 } }`",
            );
        }
    }

    fn source_rewards(&mut self, sources: &[TrainSource]) {
        let recipe = self.recipe;
        for (index, source) in sources.iter().enumerate() {
            let Some(kind) = &source.reward else { continue };
            let key = format!("data.train.{index}.reward");
            self.reward_kind(&key, kind);
            if kind.asks_environment() {
                self.fail(
                    &[&key, "data.train"],
                    "the reward of a source is that of the environment, which all prompts have"
                        .into(),
                    "belongs to [reward]",
                    "write it into `[reward]`",
                );
            }
        }

        // The parts of one reward are normalised over a step.
        let own = sources.iter().filter(|source| source.reward.is_some()).count();
        if own > 0 && matches!(recipe.advantage, Advantage::Gdpo { .. }) {
            self.fail(
                &["advantage.kind", "data.train"],
                "advantage.kind is \"gdpo\", expected one `[reward]` for all of data.train".into(),
                "needs the same parts everywhere",
                "take the rewards out of data.train, or another kind of advantage",
            );
        }

        let others = recipe.data.heldout.is_some() || !recipe.eval.sets.is_empty();
        if own == sources.len() && others && recipe.reward.kind.is_none() {
            self.fail(
                &["data.heldout", "eval.sets", "data.train"],
                "data.heldout and eval.sets are judged by `[reward]`, expected a `kind` in it"
                    .into(),
                "who judges these?",
                "add `[reward]` with a `kind`; the rewards of data.train are for its own prompts",
            );
        }
    }

    fn reward(&mut self) {
        let reward = &self.recipe.reward;
        if let Some(kind) = &reward.kind {
            self.reward_kind("reward", kind);
        }

        if let Some(stop) = &reward.stop
            && stop.scale.is_some() == stop.replace.is_some()
        {
            let (what, label) = match stop.scale {
                Some(_) => ("both `scale` and `replace`", "one too many"),
                None => ("neither `scale` nor `replace`", "no penalty"),
            };

            self.fail(
                &["reward.stop.replace", "reward.stop"],
                format!("[reward.stop] has {what}, expected one of them"),
                label,
                "`scale` multiplies the reward, `replace` takes its place",
            );
        }

        if let Some(LengthPenalty { target, free_factor, max_cut, .. }) = reward.length {
            let longest = self.recipe.rollout.max_completion_tokens;
            if max_cut > 0.0 && free_factor * target as f64 >= longest as f64 {
                self.fail(
                    &["reward.length.target", "rollout.max_completion_tokens"],
                    format!(
                        "reward.length leaves target × free_factor = {target} × {free_factor:?} \
                         tokens free, expected less than rollout.max_completion_tokens = \
                         {longest}"
                    ),
                    "no completion would be too long",
                    "lower `target`, or set `max_cut = 0.0` so that only `truncation_cut` counts",
                );
            }
        }

        if reward.right <= reward.wrong {
            self.fail(
                &["reward.right", "reward.wrong"],
                format!(
                    "reward.right is {:?}, expected more than reward.wrong = {:?}",
                    reward.right, reward.wrong
                ),
                "would teach wrong answers",
                "the usual pairs are 1.0 and -1.0, or 1.0 and 0.0",
            );
        }
    }

    /// Checks the options of the verifier in the table at `path`.
    fn reward_kind(&mut self, path: &str, kind: &RewardKind) {
        let key = |name: &str| format!("{path}.{name}");

        match kind {
            RewardKind::Regex { pattern, group, matches, tail } => {
                let regex = |group| {
                    let pattern = pattern.clone();
                    Regex::new(RegexOptions { pattern, group, matches: *matches, tail: *tail })
                };

                if let Err(error) = regex(None) {
                    // The crate's error is a picture of the pattern, with the reason below it.
                    let words = match error {
                        RewardError::Pattern { problem, .. } => problem,
                        other => other.to_string(),
                    };
                    let reason = words.lines().last().unwrap_or_default();
                    let reason = reason.trim().trim_start_matches("error: ");
                    self.fail(
                        &[&key("pattern")],
                        format!("{} is not a regular expression: {reason}", key("pattern")),
                        "can't be used",
                        "'single quotes' keep backslashes as they are",
                    );
                } else if let Some(group) = *group
                    && regex(Some(RegexGroup::Number(group))).is_err()
                {
                    self.fail(
                        &[&key("group")],
                        format!("{} is {group}, which the pattern does not have", key("group")),
                        "no such group",
                        "0 is the whole match, 1 the group of the first opening bracket",
                    );
                }
            }
            RewardKind::Format {
                think: false,
                boxed: false,
                answer_line: false,
                nothing_after: false,
            } => self.fail(
                &[&key("kind")],
                format!("[{path}] of kind \"format\" asks for nothing"),
                "would score nothing",
                "set one of `think`, `boxed`, `answer_line` and `nothing_after` to true",
            ),
            RewardKind::Command { program, .. } => self.program(&key("program"), program),
            RewardKind::Code(CodeOptions { command, checker, .. }) => {
                self.program(&key("command"), command);
                self.program(&key("checker"), checker);
            }
            RewardKind::Judge { answer, servers, .. } => {
                self.judge_answer(&key("answer"), answer);
                self.no_server_twice(&key("servers"), servers, "name each server once");
            }
            RewardKind::Model { scale, offset, .. }
                if *scale <= 0.0 || !(scale + offset).is_finite() =>
            {
                self.fail(
                    &[&key("scale"), path],
                    format!(
                        "{} is {scale:?} and {} is {offset:?}, expected a scale above 0 and a \
                         finite sum of both",
                        key("scale"),
                        key("offset")
                    ),
                    "would not keep the order of the scores",
                    "a score is multiplied by `scale`, and `offset` is added",
                );
            }
            RewardKind::Weighted { parts } => {
                for (index, part) in parts.iter().enumerate() {
                    let path = format!("{path}.parts.{index}");
                    if parts[..index].iter().any(|other| other.name == part.name) {
                        self.fail(
                            &[&format!("{path}.name")],
                            format!("reward.parts has two parts named \"{}\"", part.name),
                            "the second of that name",
                            "every part has a metric of its own name: rename one of the two",
                        );
                    }
                    if !Weighted::allows(&part.name) {
                        self.fail(
                            &[&format!("{path}.name")],
                            format!(
                                "reward.parts has a part named {:?}, expected a name without `/` that is neither \
                                 `shaping` nor `credit`",
                                part.name
                            ),
                            "the name of something else",
                            "`/` marks a part of a part, and advantages have parts of these two names: rename it",
                        );
                    }

                    self.reward_kind(&path, &part.kind);
                }
            }
            _ => {}
        }
    }

    /// Checks the words of a program. The first may be a path, and is checked as the others are.
    fn program(&mut self, key: &str, program: &[String]) {
        if program.first().is_some_and(String::is_empty) {
            self.fail(
                &[key],
                format!("{key} begins with an empty text, expected a program"),
                "names no program",
                "write the program and its arguments, such as [\"python3\", \"judge.py\"]",
            );
        }

        // A script may be one of the further words, with its lines and tabs.
        let stray = |c: &char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
        for (index, word) in program.iter().enumerate().skip(1) {
            if let Some(found) = word.chars().find(stray) {
                self.fail(
                    &[&format!("{key}.{index}")],
                    format!(
                        "{key}.{index} has the control character {found:?} in it, expected a text \
                         without any but line ends and tabs"
                    ),
                    "no argument for a program",
                    "'single quotes' keep backslashes as they are",
                );
            }
        }
    }

    fn overlong(&mut self) {
        let overlong = &self.recipe.reward.overlong;
        let longest = self.recipe.rollout.max_completion_tokens;

        if overlong.buffer > longest {
            self.fail(
                &["reward.overlong.buffer", "rollout.max_completion_tokens"],
                format!(
                    "reward.overlong.buffer is {}, expected at most rollout.max_completion_tokens \
                     = {longest}",
                    overlong.buffer
                ),
                "longer than a completion",
                "the punishment grows over a completion's last `buffer` tokens: a quarter is usual",
            );
        } else if overlong.buffer == 0 && overlong.penalty > 0.0 {
            self.fail(
                &["reward.overlong.penalty", "reward.overlong.buffer"],
                format!(
                    "reward.overlong.penalty is {:?} with a buffer of 0, expected a longer buffer",
                    overlong.penalty
                ),
                "would punish nothing",
                &format!("add a buffer, such as `buffer = {}`", (longest / 4).max(1)),
            );
        }
    }

    /// Refuses keys that are set without effect, even if they have their defaults: a user who writes
    /// `critic.kind = "head"` believes that there is a critic.
    fn unused_keys(&mut self) {
        for UnusedKey { key, switches, needs } in self.recipe.unused_keys() {
            // A user who sets `sft.steps` to 0 wants the table to be inactive, most often for one run with
            // --set.
            let rests = switches.contains(&"sft.steps") && self.find("sft.steps").is_some();

            let name = match self.find(&key) {
                None => continue,
                Some(_) if rests => continue,
                Some(value) if value.get_ref().is_table() => format!("[{key}]"),
                Some(_) => key.clone(),
            };

            // --set knows no name for a key inside a list.
            let settable = !key.split('.').any(|part| part.parse::<usize>().is_ok());
            let by_set = if settable { format!(" (`--set {key}=` does)") } else { String::new() };
            let remedy = format!("remove it{by_set}, or make that condition true");

            let keys: Vec<&str> =
                std::iter::once(key.as_str()).chain(switches.iter().copied()).collect();

            self.fail(
                &keys,
                format!("{name} is set, expected only with {needs}"),
                "would change nothing",
                &remedy,
            );
        }
    }

    /// Refuses a decay without a step: the learning rate would rise until the end of the run.
    fn schedule(&mut self) {
        let Recipe { optim, train, .. } = self.recipe;
        let steps = self.recipe.policy_steps();

        if optim.schedule != Schedule::Constant && optim.warmup_steps >= steps {
            self.fail(
                &["optim.schedule", "optim.warmup_steps", "train.steps", "critic.warmup_steps"],
                format!(
                    "optim.schedule has no step to decay over: the learning rate rises for \
                     optim.warmup_steps = {} of {steps} steps of the policy, and train.steps is {}",
                    optim.warmup_steps, train.steps
                ),
                "would change nothing",
                "lower optim.warmup_steps, or raise train.steps",
            );
        }
    }

    fn mini_batch(&mut self) {
        let mini_batch = self.recipe.train.mini_batch;
        let prompts = self.recipe.sampling.prompts_per_step;
        let group = self.recipe.rollout.group_size;
        let step = prompts.saturating_mul(group);

        if mini_batch > step {
            let by_default =
                if self.find("train.mini_batch").is_some() { "" } else { " by default" };
            self.fail(
                &["train.mini_batch", "sampling.prompts_per_step", "rollout.group_size"],
                format!(
                    "train.mini_batch is {mini_batch}{by_default}, expected at most \
                     prompts_per_step × group_size = {prompts} × {group} = {step}"
                ),
                "a step has fewer completions",
                &format!("`mini_batch = {step}` under [train] makes one update of a step"),
            );
        }
    }

    fn adaptive(&mut self) {
        if let Some(AdaptiveUpdates { n_min, n_max, .. }) = self.recipe.train.adaptive
            && n_min > n_max
        {
            self.fail(
                &["train.adaptive.n_min", "train.adaptive.n_max"],
                format!("train.adaptive.n_min is {n_min}, expected at most n_max = {n_max}"),
                "the fewest are more than the most",
                "raise `n_max` or lower `n_min`",
            );
        }
    }

    /// Checks the names of evaluation sets. They become names of metrics, and no two sets may share one.
    fn eval_sets(&mut self) {
        let sets = &self.recipe.eval.sets;
        let names: Vec<String> = sets.iter().map(|set| set.name.clone()).collect();
        let taken = ["train", "heldout", "initial", "difficulty", "data_source"];

        for (index, message, label) in bad_names("eval.sets", "set", &names, &taken) {
            self.fail(
                &[&format!("eval.sets.{index}.name")],
                message,
                label,
                "give it another name",
            );
        }
    }

    fn observe(&mut self) {
        let phrases = &self.recipe.observe.phrases;
        // Phrases are counted whatever their case, so two that differ in case alone would be one.
        let lowercase: Vec<String> = phrases.iter().map(|phrase| phrase.to_lowercase()).collect();
        let duplicate =
            (0..lowercase.len()).find(|&index| lowercase[..index].contains(&lowercase[index]));

        if let Some(index) = duplicate {
            self.fail(
                &["observe.phrases"],
                format!("observe.phrases has \"{}\" twice", phrases[index]),
                "the same phrase, whatever its case",
                "remove one of them",
            );
        }
    }

    /// Reports a problem. It blames the first of `keys` that is in the text, with the value that it has there. If all
    /// of them have their defaults, it blames the first of their tables that is there.
    fn fail(&mut self, keys: &[&str], message: String, label: &str, help: &str) {
        // A key with its default is not in the text, although its table may be.
        let tables = keys.iter().filter_map(|key| Some(key.rsplit_once('.')?.0));
        let candidates = keys.iter().copied().chain(tables);
        let span = candidates.filter_map(|key| self.find(key)).map(Spanned::span).next();

        self.problems.push(Problem {
            label: if span.is_some() { label.into() } else { String::new() },
            span: span.unwrap_or_default(),
            keys: keys.iter().map(|key| key.split('.').map(str::to_owned).collect()).collect(),
            message,
            help: Some(help.to_owned()),
        });
    }

    fn find(&self, key: &str) -> Option<&Spanned<DeValue<'_>>> {
        let (tables, last_name) = key.rsplit_once('.').unwrap_or(("", key));
        let mut table = self.document;
        let mut names = tables.split('.').filter(|name| !name.is_empty()).peekable();

        while let Some(name) = names.next() {
            let mut value = table.get(name)?.get_ref();
            // The name after a list is the index of one of its entries.
            if let (Some(items), Some(index)) = (value.as_array(), names.peek()) {
                value = items.get(index.parse::<usize>().ok()?)?.get_ref();
                names.next();
            }
            table = value.as_table()?;
        }

        table.get(last_name)
    }
}

/// Lists the names of a list's tables that can't be parts of a metric's name, or that an earlier table has, each with its
/// index, a message and a label.
fn bad_names(
    key: &str,
    what: &str,
    names: &[String],
    taken: &[&str],
) -> Vec<(usize, String, &'static str)> {
    let but = match taken {
        [] => String::new(),
        taken => format!(", and none of {}", taken.join(", ")),
    };

    let check = |(index, name): (usize, &String)| {
        if !name.chars().all(is_name_letter) || name.is_empty() || taken.contains(&name.as_str()) {
            let message = format!(
                "{key} has a {what} named {name:?}, expected letters, digits, -, _ and .{but}"
            );
            return Some((index, message, "not a name for a metric"));
        }
        names[..index]
            .contains(name)
            .then(|| (index, format!("{key} has two {what}s named {name:?}"), "named once before"))
    };
    names.iter().enumerate().filter_map(check).collect()
}
