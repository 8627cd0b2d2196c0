//! Steps that a device has been given before their tokens are read.

use burn::tensor::{Int, Tensor, TensorData, Transaction};
use firebrick_core::TokenId;
use firebrick_kernels::sample_on_device;
use firebrick_models::{PolicyModel, head_logits};

use crate::{RolloutError, Sampling};

/// Tokens that a row is given at once. A row that ends among the first goes on to the last for nothing, and to that of the
/// next run, which is given before these are read.
pub(super) const STEPS: usize = 4;

/// A run of steps: the device draws each token from the one before, and only tokens and log-probabilities are ever read,
/// eight bytes for each.
pub(super) struct Ahead {
    /// For each step `[rows]` and `[rows]`.
    drawn: Vec<(Tensor<1, Int>, Tensor<1>)>,
}

impl Ahead {
    /// Gives the device a step for each row of `uniforms`, `[steps][rows]`, in which rows follow their tokens `last`.
    pub(super) fn new<M: PolicyModel>(
        policy: &M,
        cache: &mut M::Cache,
        mut last: Tensor<1, Int>,
        uniforms: &[Vec<f64>],
        sampling: &Sampling,
    ) -> Self {
        let (steps, rows) = (uniforms.len(), last.dims()[0]);
        let numbers: Vec<f32> = uniforms.iter().flatten().map(|&uniform| uniform as f32).collect();
        let numbers = TensorData::new(numbers, [steps * rows]);
        let uniforms = Tensor::<1>::from_data(numbers, &policy.device().inner());
        let (choice, head) = (sampling.choice(), policy.head().val());
        let drawn = (0..steps).map(|step| {
            let hidden = policy.decode(last.clone(), cache);
            let uniforms = uniforms.clone().narrow(0, step * rows, rows);
            let logits = head_logits(hidden, head.clone());
            let (tokens, logprobs) = sample_on_device(logits, uniforms, &choice);
            last = tokens.clone();
            (tokens, logprobs)
        });
        Ahead { drawn: drawn.collect() }
    }

    pub(super) fn steps(&self) -> usize {
        self.drawn.len()
    }

    /// The newest tokens, which the device knows already.
    pub(super) fn last(&self) -> Option<Tensor<1, Int>> {
        self.drawn.last().map(|(tokens, _)| tokens.clone())
    }

    /// Waits for all, and reads them: `[steps][rows]`.
    pub(super) fn read(self) -> Result<Vec<Vec<(TokenId, f32)>>, RolloutError> {
        let all = self.drawn.into_iter().fold(Transaction::default(), |all, (tokens, logprobs)| {
            all.register(tokens).register(logprobs)
        });
        let data = all.try_execute();
        let data = data.map_err(|error| RolloutError::Device(format!("{error:?}")))?;
        let read = |pair: &[TensorData]| {
            let tokens = pair[0].iter::<i64>().map(|token| token as TokenId);
            tokens.zip(pair[1].iter::<f32>()).collect()
        };
        Ok(data.chunks_exact(2).map(read).collect())
    }
}
