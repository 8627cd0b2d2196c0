//! Completions that talk: an engine with an environment keeps its promises, and servers of environments may
//! misbehave.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use burn::tensor::Device;
use firebrick_core::{
    Completion, Ended, Environment, EnvironmentFailed, Episode, FinishReason, Group, Key, Outcome,
    Prompt, Reply, Seed, TokenId,
};
use firebrick_environments::{Guessing, OpenEnv, Settings, Templates};
use firebrick_models::Decoder;
use firebrick_rollout::{
    GroupRequest, LocalEngine, MultiTurnEngine, Renderer, RequestId, RolloutEngine, RolloutError,
    SampleOn, Sampling, ScriptedEngine, Turns, Wait, generate,
};
use firebrick_stub::{GameOptions, Games, Trouble};
use firebrick_tests::tiny::{VOCABULARY, numbers, policy, request};

/// An environment whose replies are a function of the prompt, the number of the turn and the policy's words.
#[derive(Clone)]
struct Says<F>(F, usize);

struct Talk<F>(F, Prompt, usize);

type Answer = Result<Reply, EnvironmentFailed>;

impl<F: Fn(&Prompt, usize, &str) -> Answer + Clone + Send + Sync + 'static> Environment
    for Says<F>
{
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
        Ok(Box::new(Talk(self.0.clone(), prompt.clone(), 0)))
    }

    fn sessions(&self) -> usize {
        self.1
    }
}

impl<F: Fn(&Prompt, usize, &str) -> Answer + Send> Episode for Talk<F> {
    fn step(&mut self, action: &str) -> Answer {
        self.2 += 1;
        (self.0)(&self.1, self.2, action)
    }
}

fn says<F: Fn(&Prompt, usize, &str) -> Answer>(says: F) -> Says<F> {
    Says(says, usize::MAX)
}

/// Reads each word as the number of a token.
struct Numbers;

impl Renderer for Numbers {
    fn tokens(&self, words: &str, _: Option<TokenId>) -> Result<Vec<TokenId>, String> {
        let token = |word: &str| word.parse().map_err(|_| format!("`{word}` is no number"));
        words.split_whitespace().map(token).collect()
    }

    fn between(&self) -> &str {
        "|"
    }
}

const TURNS: Turns = Turns {
    max_turns: 8,
    max_turn_tokens: usize::MAX,
    max_observation_tokens: 100,
    stop: Vec::new(),
};

fn multi_turn<M: 'static>(
    engine: impl RolloutEngine<M> + 'static,
    environment: impl Environment + 'static,
    turns: Turns,
) -> MultiTurnEngine<M> {
    let engine = Box::new(engine);
    let environment = Arc::new(environment);
    MultiTurnEngine::new(engine, environment, numbers(), Arc::new(Numbers), turns)
}

fn with_sampling(mut request: GroupRequest, sampling: Sampling) -> GroupRequest {
    request.sampling = Arc::new(sampling);
    request
}

/// Writes the last token of the prompt plus 1, the next number, and a token that ends the turn.
fn counts(request: &GroupRequest, _: usize) -> Completion {
    let next = request.prompt.tokens.last().unwrap() + 1;
    let tokens = vec![next, next + 1, 0];
    Completion::written(tokens, vec![-0.5, -0.25, -0.125], FinishReason::Stop)
}

fn outcome(completion: &Completion) -> &Outcome {
    completion.outcome.as_ref().unwrap()
}

