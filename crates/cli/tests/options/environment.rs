//! The options of `[environment]`, which choose whom the policy talks with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    bench::{Bench, CHECKPOINT, Case, LETTERS, TALK, TINY, case, default},
    made::{Completion, Run},
};

const TURNS: &str = "environment/turns_mean";
const OBSERVED: &str = "environment/observation_tokens_mean";

/// A game for a new model, without SFT.
const GAME: &[&str] =
    &["environment.max_observation_tokens=16", "sft={}", "train.steps=1", "sampling.dynamic=false"];
/// Like `GAME`, for the options of the game.
const GUESSES: &[&str] = &[
    "environment.max_observation_tokens=16",
    "sft={}",
    "train.steps=1",
    "sampling.dynamic=false",
    "data.task={kind='guessing',numbers=10}",
    "environment.kind=guessing",
    "environment.max_turn_tokens=1",
];
const SUMS: &[&str] = &[
    "environment.max_observation_tokens=16",
    "sft={}",
    "train.steps=1",
    "environment.kind=calculator",
];
const ONCE: &[&str] = &["train.steps=1", "sampling.dynamic=false"];
const CHAT: &[&str] = &["environment.kind=guessing", "environment.max_turn_tokens=2"];
const NOBODY: &str = "environment.servers=[\"http://127.0.0.1:9\"]";
const IMPATIENT: &str = "environment.patience=0.3";

