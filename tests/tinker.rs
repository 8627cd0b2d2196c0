//! An update on a server that speaks Tinker's API is the update of this process, whatever the server makes of
//! gradients, and however it fails.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use burn::{module::Module as _, tensor::Device};
use firebrick_core::{Completion, FinishReason, Group, Seed, TokenId, config::Aggregation};
use firebrick_models::{
    Decoder, DecoderConfig, Family, Sizes, load, load_adapter, parameters, random,
};
use firebrick_rollout::{RolloutEngine, generate};
use firebrick_servers::{
    Adam, Over, Reduction, ServerTraits, Text, TinkerEngine, TinkerError, TinkerModel,
    TinkerSession, TinkerSettings,
};
use firebrick_stub::{Fault, Tinker, TinkerOptions};
use firebrick_tests::{
    close::report,
    computed::read,
    fixture::aloud,
    tiny::{VOCABULARY, numbers, policy, request, sizes},
};
use firebrick_train::{
    Learner, LocalLearner, Sample, TrainError,
    algorithm::{Cispo, ClipRange, ConstantLr, Dapo, Gspo, Kl, KlEstimator, Objective, PolicyLoss},
    learner::{AdamW, OptimConfig, RemoteLearner, RemotePolicy, StepOutcome, Updater, Uphill},
};
use serde_json::Value;

const RANK: usize = 3;
const RATE: f64 = 0.5;

const EVERY: [Reduction; 8] = [
    Reduction { per_text: false, over: Over::One },
    Reduction { per_text: false, over: Over::Step },
    Reduction { per_text: false, over: Over::Request },
    Reduction { per_text: false, over: Over::StepTargets },
    Reduction { per_text: false, over: Over::RequestTargets },
    Reduction { per_text: true, over: Over::One },
    Reduction { per_text: true, over: Over::Step },
    Reduction { per_text: true, over: Over::Request },
];

#[test]
fn what_a_server_does_with_gradients_is_measured() {
    for (index, reduction) in EVERY.into_iter().enumerate() {
        let expected = ServerTraits {
            reduction,
            takes_adam: index % 2 == 0,
            clips: index % 3 == 0,
            numbered: index % 2 == 1,
        };
        let ServerTraits { takes_adam, clips, numbered, .. } = expected;
        let options =
            TinkerOptions { reduction, takes_adam, clips, numbered, ..TinkerOptions::default() };
        let server = start(options);
        let tokens: Vec<TokenId> = (0..24).map(|at| (at * at + 5) % VOCABULARY as u32).collect();
        let measured = ServerTraits::measure(&open(&server), RANK, &tokens);
        assert_eq!(measured.unwrap(), expected);
        assert_eq!(server.models(), 0, "adapters that nobody needs are gone");
    }
}

/// In a wide model a step along the inner matrices goes further than one along the outer ones, and would hide its sign.
#[test]
fn a_wide_model_tells_the_same_of_its_server() {
    let config = DecoderConfig::new(
        Family::Qwen2,
        Sizes { hidden_size: 2048, head_dim: 512, intermediate_size: 4096, ..sizes(1) },
    );
    for over in [Over::One, Over::Step, Over::Request, Over::StepTargets, Over::RequestTargets] {
        let base = random(&config, Seed::run(3), &Device::flex().autodiff()).unwrap();
        let reduction = Reduction { per_text: false, over };
        let server = Tinker::start(base, TinkerOptions { reduction, ..TinkerOptions::default() });
        let tokens: Vec<TokenId> = (0..24).map(|at| (at * at + 5) % VOCABULARY as u32).collect();
        assert_eq!(
            ServerTraits::measure(&open(&server), 16, &tokens).unwrap().reduction,
            reduction
        );
    }
}