#[test]
fn ids_are_appended_and_never_tokenized_again() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    let engine = ScriptedEngine::new(move |request: &GroupRequest, index| {
        let of_index = (index == 0).then(|| request.prompt.tokens.clone());
        seen.lock().unwrap().extend(of_index);
        counts(request, index)
    });
    let environment = says(|_, turn, action| {
        Ok(match turn {
            1 => Reply { reward: Some(0.5), ..Reply::observation(format!("{} 30", action.len())) },
            _ => Reply::over("done", 2.0),
        })
    });

    let mut engine = multi_turn::<()>(engine, environment, TURNS);
    let asked = with_sampling(request(1, 3, 2), Sampling::greedy(16, vec![0]));
    let prompt = asked.prompt.tokens.clone();
    let mut finished = 0;
    let groups = generate(&mut engine, vec![asked], &mut |count| finished += count).unwrap();
    assert_eq!(finished, 2);

    // `counts` writes two numbers and a token that ends the turn. The environment answers with their length.
    let next = prompt[2] + 1;
    let action = format!("{next} {}", next + 1);
    let observation = action.len() as TokenId;
    for completion in &groups[0].completions {
        assert_eq!(completion.tokens, [next, next + 1, 0, observation, 30, 31, 32, 0]);
        assert_eq!(completion.mask, [true, true, true, false, false, true, true, true]);
        let logprobs = [-0.5, -0.25, -0.125, 0.0, 0.0, -0.5, -0.25, -0.125];
        assert_eq!(completion.logprobs, logprobs);
        assert_eq!(completion.text, format!("{action}|{observation} 30|31 32"));
        assert_eq!(completion.finish, FinishReason::Stop);
        let expected = Outcome {
            reward: Some(2.5),
            turns: 2,
            ended: Ended::Over,
            closing: "done".into(),
            failure: String::new(),
        };
        assert_eq!(*outcome(completion), expected);
    }

    // The second turn reads the ids of the first as they were written.
    let second = [&prompt[..], &[next, next + 1, 0, observation, 30]].concat();
    assert_eq!(*requests.lock().unwrap(), [prompt, second.clone(), second]);
}

#[test]
fn a_conversation_ends_at_each_of_its_limits() {
    let run = |turns: Turns, most: usize, reply: fn(usize) -> Answer| {
        let environment = says(move |_, turn, _: &str| reply(turn));
        let mut engine = multi_turn::<()>(ScriptedEngine::new(cut), environment, turns);
        let asked = with_sampling(request(1, 3, 1), Sampling::greedy(most, vec![0]));
        generate(&mut engine, vec![asked], &mut |_| {}).unwrap()[0].completions[0].clone()
    };

    /// Writes two tokens and a stop token, or as many of them as there is room for.
    fn cut(request: &GroupRequest, _: usize) -> Completion {
        let tokens: Vec<TokenId> =
            [7, 8, 0].into_iter().take(request.sampling.max_completion_tokens).collect();
        let finish = request.sampling.finish(&tokens).unwrap_or(FinishReason::Stop);
        Completion::written(tokens.clone(), vec![-1.0; tokens.len()], finish)
    }

    let on = |_| Ok(Reply::observation("40 41"));
    let case = |turns, most, reply| {
        let completion = run(turns, most, reply);
        let Outcome { turns, ended, failure, .. } = outcome(&completion).clone();
        (completion.count(), completion.tokens.len(), turns, ended, completion.finish, failure)
    };
    use Ended::{Observation, Over, Tokens};
    use FinishReason::{Length, Stop};
    let none = String::new;

    assert_eq!(
        case(Turns { max_turns: 3, ..TURNS }, 90, on),
        (9, 13, 3, Ended::Turns, Length, none())
    );
    // Seven tokens make two turns and one token more.
    assert_eq!(case(TURNS, 7, on), (7, 11, 3, Tokens, Length, none()));
    assert_eq!(
        case(Turns { max_turn_tokens: 1, ..TURNS }, 3, on),
        (3, 7, 3, Tokens, Length, none())
    );

    // A reply that is too long is not observed.
    let short = Turns { max_observation_tokens: 3, ..TURNS };
    assert_eq!(outcome(&run(short.clone(), 90, on)).closing, "40 41");
    assert_eq!(case(short, 90, on), (6, 8, 2, Observation, Length, none()));

    // An episode can end with a turn that was cut off, if the environment says so.
    let over = |turn| Ok(if turn < 3 { Reply::observation("40") } else { Reply::over("", 1.0) });
    assert_eq!(case(Turns { max_turn_tokens: 1, ..TURNS }, 9, over), (3, 5, 3, Over, Stop, none()));
    // An episode whose last turn was cut off for lack of room stays truncated.
    assert_eq!(case(TURNS, 8, over), (8, 10, 3, Over, Length, none()));
    // So does one whose turn was as long as any turn may be.
    let short = Turns { max_turn_tokens: 1, ..TURNS };
    assert_eq!(case(short, 3, over), (3, 5, 3, Over, Length, none()));
    assert_eq!(case(TURNS, 9, over), (9, 11, 3, Over, Stop, none()));

    type Fails = fn(usize) -> Answer;
    let failed: [(Fails, &str); 5] = [
        (|_| Err(EnvironmentFailed::Episode("it is gone".into())), "it is gone"),
        (|turn| Ok(Reply::observation(if turn == 2 { "x" } else { "40" })), "`x` is no number"),
        (
            |_| Ok(Reply::over("", f32::NAN)),
            "the environment's rewards add up to NaN, expected a finite number",
        ),
        (
            |_| Ok(Reply { reward: Some(f32::MAX), ..Reply::observation("40") }),
            "the environment's rewards add up to inf, expected a finite number",
        ),
        (|_| panic!("out of cards"), "the environment panicked: out of cards"),
    ];

    for (reply, why) in failed {
        let failure = case(TURNS, 90, reply).5;
        assert!(failure.starts_with(why), "{failure}");
    }
}

