use burn::{
    module::{Module, Param},
    optim::GradientsParams,
    tensor::{Device, Int, Tensor, TensorData, activation::log_softmax},
};
use firebrick_core::{Completion, FinishReason};
use firebrick_tests::golden::{Array, Case, Fields};
use firebrick_train::{
    Sample, TrainError,
    adaptive::{
        AdaptiveUpdates, Importance, Repeatable, Signals, mean_advantage, mean_change, repeat,
    },
    algorithm::{ClipRange, Dapo, GroupNorm, LossInput, Objective},
    learner::{AdamW, OptimConfig, Optimizer as _},
};
use serde_json::Value;

use super::{tensor, values};

/// Checks the score of a batch, the updates it is worth, and whether its change ends them.
pub(crate) fn count(case: &Case) {
    let rule = rule(&case.config);
    let of = |name: &str| case.inputs.array(name);
    let samples = samples(&of("advantages").f32(), &of("old_logp").f32());
    let now: Vec<Vec<f32>> = of("new_logp").f32().into_iter().map(|logp| vec![logp]).collect();
    let entropy = of("entropy").values;

    let change = mean_change(&samples, &now);
    let signals = Signals {
        advantage: mean_advantage(&samples),
        change,
        entropy: entropy.iter().sum::<f64>() / entropy.len() as f64,
    };
    let score = Importance::new(&rule, &signals).score();

    let check = |field: &str, got: f64| {
        case.compare(field, &[got], &case.expected.array(field).values, case.f64);
    };
    check("importance_score", score);
    check("kl", change);
    case.check_exact("n_steps", rule.updates(score));
    case.check_exact("kl_stop", rule.stops(change));
}

/// Checks the whole loop, as training runs it, on a policy of two arrays.
pub(crate) fn update(case: &Case) {
    let rule = rule(&case.config);
    let device = Device::flex().autodiff();
    let weights = |name: &str| case.inputs.array(name);
    let range = case.config.number("clip_ratio");
    let clip = ClipRange { low: range, high: range };
    let mut objective = Objective::new(Box::new(Dapo { clip, dual_clip: None }));
    objective.entropy_coef = case.config.number("entropy_coef");

    let mut learner = Learner {
        model: Model {
            policy: Param::from_tensor(tensor(&weights("policy_weights"), &device)),
            value: Param::from_tensor(tensor(&weights("value_weights"), &device)),
        },
        optimizer: Optimizer::new(&case.config),
        lr: case.config.number("lr"),
        objective,
        value_coef: case.config.number("value_coef"),
        losses: Vec::new(),
    };

    let mut scores = vec![];
    let mut planned = vec![];
    let mut done = vec![];
    let mut stopped = vec![];
    let mut changes = Vec::new();
    for batch in case.inputs.list("batches") {
        let mut batch =
            Batch { learner: &mut learner, data: Data::new(&batch), updates: 0, changes: vec![] };
        let repeats = repeat(&mut batch, &rule).expect("the CPU computes");
        changes.push(batch.changes);
        scores.push(repeats.importance.score());
        planned.push(repeats.planned);
        done.push(repeats.done);
        stopped.push(repeats.stopped_by_kl);
    }

    let check = |field: &str, got: &[f64], want: &Value| {
        case.compare(field, got, &Array::new(want).values, case.f32);
    };
    check("importance_scores", &scores, &case.expected.value("importance_scores"));
    case.check_exact("planned_steps", planned);
    case.check_exact("steps_done", done);
    case.check_exact("early_stopped", stopped);

    let losses = &learner.losses;
    check("losses", losses, &case.expected.value("losses"));
    check("total_loss", &[losses.iter().sum()], &case.expected.value("total_loss"));

    let expected = case.expected.list("kl_after_each_step");
    assert_eq!(expected.len(), changes.len());
    for (got, want) in changes.iter().zip(&expected) {
        check("kl_after_each_step", got, want);
    }

    case.check("policy_weights", &values(learner.model.policy.val()));
    case.check("value_weights", &values(learner.model.value.val()));
}

/// Makes the rule as it was published, without the guard of the entropy's term.
fn rule(config: &Fields) -> AdaptiveUpdates {
    AdaptiveUpdates {
        weight_advantage: config.number("w_advantage"),
        weight_change: config.number("w_kl"),
        weight_entropy: config.number("w_entropy"),
        max_entropy_term: 0.0,
        n_base: config.whole("n_base") as usize,
        n_min: config.whole("n_min") as usize,
        n_max: config.whole("n_max") as usize,
        kl_stop: config.number("kl_threshold"),
    }
}

/// Makes completions of one token each.
fn samples(advantages: &[f32], old_logprobs: &[f32]) -> Vec<Sample> {
    let sample = |(&advantage, &old): (&f32, &f32)| {
        let completion = Completion::written(vec![0], vec![old], FinishReason::Stop);
        Sample::new(&[0], &completion, 0).with_advantage(advantage)
    };
    advantages.iter().zip(old_logprobs).map(sample).collect()
}

/// A policy that is a softmax over states · policyᵀ, and a value that is states · value.
#[derive(Module, Debug)]
struct Model {
    policy: Param<Tensor<2>>,
    value: Param<Tensor<1>>,
}

struct Learner {
    model: Model,
    optimizer: Optimizer,
    lr: f64,
    objective: Objective,
    value_coef: f64,
    /// Loss of every update.
    losses: Vec<f64>,
}

enum Optimizer {
    Sgd,
    AdamW(Box<AdamW>),
}

