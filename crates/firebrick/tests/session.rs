//! Complete runs from a program of your own.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod even;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use burn::{
    module::{Module, Param},
    optim::GradientsParams,
    tensor::{Device, Int, Tensor},
};
use firebrick::{
    AdvantageEstimator, Advantages, Completion, Error, FinishReason, Group, GroupFilter,
    INTERRUPTED, LrSchedule, Metrics, Optimizer, OwnPolicy, PolicyLoss, Prompt, PromptSource,
    Recipe, Reward, RewardShaper, RewardedGroup, RolloutEngine, Score, Seed, Session, SftExample,
    Step, TrackError, Tracker, Verifier, Watcher,
    build::build_run,
    data::{DateTime, Prompts, Tokenizer},
    models::{
        Decoder, DecoderContext, GradientSum, KvCache, PolicyModel, SavedActivations, TokenBatch,
        parameters,
    },
    recipe::DeviceKind as Kind,
    rollout::{GroupRequest, LocalEngine, RequestId, RolloutError, SampleOn, Wait},
    source::Sources,
    train::{
        TrainError,
        algorithm::{GroupNorm, LossInput, LossOutput},
        learner::{AdamW, OptimConfig, StepOutcome},
    },
};

use even::{Even, LETTERS, policy, prompts};

fn tiny(set: &[&str]) -> firebrick::recipe::Loaded {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    let set: Vec<String> = set.iter().map(|&set| set.to_owned()).collect();
    Recipe::load(&path, &set).unwrap()
}

/// Makes a session without anything from a file.
fn own(runs: &Path, name: &str, steps: u64) -> Session<Decoder> {
    own_of(|policy| policy, runs, name, steps)
}

/// Makes such a session with a policy that is made of the usual one.
fn own_of<M: PolicyModel>(
    of: impl FnOnce(Decoder) -> M,
    runs: &Path,
    name: &str,
    steps: u64,
) -> Session<M> {
    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let policy = of(policy(&tokenizer, &Device::flex().autodiff()));
    let all = prompts(&tokenizer, 40);
    let (heldout, train) = all.split_at(8);
    let source = Prompts::new(train.to_vec(), Seed::run(17)).unwrap();

    Session::with_policy(OwnPolicy::new(policy, tokenizer).context(64), source, Even)
        .heldout(heldout.to_vec())
        .runs(runs)
        .name(name)
        .settings(|recipe| {
            recipe.rollout.group_size = 4;
            recipe.rollout.max_completion_tokens = 6;
            recipe.sampling.prompts_per_step = 4;
            recipe.optim.lr = Some(1e-3);
            recipe.optim.warmup_steps = 0;
            recipe.train.steps = steps;
            recipe.train.mini_batch = 8;
            recipe.checkpoint.every = 2;
            recipe.eval.every = 2;
        })
}

