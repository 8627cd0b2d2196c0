//! The numbers that a model of a fixture computes, in the form of its `expected.json`.

#![allow(clippy::unwrap_used, reason = "a failure here fails the test")]

use std::collections::BTreeMap;

use burn::{
    optim::GradientsParams,
    tensor::{Device, Tensor},
};
use firebrick_core::{Completion, FinishReason, TokenId};
use firebrick_models::{Decoder, Padding, TokenBatch, named_tensors, parameters};
use firebrick_train::{
    Sample,
    algorithm::{Objective, PolicyLoss},
    learner::{MicroBatching, SharePrompts, Updater},
};

use crate::{
    close::Tolerance,
    expected::{LogitsOfBatch, unpad},
};

/// Tolerance for logits of f32 models, against other kernels.
pub const LOGITS: Tolerance = Tolerance { absolute: 2e-4, relative: 1e-4 };
/// Tolerance for the loss of f32 models, against other kernels.
pub const LOSS: Tolerance = Tolerance { absolute: 1e-4, relative: 0.0 };
/// Tolerance for gradients of f32 models, against other kernels.
pub const GRADIENTS: Tolerance = Tolerance { absolute: 1e-5, relative: 1e-3 };

/// Cuts every batch of these fixtures into several, and their logits into chunks with a remainder.
pub const MICRO_BATCHING: MicroBatching = MicroBatching {
    micro_batch_tokens: 100,
    max_logits: 1000,
    max_saved_logits: 0,
    layers_without_recompute: 1,
    offload: false,
    share_prompts: SharePrompts::Auto,
};

/// Computes the logits of every position of the padded batch, `[rows · tokens][vocab]`.
pub fn logits(decoder: &Decoder, expected: &LogitsOfBatch, padding: Padding) -> Vec<Vec<f32>> {
    let rows = unpad(&expected.input_ids, &expected.attention_mask);
    let rows: Vec<&[TokenId]> = rows.iter().map(Vec::as_slice).collect();
    let logits = decoder.logits(&TokenBatch::new(&rows, padding, &Device::flex()));

    let [count, width, vocab] = logits.dims();
    assert_eq!([count, width], [expected.input_ids.len(), expected.input_ids[0].len()]);
    read(logits.reshape([count * width * vocab])).chunks(vocab).map(<[f32]>::to_vec).collect()
}

/// Keeps the positions that are not padding.
pub fn real(positions: &[Vec<f32>], mask: &[Vec<u8>]) -> Vec<Vec<f32>> {
    let mask = mask.concat();
    assert_eq!(positions.len(), mask.len(), "positions");
    positions.iter().zip(mask).filter(|(_, mask)| *mask == 1).map(|(row, _)| row.clone()).collect()
}

/// Makes a sample for its log-probabilities alone.
pub fn sample(prompt: Vec<TokenId>, completion: Vec<TokenId>) -> Sample {
    let logprobs = vec![0.0; completion.len()];
    let completion = Completion::written(completion, logprobs, FinishReason::Stop);
    Sample::new(&prompt, &completion, 0).with_advantage(1.0)
}

/// Makes an updater that cuts as [`MICRO_BATCHING`] says and takes means over tokens.
pub fn updater(loss: impl PolicyLoss + 'static, temperature: f64) -> Updater {
    let mut updater = Updater::new(Objective::new(Box::new(loss)));
    updater.temperature = temperature;
    updater.micro_batching = MICRO_BATCHING;
    updater
}

/// Returns gradients by the checkpoint's names, for the parameters that have one.
pub fn named_gradients(
    policy: &Decoder,
    gradients: &GradientsParams,
) -> BTreeMap<String, Vec<f32>> {
    let named = parameters(policy).into_iter().flat_map(|parameter| {
        let count: usize = parameter.shape.iter().product();
        let gradient: Option<Tensor<1>> = match parameter.shape.len() {
            1 => gradients.get::<1>(parameter.id),
            3 => gradients.get::<3>(parameter.id).map(|gradient| gradient.reshape([count])),
            _ => gradients.get::<2>(parameter.id).map(|gradient| gradient.reshape([count])),
        };

        gradient.into_iter().flat_map(move |gradient| {
            named_tensors(policy.config(), &parameter.path, &parameter.shape, &read(gradient))
        })
    });
    named.map(|tensor| (tensor.name, tensor.values)).collect()
}

/// Compares the norm of each gradient. There must be exactly the gradients of the reference.
pub fn check_norms(
    what: &str,
    gradients: &BTreeMap<String, Vec<f32>>,
    expected: &BTreeMap<String, f64>,
) {
    assert!(gradients.keys().eq(expected.keys()), "{what}: {:?}", gradients.keys());

    let norm = |values: &Vec<f32>| {
        values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt()
    };
    GRADIENTS.check(
        &format!("{what}, norms by parameter"),
        gradients.values().map(norm).zip(expected.values().copied()),
    );
}

/// Reads a tensor's values.
pub fn read(tensor: Tensor<1>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().unwrap()
}