pub(crate) const CASES: &[Case] = &[
    default(&["environment.kind=none"], LETTERS, &[], |run| {
        assert!(run.values(TURNS).is_empty());
    }),
    case(
        &["data.task={kind='guessing',numbers=6}", "environment.kind=guessing"],
        TINY,
        GAME,
        |run| {
            for done in run.first_completions() {
                let range = done.prompt.trim_end_matches(':').split_once('-').unwrap();
                let [low, high, secret] = [range.0, range.1, &done.reference]
                    .map(|number| number.parse::<u32>().unwrap());
                assert!(low <= secret && secret <= high && high < 6);
                assert!(done.verdict != "right" || done.text.ends_with(&secret.to_string()));
            }
            assert!(run.first(TURNS) > 1.0);
        },
    ),
    case(&["environment.kind=calculator", "environment.stop=[\"=\"]"], TINY, GAME, |run| {
        let said: String =
            run.first_completions().into_iter().map(|done| done.text + " ").collect();
        // The game answers with a value, or says that there is none.
        let told = ["=0", "=1", "=2", "=3", "=4", "=5", "=6", "=7", "=8", "=9", "=?"];
        assert!(told.iter().any(|told| said.contains(told)), "{said}");
        assert!(run.first(OBSERVED) > 0.0);
    }),
    case(&["environment={kind='own',max_observation_tokens=16}"], LETTERS, &[], |run| {
        run.fails(2, "environment.kind is \"own\", but the program brings no environment");
    }),
    default(&["environment.kind=openenv"], TALK, ONCE, |run| {
        assert!(run.first(TURNS) > 1.0);
        assert!(!run.bench.games.seen().is_empty());
    }),
    case(&["environment.max_turns=2"], TINY, GUESSES, |run| {
        assert!(run.first_completions().iter().all(|done| done.tokens <= 2));
        assert!((1.0..=2.0).contains(&run.first(TURNS)));
    }),
    case(&["environment.max_turn_tokens=2"], TINY, GUESSES.split_at(6).0, |run| {
        // A completion of six tokens is three turns then.
        assert!(run.first_completions().iter().any(|done| done.tokens == 6));
        // Some completions end earlier with the stop token.
        let turns = run.first(TURNS);
        assert!((2.0..4.0).contains(&turns), "{turns}");
    }),
    case(&["environment.max_observation_tokens=1"], TINY, GUESSES, |run| {
        assert!(run.first(OBSERVED) <= 1.0);
        assert!(run.first_completions().iter().all(|done| done.tokens <= 2));
    }),
    case(&["environment.stop=[\"+\"]"], TINY, SUMS, |run| {
        for Completion { text, .. } in run.first_completions() {
            assert!(text.find('+').is_none_or(|at| at + 1 == text.len()), "{text}");
        }
    }),
    case(&["environment.stop=[\"12\"]"], TINY, SUMS, |run| {
        run.fails(2, "environment.stop has \"12\", but no token of this model ends with this text");
    }),
    default(&["environment.role=user"], CHECKPOINT, CHAT, |run| {
        // The words of the template around a `?` are many more than that.
        let observed = run.first(OBSERVED);
        assert!(observed > 5.0, "{observed}");
    }),
    case(&["environment.role=tool"], CHECKPOINT, &["environment.kind=guessing"], |run| {
        run.fails(1, "Unknown role: tool");
    }),
    case(&[NOBODY], TALK, &["train.steps=1", IMPATIENT], |run| {
        run.fails(1, "no server of the environment could be used for 0 s");
        run.fails(1, "http://127.0.0.1:9: it refuses connections");
    }),
    default(&[IMPATIENT], TALK, &[NOBODY], |run| run.fails(1, "could be used for 0 s")),
    // The server plays at most eight games at once.
    case(&["environment.sessions=9"], TALK, ONCE, |run| {
        run.says("Server at capacity (CAPACITY_REACHED)");
    }),
    case(&["environment.reset={\"secret\": 7}"], TALK, ONCE, |run| {
        for done in run.first_completions() {
            assert_eq!(done.verdict == "right", done.text.ends_with('7'), "{}", done.text);
        }
    }),
    case(&["environment.action={\"message\": \"4\"}"], TALK, ONCE, |run| {
        let four = |done: &Completion| done.reference == "4";
        assert!(run.first_completions().iter().all(|done| (done.verdict == "right") == four(done)));
    }),
    case(&["environment.observation=s{{ observation.message }}"], TALK, ONCE, |run| {
        let done = run.first_completions();
        assert!(done.iter().any(|done| done.text.contains("s<")));
    }),
    case(&["environment.observation={{ observation.text }}"], TALK, ONCE, |run| {
        run.fails(1, "environment.observation: ");
        run.fails(1, "the observation has: message");
    }),
    case(&["environment.time_limit=1e-6"], TALK, &["train.steps=1", IMPATIENT], |run| {
        run.fails(1, "it gave no answer within 0.000001 s");
    }),
    case(&["environment.key_variable=FIREBRICK_NOBODY_SETS_THIS"], TALK, &[], |run| {
        run.fails(2, "environment.key_variable is \"FIREBRICK_NOBODY_SETS_THIS\"");
    }),
    case(&["data.task={kind='environment'}"], TALK_ALONE, ASKS, |run| {
        let done = run.first_completions();
        assert!(done.iter().all(|done| done.prompt.starts_with("Guess digit ")));
        // All completions of a group that find a secret find the same one.
        let mut secrets: BTreeMap<u64, BTreeSet<Option<char>>> = BTreeMap::new();
        for done in done.iter().filter(|done| done.verdict == "right") {
            secrets.entry(done.draw).or_default().insert(done.text.chars().last());
        }
        assert!(!secrets.is_empty() && secrets.values().all(|found| found.len() == 1));
    }),
    // The last tasks are held out, unless others are.
    case(&["data.task={kind='environment',split='digits'}"], TALK_ALONE, ASKS, |run| {
        assert!(run.prompts().iter().all(|prompt| prompt.ends_with(": digits.")));
        assert!(reset(run, "digits", 59));
        run.instead(&["data.task={kind='environment',split='test'}", "data.heldout_size=30"])
            .fails(
                1,
                "its split \"test\" has 30 tasks, expected more than the 30 of data.heldout_size",
            );
        run.instead(&["data.task={kind='environment',split='train'}"])
            .fails(1, "there is no split \"train\" among its tasks, but: digits, test");
    }),
    case(
        &["data.task={kind='environment',split='digits',heldout_split='test'}"],
        TALK_ALONE,
        ASKS,
        |run| {
            assert!(run.prompts().iter().all(|prompt| prompt.ends_with(": digits.")));
            assert!(reset(run, "test", 0));
        },
    ),
    case(&["environment.opening=Guess: {{ observation.message }}"], TALK_ALONE, ASKED, |run| {
        assert!(run.prompts().iter().all(|prompt| prompt.starts_with("Guess: Guess digit ")));
    }),
    default(&["reward={kind='environment'}"], TALK, ONCE, |run| {
        for done in run.first_completions() {
            let found = f64::from(u8::from(done.text.ends_with(&done.reference)));
            assert_eq!((done.credit, done.verdict == "right"), (found, found == 1.0));
        }
    }),
    case(&["reward={kind='environment',scale=0.5}"], TALK, ONCE, |run| {
        let done = run.first_completions();
        assert!(done.iter().all(|done| [0.0, 0.5].contains(&done.credit)));
        assert!(done.iter().any(|done| done.credit == 0.5));
    }),
    case(&["reward={kind='environment',offset=0.25}"], TALK, ONCE, |run| {
        let done = run.first_completions();
        assert!(done.iter().all(|done| [0.25, 1.0].contains(&done.credit)));
    }),
    case(&["reward={kind='environment',offset=0.25,threshold=0.25}"], TALK, ONCE, |run| {
        assert!(run.first_completions().iter().all(|done| done.verdict == "right"));
    }),
];

/// A recipe without data, so that a task can be tried.
const TALK_ALONE: &str = "talk-alone.toml";
const ASKS: &[&str] = &["train.steps=1", "sampling.dynamic=false"];
const ASKED: &[&str] =
    &["train.steps=1", "sampling.dynamic=false", "data.task={kind='environment'}"];

/// Returns whether the server has begun an episode of this task.
fn reset(run: &Run<'_>, split: &str, index: u64) -> bool {
    let task = |message: &String| {
        let message: Value = serde_json::from_str(message).unwrap();
        message["data"]["split"] == split && message["data"]["index"] == index
    };
    run.bench.games.seen().iter().any(task)
}

#[test]
fn an_environment_does_what_its_options_say() {
    Bench::new().try_all(CASES);
}
