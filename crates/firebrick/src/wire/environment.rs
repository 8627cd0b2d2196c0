//! The environment that a recipe names, and how the policy talks with it.

use std::{
    env,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc::Sender,
    },
    thread,
    time::Duration,
};

use firebrick_core::{
    Environment, EnvironmentFailed, Key, Prompt, TokenId, Verifier, WorkedExample,
};
use firebrick_data::{Problem, PromptFormat, Question, Tokenizer};
use firebrick_environments::{Calculator, Guessing, OpenEnv, Settings, Words};
use firebrick_reward::OfConversations;
use firebrick_rollout::{Conversing, Hearing, RolloutEngine, Turns};

use crate::{
    Error,
    recipe::{self, EnvironmentKind, Recipe, Role, Task},
};

/// Episodes that are begun at once for the prompts that they open with.
const OPENED_AT_ONCE: usize = 16;

/// Failures of an environment that a run tells; the others are counted.
const TOLD: usize = 5;

/// The environment; none where a completion is one turn.
///
/// # Errors
/// When an address or a template is none, or the key is not in the environment of this process.
pub(super) fn environment(
    recipe: &Recipe,
    said: &Sender<String>,
) -> Result<Option<Arc<dyn Environment>>, Error> {
    let recipe::Environment { kind, servers, sessions, reset, action, heard, opening, .. } =
        recipe.environment.clone();
    let key = match &recipe.environment.key_variable {
        None => None,
        Some(name) => Some(key("environment.key_variable", name)?),
    };
    let said = said.clone();
    Ok(match kind {
        EnvironmentKind::None => None,
        EnvironmentKind::Guessing => Some(Arc::new(Guessing)),
        EnvironmentKind::Calculator => Some(Arc::new(Calculator)),
        EnvironmentKind::OpenEnv => {
            let settings = Settings {
                servers,
                sessions,
                words: Words { reset, action, heard, opening },
                time_limit: Duration::from_secs_f64(recipe.environment.time_limit),
                patience: Duration::from_secs_f64(recipe.environment.patience),
                key,
                asks: recipe.data.task == Some(Task::Environment),
            };
            Some(Arc::new(OpenEnv::new(settings, move |line| drop(said.send(line)))?))
        }
    })
}

/// The key in an environment variable, which the recipe's key `setting` names.
pub(super) fn key(setting: &'static str, variable: &str) -> Result<Key, Error> {
    match env::var(variable) {
        Ok(word) if !word.is_empty() => Ok(Key::new(word)),
        _ => Err(Error::NoKey { setting, variable: variable.into() }),
    }
}

/// Every character that the environment may say and a task's own alphabet may lack.
pub(super) fn alphabet(kind: EnvironmentKind) -> &'static str {
    match kind {
        EnvironmentKind::Guessing => Guessing::ALPHABET,
        EnvironmentKind::Calculator => Calculator::ALPHABET,
        EnvironmentKind::None | EnvironmentKind::OpenEnv => "",
    }
}

/// The policy's side of a conversation.
pub(super) struct Talking {
    environment: Arc<dyn Environment>,
    tokenizer: Arc<Tokenizer>,
    hearing: Arc<dyn Hearing>,
    turns: Turns,
}

impl Talking {
    /// # Errors
    /// When a text that is to end a turn is not one token, or the chat template knows no such conversation.
    pub(super) fn new(
        recipe: &Recipe,
        environment: Arc<dyn Environment>,
        tokenizer: &Arc<Tokenizer>,
        format: PromptFormat,
    ) -> Result<Self, Error> {
        let recipe::Environment {
            max_turns, max_turn_tokens, max_heard_tokens, stop, role, ..
        } = &recipe.environment;
        let token = |text: &String| match tokenizer.encode(text, false)?[..] {
            [token] => Ok(token),
            ref tokens => Err(Error::Stop { text: text.clone(), tokens: tokens.len() }),
        };
        let turns = Turns {
            max_turns: *max_turns,
            max_turn_tokens: max_turn_tokens.unwrap_or(usize::MAX),
            max_heard_tokens: *max_heard_tokens,
            stop: stop.iter().map(token).collect::<Result<_, Error>>()?,
        };
        // Before a run, and not at its first reply.
        format.reply("", role.name())?;
        let hearing = Heard { tokenizer: tokenizer.clone(), format, role: *role };
        let (tokenizer, hearing) = (tokenizer.clone(), Arc::new(hearing));
        Ok(Talking { environment, tokenizer, hearing, turns })
    }