#[test]
fn an_update_on_a_server_is_that_of_this_process() {
    let clip = ClipRange { low: 0.2, high: 0.28 };
    type Loss = fn(ClipRange) -> Box<dyn PolicyLoss>;
    let losses: [Loss; 3] = [
        |clip| Box::new(Dapo { clip, dual_clip: Some(3.0) }),
        |clip| Box::new(Gspo { clip, max_log_ratio: 10.0 }),
        |clip| Box::new(Cispo { clip }),
    ];
    let aggregations = [Aggregation::TokenMean, Aggregation::SequenceMean, Aggregation::Constant];

    for (index, reduction) in EVERY.into_iter().enumerate() {
        let updater = || {
            let mut objective = Objective::new(losses[index % 3](clip));
            if index % 2 == 0 {
                let estimator = KlEstimator::K3;
                objective.kl = Some(Kl { estimator, gradient_of_k2: false, coef: 0.1 });
            }
            let mut updater = Updater::new(objective);
            updater.aggregation = aggregations[index % 3];
            updater.constant_length = 9;
            updater
        };
        let server = start(TinkerOptions { reduction, ..TinkerOptions::default() });
        let mut pair = Pair::new(&server, reduction, &updater);

        for step in 1..=3 {
            let mut samples = samples(step, VOCABULARY);
            let (local, remote) = pair.step(step, &mut samples);
            assert!(local.tokens == remote.tokens && local.tokens > 50);
            for (name, value) in &remote.metrics.0 {
                let expected = local.metrics.get(name).unwrap();
                assert!((value - expected).abs() < 1e-6, "{name}: {value} and {expected}");
            }
            // All that a loss of log-probabilities has is there.
            assert_eq!(local.metrics.0.len(), remote.metrics.0.len() + 1);
            assert!(!remote.metrics.0.contains_key("loss/entropy"));
            pair.check(&server);
        }
    }
}

#[test]
fn a_server_that_fails_takes_no_step_twice_and_loses_none() {
    let faults = [
        Fault::Status(408),
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(503),
        Fault::Drop,
        Fault::Half,
        Fault::Nonsense,
        Fault::Delay(Duration::from_millis(50)),
    ];
    // Every third request fails, each time in another way, once the learner is there.
    let armed = Arc::new(AtomicBool::new(false));
    let fails = armed.clone();
    let count = AtomicU64::new(0);
    let fault = move |asked: u64, path: &str| {
        // A 408 is an answer of a server that holds the line.
        let held = path.ends_with("retrieve_future");
        let index = count.fetch_add(1, Ordering::Relaxed) / 3;
        let fault = faults[index as usize % faults.len()];
        let fits = held || fault != Fault::Status(408);
        (fails.load(Ordering::Relaxed) && asked.is_multiple_of(3) && fits).then_some(fault)
    };
    let server = start(TinkerOptions { faults: Box::new(fault), ..TinkerOptions::default() });
    let loss = || {
        Updater::new(Objective::new(Box::new(Dapo {
            clip: ClipRange { low: 0.2, high: 0.28 },
            dual_clip: None,
        })))
    };
    let mut pair = Pair::new(&server, Reduction::default(), &loss);
    armed.store(true, Ordering::Relaxed);
    for step in 1..=6 {
        pair.step(step, &mut samples(step, VOCABULARY));
    }
    armed.store(false, Ordering::Relaxed);
    assert_eq!(server.steps(pair.remote.policy.0.id()), 6);
    pair.check(&server);
}

#[test]
fn a_server_without_numbers_is_not_asked_twice_for_what_counts_twice() {
    for path in ["forward_backward", "optim_step"] {
        let faults = move |_, asked: &str| asked.ends_with(path).then_some(Fault::Drop);
        let numbered = false;
        let server =
            start(TinkerOptions { faults: Box::new(faults), numbered, ..TinkerOptions::default() });
        let model = TinkerModel::create(&open(&server), RANK, 1).unwrap();
        let texts = [(TEXT, &[-4.0f32; 3][..], &[1.0f32; 3][..])];
        let traits = traits(Reduction::default());
        let error = model.ascend(&texts, &traits, &adam()).unwrap_err();
        assert!(matches!(error, TinkerError::Unsure { .. }), "{path}: {error}");
        assert!(server.steps(model.id()) <= 1);
        // What does not count twice is asked for again.
        assert_eq!(model.logprobs(&[TEXT]).unwrap()[0].len(), 3);
    }
}

