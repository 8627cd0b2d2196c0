use std::ops::Range;

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_tests::golden::{Array, Case, Fields, Tolerance};
use firebrick_train::algorithm::{
    Aggregation, Cispo, ClipRange, Dapo, Divergence, Divisors, Dppo, Gspo, LossInput, Objective,
    ObjectiveOutput, PolicyLoss, Sapo,
};
use serde_json::json;

use super::values;

pub(crate) fn dapo(case: &Case) {
    whole(case, dapo_of(&case.config));
}

pub(crate) fn gspo(case: &Case) {
    no_dual_clip(case);
    let max_log_ratio = case.config.optional("seq_log_ratio_cap").unwrap_or(f64::INFINITY);
    whole(case, Gspo { clip: clip(&case.config), max_log_ratio });
}

pub(crate) fn cispo(case: &Case) {
    no_dual_clip(case);
    whole(case, Cispo { clip: clip(&case.config) });
}

pub(crate) fn dppo(case: &Case, divergence: Divergence) {
    let number = |key| case.config.number(key);
    let [delta_low, delta_high, ratio_cap] = ["delta_low", "delta_high", "ratio_cap"].map(number);
    whole(case, Dppo { divergence, delta_low, delta_high, ratio_cap });
}

pub(crate) fn sapo(case: &Case) {
    let [tau_pos, tau_neg] = ["tau_pos", "tau_neg"].map(|key| case.config.number(key));
    whole(case, Sapo { tau_pos, tau_neg });
}

/// Marks a setting as read that all files have, although verl, which the numbers of GSPO and CISPO come from, does
/// not look at it there.
fn no_dual_clip(case: &Case) {
    case.config.optional("dual_clip_c");
}

/// Evaluates each part alone, with its weights in the whole update. The parts add up.
pub(crate) fn micro_batches(case: &Case) {
    let policy = dapo_of(&case.config);
    let update = Update::new(case);
    let mut start = 0;
    let mut losses = Vec::new();
    let mut gradient = Vec::new();
    let mut ranges = Vec::new();

    for rows in case.config.array("micro_batch_rows").values {
        let range = start..start + rows as usize;
        start = range.end;
        let part = update.part(case, range.clone());
        let (output, d_logprobs) = differentiate(&objective(policy), &part);
        losses.push(scalar(output.loss));
        gradient.extend(d_logprobs);
        ranges.push(json!([range.start, range.end]));
    }

    case.check("loss", &[losses.iter().sum()]);
    case.check("grad_new_logp", &gradient);

    let expected = case.expected.list("micro_batches");
    let expected_ranges: Vec<_> = expected.iter().map(|part| part["rows"].clone()).collect();
    if ranges != expected_ranges {
        case.fail(format!("micro-batches are {ranges:?}, expected {expected_ranges:?}"));
    }

    let want: Vec<f64> = expected.iter().map(|part| Array::new(&part["loss"]).values[0]).collect();
    let losses: Vec<f64> = losses.into_iter().map(f64::from).collect();
    case.compare("micro_batches.loss", &losses, &want, case.f32);
}

fn whole(case: &Case, policy: impl PolicyLoss + Copy + 'static) {
    let update = Update::new(case);
    let input = update.part(case, 0..update.rows);
    let token_loss = values(policy.loss(&input).token_loss);
    let (output, gradient) = differentiate(&objective(policy), &input);
    check_loss(case, "loss", &[scalar(output.loss.clone())]);
    check_loss(case, "token_loss", &token_loss);
    case.check("grad_new_logp", &gradient);
    check_metrics(case, &output);
}

fn dapo_of(config: &Fields) -> Dapo {
    Dapo { clip: clip(config), dual_clip: config.optional("dual_clip_c") }
}

/// Makes DAPO's loss from the settings of a longer chain.
pub(crate) fn boxed_dapo(config: &Fields) -> Box<dyn PolicyLoss> {
    Box::new(dapo_of(config))
}

fn clip(config: &Fields) -> ClipRange {
    ClipRange { low: config.number("clip_low"), high: config.number("clip_high") }
}

fn objective(policy: impl PolicyLoss + 'static) -> Objective {
    Objective::new(Box::new(policy))
}

/// Evaluates the objective, and its gradient with respect to the log-probabilities.
pub(crate) fn differentiate(
    objective: &Objective,
    input: &LossInput,
) -> (ObjectiveOutput, Vec<f32>) {
    let output = objective.evaluate(input);
    let gradients = output.loss.backward();
    let gradient = match input.logprobs.grad(&gradients) {
        Some(gradient) => values(gradient),
        None => vec![0.0; input.mask.shape().num_elements()],
    };
    (output, gradient)
}

/// Compares the metrics that the case expects: means over the tokens that count.
pub(crate) fn check_metrics(case: &Case, output: &ObjectiveOutput) {
    let metric = |name: &str| {
        let found = output.metrics.iter().find(|(of, _)| *of == name);
        scalar(found.unwrap_or_else(|| panic!("no metric {name}")).1.clone())
    };
    let check = |field: &str, got: &dyn Fn() -> f32| {
        if case.expected.has(field) {
            case.check(field, &[got()]);
        }
    };

    let low = "loss/clip_fraction_low";
    let high = "loss/clip_fraction_high";
    check("clip_frac_low", &|| metric(low));
    check("clip_frac_high", &|| metric(high));
    check("clip_frac", &|| metric(low) + metric(high));
    check("approx_kl", &|| metric("loss/approx_kl"));
    check("dual_clip_frac", &|| metric("loss/dual_clip_fraction"));
}