#[test]
fn an_environment_that_is_gone_ends_the_run() {
    let gone =
        |_: &Prompt, _: usize, _: &str| Err(EnvironmentFailed::Environment("no server".into()));
    let mut engine = multi_turn::<()>(ScriptedEngine::new(counts), says(gone), TURNS);
    let error = generate(&mut engine, vec![request(1, 3, 2)], &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "the environment failed: no server");
    // Nothing of the failed request is left, here or in the engine.
    assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
}

/// An environment that is busy at every second new episode, and at every third step of an episode.
struct Cramped(AtomicUsize, Says<fn(&Prompt, usize, &str) -> Answer>);

struct CrampedTalk(Box<dyn Episode>, usize);

impl Environment for Cramped {
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
        match self.0.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => Err(EnvironmentFailed::Busy("no room".into())),
            _ => Ok(Box::new(CrampedTalk(self.1.begin(prompt)?, 0))),
        }
    }

    fn sessions(&self) -> usize {
        5
    }
}

impl Episode for CrampedTalk {
    fn step(&mut self, action: &str) -> Answer {
        self.1 += 1;
        match self.1 % 3 {
            0 => Err(EnvironmentFailed::Busy("no room".into())),
            _ => self.0.step(action),
        }
    }
}

#[test]
fn an_environment_without_room_is_asked_again() {
    let turns = Turns { max_turn_tokens: 6, ..TURNS };
    type Speaks = fn(&Prompt, usize, &str) -> Answer;
    let talks = || Says(talks as Speaks, usize::MAX);
    let cramped = Cramped(AtomicUsize::new(0), talks());
    let roomy = generate(&mut multi_turn(local(), talks(), turns.clone()), varied(6), &mut |_| {});
    let cramped = generate(&mut multi_turn(local(), cramped, turns), varied(6), &mut |_| {});

    for (one, other) in roomy.unwrap().iter().zip(cramped.unwrap()) {
        for (one, other) in one.completions.iter().zip(other.completions) {
            assert_eq!((&one.tokens, &one.outcome), (&other.tokens, &other.outcome));
        }
    }
}

#[test]
fn a_refused_request_leaves_the_others() {
    let over = says(|_, _, _: &str| Ok(Reply::over("", 1.0)));
    let mut engine = multi_turn(local(), over, TURNS);
    engine.submit(varied(3)).unwrap();
    let [one, two, three] = [3, 4, 3].map(|id| request(id, 3, 2));
    let twice = engine.submit(vec![one, two, three]).unwrap_err();
    assert!(twice.to_string().contains("has the id of another"), "{twice}");
    assert!(engine.submit(vec![request(9, 600, 1)]).is_err());

    let mut groups = Vec::new();
    while groups.len() < 3 {
        groups.extend(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap());
    }
    assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
}

/// An engine that loses its work at certain requests, and at certain polls, by their numbers.
struct Forgetful {
    engine: LocalEngine<Decoder>,
    loses: [&'static [usize]; 2],
    calls: [usize; 2],
}

impl Forgetful {
    fn new(asked: &'static [usize], polled: &'static [usize]) -> Self {
        Forgetful { engine: local(), loses: [asked, polled], calls: [0; 2] }
    }

    fn count(&mut self, call: usize) -> Result<(), RolloutError> {
        self.calls[call] += 1;
        if self.loses[call].contains(&self.calls[call]) {
            self.engine.cancel();
            return Err(RolloutError::engine("it forgot", true));
        }
        Ok(())
    }
}

impl RolloutEngine<Decoder> for Forgetful {
    fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
        self.engine.publish(policy, version)
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.count(0)?;
        self.engine.submit(requests)
    }

    fn poll(
        &mut self,
        wait: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        self.count(1)?;
        self.engine.poll(wait, finished)
    }
}