/// Whatever is lost, what is saved is whole, and is the weights of now.
#[test]
fn a_save_whose_answer_is_lost_is_made_again() {
    for lost in ["save_weights", "load_weights", "save_weights_for_sampler", "archive"] {
        let count = AtomicU64::new(0);
        let faults = move |_, path: &str| {
            let hit = path.ends_with(lost) && count.fetch_add(1, Ordering::Relaxed) == 0;
            hit.then_some(Fault::Drop)
        };
        let server = start(TinkerOptions { faults: Box::new(faults), ..TinkerOptions::default() });
        let session = open(&server);
        let model = TinkerModel::create(&session, RANK, 1).unwrap();
        let path = model.save().unwrap();
        assert_eq!(values(&server.saved(&path)), values(&server.policy(model.id())));
        assert!(model.adapter_files().unwrap().is_some(), "{lost}");

        let mut engine = TinkerEngine::new(numbers(), 8, 0.02);
        RolloutEngine::<TinkerModel>::publish(&mut engine, &model, 0).unwrap();
        let other = TinkerModel::create(&session, RANK, 2).unwrap();
        let loaded = other.load(&path);
        assert_eq!(loaded.is_ok(), lost != "load_weights", "loading is an adapter's first request");
    }
}

#[test]
fn an_answer_that_is_none_is_an_error_and_not_a_number() {
    let distorted = |distort: fn(f32) -> f32| {
        let server =
            start(TinkerOptions { distort: Box::new(distort), ..TinkerOptions::default() });
        let model = TinkerModel::create(&open(&server), RANK, 1).unwrap();
        model.logprobs(&[TEXT]).unwrap_err().to_string()
    };
    assert!(distorted(|_| f32::NAN).contains("log-probability of null"), "NaN");
    assert!(distorted(|_| 0.5).contains("log-probability of 0.5"), "above 0");

    let with = |fault: Fault| {
        let faults = move |_, path: &str| path.ends_with("retrieve_future").then_some(fault);
        let armed = AtomicU64::new(0);
        // The adapter is made before.
        let faults = move |asked, path: &str| {
            let made = armed.fetch_add(1, Ordering::Relaxed) > 8;
            faults(asked, path).filter(|_| made)
        };
        start(TinkerOptions { faults: Box::new(faults), ..TinkerOptions::default() })
    };
    let server = with(Fault::Endless);
    let model = TinkerModel::create(&open(&server), RANK, 1).unwrap();
    let error = (0..9).find_map(|_| model.logprobs(&[TEXT]).err()).unwrap().to_string();
    assert!(error.contains("larger than"), "{error}");

    // A server that forgets, and one that nobody finds.
    let server = start(TinkerOptions::default());
    let model = TinkerModel::create(&open(&server), RANK, 1).unwrap();
    server.restart();
    let error = model.logprobs(&[TEXT]).unwrap_err();
    assert!(matches!(error, TinkerError::Gone { .. }), "{error}");
    drop(server);
    let error = model.logprobs(&[TEXT]).unwrap_err().to_string();
    assert!(error.contains("did not compute log-probabilities"), "{error}");
}

