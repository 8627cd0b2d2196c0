//! Builds the environment that a recipe names, and the policy's side of the conversation with it.

use std::{
    collections::BTreeSet,
    env,
    sync::{Arc, Mutex, PoisonError, mpsc::Sender},
    thread,
    time::{Duration, Instant},
};

use firebrick_core::{
    Detokenizer as _, Environment, EnvironmentFailed, Key, Prompt, SftExample, TokenId, Verifier,
};
use firebrick_data::{Problem, PromptFormat, Question, Tokenizer, tokens_up_to};
use firebrick_environments::{Calculator, Guessing, OpenEnv, Settings, TaskSplits, Templates};
use firebrick_reward::OfConversations;
use firebrick_rollout::{MultiTurnEngine, Renderer, RolloutEngine, Turns};

use crate::{
    Error,
    recipe::{self, EnvironmentKind, Recipe, Role, Task},
};

/// Number of episodes that are begun concurrently, for the prompts that they open with.
const OPENED_AT_ONCE: usize = 16;

/// Maximum wait for an environment before a run has begun.
const PATIENCE: Duration = Duration::from_secs(30);

/// Pause before an environment without room is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// Limit of the reasons of failure that a run reports, each of them once. All failures are counted.
const MAX_WARNINGS: usize = 5;

/// Builds the environment, or takes the program's `own_environment` if the recipe says so. Returns `None` if a
/// completion is a single turn.
///
/// # Errors
/// When an address or a template is not valid, the key is not in the environment of this process, or the program's own
/// environment is missing or not requested.
pub(super) fn environment(
    recipe: &Recipe,
    own_environment: Option<Arc<dyn Environment>>,
    notes_tx: &Sender<String>,
) -> Result<Option<Arc<dyn Environment>>, Error> {
    if own_environment.is_some() && recipe.environment.kind != EnvironmentKind::Own {
        let part = "Session::environment";
        let needs = "with environment.kind = \"own\"";
        return Err(Error::NoEffect { part, needs });
    }

    let recipe::Environment {
        kind, servers, sessions, reset, action, observation, opening, ..
    } = recipe.environment.clone();
    let key = match &recipe.environment.key_variable {
        None => None,
        Some(name) => Some(key("environment.key_variable", name)?),
    };

    let notes_tx = notes_tx.clone();
    Ok(match kind {
        EnvironmentKind::None => None,
        EnvironmentKind::Own => Some(own_environment.ok_or(Error::NoEnvironment)?),
        EnvironmentKind::Guessing => Some(Arc::new(Guessing)),
        EnvironmentKind::Calculator => Some(Arc::new(Calculator)),
        EnvironmentKind::OpenEnv => {
            let settings = Settings {
                servers,
                sessions,
                templates: Templates { reset, action, observation, opening },
                time_limit: Duration::from_secs_f64(recipe.environment.time_limit),
                patience: Duration::from_secs_f64(recipe.environment.patience),
                key,
                asks: matches!(recipe.data.task, Some(Task::Environment { .. })),
                tasks: tasks(recipe),
            };
            Some(Arc::new(OpenEnv::new(settings, move |line| drop(notes_tx.send(line)))?))
        }
    })
}

/// Returns which of its own tasks the environment is to play, if the recipe names splits of them.
fn tasks(recipe: &Recipe) -> Option<TaskSplits> {
    let Some(Task::Environment { split: Some(train), heldout_split }) = &recipe.data.task else {
        return None;
    };
    Some(TaskSplits {
        train: train.clone(),
        heldout: heldout_split.clone(),
        train_size: recipe.data.train_size,
        heldout_size: recipe.data.heldout_size,
    })
}

/// Reads the key from an environment variable, which the recipe's key `setting` names.
pub(super) fn key(setting: &'static str, variable: &str) -> Result<Key, Error> {
    match env::var(variable) {
        Ok(word) if !word.is_empty() => Ok(Key::new(word)),
        _ => {
            // Whoever writes the key itself there does not want to see it again.
            let is_name = variable.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            let variable =
                if is_name { variable } else { "what was given, which is no variable's name" };
            Err(Error::NoKey { setting, variable: variable.into() })
        }
    }
}