#[test]
fn what_an_engine_lost_may_be_asked_for_again() {
    let over = says(|_, _, _: &str| Ok(Reply::over("", 1.0)));
    let mut engine = multi_turn(Forgetful::new(&[2], &[]), over, TURNS);
    engine.submit(varied(1)).unwrap();
    let lost = engine.submit(varied(3).split_off(1)).unwrap_err();
    assert!(matches!(lost, RolloutError::Engine { retryable: true, .. }), "{lost}");
    engine.submit(varied(3)).unwrap();

    let mut groups = Vec::new();
    while groups.len() < 3 {
        groups.extend(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap());
    }
    assert!(engine.poll(Wait::ForGroup, &mut |_| {}).unwrap().is_empty());
}

/// Ends some episodes early and lets others continue. Each reply depends on everything before it.
fn talks(prompt: &Prompt, turn: usize, action: &str) -> Answer {
    let sum: usize = action.split(' ').filter_map(|word| word.parse::<usize>().ok()).sum();
    let sum = sum + prompt.id as usize;
    Ok(match sum % 4 {
        0 if turn > 1 => Reply::over("", sum as f32),
        rest => Reply::observation(format!("{} {}", sum % VOCABULARY, rest + turn)),
    })
}

fn local() -> LocalEngine<Decoder> {
    let policy = policy(1, &Device::flex());
    LocalEngine::new(&policy, numbers(), 24, 512, SampleOn::Host)
}

fn varied(count: u64) -> Vec<GroupRequest> {
    let sampling = Sampling {
        temperature: 0.05,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: 40,
        stop: vec![7, 23],
    };
    let asked = |id| request(id, 1 + (id as usize * 5) % 11, 3);
    (0..count).map(|id| with_sampling(asked(id), sampling.clone())).collect()
}

#[test]
fn what_comes_of_it_depends_on_no_clock_and_on_no_session() {
    let turns = Turns { max_turn_tokens: 6, ..TURNS };
    type Speaks = fn(&Prompt, usize, &str) -> Answer;
    let all = |environment: Says<Speaks>| {
        generate(&mut multi_turn(local(), environment, turns.clone()), varied(40), &mut |_| {})
            .unwrap()
    };

    fn slow(prompt: &Prompt, turn: usize, action: &str) -> Answer {
        // Each reply takes a different time, in every run.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().subsec_nanos();
        thread::sleep(Duration::from_micros(u64::from(now) / 1000 % 2000));
        talks(prompt, turn, action)
    }

    let first = all(Says(talks as Speaks, usize::MAX));
    assert_eq!(first, all(Says(slow, usize::MAX)), "to the bit");

    // With three sessions some episodes wait and are decoded in other batches: the same but for rounding.
    let few = all(Says(slow, 3));
    for (one, other) in first.iter().zip(&few) {
        for (one, other) in one.completions.iter().zip(&other.completions) {
            assert_eq!(
                (&one.tokens, &one.mask, &one.outcome),
                (&other.tokens, &other.mask, &other.outcome)
            );
        }
    }

    let turns: Vec<usize> =
        first.iter().flat_map(|group| &group.completions).map(|it| outcome(it).turns).collect();
    assert!((1..=8).contains(turns.iter().max().unwrap()) && turns.contains(&2), "{turns:?}");
}

#[test]
fn the_first_turn_is_the_completion_without_an_environment() {
    let alone = generate(&mut local(), varied(10), &mut |_| {}).unwrap();
    let over = says(|_, _, _: &str| Ok(Reply::over("", 1.0)));
    let one = generate(&mut multi_turn(local(), over, TURNS), varied(10), &mut |_| {}).unwrap();

    for (alone, one) in alone.iter().zip(one) {
        for (alone, one) in alone.completions.iter().zip(one.completions) {
            assert_eq!(
                (&alone.tokens, &alone.logprobs, &alone.text),
                (&one.tokens, &one.logprobs, &one.text)
            );
        }
    }
}

#[test]
fn an_engine_that_loses_its_work_does_it_again() {
    let turns = Turns { max_turn_tokens: 6, ..TURNS };
    let whole =
        generate(&mut multi_turn(local(), says(talks), turns.clone()), varied(12), &mut |_| {});
    let mut engine = multi_turn(Forgetful::new(&[], &[20, 60]), says(talks), turns);
    let again = generate(&mut engine, varied(12), &mut |_| {});
    assert_eq!(whole.unwrap(), again.unwrap());
}

// Servers.