#[test]
fn an_interruption_waits_for_no_server() {
    let faults = |_, path: &str| path.ends_with("forward").then_some(Fault::Hang);
    let server = start(TinkerOptions { faults: Box::new(faults), ..TinkerOptions::default() });
    let session = open(&server);
    let flag = Arc::new(AtomicBool::new(false));
    session.interrupted_by(flag.clone());
    let model = TinkerModel::create(&session, RANK, 1).unwrap();
    let began = Instant::now();
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(200));
        flag.store(true, Ordering::Relaxed);
    });
    let error = model.logprobs(&[TEXT]).unwrap_err();
    assert!(matches!(error, TinkerError::Interrupted), "{error}");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    // A run that is to end saves its work.
    assert_eq!(
        values(&server.saved(&model.save().unwrap())).len(),
        values(&server.policy(model.id())).len()
    );
    assert!(model.adapter_files().unwrap().is_some());
}

#[test]
fn what_is_sampled_has_the_log_probabilities_of_a_pass() {
    let server = start(TinkerOptions::default());
    let model = TinkerModel::create(&open(&server), RANK, 1).unwrap();
    let sample = |model: &TinkerModel, step| {
        let mut engine = TinkerEngine::new(numbers(), 8, 0.02);
        RolloutEngine::<TinkerModel>::publish(&mut engine, model, step).unwrap();
        let requests = (0..5).map(|id| {
            let mut request = request(id, 6, 4);
            Arc::make_mut(&mut request.sampling).temperature = 1.0;
            request
        });
        let mut groups =
            generate::<TinkerModel>(&mut engine, requests.collect(), &mut |_| {}).unwrap();
        groups.sort_by_key(|group| group.prompt.id);
        groups
    };

    let before = sample(&model, 0);
    assert_eq!(before, sample(&model, 0), "the same seeds, the same completions");
    for _ in 0..3 {
        let texts = [(TEXT, &[-4.0f32; 3][..], &[1.0f32; 3][..])];
        model.ascend(&texts, &traits(Reduction::default()), &adam()).unwrap();
    }
    let after = sample(&model, 3);
    let written = |groups: &[Group]| -> Vec<Vec<f32>> {
        let completions = groups.iter().flat_map(|group| &group.completions);
        completions.map(|completion| completion.logprobs.clone()).collect()
    };
    assert_ne!(written(&before), written(&after), "a step changes what is sampled");

    for group in &after {
        for completion in &group.completions {
            let text = Text { prompt: &group.prompt.tokens, completion: &completion.tokens };
            let logprobs = model.logprobs(&[text]).unwrap().remove(0);
            let near = logprobs.iter().zip(&completion.logprobs).all(|(a, b)| (a - b).abs() < 1e-4);
            assert!(near && completion.policy_version == 3, "{logprobs:?} {completion:?}");
        }
    }
}

#[test]
fn weights_are_saved_loaded_and_exported() {
    let server = start(TinkerOptions::default());
    let session = open(&server);
    let model = TinkerModel::create(&session, RANK, 1).unwrap();
    let ascend = |model: &TinkerModel| {
        let texts = [(TEXT, &[-4.0f32; 3][..], &[1.0f32; 3][..])];
        model.ascend(&texts, &traits(Reduction::default()), &adam()).unwrap();
    };
    ascend(&model);
    let path = model.save().unwrap();
    assert_eq!(model.save().unwrap(), path, "a second request finds what the first has made");

    // Another adapter continues, with the optimizer's moments.
    let other = TinkerModel::create(&session, RANK, 9).unwrap();
    other.load(&path).unwrap();
    ascend(&model);
    ascend(&other);
    assert_eq!(values(&server.policy(model.id())), values(&server.policy(other.id())));
    assert!(other.load("tinker://nobody/weights/none").is_err());

    let files = model.adapter_files().unwrap().unwrap();
    let config: Value = serde_json::from_slice(&files.config).unwrap();
    assert_eq!(config["lora_alpha"], 32.0);
    assert!(files.weights.len() > 1000);
}

