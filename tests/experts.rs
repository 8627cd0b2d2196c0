//! Experts' uneven loads: neither the value of their loss nor its gradient depends on how an update is cut.

#![allow(clippy::unwrap_used)]

use burn::{
    module::{Module, ModuleMapper, Param},
    optim::GradientsParams,
    tensor::{Device, Tensor},
};
use firebrick_core::Seed;
use firebrick_models::{
    ChunkSizes, Decoder, DecoderConfig, Family, Loads, Padding, PolicyModel, Sizes, TokenBatch,
    random,
};
use firebrick_tests::{
    close::Tolerance,
    computed::{check_norms, named_gradients, sample, updater},
    expected::{Logits, RouterAux, unpad},
    fixture::for_each_checkpoint,
};
use firebrick_train::{
    Sample,
    algorithm::{ClipRange, Dapo},
    learner::{EXPERT_LOAD_MAX, MicroBatching, ROUTER_AUX_LOSS, SharePrompts, Updater},
};

const LOSS: Tolerance = Tolerance { absolute: 0.0, relative: 1e-5 };
/// Tolerance for the difference of two losses that differ in their third digit.
const DIFFERENCE: Tolerance = Tolerance { absolute: 0.0, relative: 1e-2 };

/// The reference is transformers' own function, called for each layer by itself.
#[test]
fn uneven_loads_cost_what_they_cost_in_transformers() {
    for_each_checkpoint("router_aux", |fixture, expected: RouterAux| {
        let policy = fixture.decoder(&Device::flex().autodiff());
        let batch = fixture.block::<Logits>("logits").right;
        let samples: Vec<Sample> = unpad(&batch.input_ids, &batch.attention_mask)
            .into_iter()
            .map(|row| sample(row[..1].to_vec(), row[1..].to_vec()).with_advantage(0.0))
            .collect();

        let report = balancing().gradients(&policy, &samples).unwrap();
        let got = report.metrics.get(ROUTER_AUX_LOSS).unwrap();
        LOSS.check(&format!("{}: loss of uneven loads", fixture.name), [(got, expected.loss)]);

        let mut gradients = named_gradients(&policy, &report.gradients);
        // Weights behind the last router have no part in this loss.
        gradients.retain(|_, values| values.iter().any(|value| *value != 0.0));
        check_norms(&format!("{}: uneven loads", fixture.name), &gradients, &expected.grad_norms);
    });
}

#[test]
fn a_step_down_its_gradient_makes_loads_cost_less() {
    let policy = policy();
    let samples = samples();
    let report = balancing().gradients(&policy, &samples).unwrap();
    let norm = squared(&policy, &report.gradients);
    let gradients = report.gradients;
    let by = 1e-3 / norm;

    let moved = |by| loss(&policy.clone().map(&mut Moved { gradients: &gradients, by }), &samples);
    // Along its gradient, a loss grows by the gradient's squared length.
    let slope = (moved(by) - moved(-by)) / (2.0 * by);
    DIFFERENCE.check("the loss along its gradient", [(slope, norm)]);
}

#[test]
fn uneven_loads_do_not_depend_on_the_cut() {
    let policy = policy();
    let samples = samples();
    let whole = balancing().gradients(&policy, &samples).unwrap();
    let fine = policy.clone().with_chunk_sizes(ChunkSizes { tokens: 5, scores: 40 });

    // Experts share no prompts, even if shared prompts are asked for.
    let share_prompts = SharePrompts::Always;
    let micro_batching = MicroBatching {
        micro_batch_tokens: 16,
        layers_without_recompute: 1,
        share_prompts,
        ..balancing().micro_batching
    };
    let mut updater = balancing();
    updater.micro_batching = micro_batching;
    let parts = updater.gradients(&fine, &samples).unwrap();

    for name in [ROUTER_AUX_LOSS, EXPERT_LOAD_MAX, "loss/total"] {
        let of =
            |report: &firebrick_train::learner::UpdateReport| report.metrics.get(name).unwrap();
        LOSS.check(name, [(of(&parts), of(&whole))]);
    }

    let [parts, whole] = [parts, whole].map(|report| named_gradients(&policy, &report.gradients));
    for (name, values) in &whole {
        let close = Tolerance { absolute: 1e-6, relative: 1e-4 };
        let pairs = parts[name].iter().zip(values);
        close.check(name, pairs.map(|(a, b)| (f64::from(*a), f64::from(*b))));
    }
}

/// Makes an updater for advantages of 0, so that only uneven loads have a gradient.
fn balancing() -> Updater {
    let clip = ClipRange { low: 0.2, high: 0.28 };
    let mut updater = updater(Dapo { clip, dual_clip: None }, 1.0);
    updater.router_aux_loss_coef = 1.0;
    updater.micro_batching =
        MicroBatching { share_prompts: SharePrompts::Never, ..MicroBatching::default() };
    updater
}

/// Makes a policy of two layers with experts around one without.
fn policy() -> Decoder {
    let mut config = DecoderConfig::new(
        Family::Qwen3Moe,
        Sizes {
            vocab_size: 23,
            hidden_size: 16,
            layers: 3,
            heads: 4,
            kv_heads: 2,
            head_dim: 4,
            intermediate_size: 24,
            max_position_embeddings: 64,
            rope_theta: 10_000.0,
            tied: true,
        },
    );

    config.kinds[1].sparse = false;
    random(&config, Seed::run(3), &Device::flex().autodiff()).unwrap()
}

fn samples() -> Vec<Sample> {
    // The rows come in pairs with the same prompt.
    let token = |row: u32, at: u32| {
        let own = if at < 3 { row / 2 } else { row };
        (7 * own + 5 * at * at + at) % 23
    };
    let row = |row: u32| {
        let tokens: Vec<u32> = (0..6 + row % 4).map(|at| token(row, at)).collect();
        sample(tokens[..3].to_vec(), tokens[3..].to_vec()).with_advantage(0.0)
    };
    (0..6).map(row).collect()
}

fn loss(policy: &Decoder, samples: &[Sample]) -> f64 {
    let rows: Vec<Vec<u32>> =
        samples.iter().map(|it| [&it.prompt[..], &it.completion[..]].concat()).collect();
    let rows: Vec<&[u32]> = rows.iter().map(Vec::as_slice).collect();
    let mut loads = Loads::default();
    let batch = TokenBatch::new(&rows, Padding::None, &policy.device());
    policy.valid().count_loads(&batch, &mut loads);
    loads.load_balancing_loss()
}

/// Adds `by` times its gradient to each parameter.
struct Moved<'a> {
    gradients: &'a GradientsParams,
    by: f64,
}

impl ModuleMapper for Moved<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(gradient) = self.gradients.get::<D>(param.id) else { return param };
        param.map(|values| {
            Tensor::from_inner(values.inner() + gradient.mul_scalar(self.by)).require_grad()
        })
    }
}

/// Computes the sum of all squares of a gradient.
fn squared(policy: &Decoder, gradients: &GradientsParams) -> f64 {
    let named = named_gradients(policy, gradients);
    named.values().flatten().map(|value| f64::from(*value).powi(2)).sum()
}
