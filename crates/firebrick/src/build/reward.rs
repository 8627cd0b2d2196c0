//! Builds the verifier and the shapers of a recipe's `[reward]`.

mod judge;
mod model;

use std::{
    path::Path,
    sync::{Arc, mpsc::Sender},
};

use burn::tensor::Device;
use firebrick_core::{RewardShaper, Verifier};
use firebrick_data::DateTime;
use firebrick_models::{Compute, Transform};
use firebrick_reward::{
    Command, CommandOptions, Overlong, PythonFunction, StopPenalty, StopProperly,
};
use firebrick_runs::AnswerLog;

use super::{judges::Judges, problems::generator};
use crate::{
    Error,
    recipe::{self, OfTask, Recipe, RewardKind, TeacherKind},
    source::{Sources, TOKEN},
};

/// What a verifier is built with besides the recipe's `[reward]`.
#[derive(Clone, Copy)]
pub(super) struct VerifierContext<'a> {
    /// Device of a reward model; without autodiff.
    pub(super) device: &'a Device,
    /// Matmul precision of a reward model.
    pub(super) compute: Compute,
    /// Finder of a reward model.
    pub(super) sources: &'a Sources,
    /// Date that chat templates may print.
    pub(super) now: DateTime,
    /// Sender of notes for the user.
    pub(super) notes: &'a Sender<String>,
    /// Folder of the run, which keeps what judges have answered; `None` if there is no run.
    pub(super) run_folder: Option<&'a Path>,
}

/// Builds the verifiers.
pub(super) fn judges(recipe: &Recipe, context: &VerifierContext) -> Result<Judges, Error> {
    let task = recipe.data.task.as_ref().and_then(generator);
    let task = task.as_ref().map(|task| OfTask { marker: task.marker() });
    let secrets = secrets(recipe);
    let answers = Arc::new(AnswerLog::new(context.run_folder.map(Path::to_owned)));
    let other = |kind| other(kind, &secrets, &answers, context);

    let mut judges = Judges::one(recipe.reward_kind().build(task, &other)?);
    let mut built = vec![recipe.reward_kind()];
    for source in recipe.train_sources() {
        let Some(kind) = &source.reward else { continue };
        // Data sets with the same reward share its verifier.
        let index = match built.iter().position(|other| other == kind) {
            Some(index) => index,
            None => {
                built.push(kind.clone());
                judges.add(kind.clone().build(None, &other)?)
            }
        };
        judges.assign(source.name(), index);
    }
    Ok(judges)
}

/// Returns the names of the environment variables that the run itself reads as secrets. Programs that it starts do
/// not get them.
fn secrets(recipe: &Recipe) -> Vec<String> {
    let keys = [&recipe.rollout.engine.key_variable, &recipe.environment.key_variable];
    let teachers = recipe.teacher_kinds().into_iter().filter_map(TeacherKind::servers);
    let keys = keys.into_iter().chain(teachers.map(|servers| &servers.key_variable));
    let keys = keys.flatten().cloned();
    let judges = recipe.reward_kinds();
    let judges = judges.iter().flat_map(RewardKind::key_variables).map(str::to_owned);
    keys.chain(judges).chain([TOKEN.to_owned()]).collect()
}

/// Builds a verifier that needs more than its options: a reward model, or a program, which does not get the variables
/// in `secrets`.
fn other(
    kind: RewardKind,
    secrets: &[String],
    answers: &Arc<AnswerLog>,
    context: &VerifierContext,
) -> Result<Box<dyn Verifier>, Error> {
    if let Some(judge) = judge::judge(&kind, answers, context.notes)? {
        return Ok(Box::new(judge));
    }
    match kind {
        RewardKind::Model { path, transform, scale, offset, threshold, batch_tokens } => {
            let sigmoid = transform == recipe::Transform::Sigmoid;
            let options = model::Options {
                folder: path,
                transform: Transform { scale, offset, sigmoid },
                threshold: threshold as f32,
                batch_tokens,
            };
            Ok(Box::new(model::verifier(options, context)?))
        }
        RewardKind::Command { program, time_limit, restarts, processes } => {
            let options = CommandOptions { program, time_limit, restarts, processes };
            let command = prepared(Command::new(options)?, secrets, context);
            command.start()?; // This fails before a run instead of at its first completion.
            Ok(Box::new(command))
        }
        RewardKind::Python { file, function, python, time_limit, restarts, processes } => {
            let options =
                CommandOptions { time_limit, restarts, processes, ..CommandOptions::default() };
            let function = PythonFunction { python, file, function };
            let judge = prepared(Command::python(function, options)?, secrets, context);
            judge.start()?;
            Ok(Box::new(judge))
        }
        kind => kind.build(None, &|kind| other(kind, secrets, answers, context)),
    }
}

/// Gives a judge everything but its program: it gets none of the variables in `secrets`, and what it prints and why it
/// fails become notes.
fn prepared(command: Command, secrets: &[String], context: &VerifierContext) -> Command {
    let notes = context.notes.clone();
    command.without(secrets.iter().cloned()).on_message(move |message| {
        let _ = notes.send(message.to_owned()); // A run that is over receives nothing.
    })
}