/// A server that runs already, whose address is in `FIREBRICK_TINKER` and whose base model is the folder in
/// `FIREBRICK_TINKER_MODEL`.
#[test]
fn a_real_server_makes_the_update_of_this_process() {
    let variable = |name: &str| std::env::var(name).ok();
    let (Some(url), Some(folder)) =
        (variable("FIREBRICK_TINKER"), variable("FIREBRICK_TINKER_MODEL"))
    else {
        aloud("SKIPPED: FIREBRICK_TINKER is the address of no server");
        return;
    };
    let device = Device::flex().autodiff();
    let base = load(Path::new(&folder), &device).unwrap();
    let vocabulary = base.config().vocab_size;
    let settings = TinkerSettings {
        url,
        base_model: folder.clone(),
        deadline: Duration::from_secs(300),
        vocabulary,
        ..settings(String::new())
    };
    let session = TinkerSession::open(settings, |line| report(&line)).unwrap();
    let tokens: Vec<TokenId> = (0..24).map(|at| (at * at + 5) % vocabulary as u32).collect();
    let measured = ServerTraits::measure(&session, 8, &tokens).unwrap();
    report(&format!("{measured:?}"));

    let model = TinkerModel::create(&session, 8, 11).unwrap();
    let adapted = || {
        let files = model.adapter_files().unwrap().unwrap();
        let mut config: Value = serde_json::from_slice(&files.config).unwrap();
        if config["target_modules"].is_null() {
            config["target_modules"] = files.targets().into();
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("adapter_config.json"), config.to_string()).unwrap();
        fs::write(folder.path().join("adapter_model.safetensors"), &files.weights).unwrap();
        load_adapter(base.clone(), folder.path()).unwrap()
    };

    let updater = || {
        let clip = ClipRange { low: 0.2, high: 0.28 };
        Updater::new(Objective::new(Box::new(Dapo { clip, dual_clip: None })))
    };
    // With such an `eps` a step is the gradient itself, so that steps add up as gradients do.
    let adam = Adam { eps: 1e6, weight_decay: 0.0, grad_clip_norm: None, ..adam() };
    let rate = RATE * adam.eps;
    let optim = OptimConfig {
        beta1: adam.beta1,
        beta2: adam.beta2,
        epsilon: adam.eps,
        weight_decay: 0.0,
        max_grad_norm: f64::INFINITY,
        ..OptimConfig::default()
    };
    let schedule = || Box::new(ConstantLr { lr: rate });
    let there = There(model.clone(), measured, adam);
    let adamw = Box::new(AdamW::new(optim));
    let mut pair = Pair {
        local: LocalLearner::new(adapted(), updater(), adamw, schedule()),
        remote: RemoteLearner::new(there, updater(), schedule(), device.clone()),
    };

    let trained = |policy: &Decoder| -> Vec<Vec<f32>> {
        let trained = parameters(policy).into_iter().filter(|parameter| parameter.trained);
        trained.map(|parameter| read(parameter.values)).collect()
    };
    let difference =
        |a: &[f32], b: &[f32]| -> Vec<f32> { a.iter().zip(b).map(|(a, b)| a - b).collect() };
    for step in 1..=3 {
        let before = trained(&pair.local.policy);
        let (local, remote) = pair.step(step, &mut samples(step, vocabulary));
        for name in ["loss/total", "loss/clip_fraction_low", "loss/clip_fraction_high"] {
            let (here, there) =
                (local.metrics.get(name).unwrap(), remote.metrics.get(name).unwrap());
            assert!((here - there).abs() < 1e-5, "{name}: {here} here, {there} there");
        }

        let after = trained(&pair.local.policy);
        let moves: Vec<Vec<f32>> =
            after.iter().zip(&before).map(|(a, b)| difference(a, b)).collect();
        pair.local.policy = adapted();
        let there = trained(&pair.local.policy);
        let (mut moved, mut far) = (0.0f32, 0.0f32);
        for (index, weights) in there.iter().enumerate() {
            // SkyRL's projections of one input share a matrix, which moves by the gradients of all of them.
            let shared = before.iter().zip(&moves).filter(|(it, _)| **it == before[index]);
            let shared = shared.filter(|_| before[index].iter().any(|&weight| weight != 0.0));
            let mut expected = vec![0.0; weights.len()];
            let mut count = 0;
            for (_, own) in shared {
                expected.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
                count += 1;
            }
            let expected = if count > 1 { &expected } else { &moves[index] };
            let actual = difference(weights, &before[index]);
            let furthest = |numbers: &[f32]| numbers.iter().map(|it| it.abs()).fold(0.0, f32::max);
            moved = moved.max(furthest(expected));
            far = far.max(furthest(&difference(&actual, expected)));
        }
        report(&format!("step {step}: moves of up to {moved:.1e}, {far:.1e} from the server's"));
        assert!(far < 1e-5 && moved > 1e-2, "{far:e} of {moved:e}");
    }
}