fn settings(servers: Vec<String>) -> Settings {
    Settings {
        servers,
        sessions: 8,
        templates: Templates {
            reset: r#"{"secret": {{ reference }}}"#.into(),
            action: r#"{"message": {{ completion | tojson }}}"#.into(),
            observation: "{{ observation.message }}".into(),
            opening: "{{ observation.message }}".into(),
        },
        time_limit: Duration::from_secs(1),
        patience: Duration::from_secs(20),
        key: None,
        asks: false,
        tasks: None,
    }
}

fn open(settings: Settings) -> OpenEnv {
    OpenEnv::new(settings, |_| {}).unwrap()
}

fn secret(number: u64) -> Prompt {
    Prompt { id: number, reference: number.to_string(), ..Prompt::default() }
}

/// Guesses the secret of `prompt` from 0 upwards until the game ends, and returns the replies.
fn upwards(
    environment: &dyn Environment,
    prompt: &Prompt,
) -> Result<Vec<Reply>, EnvironmentFailed> {
    let mut episode = environment.begin(prompt)?;
    let mut replies = Vec::new();
    for guess in 0.. {
        let reply = episode.step(&guess.to_string())?;
        replies.push(reply);
        if replies.last().unwrap().over {
            break;
        }
    }
    Ok(replies)
}

#[test]
fn a_servers_game_is_the_game() {
    let games = Games::start(GameOptions::default());
    let environment = open(settings(vec![games.address()]));
    for number in 0..10 {
        let there = upwards(&environment, &secret(number));
        let here = upwards(&Guessing, &secret(number));
        assert_eq!(there.unwrap(), here.unwrap());
    }
    assert_eq!(environment.sessions(), 8);

    let seen = games.seen();
    assert_eq!(seen[0], r#"{"type":"reset","data":{"secret":0}}"#);
    assert_eq!(seen[1], r#"{"type":"step","data":{"message":"0"}}"#);
}

#[test]
fn episodes_of_servers_that_misbehave_are_played_to_their_ends() {
    // The troubles come in turn, one at every so many messages.
    let troubles = |every: u64| -> Box<dyn Fn(u64) -> Option<Trouble> + Send + Sync> {
        Box::new(move |message| {
            let all = Trouble::PASSING;
            message.is_multiple_of(every).then(|| all[(message / every) as usize % all.len()])
        })
    };

    let server = |every| {
        Games::start(GameOptions {
            troubles: troubles(every),
            sessions: 8,
            ..GameOptions::default()
        })
    };

    let games = [server(7), server(11), Games::start(GameOptions::default())];
    let environment = open(settings(games.iter().map(Games::address).collect()));
    let next = AtomicUsize::new(0);
    // The threads share 300 episodes.
    let plays = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed) as u64;
        if number >= 300 {
            break;
        }
        let prompt = secret(number % 10);

        let played = loop {
            match upwards(&environment, &prompt) {
                Err(EnvironmentFailed::Busy(_)) => thread::sleep(Duration::from_millis(10)),
                played => break played,
            }
        };

        match played {
            Ok(replies) => assert_eq!(replies, upwards(&Guessing, &prompt).unwrap()),
            // The new connection may be lost as well. Then the error says so; a false reply never comes.
            Err(failed) => {
                assert!(failed.to_string().starts_with("the connection was lost"), "{failed}");
                LOST.fetch_add(1, Ordering::Relaxed);
            }
        }
    };

    static LOST: AtomicUsize = AtomicUsize::new(0);
    thread::scope(|scope| (0..24).for_each(|_| drop(scope.spawn(plays))));

    let lost = LOST.load(Ordering::Relaxed);
    assert!(lost < 30, "{lost} of 300 episodes were lost");
    assert!(games.iter().all(|games| games.seen().len() > 50), "every server plays");

    // The connections end with the environment.
    drop(environment);
    let until = Instant::now() + Duration::from_secs(5);
    while games.iter().any(|games| games.open() > 0) && Instant::now() < until {
        thread::sleep(Duration::from_millis(10));
    }
    assert!(games.iter().all(|games| games.open() == 0));
}