/// Builds the shapers of a group's rewards, in this order: first factors on the earned reward, and then the parts that
/// are subtracted whatever was earned.
pub(super) fn shapers(recipe: &Recipe) -> Vec<Box<dyn RewardShaper>> {
    let recipe::Reward { stop, length, overlong, .. } = &recipe.reward;
    let mut shapers: Vec<Box<dyn RewardShaper>> = Vec::new();
    if let Some(stop) = stop {
        let scale = StopPenalty::Scale(stop.scale.unwrap_or(1.0));
        let penalty = stop.replace.map_or(scale, StopPenalty::Replace);
        shapers.push(Box::new(StopProperly { penalty, form: stop.form }));
    }

    if let Some(length) = length {
        shapers.push(Box::new(*length));
    }

    if overlong.penalty != 0.0 || overlong.filter {
        shapers.push(Box::new(Overlong {
            max_completion_tokens: recipe.rollout.max_completion_tokens,
            buffer: overlong.buffer,
            penalty: overlong.penalty,
            filter: overlong.filter,
        }));
    }

    shapers
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::mpsc::channel};

    use firebrick_core::{Completion, FinishReason, Prompt, Score, Verdict};

    use super::*;

    fn recipe(data: &str, reward: &str) -> Recipe {
        let text = format!(
            "model.path = \"model\"\ndata.{data}\nrollout.max_completion_tokens = 100\n[reward]\n\
             {reward}\n"
        );
        Recipe::parse(Path::new("recipe.toml"), &text, &[]).unwrap().recipe
    }

    fn built_verifier(recipe: &Recipe, notes: &Sender<String>) -> Box<dyn Verifier> {
        let now = "2026-01-02T03:04:05".parse().unwrap();
        let device = Device::flex();
        let sources = Sources::here();
        let compute = Compute::F32;
        let context = VerifierContext {
            device: &device,
            compute,
            sources: &sources,
            now,
            notes,
            run_folder: None,
        };
        judges(recipe, &context).unwrap().into_verifier()
    }

    fn score(verifier: &dyn Verifier, reference: &str, text: &str) -> Score {
        let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
        let completion = Completion::of_text(text);
        verifier.score(&prompt, &completion)
    }

    #[test]
    fn every_kind_is_built_with_its_options() {
        const FILE: &str = "train = \"train.jsonl\"";
        const SUMS: &str = "task = { kind = \"addition\", digits = 2, worked = true }";
        const WORDS: &str = "task = { kind = \"sums\", digits = 2 }";
        const GAME: &str = "task = { kind = \"countdown\", numbers = 3 }";
        const PARTS: &str = r#"kind = "weighted"
            parts = [
                { name = "answer", weight = 3, kind = "exact", after = '####' },
                { name = "form", weight = 1, kind = "format", think = false },
            ]"#;

        for (data, reward, reference, right, wrong) in [
            (FILE, "", "72", "#### 72", "72"),
            (SUMS, "", "12", "7+5=;12", "12"),
            (SUMS, "kind = 'integer'\nmarker = '='", "12", "7+5=12", "7+5=;12"),
            (GAME, "", "3 7 25 : 96", "(25+7)*3", "25*3+21"),
            (GAME, "kind = 'countdown'\nuse_all = false", "3 7 25 : 75", "25*3", "25*7"),
            (FILE, "kind = 'math'", "1/2", r"It is $\boxed{0.5}$.", "It is 2."),
            (FILE, "kind = 'math'\nprecision = 2", "1/3", "It is 0.33.", "It is 0.32."),
            (FILE, "kind = 'math'\nextraction = 'boxed'", "4", r"\boxed{4}", "Answer: 4"),
            (FILE, "kind = 'math'\nreduced_fractions = true", "1/2", "1/2", "2/4"),
            (FILE, "kind = 'math'\nevaluated = true", "84", "25 + 59 = 84", "25 + 59"),
            (WORDS, "", "84", "It is 84.", "It is 25 + 59."),
            (SUMS, "kind = 'math'", "12", "7 + 5 = 12", "7 + 5"),
            (WORDS, "kind = 'math'", "84", "It is 84.", "It is 25 + 59."),
            (WORDS, "kind = 'math'\nevaluated = false", "84", "It is 25 + 59.", "It is 25."),
            (FILE, "kind = 'dapo'", "34", "Answer: $34$", "Answer: 34<end>"),
            (FILE, "kind = 'dapo'\nfork = 'stop_at_lt'", "34", "Answer: 34<end>", "34"),
            (FILE, "kind = 'dapo_strict_box'", "34", r"\boxed{34}", "Answer: 34"),
            (FILE, "kind = 'gsm8k'", "72", "#### 72", "It is 72"),
            (FILE, "kind = 'gsm8k_flexible'", "72", "It is 72", "It is 72.0"),
            (FILE, "kind = 'choice'", "B", "Answer: B", "Answer: b"),
            (FILE, "kind = 'choice'\nletters = ['X']\nlowercase = true", "X", "(x)", "(y)"),
            (FILE, "kind = 'exact'", "blue", " blue\n", "Blue"),
            (FILE, "kind = 'exact'\nafter = ':'\nignore_case = true", "blue", "is: Blue", "blue"),
            (FILE, "kind = 'exact'\nignore_whitespace = true", "a b", "ab", "a-b"),
            (FILE, "kind = 'regex'\npattern = '<(.*)>'", "blue", "<blue>", "blue"),
            (FILE, "kind = 'regex'\npattern = '<(.*)>'\ngroup = 0", "<blue>", "<blue>", "blue"),
            (FILE, "kind = 'regex'\npattern = '^a'\nmatches = true", "", "abc", "bca"),
            (FILE, "kind = 'regex'\npattern = 'a+'\ntail = 3", "aa", "aaabaa", "aabbb"),
            (FILE, "kind = 'format'\nthink = false", "", r"\boxed{1}", "1"),
            (FILE, "kind = 'format'\nboxed = false", "", "<think>1</think>2", r"\boxed{1}"),
            (FILE, PARTS, "72", r"\boxed{72} #### 72", "#### 72."),
        ] {
            let verifier = built_verifier(&recipe(data, reward), &channel().0);
            for (text, is_right) in [(right, true), (wrong, false)] {
                let verdict = score(verifier.as_ref(), reference, text).verdict;
                assert_eq!(verdict == Verdict::Right, is_right, "{reward}, {text:?}: {verdict:?}");
            }
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_program_judges_and_its_failure_is_told() {
        let program = r#"kind = "command"
            program = ["sh", "-c", '''read line; echo '{"id": 0, "score": 0.5}'; read line''']
            restarts = 0"#;
        let (notes_tx, notes) = channel();
        let verifier = built_verifier(&recipe("train = \"a.jsonl\"", program), &notes_tx);
        assert_eq!(score(verifier.as_ref(), "", "").credit, 0.5);
        assert!(notes.try_recv().is_err());

        assert_eq!(score(verifier.as_ref(), "", "").verdict, Verdict::Error);
        let why = verifier.score_all(&[]).unwrap_err();
        assert!(why.to_string().contains("is given up"), "{why}");
    }

    #[test]
    #[cfg(unix)]
    fn a_judge_gets_no_secret_of_the_run() {
        // Every process has these two variables, so no test has to set any.
        let judge = r#"kind = "command"
            program = ["sh", "-c", '''read l; echo '{"id": 0, "score": 1, "extracted": "'${HOME+home}${PATH+path}'"}'; read l''']
            [rollout.engine]
            kind = "vllm"
            servers = ["http://127.0.0.1:9"]
            key_variable = "HOME""#;
        let recipe = recipe("train = \"a.jsonl\"", judge);
        assert_eq!(secrets(&recipe), ["HOME", "HF_TOKEN"]);
        let verifier = built_verifier(&recipe, &channel().0);
        assert_eq!(score(verifier.as_ref(), "", "").extracted, "path");
    }

    #[test]
    fn shapers_come_in_the_order_that_is_written_down() {
        use firebrick_core::{Group, Reward, RewardScale};
        let completion = Completion::written(vec![0; 100], vec![0.0; 100], FinishReason::Length);
        let group =
            Group { prompt: Prompt::default(), completions: vec![completion], step: 1, draw: 0 };

        let shaped = |reward: &str, credit: f32| {
            let recipe = recipe("train = \"a.jsonl\"", reward);
            let scale = RewardScale { right: 1.0, wrong: -1.0 };
            let mut rewards: Vec<Reward> =
                vec![scale.reward(Score::partial(Verdict::Wrong, credit, ""))];
            shapers(&recipe).iter().for_each(|shaper| shaper.shape(&group, &mut rewards));
            rewards[0].reward
        };

        for (reward, of_right, of_wrong) in [
            ("", 1.0, -1.0),
            ("stop.scale = 0.5", 0.5, -1.5),
            ("stop = { scale = 0.5, form = 'as_written' }", 0.5, -0.5),
            ("stop.replace = 0.0", 0.0, -1.0),
            ("stop = { replace = 0.0, form = 'as_written' }", 0.0, 0.0),
            ("length.target = 40", 0.4, -1.6),
            ("length = { target = 40, max_cut = 0.0, form = 'as_written' }", 0.8, -0.8),
            ("overlong = { buffer = 10, penalty = 1.0 }\nstop.scale = 0.5", -0.5, -2.5),
        ] {
            let close = |a: f32, b: f32| (a - b).abs() < 1e-6;
            assert!(close(shaped(reward, 1.0), of_right), "{reward}: {}", shaped(reward, 1.0));
            assert!(close(shaped(reward, 0.0), of_wrong), "{reward}: {}", shaped(reward, 0.0));
        }
    }
}