/// A text of any kind.
const TEXT: Text<'_> = Text { prompt: &[3, 1, 4], completion: &[1, 5, 9] };

fn start(options: TinkerOptions) -> Tinker {
    Tinker::start(policy(7, &Device::flex().autodiff()), options)
}

fn open(server: &Tinker) -> Arc<TinkerSession> {
    TinkerSession::open(settings(server.url()), drop).unwrap()
}

fn settings(url: String) -> TinkerSettings {
    TinkerSettings {
        url,
        base_model: "tiny".into(),
        key: None,
        deadline: Duration::from_secs(60),
        patience: Duration::from_secs(5),
        vocabulary: VOCABULARY,
    }
}

fn traits(reduction: Reduction) -> ServerTraits {
    ServerTraits { reduction, takes_adam: true, clips: true, numbered: true }
}

/// Settings by which a step is nearly the gradient itself. With a small `eps`, Adam would blow up what rounding leaves
/// of gradients near 0.
fn adam() -> Adam {
    Adam {
        learning_rate: RATE,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1.0,
        weight_decay: 0.1,
        grad_clip_norm: Some(1.0),
    }
}

/// An adapter on a server, as a learner's policy.
struct There(TinkerModel, ServerTraits, Adam);

impl RemotePolicy for There {
    fn vocab(&self) -> usize {
        VOCABULARY
    }

    fn logprobs(&mut self, samples: &[&Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        let texts: Vec<Text<'_>> = samples.iter().map(|sample| text(sample)).collect();
        self.0.logprobs(&texts).map_err(|error| TrainError::Other(error.into()))
    }

    fn ascend(&mut self, uphill: &[Uphill<'_>], lr: f64) -> Result<StepOutcome, TrainError> {
        let texts: Vec<_> =
            uphill.iter().map(|it| (text(it.sample), it.logprobs, it.coefficients)).collect();
        let adam = Adam { learning_rate: lr, ..self.2 };
        let norm = self.0.ascend(&texts, &self.1, &adam);
        let norm = norm.map_err(|error| TrainError::Other(error.into()))?;
        let grad_norm = norm.unwrap_or(f64::NAN);
        Ok(StepOutcome { grad_norm, grad_scale: 1.0, skipped: false })
    }
}

fn text(sample: &Sample) -> Text<'_> {
    Text { prompt: &sample.prompt, completion: &sample.completion }
}

/// Two learners that begin with the same adapter.
struct Pair {
    local: LocalLearner<Decoder>,
    remote: RemoteLearner<There>,
}

impl Pair {
    fn new(server: &Tinker, reduction: Reduction, updater: &dyn Fn() -> Updater) -> Self {
        let session = open(server);
        // The numbers of requests are known from here on.
        let tokens: Vec<TokenId> = (0..24).map(|at| (at * at + 5) % VOCABULARY as u32).collect();
        let measured = ServerTraits::measure(&session, RANK, &tokens).unwrap();
        assert_eq!(measured.reduction, reduction);

        let model = TinkerModel::create(&session, RANK, 11).unwrap();
        let begin = server.policy(model.id());
        let Adam { beta1, beta2, eps, weight_decay, .. } = adam();
        let optim = OptimConfig {
            beta1,
            beta2,
            epsilon: eps,
            weight_decay,
            max_grad_norm: 1.0,
            ..OptimConfig::default()
        };
        let schedule = || Box::new(ConstantLr { lr: RATE });
        let adamw = Box::new(AdamW::new(optim));
        let mut local = LocalLearner::new(begin.clone(), updater(), adamw, schedule());
        let there = There(model, measured, adam());
        let device = Device::flex().autodiff();
        let mut remote = RemoteLearner::new(there, updater(), schedule(), device);
        if local.updater.objective.needs_reference() {
            local.reference = Some(begin.valid());
            remote.reference =
                Some(There(TinkerModel::create(&session, RANK, 11).unwrap(), measured, adam()));
        }
        Pair { local, remote }
    }