    /// The engine, whose completions then talk with the environment.
    pub(super) fn engine<M: 'static>(
        self,
        engine: Box<dyn RolloutEngine<M>>,
    ) -> Box<dyn RolloutEngine<M>> {
        let Talking { environment, tokenizer, hearing, turns } = self;
        Box::new(Conversing::new(engine, environment, tokenizer, hearing, turns))
    }

    /// Has the environment say its part in examples that the warm-up imitates: what it says is read and not imitated.
    ///
    /// # Errors
    /// When it says something else than an example has.
    pub(super) fn play(
        &self,
        examples: &mut [WorkedExample],
        prompts: &[Prompt],
    ) -> Result<(), Error> {
        for (example, prompt) in examples.iter_mut().zip(prompts) {
            self.play_one(example, prompt)?;
        }
        Ok(())
    }

    fn play_one(&self, example: &mut WorkedExample, prompt: &Prompt) -> Result<(), Error> {
        use firebrick_core::Detokenizer as _;
        let WorkedExample { completion, mask, .. } = example;
        let text = |tokens: &[TokenId]| self.tokenizer.detokenize(tokens);
        let fault = |problem: String| Error::Worked { prompt: prompt.text.clone(), problem };
        let failed = |failed: EnvironmentFailed| fault(failed.to_string());
        let mut episode = None;
        let mut begin = 0;
        for _ in 0..self.turns.max_turns {
            let rest = &completion[begin..];
            let stopped = rest.iter().position(|token| self.turns.stop.contains(token));
            let end = stopped.map_or(rest.len(), |at| at + 1).min(self.turns.max_turn_tokens);
            // The last turn needs no answer: it ends with the example.
            if end + 1 >= rest.len() {
                return Ok(());
            }
            let episode = match &mut episode {
                Some(episode) => episode,
                none => none.insert(self.environment.begin(prompt).map_err(failed)?),
            };
            let reply = episode.step(&text(&rest[..end])).map_err(failed)?;
            let heard = self.hearing.tokens(&reply.heard, rest[..end].last().copied());
            let heard = heard.map_err(fault)?;
            if reply.over || !rest[end..].starts_with(&heard) {
                return Err(fault(format!(
                    "the environment says {:?} after {:?}, and the solution goes on with {:?}",
                    reply.heard,
                    text(&rest[..end]),
                    text(&rest[end..])
                )));
            }
            let begins = begin + end;
            begin = begins + heard.len();
            mask[begins..begin].fill(false);
        }
        Ok(())
    }
}

/// The verifier, for completions whose environment may have failed.
pub(super) fn sound(verifier: Box<dyn Verifier>, said: Sender<String>) -> Box<dyn Verifier> {
    let told = AtomicUsize::new(0);
    Box::new(OfConversations::new(verifier, move |why| {
        if told.fetch_add(1, Ordering::Relaxed) < TOLD {
            let _ = said.send(format!("a completion has no verdict: {why}")); // A run that is over hears nothing.
        }
    }))
}

/// Problems that are the openings of episodes: those of the numbers from `first` on.
///
/// # Errors
/// When an episode can't begin, or begins without a word.
pub(super) fn openings(
    environment: &dyn Environment,
    first: u64,
    count: usize,
) -> Result<Vec<Problem>, Error> {
    let next = Mutex::new(first..first + count as u64);
    let problem = |id: u64| {
        let prompt = Prompt { id, reference: id.to_string(), ..Prompt::default() };
        let episode = environment
            .begin(&prompt)
            .map_err(|failed| Error::Opening { id, problem: failed.to_string() })?;
        if episode.opening().is_empty() {
            let problem = "it begins without a word, expected the prompt".into();
            return Err(Error::Opening { id, problem });
        }
        let question = Question::Text(episode.opening().to_owned());
        Ok(Problem {
            id,
            question,
            reference: id.to_string(),
            worked: None,
            difficulty: String::new(),
        })
    };
    let take = || next.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || std::iter::from_fn(take).map(problem).collect::<Result<Vec<_>, Error>>();
    let threads = environment.sessions().clamp(1, OPENED_AT_ONCE);
    let parts = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
    });
    let mut problems = parts?.concat();
    problems.sort_by_key(|problem| problem.id);
    Ok(problems)
}

/// An environment's words as the policy reads them.
struct Heard {
    tokenizer: Arc<Tokenizer>,
    format: PromptFormat,
    role: Role,
}

impl Hearing for Heard {
    fn tokens(&self, words: &str, last: Option<TokenId>) -> Result<Vec<TokenId>, String> {
        let text = self.format.reply(words, self.role.name());
        let tokens = text.and_then(|text| self.tokenizer.encode(&text, false));
        let mut tokens = tokens.map_err(|error| format!("the policy can't read it: {error}"))?;
        // The end of the policy's message is the policy's own, where it wrote it.
        if self.format.chat.is_some() && last.is_some() && tokens.first().copied() == last {
            tokens.remove(0);
        }
        Ok(tokens)
    }

    fn between(&self) -> &str {
        if self.format.chat.is_some() { "\n" } else { "" }
    }
}