impl Optimizer {
    fn new(config: &Fields) -> Self {
        let adam = config.value("adam");
        let setting = |name: &str| adam[name].as_f64().expect("a setting of the optimizer");
        match config.text("optimizer").as_str() {
            "sgd" => Optimizer::Sgd,
            "adam" => Optimizer::AdamW(Box::new(AdamW::new(OptimConfig {
                beta1: setting("beta1"),
                beta2: setting("beta2"),
                epsilon: setting("eps"),
                weight_decay: setting("weight_decay"),
                decay_vectors: true,
                max_grad_norm: f64::INFINITY,
                ..OptimConfig::default()
            }))),
            other => panic!("no optimizer is called \"{other}\""),
        }
    }

    fn step(&mut self, model: Model, mut gradients: GradientsParams, lr: f64) -> Model {
        match self {
            Optimizer::Sgd => Model {
                policy: descend(model.policy, &mut gradients, lr),
                value: descend(model.value, &mut gradients, lr),
            },
            Optimizer::AdamW(adam) => adam.step(model, gradients, lr).expect("the CPU computes").0,
        }
    }
}

fn descend<const D: usize>(
    param: Param<Tensor<D>>,
    gradients: &mut GradientsParams,
    lr: f64,
) -> Param<Tensor<D>> {
    let gradient = gradients.remove::<D>(param.id).expect("both arrays are in the loss");
    param.map(|values| Tensor::from_inner(values.inner() - gradient.mul_scalar(lr)).require_grad())
}

struct Data {
    states: Array,
    actions: Vec<i32>,
    returns: Array,
    samples: Vec<Sample>,
}

impl Data {
    fn new(batch: &Value) -> Self {
        let of = |name: &str| Array::new(&batch[name]);
        // The published loop normalises the advantages of each batch.
        let norm = GroupNorm { epsilon: 1e-8, unbiased: true };
        let advantages = norm.of_group(&of("advantages").f32());
        Data {
            states: of("states"),
            actions: of("actions").values.iter().map(|&action| action as i32).collect(),
            returns: of("returns"),
            samples: samples(&advantages, &of("old_logp").f32()),
        }
    }
}

struct Batch<'a> {
    learner: &'a mut Learner,
    data: Data,
    updates: usize,
    /// Change of the policy after each update.
    changes: Vec<f64>,
}

impl Batch<'_> {
    /// Computes the log-probabilities of the actions and the entropies, both `[rows, 1]`.
    fn forward(&self) -> (Tensor<2>, Tensor<2>) {
        let policy = self.learner.model.policy.val();
        let device = policy.device();
        let actions = TensorData::new(self.data.actions.clone(), [self.data.actions.len(), 1]);
        let actions = Tensor::<2, Int>::from_data(actions, &device);
        let all =
            log_softmax(tensor::<2>(&self.data.states, &device).matmul(policy.transpose()), 1);
        let entropy = (all.clone().exp() * all.clone()).sum_dim(1).neg();
        (all.gather(1, actions), entropy)
    }

    fn change_of(&self, logprobs: Tensor<2>) -> f64 {
        let now: Vec<Vec<f32>> = values(logprobs).into_iter().map(|logp| vec![logp]).collect();
        mean_change(&self.data.samples, &now)
    }

    fn column(&self, of: impl Fn(&Sample) -> f32) -> Tensor<2> {
        let values: Vec<f32> = self.data.samples.iter().map(of).collect();
        let shape = [values.len(), 1];
        Tensor::from_data(TensorData::new(values, shape), &self.learner.model.policy.val().device())
    }
}

impl Repeatable for Batch<'_> {
    type Pass = (GradientsParams, f64);

    fn pass(&mut self) -> Result<(Self::Pass, Signals), TrainError> {
        let (logprobs, entropy) = self.forward();
        let change = self.change_of(logprobs.clone());
        // Before the first update nothing has changed yet.
        if self.updates > 0 {
            self.changes.push(change);
        }

        let old_logprobs = self.column(|sample| sample.old_logprobs[0]);
        let advantages = self.column(|sample| sample.advantages[0]);
        let mask = self.column(|_| 1.0);
        let mut input = LossInput::new(logprobs, old_logprobs, advantages, mask);
        input.entropy = entropy;
        let output = self.learner.objective.evaluate(&input);

        // The value has a plain squared error here, added to the policy's loss.
        let value = self.learner.model.value.val();
        let states = tensor::<2>(&self.data.states, &value.device());
        let returns = tensor::<1>(&self.data.returns, &value.device());
        let of_states = states.matmul(value.unsqueeze_dim(1)).squeeze_dim::<1>(1);
        let value_loss = (of_states - returns).square().mean();
        let loss = output.loss + value_loss.mul_scalar(self.learner.value_coef);

        let signals = Signals {
            advantage: mean_advantage(&self.data.samples),
            change,
            entropy: f64::from(values(output.entropy)[0]),
        };
        let of_loss = f64::from(values(loss.clone())[0]);
        let gradients = GradientsParams::from_grads(loss.backward(), &self.learner.model);
        Ok(((gradients, of_loss), signals))
    }

    fn apply(&mut self, (gradients, loss): Self::Pass) -> Result<bool, TrainError> {
        let model = self.learner.model.clone();
        self.learner.model = self.learner.optimizer.step(model, gradients, self.learner.lr);
        self.learner.losses.push(loss);
        self.updates += 1;
        Ok(true)
    }

    fn change(&mut self) -> Result<f64, TrainError> {
        let change = self.change_of(self.forward().0);
        self.changes.push(change);
        Ok(change)
    }
}