    /// Makes one step of both, and returns their updates.
    fn step(
        &mut self,
        step: u64,
        samples: &mut [Sample],
    ) -> (firebrick_train::learner::Update<()>, firebrick_train::learner::Update<()>) {
        fn one<L: Learner>(
            learner: &mut L,
            step: u64,
            samples: &[Sample],
        ) -> firebrick_train::learner::Update<()> {
            let mut samples = samples.to_vec();
            learner.begin_step(step).unwrap();
            learner.appraise(&mut samples).unwrap();
            let update = learner.gradient(&samples).unwrap();
            let applied = learner.apply(update, &samples, false).unwrap();
            learner.end_step(true);
            applied.update
        }
        (one(&mut self.local, step, samples), one(&mut self.remote, step, samples))
    }

    /// Checks that both have the same weights.
    fn check(&self, server: &Tinker) {
        let there = values(&server.policy(self.remote.policy.0.id()));
        let here = values(&self.local.policy);
        assert_eq!(there.len(), here.len());
        let far = there.iter().zip(&here).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        report(&format!("the weights are {far:.1e} from the local ones"));
        assert!(far < 1e-6, "a weight is {far:e} from the local one");
        let moved = here.iter().filter(|value| value.abs() > 1e-3).count();
        assert!(moved > 100, "{moved} weights");
    }
}

fn values(policy: &Decoder) -> Vec<f32> {
    let trained = parameters(policy).into_iter().filter(|parameter| parameter.trained);
    trained.flat_map(|parameter| read(parameter.values)).collect()
}

/// Makes samples of several lengths, of which some are out of the loss and some were written by others in part.
fn samples(step: u64, vocabulary: usize) -> Vec<Sample> {
    let mut stream = Seed::run(step).derive("samples", &[]).stream();
    let mut at = 0;
    let mut draw = || {
        at += 1;
        stream.uniform_at(at)
    };
    let mut samples = Vec::new();
    for index in 0..10u64 {
        let length = 4 + (index as usize * 5) % 13;
        let token = |number: f64| (number * vocabulary as f64) as TokenId;
        let prompt: Vec<TokenId> = (0..3 + index % 3).map(|_| token(draw())).collect();
        let tokens: Vec<TokenId> = (0..length).map(|_| token(draw())).collect();
        // A new head makes all tokens nearly equally likely, so that some ratios are beyond the clip.
        let even = -(vocabulary as f32).ln();
        let logprobs = (0..length).map(|_| even + (draw() as f32 - 0.5) * 1.2).collect();
        let mut written = Completion::written(tokens, logprobs, FinishReason::Stop);
        if index % 4 == 1 {
            written.mask[1] = false;
        }
        let mut sample = Sample::new(&prompt, &written, index / 2);
        sample.advantages = (0..length).map(|_| draw() as f32 * 4.0 - 2.0).collect();
        sample.in_loss = index != 6;
        samples.push(sample);
    }
    samples
}