/// Returns every character that the environment may say, because a task's own alphabet may lack some.
pub(super) fn alphabet(kind: EnvironmentKind) -> &'static str {
    match kind {
        EnvironmentKind::Guessing => Guessing::ALPHABET,
        EnvironmentKind::Calculator => Calculator::ALPHABET,
        EnvironmentKind::None | EnvironmentKind::OpenEnv | EnvironmentKind::Own => "",
    }
}

/// A policy's side of a conversation.
pub(super) struct ConversationSetup {
    environment: Arc<dyn Environment>,
    tokenizer: Arc<Tokenizer>,
    renderer: Arc<dyn Renderer>,
    turns: Turns,
}

impl ConversationSetup {
    /// # Errors
    /// When no token ends with a text that is to end a turn, or the chat template knows no such conversation.
    pub(super) fn new(
        recipe: &Recipe,
        environment: Arc<dyn Environment>,
        tokenizer: &Arc<Tokenizer>,
        format: PromptFormat,
    ) -> Result<Self, Error> {
        let recipe::Environment {
            max_turns,
            max_turn_tokens,
            max_observation_tokens,
            stop,
            role,
            ..
        } = &recipe.environment;

        let mut ends = Vec::new();
        for text in stop {
            // The token may begin with other text.
            let words = (0..tokenizer.rows() as TokenId)
                .map(|token| (token, tokenizer.detokenize(&[token])));
            let ending = words.filter(|(_, word)| word.ends_with(text)).map(|(token, _)| token);
            let known = ends.len();
            ends.extend(ending);
            if ends.len() == known {
                return Err(Error::Stop { text: text.clone() });
            }
        }

        let turns = Turns {
            max_turns: *max_turns,
            max_turn_tokens: max_turn_tokens.unwrap_or(usize::MAX),
            max_observation_tokens: *max_observation_tokens,
            stop: ends,
        };

        // This fails before a run instead of at its first reply.
        format.reply("", role.name())?;
        let renderer = ChatRenderer { tokenizer: tokenizer.clone(), format, role: *role };
        let tokenizer = tokenizer.clone();
        let renderer = Arc::new(renderer);
        Ok(ConversationSetup { environment, tokenizer, renderer, turns })
    }

    /// Wraps the engine, whose completions then talk with the environment.
    pub(super) fn engine<M: 'static>(
        self,
        engine: Box<dyn RolloutEngine<M>>,
    ) -> Box<dyn RolloutEngine<M>> {
        let ConversationSetup { environment, tokenizer, renderer, turns } = self;
        Box::new(MultiTurnEngine::new(engine, environment, tokenizer, renderer, turns))
    }

    /// Lets the environment say its part in the SFT examples: this text is read and not imitated.
    ///
    /// # Errors
    /// When the environment's text differs from the example's.
    pub(super) fn play(
        &self,
        examples: &mut [SftExample],
        prompts: &[Prompt],
    ) -> Result<(), Error> {
        for (example, prompt) in examples.iter_mut().zip(prompts) {
            self.play_one(example, prompt)?;
        }
        Ok(())
    }

    fn play_one(&self, example: &mut SftExample, prompt: &Prompt) -> Result<(), Error> {
        let SftExample { completion, mask, .. } = example;
        let text = |tokens: &[TokenId]| self.tokenizer.detokenize(tokens);
        let fault = |problem: String| Error::SftExample { prompt: prompt.text.clone(), problem };
        let failed = |failed: EnvironmentFailed| fault(failed.to_string());

        let mut episode = None;
        let mut begin = 0;
        for _ in 0..self.turns.max_turns {
            let rest = &completion[begin..];
            let stopped = rest.iter().position(|token| self.turns.stop.contains(token));
            let end = stopped.map_or(rest.len(), |at| at + 1).min(self.turns.max_turn_tokens);
            // The last turn needs no answer, because it ends with the example.
            if end + 1 >= rest.len() {
                return Ok(());
            }

            let episode = match &mut episode {
                Some(episode) => episode,
                none => none.insert(self.environment.begin(prompt).map_err(failed)?),
            };
            let reply = episode.step(&text(&rest[..end])).map_err(failed)?;
            let observation = self.renderer.tokens(&reply.observation, rest[..end].last().copied());
            let observation = observation.map_err(fault)?;

            // The example has to continue with the very tokens that a policy would read.
            if reply.over || !rest[end..].starts_with(&observation) {
                return Err(fault(format!(
                    "the environment says {:?} after {:?}, but the solution continues with {:?}",
                    reply.observation,
                    text(&rest[..end]),
                    text(&rest[end..])
                )));
            }

            let begins = begin + end;
            begin = begins + observation.len();
            mask[begins..begin].fill(false);
        }

        Err(fault(format!(
            "the solution takes more turns than environment.max_turns = {}",
            self.turns.max_turns
        )))
    }
}