#[test]
fn what_is_replaced_is_never_built() {
    let folder = tempfile::tempdir().unwrap();
    // Neither the judge nor the data is there, and nobody asks for them.
    let loaded = tiny(&[
        "reward.kind=command",
        "reward.program=['no-such-judge']",
        "sft={}",
        "train.steps=1",
    ]);
    let refused = Session::new(loaded.clone()).runs(folder.path()).run().unwrap_err();
    assert!(matches!(refused, Error::Reward(_)), "{refused}");

    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let source = Prompts::new(prompts(&tokenizer, 20), Seed::run(1)).unwrap();
    let fingerprint = source.fingerprint();
    let summary = Session::new(loaded)
        .runs(folder.path())
        .verifier(Even)
        .source(source)
        .heldout(prompts(&tokenizer, 3))
        .run()
        .unwrap()
        .summary;

    assert_eq!((summary.steps, summary.stopped_because.as_str()), (1, "steps"));
    assert!(summary.heldout.r#final.is_some());

    // The state knows the prompts that were trained on, and the card names the parts that the recipe does not
    // describe.
    let checkpoint = summary.checkpoint.unwrap();
    let state = std::fs::read_to_string(checkpoint.join("trainer/state.json")).unwrap();
    assert!(state.contains(&format!("\"prompts\":{fingerprint}")), "{state}");
    let card = std::fs::read_to_string(checkpoint.join("README.md")).unwrap();
    assert!(card.contains("the verifier, the training prompts, the held-out prompts"), "{card}");
}

#[test]
fn a_policy_of_a_programs_own_continues_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let weights = |summary: &firebrick::Summary| {
        std::fs::read(summary.checkpoint.as_ref().unwrap().join("policy.safetensors")).unwrap()
    };

    // The policy's device counts.
    let elsewhere = |recipe: &mut Recipe| recipe.device.kind = Kind::Cuda;
    let whole = own(folder.path(), "whole", 6).settings(elsewhere).run().unwrap().summary;
    let kept = Recipe::read(folder.path().join("whole/recipe.toml")).unwrap().recipe;
    assert_eq!(kept.device.kind, Kind::Cpu);

    own(folder.path(), "parts", 4).run().unwrap();
    let parts = own(folder.path(), "parts", 6).resume(true).run().unwrap().summary;
    assert_eq!((parts.steps, parts.heldout.r#final), (6, whole.heldout.r#final));
    assert!(weights(&parts) == weights(&whole), "a resumed run ended elsewhere");
    assert!(weights(&whole) != weights(&own(folder.path(), "short", 2).run().unwrap().summary));

    let card = std::fs::read_to_string(whole.checkpoint.unwrap().join("README.md")).unwrap();
    assert!(!card.contains("transformers"), "{card}");

    // The name is taken, and nothing is written over.
    let taken = own(folder.path(), "whole", 6).run().unwrap_err();
    assert_eq!(taken.exit_code(), 2, "{taken}");
}

#[test]
fn a_program_that_owns_the_loop_may_leave_it() {
    let folder = tempfile::tempdir().unwrap();
    let whole = own(folder.path(), "whole", 4).run().unwrap();

    let mut steps = own(folder.path(), "left", 4).steps().unwrap();
    let reports: Vec<_> = steps.by_ref().take(2).map(Result::unwrap).collect();
    assert!(reports.iter().all(|report| !report.groups.is_empty()));
    let left = steps.finish().unwrap().summary;
    assert_eq!((left.steps, left.stopped_because.as_str()), (2, INTERRUPTED));

    // The run continues as if it had not been left, and the policy is that of its last checkpoint.
    let mut steps = own(folder.path(), "left", 4).resume(true).steps().unwrap();
    assert_eq!(steps.by_ref().map(Result::unwrap).count(), 2);
    assert!(steps.next().is_none());
    let left = steps.finish().unwrap();
    assert_eq!(left.summary.heldout.r#final, whole.summary.heldout.r#final);

    let numbers = |policy: &Decoder| {
        let all = parameters(policy).into_iter();
        all.flat_map(|it| it.values.into_data().iter::<f32>().collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    assert!(numbers(&left.policy) == numbers(&whole.policy), "another policy");
}

#[test]
fn a_flag_ends_a_run_after_its_step() {
    /// A tracker that sets the flag in the second step.
    struct Ends(Arc<AtomicBool>);

    impl Tracker for Ends {
        fn log(&mut self, step: Step, _: &Metrics) -> Result<(), TrackError> {
            self.0.store(step == 2, Ordering::Relaxed);
            Ok(())
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let flag = Arc::new(AtomicBool::new(false));
    let tracker = Ends(flag.clone());
    let seen = flag.clone();
    let ended = own(folder.path(), "run", 6)
        .tracker(tracker)
        .interrupted_by(|| seen)
        .run()
        .unwrap()
        .summary;
    assert_eq!((ended.steps, ended.stopped_because.as_str()), (2, INTERRUPTED));

    let ended = own(folder.path(), "run", 3).resume(true).run().unwrap().summary;
    assert_eq!((ended.steps, ended.stopped_because.as_str()), (3, "steps"));
}

#[test]
fn a_tracker_that_fails_ends_no_run() {
    struct Full(Arc<Mutex<Vec<Step>>>);

    impl Tracker for Full {
        fn log(&mut self, step: Step, _: &Metrics) -> Result<(), TrackError> {
            self.0.lock().unwrap().push(step);
            Err(TrackError("the disk is full".into()))
        }
    }

    #[derive(Clone, Default)]
    struct Notes(Arc<Mutex<Vec<String>>>);

    impl firebrick::Watcher for Notes {
        fn note(&mut self, text: &str) {
            self.0.lock().unwrap().push(text.to_owned());
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let steps = Arc::default();
    let notes = Notes::default();
    let tracker = Full(Arc::clone(&steps));
    let session = own(folder.path(), "run", 1).tracker(tracker).watcher(notes.clone());
    assert_eq!(session.run().unwrap().summary.steps, 1);

    // The tracker gets the step, and then its evaluation.
    assert_eq!(*steps.lock().unwrap(), [1, 1]);
    let lost = "a tracker has lost step 1: the disk is full";
    assert!(notes.0.lock().unwrap().iter().any(|note| note == lost));
}

/// Every part counts its calls.
#[test]
fn every_part_that_is_given_is_used() {
    #[derive(Clone, Default)]
    struct Asked(Arc<Mutex<BTreeMap<&'static str, usize>>>);

    impl Asked {
        fn by(&self, part: &'static str) {
            *self.0.lock().unwrap().entry(part).or_default() += 1;
        }
    }

    impl RewardShaper for Asked {
        fn shape(&self, _: &Group, _: &mut [Reward]) {
            self.by("shaper");
        }
    }

    impl GroupFilter for Asked {
        fn keep(&self, _: &RewardedGroup) -> bool {
            self.by("filter");
            true
        }
    }

    impl AdvantageEstimator for Asked {
        fn advantages(&self, groups: &[RewardedGroup]) -> Vec<Advantages> {
            self.by("advantage");
            groups
                .iter()
                .map(|group| Advantages::PerCompletion(group.shaped_rewards().collect()))
                .collect()
        }
    }

    impl PolicyLoss for Asked {
        fn loss(&self, input: &LossInput) -> LossOutput {
            self.by("loss");
            let token_loss = (input.logprobs.clone() * input.advantages.clone()).neg();
            // The update has a metric of this name, to which this one must not be added.
            let metrics = vec![("loss/entropy", token_loss.clone().detach().sum() * 0.0 + 1e9)];
            LossOutput { token_loss: token_loss * input.mask.clone(), metrics }
        }
    }

    impl LrSchedule for Asked {
        fn lr(&self, _: u64) -> f64 {
            self.by("schedule");
            1e-3
        }
    }

    /// AdamW with a counter.
    struct Counted(AdamW, Asked);

    impl Optimizer<Decoder> for Counted {
        fn step(
            &mut self,
            module: Decoder,
            gradients: GradientsParams,
            lr: f64,
        ) -> Result<(Decoder, StepOutcome), TrainError> {
            self.1.by("optimizer");
            self.0.step(module, gradients, lr)
        }

        fn save(&self, path: &Path) -> Result<(), TrainError> {
            Optimizer::<Decoder>::save(&self.0, path)
        }

        fn load(
            &mut self,
            module: &Decoder,
            path: &Path,
            device: &Device,
        ) -> Result<(), TrainError> {
            self.0.load(module, path, device)
        }

        fn reset(&mut self) {
            self.1.by("reset");
            Optimizer::<Decoder>::reset(&mut self.0);
        }
    }

    impl Tracker for Asked {
        fn log(&mut self, _: Step, metrics: &Metrics) -> Result<(), TrackError> {
            self.by("tracker");
            assert!(metrics.get("loss/entropy").is_none_or(|entropy| entropy < 1e3));
            Ok(())
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let asked = Asked::default();
    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let examples = prompts(&tokenizer, 4)
        .into_iter()
        .map(|prompt| SftExample::new(prompt.tokens.clone(), prompt.tokens));
    let session = || own(folder.path(), "run", 2).settings(|recipe| recipe.sft.steps = 2);
    let refused = session().run().unwrap_err();
    assert!(matches!(refused, Error::NoSftExamples), "{refused}");

    // A part may be in a box, so that it can be chosen while the program runs.
    let shaper: Box<dyn RewardShaper> = Box::new(asked.clone());
    session()
        .sft_examples(examples.collect())
        .shaper(shaper)
        .filter(asked.clone())
        .advantage(asked.clone())
        .loss(asked.clone())
        .schedule(asked.clone())
        .optimizer(Counted(AdamW::new(OptimConfig::default()), asked.clone()))
        .tracker(asked.clone())
        .run()
        .unwrap();

    let asked = asked.0.lock().unwrap().clone();
    let parts: Vec<&str> = asked.keys().copied().collect();
    let all =
        ["advantage", "filter", "loss", "optimizer", "reset", "schedule", "shaper", "tracker"];
    assert_eq!(parts, all);
    // Two steps of SFT, and two updates in each of the two others.
    assert_eq!((asked["optimizer"], asked["advantage"], asked["reset"]), (6, 2, 1));
}

#[test]
fn an_engine_that_dies_costs_no_finished_step() {
    /// An engine that writes letters at random, and dies when it gets the weights of that version.
    struct Dying(u64, Vec<GroupRequest>);

    /// A watcher that notes after which steps there was an evaluation.
    struct Evaluated(Arc<Mutex<Vec<Step>>>);

    impl Watcher for Evaluated {
        fn metrics(&mut self, step: Step, metrics: &Metrics) {
            if metrics.get("eval/heldout_accuracy").is_some() {
                self.0.lock().unwrap().push(step);
            }
        }
    }

    impl RolloutEngine<Decoder> for Dying {
        fn publish(&mut self, _: &Decoder, version: u64) -> Result<(), RolloutError> {
            if version == self.0 {
                Err(RolloutError::engine("the child has died", false))
            } else {
                Ok(())
            }
        }

        fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
            self.1.extend(requests);
            Ok(())
        }

        fn poll(
            &mut self,
            _: Wait,
            finished: &mut dyn FnMut(usize),
        ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
            let answer = |request: GroupRequest| {
                finished(request.group_size);
                let completion = |index| {
                    let mut stream = request.completion_seed(index).stream();
                    let token = |at| (stream.uniform_at(at) * 10.0) as u32;
                    let tokens: Vec<u32> = (0..2 + index as u64 % 3).map(token).collect();
                    let logprobs = vec![-2.5; tokens.len()];
                    let text = "1".repeat(tokens.len());
                    Completion::written(tokens, logprobs, FinishReason::Stop).with_text(text)
                };
                let completions = (0..request.group_size).map(completion).collect();
                request.into_group(completions)
            };
            Ok(std::mem::take(&mut self.1).into_iter().map(answer).collect())
        }
    }

    // The engine dies in the third step, or before it, when the second is measured.
    let heldout = prompts(&Tokenizer::characters(LETTERS).unwrap(), 8);
    for prompts in [Vec::new(), heldout] {
        let folder = tempfile::tempdir().unwrap();
        let session = own(folder.path(), "run", 6).heldout(prompts);
        let session = session.settings(|recipe| recipe.checkpoint.every = 100);
        let error = session.engine(Dying(2, Vec::new())).run().unwrap_err();
        assert!(error.to_string().contains("the child has died"), "{error}");
        assert!(folder.path().join("run/checkpoints/step-000002").is_dir());
    }

    // A run whose last evaluation failed has no accuracy for the last step: the one before is no stand-in.
    let folder = tempfile::tempdir().unwrap();
    let session = |dies| {
        let session = own(folder.path(), "run", 2).settings(|recipe| recipe.eval.every = 1);
        session.engine(Dying(dies, Vec::new()))
    };

    session(2).run().unwrap_err();
    let recorder = Arc::new(Mutex::new(Vec::new()));
    session(99).resume(true).watcher(Evaluated(recorder.clone())).run().unwrap();
    assert_eq!(*recorder.lock().unwrap(), [2]);
}

/// Groups are judged while others are being sampled. A run samples and learns the same, whichever of the two is
/// quicker.
#[test]
fn a_slow_judge_changes_nothing_and_sampling_continues() {
    /// An engine that counts its polls.
    struct Counted(LocalEngine<Decoder>, Arc<AtomicUsize>);

    impl RolloutEngine<Decoder> for Counted {
        fn publish(&mut self, policy: &Decoder, version: u64) -> Result<(), RolloutError> {
            self.0.publish(policy, version)
        }

        fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
            RolloutEngine::<Decoder>::submit(&mut self.0, requests)
        }

        fn poll(
            &mut self,
            wait: Wait,
            finished: &mut dyn FnMut(usize),
        ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
            let groups = RolloutEngine::<Decoder>::poll(&mut self.0, wait, finished);
            self.1.fetch_add(1, Ordering::SeqCst);
            groups
        }
    }

    /// A verifier that judges as [`Even`] does, but the first time waits until the engine has been polled
    /// again.
    struct Slow {
        polls: Arc<AtomicUsize>,
        continued: Arc<AtomicBool>,
    }

    impl Verifier for Slow {
        fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
            let before = self.polls.load(Ordering::SeqCst);
            for _ in 0..200 {
                if self.continued.load(Ordering::SeqCst) {
                    break;
                }
                let polled = self.polls.load(Ordering::SeqCst) > before;
                self.continued.fetch_or(polled, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(5));
            }
            thread::sleep(Duration::from_micros(500 * completion.tokens.len() as u64));
            Even.score(prompt, completion)
        }
    }

    let folder = tempfile::tempdir().unwrap();
    let polls = Arc::new(AtomicUsize::new(0));
    let continued = Arc::new(AtomicBool::new(false));

    let learned = |name: &str, slow: bool| {
        let tokenizer = Arc::new(Tokenizer::characters(LETTERS).unwrap());
        let first = policy(&tokenizer, &Device::flex());
        let session = own(folder.path(), name, 4).heldout(Vec::new()).settings(|recipe| {
            recipe.sampling.prompts_per_step = 8;
            recipe.sampling.tolerance = 0.5;
        });

        // Two groups at a time, so that some are finished while others wait.
        let engine = LocalEngine::new(&first, tokenizer, 8, 64, SampleOn::Host);
        let session = session.engine(Counted(engine, polls.clone()));
        let session = if slow {
            session.verifier(Slow { polls: polls.clone(), continued: continued.clone() })
        } else {
            session
        };

        let summary = session.run().unwrap().summary;
        let weights = summary.checkpoint.unwrap().join("policy.safetensors");
        (summary.completions, std::fs::read(weights).unwrap())
    };

    assert!(learned("quick", false) == learned("slow", true));
    assert!(continued.load(Ordering::SeqCst), "the engine waited for the judge");
}

/// With `gae` and no critic a trainer once took plain rewards for advantages, in silence.
#[test]
fn a_trainer_takes_advantages_from_one_place() {
    let loaded = tiny(&["sft.steps=0", "advantage.kind=gae"]);
    let built = build_run(&loaded.recipe, None, &Sources::here(), DateTime::default()).unwrap();
    let mut trainer = built.trainer;
    let error = trainer.step(&mut ()).unwrap_err();
    assert!(matches!(error, TrainError::NoAdvantage), "{error}");

    trainer.learner.critic = built.critic.map(|plan| plan.new_critic(&trainer.learner.policy));
    trainer.sampler.task.advantage = Some(Box::new(GroupNorm::default()));
    let error = trainer.step(&mut ()).unwrap_err();
    assert!(matches!(error, TrainError::TwoAdvantages), "{error}");
    trainer.sampler.task.advantage = None;
    trainer.step(&mut ()).unwrap();
}

#[test]
fn settings_of_a_program_are_checked_as_those_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let session = own(folder.path(), "run", 1).settings(|recipe| recipe.train.mini_batch = 1000);
    let error = session.run().unwrap_err();
    assert_eq!(error.exit_code(), 2);
    assert!(error.to_string().contains("train.mini_batch is 1000"), "{error}");

    let brought = own(folder.path(), "run", 1).settings(|recipe| recipe.data.max_prompt_tokens = 9);
    let error = brought.run().unwrap_err();
    assert!(matches!(&error, Error::Brought { key } if key == "data.max_prompt_tokens"), "{error}");
    // A `main` that returns the error prints it so.
    assert!(format!("{error:?}").contains("\nhelp: leave it out"), "{error:?}");

    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let policy = policy(&tokenizer, &Device::flex());
    let source = Prompts::new(prompts(&tokenizer, 4), Seed::run(17)).unwrap();
    let own = OwnPolicy::new(policy, tokenizer);
    let session = Session::with_policy(own, source, Even).runs(folder.path());
    assert!(matches!(session.run().unwrap_err(), Error::NoAutodiff));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "a run was begun");
}

#[test]
fn other_prompts_are_refused_to_a_resumed_session() {
    let folder = tempfile::tempdir().unwrap();
    own(folder.path(), "run", 2).run().unwrap();

    let tokenizer = Tokenizer::characters(LETTERS).unwrap();
    let others = Prompts::new(prompts(&tokenizer, 9), Seed::run(17)).unwrap();
    let session = own(folder.path(), "run", 4).source(others).resume(true);
    let error = session.run().unwrap_err();
    assert!(matches!(error, Error::OtherPrompts { .. }), "{error}");
}

/// A policy on a device with little memory. It has room for so many tokens, for no layer as a whole, and for
/// small pieces.
#[derive(Module, Debug)]
struct Tight {
    inner: Decoder,
    #[module(skip)]
    tokens: usize,
    #[module(skip)]
    halvings: usize,
}

impl PolicyModel for Tight {
    type Cache = KvCache;
    type Context = DecoderContext;

    fn device(&self) -> Device {
        self.inner.device()
    }

    fn context(&self, batch: &TokenBatch) -> DecoderContext {
        let tokens = batch.tokens.shape().num_elements();
        assert!(tokens <= self.tokens, "out of device memory allocating {tokens} bytes");
        self.inner.context(batch)
    }

    fn embed(&self, batch: &TokenBatch) -> Tensor<3> {
        self.inner.embed(batch)
    }

    fn layers(&self) -> usize {
        self.inner.layers()
    }

    fn layer(&self, index: usize, x: Tensor<3>, context: &DecoderContext) -> Tensor<3> {
        self.inner.layer(index, x, context)
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        self.inner.finish(x)
    }

    fn packs(&self) -> bool {
        true
    }

    fn forward_saving<'a>(
        &'a self,
        _: usize,
        _: Tensor<3>,
        _: &'a DecoderContext,
    ) -> (Tensor<3>, SavedActivations<'a>) {
        panic!("out of device memory allocating 4096 bytes")
    }

    fn backward_recompute(
        &self,
        index: usize,
        x: Tensor<3>,
        d_y: Tensor<3>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        assert!(self.halvings > 1, "out of device memory allocating 64 bytes");
        self.inner.backward_recompute(index, x, d_y, context, sum)
    }

    fn halve_chunks(&mut self) -> bool {
        self.halvings += 1;
        self.inner.halve_chunks()
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, KvCache) {
        self.inner.prefill(batch)
    }

    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut KvCache) -> Tensor<2> {
        self.inner.decode(tokens, cache)
    }

    fn head(&self) -> &Param<Tensor<2>> {
        self.inner.head()
    }

    fn logit_cap(&self) -> Option<f64> {
        self.inner.logit_cap()
    }
}

/// A watcher that keeps all that a run reports to it.
#[derive(Clone, Default)]
struct Recorder {
    notes: Arc<Mutex<Vec<String>>>,
    metrics: Arc<Mutex<BTreeMap<Step, Metrics>>>,
}

impl Watcher for Recorder {
    fn note(&mut self, text: &str) {
        self.notes.lock().unwrap().push(text.to_owned());
    }

    fn metrics(&mut self, step: Step, metrics: &Metrics) {
        self.metrics.lock().unwrap().entry(step).or_default().extend(metrics.clone());
    }
}

impl Recorder {
    /// Returns the notes on memory.
    fn short(&self) -> Vec<String> {
        let notes = self.notes.lock().unwrap();
        notes.iter().filter(|note| note.contains("no memory")).cloned().collect()
    }

    /// Tells whether two steps of two runs went the same way.
    fn agrees(&self, other: &Recorder) -> bool {
        let close = |(step, name)| {
            let of =
                |recorder: &Recorder| recorder.metrics.lock().unwrap()[&step].get(name).unwrap();
            (of(self) - of(other)).abs() < 1e-5
        };
        let names = ["loss/total", "update/grad_norm", "loss/entropy", "rollout/length_mean"];
        names.iter().flat_map(|&name| [(1, name), (2, name)]).all(close)
    }
}

#[test]
fn an_update_without_memory_is_cut_smaller_with_the_same_result() {
    let folder = tempfile::tempdir().unwrap();
    let free = Recorder::default();
    own(folder.path(), "free", 2).watcher(free.clone()).run().unwrap();
    let run = |name: &str, tokens, steps, resume| {
        let recorder = Recorder::default();
        let of = |inner| Tight { inner, tokens, halvings: 0 };
        let session =
            own_of(of, folder.path(), name, steps).watcher(recorder.clone()).resume(resume);
        session.run().map(|_| recorder)
    };

    let tight = run("tight", 20, 2, false).unwrap();
    let said = tight.short();
    assert!(matches!(&said[..], [once] if once.starts_with("step 1: ")), "{said:?}");
    for words in ["train.recompute", "micro-batches of", "smaller pieces"] {
        assert!(said[0].contains(words), "{}", said[0]);
    }

    assert!(tight.agrees(&free));
    // A resumed run remembers the smaller cuts.
    assert_eq!(run("tight", 20, 3, true).unwrap().short(), [""; 0]);

    // If no cut is small enough, the run ends.
    let Err(Error::DeviceFailed { remedy, .. }) = run("none", 3, 1, false) else {
        panic!("it continued without memory");
    };
    assert!(remedy.contains("rollout.max_completion_tokens (now 6)"), "{remedy}");
}

/// An optimizer on a device that could not compute a gradient, and says so when the gradient is read.
struct Late {
    inner: AdamW,
    failures: usize,
}

impl Optimizer<Decoder> for Late {
    fn step(
        &mut self,
        module: Decoder,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(Decoder, StepOutcome), TrainError> {
        if self.failures > 0 {
            self.failures -= 1;
            return Err(TrainError::Device("out of device memory allocating 4096 bytes".into()));
        }
        self.inner.step(module, gradients, lr)
    }

    fn save(&self, path: &Path) -> Result<(), TrainError> {
        Optimizer::<Decoder>::save(&self.inner, path)
    }

    fn load(&mut self, module: &Decoder, path: &Path, device: &Device) -> Result<(), TrainError> {
        self.inner.load(module, path, device)
    }

    fn reset(&mut self) {
        Optimizer::<Decoder>::reset(&mut self.inner);
    }
}

#[test]
fn a_gradient_that_is_not_whole_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, failures| {
        let recorder = Recorder::default();
        let optimizer = Late { inner: AdamW::new(OptimConfig::default()), failures };
        own(folder.path(), name, 2).optimizer(optimizer).watcher(recorder.clone()).run().unwrap();
        recorder
    };

    let free = run("free", 0);
    let late = run("late", 4);
    assert_eq!((free.short().len(), late.short().len()), (0, 1));
    assert!(late.agrees(&free));
}