pub(crate) fn scalar(tensor: Tensor<1>) -> f32 {
    values(tensor)[0]
}

/// Compares losses. As the file of extreme ratios states, a loss with e²⁰ in it has a relative tolerance only.
fn check_loss(case: &Case, field: &str, got: &[f32]) {
    let want = case.expected.array(field).values;
    let huge = want.iter().any(|want| want.abs() > 1e6);
    let tolerance = if huge { Tolerance { atol: 0.0, ..case.f32 } } else { case.f32 };
    let got: Vec<f64> = got.iter().map(|&value| f64::from(value)).collect();
    case.compare(field, &got, &want, tolerance);
}

/// What a whole update fixes before it is cut: the weight of every token.
pub(crate) struct Update {
    pub(crate) rows: usize,
    pub(crate) width: usize,
    mask: Vec<f32>,
    weights: Vec<f32>,
    shares: Vec<f32>,
}

impl Update {
    pub(crate) fn new(case: &Case) -> Self {
        let mask = case.inputs.array("mask");
        let &[rows, width] = mask.shape.as_slice() else { panic!("the mask is not a matrix") };
        let mask = mask.f32();
        // Without groups every completion has a prompt of its own.
        let prompts: Vec<u64> = if case.inputs.has("group_ids") {
            case.inputs.array("group_ids").values.iter().map(|&group| group as i64 as u64).collect()
        } else {
            (0..rows as u64).collect()
        };
        let counted: Vec<usize> = mask
            .chunks(width)
            .map(|row| row.iter().filter(|&&counts| counts != 0.0).count())
            .collect();

        let counts = Divisors::count(prompts.iter().copied().zip(counted.iter().copied()));
        let given = |name: &str| case.config.optional(name);
        let divisors = Divisors {
            tokens: given("batch_num_tokens").unwrap_or(counts.tokens),
            rows: given("global_batch_size").unwrap_or(counts.rows),
            constant: given("loss_scale_factor").unwrap_or(width as f64),
            ..counts.clone()
        };

        let ranks = given("dp_size").unwrap_or(1.0);
        let (aggregation, ranks) = match case.config.text("aggregation").as_str() {
            "token-mean" => (Aggregation::TokenMean, ranks),
            "prompt-mean" => (Aggregation::PromptMean, ranks),
            "seq-mean-token-mean" => (Aggregation::SequenceMean, ranks),
            "seq-mean-token-sum" => (Aggregation::SequenceSum, ranks),
            // A constant divisor does not depend on the number of devices.
            "seq-mean-token-sum-norm" => (Aggregation::Constant, 1.0),
            other => panic!("no aggregation is called \"{other}\""),
        };

        let weight_of_row =
            |row: usize| divisors.token_weight(aggregation, prompts[row], counted[row]) * ranks;
        // Metrics are means over the tokens that count, whatever the loss is a mean of.
        let share = 1.0 / counts.tokens.max(1.0);
        let on_mask = |weight: &dyn Fn(usize) -> f64| {
            let of_token = |(index, &counts): (usize, &f32)| {
                if counts == 0.0 { 0.0 } else { weight(index / width) as f32 }
            };
            mask.iter().enumerate().map(of_token).collect::<Vec<f32>>()
        };
        Update { rows, width, weights: on_mask(&weight_of_row), shares: on_mask(&|_| share), mask }
    }

    /// Makes the loss's input for some rows, from the case's arrays, which hold the log-probabilities as
    /// `new_logp`, and from the weights of the whole update.
    fn part(&self, case: &Case, rows: Range<usize>) -> LossInput {
        let device = Device::flex().autodiff();
        let logprobs = self.slice(&case.inputs.array("new_logp").f32(), rows.clone(), &device);
        let entropy = logprobs.zeros_like();
        self.input(case, rows, logprobs.require_grad(), entropy)
    }

    /// Makes the loss's input from log-probabilities and entropies of another origin.
    pub(crate) fn input(
        &self,
        case: &Case,
        rows: Range<usize>,
        logprobs: Tensor<2>,
        entropy: Tensor<2>,
    ) -> LossInput {
        let device = logprobs.device();
        let of_case =
            |name: &str| self.slice(&case.inputs.array(name).f32(), rows.clone(), &device);
        let of_update = |values: &[f32]| self.slice(values, rows.clone(), &device);
        let old_logprobs = of_case("old_logp");
        let advantages = of_case("advantages");
        let mut input = LossInput::new(logprobs, old_logprobs, advantages, of_update(&self.mask));

        input.entropy = entropy;
        input.ref_logprobs = case.inputs.has("ref_logp").then(|| of_case("ref_logp"));
        (input.loss_weights, input.metric_weights) =
            (of_update(&self.weights), of_update(&self.shares));
        input
    }

    /// Returns the mask, weights and shares of all tokens.
    pub(crate) fn of_tokens(&self, device: &Device) -> [Tensor<2>; 3] {
        [&self.mask, &self.weights, &self.shares]
            .map(|values| self.slice(values, 0..self.rows, device))
    }

    fn slice(&self, values: &[f32], rows: Range<usize>, device: &Device) -> Tensor<2> {
        let part = values[rows.start * self.width..rows.end * self.width].to_vec();
        Tensor::from_data(TensorData::new(part, [rows.len(), self.width]), device)
    }
}