/// Wraps the verifier, for completions whose environment may have failed.
pub(super) fn sound(verifier: Box<dyn Verifier>, notes_tx: Sender<String>) -> Box<dyn Verifier> {
    let warned = Mutex::new(BTreeSet::new());
    Box::new(OfConversations::new(verifier, move |why| {
        let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < MAX_WARNINGS && warned.insert(why.to_owned()) {
            // A run that is over receives nothing.
            let _ = notes_tx.send(format!("a completion has no verdict: {why}"));
        }
    }))
}

/// Makes problems from the openings of episodes, numbered starting at `first`.
///
/// # Errors
/// When an episode can't begin, or begins without any text.
pub(super) fn openings(
    environment: &dyn Environment,
    first: u64,
    count: usize,
) -> Result<Vec<Problem>, Error> {
    // Every thread takes its next number from this range, so an empty range ends them all.
    let next = Mutex::new(first..first + count as u64);
    let ids = || next.lock().unwrap_or_else(PoisonError::into_inner);

    let problem = |id: u64| {
        let prompt = Prompt { id, ..Prompt::default() };
        let since = Instant::now();
        let episode = loop {
            match environment.begin(&prompt) {
                // Before the run begins nobody is told of this wait, so it has a limit.
                Err(EnvironmentFailed::Busy(_)) if since.elapsed() < PATIENCE => {
                    thread::sleep(PAUSE);
                }
                begun => break begun,
            }
        };

        let question = episode.map(|episode| Question::Text(episode.opening().to_owned()));
        let problem = match question {
            Ok(question) if !question.is_blank() => {
                return Ok(Problem::new(id, question));
            }
            Ok(_) => "the episode begins without a word, expected the prompt".into(),
            Err(failed) => failed.to_string(),
        };

        // After one failure no more episodes are begun.
        *ids() = 0..0;
        Err(Error::Opening { id, problem })
    };

    let work =
        || std::iter::from_fn(|| ids().next()).map(problem).collect::<Result<Vec<_>, Error>>();
    let threads = environment.sessions().clamp(1, OPENED_AT_ONCE);

    let results = thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
    });

    let mut problems = results?.concat();
    problems.sort_by_key(|problem| problem.id);
    Ok(problems)
}

/// Warns the user if all openings are alike, so that nothing shows which episode was opened.
pub(super) fn tell_alike(problems: &[Problem], notes: &Sender<String>) {
    let Some((first, others)) = problems.split_first().filter(|(_, others)| !others.is_empty())
    else {
        return;
    };
    if others.iter().all(|problem| problem.question == first.question) {
        let _ = notes.send(
            "all episodes of the environment open with the same words: nothing shows whether each \
             prompt gets its own episode, and all completions of a group get the same one"
                .into(),
        );
    }
}

/// An environment's text as the policy reads it.
struct ChatRenderer {
    tokenizer: Arc<Tokenizer>,
    format: PromptFormat,
    role: Role,
}

impl Renderer for ChatRenderer {
    fn tokens(&self, words: &str, last: Option<TokenId>) -> Result<Vec<TokenId>, String> {
        let text = self.format.reply(words, self.role.name());
        let tokens = text.and_then(|text| self.tokenizer.encode(&text, false));
        let mut tokens =
            tokens.map_err(|error| format!("the policy can't read a reply: {error}"))?;

        // If the policy wrote the end of its message itself, the reply omits it.
        if self.format.chat.is_some() && last.is_some() && tokens.first().copied() == last {
            tokens.remove(0);
        }
        Ok(tokens)
    }

    /// Tries longer and longer prefixes of the text until one has more than `most` tokens.
    fn tokens_up_to(
        &self,
        words: &str,
        last: Option<TokenId>,
        most: usize,
    ) -> Result<Vec<TokenId>, String> {
        tokens_up_to(words, most, |words| self.tokens(words, last))
    }

    fn between(&self) -> &str {
        if self.format.chat.is_some() { "\n" } else { "" }
    }
}
