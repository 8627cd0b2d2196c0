use burn::module::Param;
use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_models::{GradientSum, LmHead, TokenLogProbs, head_backward, head_logprobs};
use firebrick_tests::golden::{Array, Case};
use firebrick_train::algorithm::{Kl, Objective};

use super::{
    kl,
    policy_loss::{Update, boxed_dapo, check_metrics, scalar},
    tensor, values,
};

pub(crate) fn entropy(case: &Case) {
    let logits = flat_logits(case);
    let temperature = case.config.optional("temperature").unwrap_or(1.0);
    let weights = tensor::<1>(&case.inputs.array("weights"), &logits.device());
    // The entropy does not depend on the label.
    let labels = Tensor::<1, Int>::zeros([logits.dims()[0]], &logits.device());
    let got = token_logprobs(logits.clone(), labels.clone(), temperature).entropy;
    case.check("entropy", &values(got));

    let nothing = weights.zeros_like();
    let gradient = logits_gradient(logits, labels, temperature, nothing, Some(weights));
    case.check("grad_logits", &values(gradient));
}

pub(crate) fn of_labels(case: &Case) {
    let logits = flat_logits(case);
    let labels = flat_labels(case);
    let temperature = case.config.number("temperature");
    let got = token_logprobs(logits.clone(), labels.clone(), temperature).logprobs;
    case.check("logp", &values(got));

    let weights = flat(case.inputs.array("weights"), &logits.device());
    case.check("grad_logits", &values(logits_gradient(logits, labels, temperature, weights, None)));
}

/// Checks the three stages of an update's backward pass, as `Updater` chains them: leaves between logits and
/// loss, autodiff on `[rows, tokens]`, and the rest by hand.
pub(crate) fn to_loss(case: &Case) {
    let logits = flat_logits(case);
    let labels = flat_labels(case);
    let temperature = case.config.number("temperature");
    let now = token_logprobs(logits.clone(), labels.clone(), temperature);
    case.check("logp", &values(now.logprobs.clone()));

    let update = Update::new(case);
    let shape = [update.rows, update.width];
    let leaf = |flat: Tensor<1>| Tensor::<2>::from_inner(flat.reshape(shape)).require_grad();
    let logprobs = leaf(now.logprobs);
    let entropy = leaf(now.entropy);
    let input = update.input(case, 0..update.rows, logprobs.clone(), entropy.clone());
    let gradient_of_k2 = match case.config.optional_text("kl_gradient").as_deref() {
        None | Some("of_estimator") => false,
        Some("of_k2") => true,
        Some(other) => panic!("no gradient is called \"{other}\""),
    };

    let mut objective = Objective::new(boxed_dapo(&case.config));
    objective.entropy_coef = case.config.optional("entropy_coef").unwrap_or(0.0);
    objective.kl = input.ref_logprobs.is_some().then(|| Kl {
        estimator: kl::estimator(&case.config, "kl_estimator"),
        gradient_of_k2,
        coef: case.config.optional("kl_coef").unwrap_or(0.0),
    });

    let output = objective.evaluate(&input);
    check_metrics(case, &output);
    case.check("policy_loss", &[scalar(output.policy_loss)]);
    case.check("entropy", &[scalar(output.entropy)]);
    if let Some(kl) = output.kl {
        case.check("kl", &[scalar(kl)]);
    }
    case.check("loss", &[scalar(output.loss.clone())]);

    let gradients = output.loss.backward();
    let count = shape[0] * shape[1];
    // An entropy that is not in the loss has no gradient.
    let flat = |leaf: Tensor<2>| Some(leaf.grad(&gradients)?.reshape([count]));
    let d_logprobs = flat(logprobs).unwrap_or_else(|| Tensor::zeros([count], &logits.device()));
    let gradient = logits_gradient(logits, labels, temperature, d_logprobs, flat(entropy));
    case.check("grad_logits", &values(gradient));
}

/// Runs the head's code on logits, which stand for the hidden states under a head that changes nothing. Only a
/// part of the vocabulary is computed at once.
fn token_logprobs(logits: Tensor<2>, labels: Tensor<1, Int>, temperature: f64) -> TokenLogProbs {
    let [tokens, vocab] = logits.dims();
    let head = LmHead::from(Tensor::<2>::eye(vocab, &logits.device()));
    head_logprobs(&logits, &head, &labels, temperature, tokens * vocab.div_ceil(3))
}

fn logits_gradient(
    logits: Tensor<2>,
    labels: Tensor<1, Int>,
    temperature: f64,
    d_logprobs: Tensor<1>,
    d_entropy: Option<Tensor<1>>,
) -> Tensor<2> {
    let [tokens, vocab] = logits.dims();
    let now = token_logprobs(logits.clone(), labels.clone(), temperature);
    let head = Param::from_tensor(Tensor::<2>::eye(vocab, &logits.device()));
    head_backward(
        &logits,
        &head,
        &labels,
        temperature,
        tokens * vocab.div_ceil(3),
        now,
        &d_logprobs,
        d_entropy.as_ref(),
        &mut GradientSum::default(),
    )
}

/// Reshapes logits from `[.., vocab]` to `[tokens, vocab]`, without autodiff: their gradient is written by
/// hand.
fn flat_logits(case: &Case) -> Tensor<2> {
    let logits = case.inputs.array("logits");
    let vocab = *logits.shape.last().expect("logits have a vocabulary");
    let shape = [logits.values.len() / vocab, vocab];
    Tensor::from_data(TensorData::new(logits.f32(), shape), &Device::flex())
}

fn flat_labels(case: &Case) -> Tensor<1, Int> {
    let labels: Vec<i32> =
        case.inputs.array("labels").values.iter().map(|&label| label as i32).collect();
    let count = labels.len();
    Tensor::from_data(TensorData::new(labels, [count]), &Device::flex())
}

fn flat(array: Array, device: &Device) -> Tensor<1> {
    Tensor::from_data(TensorData::new(array.f32(), [array.values.len()]), device)
}