#[test]
fn what_the_environment_says_of_itself_is_told_in_one_line() {
    let troubled = |message, trouble| {
        let troubles: Box<dyn Fn(u64) -> Option<Trouble> + Send + Sync> =
            Box::new(move |asked| (asked == message).then_some(trouble));
        let games = Games::start(GameOptions { troubles, ..GameOptions::default() });
        upwards(&open(settings(vec![games.address()])), &secret(3))
    };

    let failed = troubled(1, Trouble::Failed).unwrap_err().to_string();
    assert_eq!(failed, "the environment failed: division [2J by zero (EXECUTION_ERROR)");

    // Until one action was understood, the template is to blame; after that, the policy is.
    let malformed = troubled(1, Trouble::Invalid).unwrap_err().to_string();
    assert_eq!(
        malformed,
        "the environment has not accepted any environment.action yet: Invalid message (VALIDATION_ERROR)"
    );

    let moves = troubled(2, Trouble::Invalid).unwrap();
    let Reply { observation, reward, over } = moves.last().unwrap();
    assert_eq!(
        (observation.as_str(), *reward, *over),
        ("Invalid message (VALIDATION_ERROR)", None, true)
    );
}

#[test]
fn an_environment_that_luck_decides_is_found_out() {
    // The connection is lost at the second guess, and the game is another one when it is played again.
    let troubles: Box<dyn Fn(u64) -> Option<Trouble> + Send + Sync> =
        Box::new(|message| (message == 2).then_some(Trouble::Drop));
    let fickle = Games::start(GameOptions { troubles, fickle: true, ..GameOptions::default() });
    let mut episode = open(settings(vec![fickle.address()])).begin(&secret(0)).unwrap();
    assert_eq!(episode.step("0").unwrap(), Reply::over("=", 1.0));
    let error = episode.step("9").unwrap_err().to_string();
    assert!(error.ends_with("answered differently when the episode was played again"), "{error}");
    drop(episode);

    // If openings are prompts, an opening has to come again.
    let games = Games::start(GameOptions::default());
    let environment = open(Settings { asks: true, ..settings(vec![games.address()]) });
    let prompt = |text: &str| Prompt { text: text.into(), ..secret(12) };
    let episode = environment.begin(&prompt("Guess digit 1.")).unwrap();
    assert_eq!(episode.opening(), "Guess digit 1.");
    let error = environment.begin(&prompt("Guess digit 4.")).err().unwrap();
    assert!(matches!(error, EnvironmentFailed::Environment(_)), "{error}");
}

/// Begins an episode as soon as the server has noticed that another one is over.
fn soon(environment: &dyn Environment, prompt: &Prompt) -> Box<dyn Episode> {
    loop {
        match environment.begin(prompt) {
            Err(EnvironmentFailed::Busy(_)) => thread::sleep(Duration::from_millis(10)),
            begun => break begun.unwrap(),
        }
    }
}

