use burn::{
    module::{Module, ModuleDisplay, Param},
    tensor::{Device, Int, Tensor},
};

use crate::{KvCache, TokenBatch};

/// What sampling and training need from a model.
///
/// Hidden states and the head are separate, because logits are the largest tensor of a step (a
/// vocabulary of 150,000 makes them 200 times as wide as the hidden states) and are only ever
/// needed for some positions, a chunk at a time.
///
/// `ModuleDisplay`, which deriving a module gives, is what a module must have to be a part of another.
pub trait PolicyModel: Module + ModuleDisplay + Send + Sync {
    /// Where the weights are; with autodiff while training, without for [`Module::valid`]'s copy.
    fn device(&self) -> Device;

    /// Hidden states after the last norm, `[rows, tokens, hidden]`.
    fn hidden(&self, batch: &TokenBatch) -> Tensor<3>;

    /// Runs left-padded prompts; gives the hidden state of each one's last token, `[rows,
    /// hidden]`, and the keys and values of all.
    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, KvCache);

    /// Appends one token to each row of the cache, `[rows]`; gives its hidden state, `[rows,
    /// hidden]`.
    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut KvCache) -> Tensor<2>;

    /// The matrix that turns hidden states into logits, `[vocab, hidden]`; it may be the
    /// embedding.
    fn head(&self) -> &Param<Tensor<2>>;

    /// The copy to sample from: without autodiff, and with whatever can be prepared once.
    fn sampler(&self) -> Self {
        self.valid()
    }
}