#[test]
fn servers_that_cannot_be_used_are_waited_for_and_then_named() {
    let brief = |address: String| Settings {
        patience: Duration::from_millis(200),
        time_limit: Duration::from_millis(300),
        ..settings(vec![address])
    };

    let games = Games::start(GameOptions {
        sessions: 1,
        key: Some("open sesame".into()),
        ..GameOptions::default()
    });
    let key = Some(Key::new("open sesame"));
    let known = || open(Settings { key: key.clone(), ..brief(games.address()) });
    let held = known().begin(&secret(1)).unwrap();

    // The environment is busy at first, and then gives up.
    let why = |environment: OpenEnv| loop {
        match environment.begin(&secret(1)).err().unwrap() {
            EnvironmentFailed::Busy(_) => thread::sleep(Duration::from_millis(10)),
            failed => break failed.to_string(),
        }
    };
    let full = why(known());

    // An environment waits for the room that its own episode takes, however long that lasts.
    drop(held);
    let itself = known();
    let held = soon(&itself, &secret(1));

    let until = Instant::now() + Duration::from_millis(500);
    while Instant::now() < until {
        let failed = itself.begin(&secret(2)).err().unwrap();
        assert!(matches!(failed, EnvironmentFailed::Busy(_)), "{failed}");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(full.contains("Server at capacity (CAPACITY_REACHED)"), "{full}");

    // The environment keeps its connection for the next episode until it is dropped.
    drop((held, itself));
    drop(soon(&known(), &secret(1)));
    let stranger = why(open(brief(games.address())));
    assert!(stranger.contains("it answered with status 401 at /ws"), "{stranger}");

    let elsewhere = why(open(Settings { key, ..brief(format!("{}/games", games.address())) }));
    assert!(elsewhere.contains("status 403"), "{elsewhere}");
    assert!(!elsewhere.contains("sesame"));

    let nobody = why(open(brief("http://127.0.0.1:9".into())));
    assert!(nobody.contains("it refuses connections: is the server up?"), "{nobody}");
    assert!(nobody.contains("http://127.0.0.1:9"), "{nobody}");

    for address in
        ["", "a:80", "ftp://a", "http://", "http://me:word@a", "http://a/?b", "http://a:80000"]
    {
        let refused = OpenEnv::new(brief(address.into()), |_| {}).err().unwrap();
        assert!(refused.to_string().contains("is not a server's address"), "{refused}");
    }
}

#[test]
fn a_connection_that_waits_answers_pings() {
    let games = Games::start(GameOptions::default());
    let environment = open(settings(vec![games.address()]));
    let _waits = environment.begin(&secret(1)).unwrap();

    let until = Instant::now() + Duration::from_secs(8);
    while games.pongs() == 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(games.pongs(), 1);
}

#[test]
fn templates_say_what_they_lack() {
    let games = Games::start(GameOptions::default());
    let with = |change: fn(&mut Templates)| {
        let mut settings = settings(vec![games.address()]);
        change(&mut settings.templates);
        let outcome = open(settings).begin(&secret(3)).and_then(|mut episode| episode.step("3\""));
        match outcome {
            Ok(reply) => reply.observation,
            Err(failed) => failed.to_string(),
        }
    };

    let typo = with(|templates| templates.action = "{{ completoin }}".into());
    assert!(typo.starts_with("environment.action: "), "{typo}");

    let observation = with(|templates| templates.observation = "{{ observation.text }}".into());
    assert!(
        observation.starts_with("environment.observation: ")
            && observation.ends_with("the observation has: message"),
        "{observation}"
    );

    let reset = with(|templates| templates.reset = "{{ reference }}".into());
    assert_eq!(reset, "environment.reset of prompt 3: \"3\" is not a JSON object");

    // An action that the policy writes itself is its move, whatever it is, once one action was understood.
    let action = with(|templates| templates.action = "{{ completion }}".into());
    assert!(action.starts_with("environment.action: \"3\\\"\" is not a JSON object"), "{action}");
    let mut itself = settings(vec![games.address()]);
    itself.templates.action = "{{ completion }}".into();
    let mut episode = open(itself).begin(&secret(3)).unwrap();
    assert_eq!(episode.step("{\"message\": \"1\"}").unwrap(), Reply::observation(">"));
    let Reply { reward, over, .. } = episode.step("1").unwrap();
    assert_eq!((reward, over), (None, true));

    let templates = Templates { action: "{{".into(), ..settings(vec![]).templates };
    assert!(OpenEnv::new(Settings { templates, ..settings(vec![]) }, |_| {}).is_err());
}

#[test]
fn a_group_talks_with_a_server_as_with_the_game() {
    let games = Games::start(GameOptions::default());
    let environment = open(settings(vec![games.address()]));

    /// Hears `<` as token 50, and any other sign as token 51.
    struct Signs;
    impl Renderer for Signs {
        fn tokens(&self, words: &str, _: Option<TokenId>) -> Result<Vec<TokenId>, String> {
            Ok(words.chars().map(|sign| if sign == '<' { 50 } else { 51 }).collect())
        }
    }

    let turns = Turns { max_turns: 4, max_turn_tokens: 1, ..TURNS };
    let mut all = BTreeMap::new();
    for (name, environment) in
        [("there", Arc::new(environment) as Arc<dyn Environment>), ("here", Arc::new(Guessing))]
    {
        let mut engine = MultiTurnEngine::new(
            Box::new(local()),
            environment,
            numbers(),
            Arc::new(Signs),
            turns.clone(),
        );
        let asked: Vec<GroupRequest> = varied(20)
            .into_iter()
            .map(|mut request| {
                request.prompt.reference = (request.id % 10).to_string();
                request.seed = Seed::run(3);
                request
            })
            .collect();
        all.insert(name, generate(&mut engine, asked, &mut |_| {}).unwrap());
    }

    let words =
        |group: &Group| group.completions.iter().map(|it| it.tokens.clone()).collect::<Vec<_>>();
    let here = &all["here"];
    let there = &all["there"];
    // With eight sessions other episodes share a batch: the same but for rounding.
    assert_eq!(
        here.iter().map(words).collect::<Vec<_>>(),
        there.iter().map(words).collect::<Vec<_>>()
    );
}
