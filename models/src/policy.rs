//! The traits `PolicyModel` and `DecodeCache`, and those of caches: what sampling and training need of any model.

use burn::{
    module::{Module, ModuleDisplay, ModuleVisitor, Param},
    tensor::{Device, Int, Tensor, TensorData},
};

use crate::{Compute, GradientSum, LmHead, Loads, SavedActivations, TokenBatch};

/// A model that can be sampled from and trained, whatever its layers are made of.
///
/// A pass over a batch goes through [`embed`](PolicyModel::embed), each [`layer`](PolicyModel::layer) and
/// [`finish`](PolicyModel::finish). The layers are separate, so that an update can keep only a layer's input and
/// recompute the layer when it needs the rest ([`backward_recompute`](PolicyModel::backward_recompute)). The result for
/// a token must not depend on later tokens, on other texts or on padding. Right padding is after every token and left
/// padding before; the model must not read either ([`TokenBatch::mask`], [`TokenBatch::token_mask`]).
///
/// [`prefill`](PolicyModel::prefill) and [`decode`](PolicyModel::decode) compute the same hidden states with the help
/// of a cache. Tokens are sampled with these two and trained with the pass over a batch, so let both share their code.
///
/// Hidden states and the head are separate, because logits are the largest tensor of a step (a vocabulary of
/// 150,000 makes them 200 times as wide as the hidden states) and are needed only for some positions, a block at a
/// time.
///
/// A module must have `ModuleDisplay` to be a part of another module. It comes with deriving a module.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy that can be sampled from and trained",
    note = "implement `firebrick_models::PolicyModel` for a burn `Module`, with a cache of its own if \
            it is no transformer; `Decoder` is the one for the Llama-like families"
)]
pub trait PolicyModel: Module + ModuleDisplay + Send + Sync + 'static {
    /// State of the rows that are being decoded: keys and values, a recurrent state, or both.
    type Cache: DecodeCache;

    /// What all layers of a pass over a batch share: masks, rotary angles; `()` if there is nothing.
    type Context;

    /// Returns the device of the weights. It is with autodiff while training, and without for the copy of
    /// [`Module::valid`].
    fn device(&self) -> Device;

    /// Prepares what the layers share in a pass over `batch`. A layer may leave something there for later ones, such as
    /// keys and values that they attend to as well; no other gradient goes through it. So each pass has a context of its
    /// own, in which layers run from the first to the last, and the backward pass from the last to the first.
    fn context(&self, batch: &TokenBatch) -> Self::Context;

    /// Computes the input of the first layer, `[rows, tokens, hidden]`.
    fn embed(&self, batch: &TokenBatch) -> Tensor<3>;

    /// Returns the number of layers.
    fn layers(&self) -> usize;

    /// Runs one layer, `[rows, tokens, hidden]` to `[rows, tokens, hidden]`. A layer has no state besides what earlier
    /// layers left in the context: the same input always makes the same output.
    ///
    /// # Panics
    /// Panics if `index` is not below [`layers`](PolicyModel::layers).
    fn layer(&self, index: usize, x: Tensor<3>, context: &Self::Context) -> Tensor<3>;

    /// Makes hidden states from the last layer's output: the last norm. They are in the matmul precision of the head.
    /// It works token by token, so an update asks only for the tokens that it needs.
    fn finish(&self, x: Tensor<3>) -> Tensor<3>;

    /// Returns the matmul precision. An update keeps the inputs of layers in this format.
    fn compute(&self) -> Compute {
        Compute::F32
    }

    /// Halves the chunks in which the model computes, because the device has no memory for larger chunks. Returns false
    /// if they are small already, or if there are none. It changes no result.
    fn halve_chunks(&mut self) -> bool {
        false
    }

    /// Tells whether batches may come without padding, with all texts in one row ([`Padding::None`]) and some of
    /// them continuing others ([`TokenBatch::packed`]).
    ///
    /// [`Padding::None`]: crate::Padding::None
    fn packs(&self) -> bool {
        false
    }

    /// Runs a layer and saves the activations that its backward pass needs. Returns the layer's output and these
    /// activations. `x` and the output are without autodiff.
    ///
    /// By default, autodiff differentiates [`layer`](PolicyModel::layer). A model whose layers leave something in the
    /// context overrides it, because autodiff sees one layer at a time.
    fn forward_saving<'a>(
        &'a self,
        index: usize,
        x: Tensor<3>,
        context: &'a Self::Context,
    ) -> (Tensor<3>, SavedActivations<'a>) {
        let x = Tensor::from_inner(x).require_grad();
        let y = self.layer(index, x.clone(), context);
        let values = y.clone().inner();

        let saved = SavedActivations::new(move |d_y, sum| {
            // The gradient of Σ y·d_y by `x` is that of the layer's input if `d_y` is that of its output.
            let mut gradients = (y * Tensor::from_inner(d_y)).sum().backward();
            sum.take(self, &mut gradients);
            x.grad_remove(&mut gradients).unwrap_or_else(|| x.inner().zeros_like())
        });
        (values, saved)
    }

    /// Recomputes a layer from its input, and then computes its backward pass. Returns the gradient of the input, given
    /// `d_y`, that of the output. The gradients of the parameters are added to `sum`. Tensors are without autodiff.
    ///
    /// Override it if your model can do this in less memory than a layer's activations take.
    fn backward_recompute(
        &self,
        index: usize,
        x: Tensor<3>,
        d_y: Tensor<3>,
        context: &Self::Context,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        self.forward_saving(index, x, context).1.backward(d_y, sum)
    }

    /// Adds the loads of experts in a pass over `batch` to `loads`; nothing if there are no experts.
    fn count_loads(&self, batch: &TokenBatch, loads: &mut Loads) {
        let _ = (batch, loads);
    }

    /// Makes backward passes ([`forward_saving`](PolicyModel::forward_saving),
    /// [`backward_recompute`](PolicyModel::backward_recompute)) add the gradient of `weight` times
    /// [`Loads::load_balancing_loss`]. `loads` must be of all the tokens that these passes go through.
    fn with_load_balancing(self, loads: &Loads, weight: f64) -> Self {
        let _ = (loads, weight);
        self
    }

    /// Returns the table in which [`embed`](PolicyModel::embed) looks tokens up, if it does nothing else. The
    /// gradient of the table is then made only for the rows that occur.
    fn lookup(&self) -> Option<Lookup<'_>> {
        None
    }

    /// Computes hidden states after the last norm, `[rows, tokens, hidden]`.
    fn hidden(&self, batch: &TokenBatch) -> Tensor<3> {
        let context = self.context(batch);
        let layers = 0..self.layers();
        self.finish(layers.fold(self.embed(batch), |x, index| self.layer(index, x, &context)))
    }

    /// Runs left-padded prompts. Returns the hidden state of each prompt's last token, `[rows, hidden]`, and the
    /// cache from which decoding continues.
    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, Self::Cache);

    /// Appends one token to each row of the cache, `[rows]`, or as many as [`DraftedCache::plan_pass`] said, those of a
    /// row side by side. Returns their hidden states, `[tokens, hidden]`. The cache has room for them.
    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut Self::Cache) -> Tensor<2>;

    /// Returns the matrix that turns hidden states into logits, `[vocab, hidden]`; it may be the embedding.
    fn head(&self) -> &Param<Tensor<2>>;

    /// Returns the bound of the logits ([`LmHead::cap`]); `None` if they stay as the matrix makes them. Sampling and
    /// training both compute by it.
    fn logit_cap(&self) -> Option<f64> {
        None
    }

    /// Returns [`head`](PolicyModel::head) and [`logit_cap`](PolicyModel::logit_cap) together, as logits are computed
    /// with them.
    fn lm_head(&self) -> LmHead {
        LmHead { matrix: self.head().val(), cap: self.logit_cap() }
    }

    /// Returns how many bytes the weights take.
    fn weight_bytes(&self) -> usize {
        let mut bytes = Bytes(0);
        self.visit(&mut bytes);
        bytes.0
    }

    /// Returns a copy for an update, with everything done that can be prepared once. Its parameters have the ids of
    /// this model's, and require gradients where these do.
    fn prepared(&self) -> Self {
        self.clone()
    }

    /// Returns a copy for sampling: without autodiff, and with everything done that can be prepared once. If it has
    /// adapters, it can't be merged or saved.
    fn sampler(&self) -> Self {
        self.valid().prepared()
    }

    /// Removes the model's own head, if it can do without, for a critic that needs only hidden states.
    /// [`head`](PolicyModel::head) is still as wide as they are.
    fn trunk(self) -> Self {
        self
    }
}

struct Bytes(usize);

impl ModuleVisitor for Bytes {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let weights = param.val();
        self.0 += weights.shape().num_elements() * weights.dtype().size();
    }

    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        let codes = param.val();
        self.0 += codes.shape().num_elements() * codes.dtype().size();
    }
}

/// A table of embeddings.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// Embeddings, `[vocab, hidden]`.
    pub table: &'a Param<Tensor<2>>,
    /// Factor of the table's rows.
    pub scale: f64,
}

/// A policy's state of the rows that are being decoded.
///
/// Rows are independent of each other, and begin and end at different times: an engine drops those that have ended, and
/// lets others join.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the cache of a policy",
    note = "use `firebrick_models::KvCache` for keys and values; implement \
            `firebrick_models::DecodeCache` for anything else, such as a recurrent state"
)]
pub trait DecodeCache: Clone + Send {
    /// Returns the number of rows.
    fn rows(&self) -> usize;

    /// Returns how many more tokens each row can take before the cache must be arranged again; `usize::MAX` if
    /// tokens never make that necessary.
    fn room(&self) -> usize;

    /// Makes a cache of this one's rows `keep`, in that order, followed by the rows of the other cache at the indices
    /// that come with it. It has room for at least one more token in each row, and at best for `room`, the maximum that
    /// a row still takes.
    ///
    /// A newcomer's index may be repeated to copy its row, which is how the completions of a group share their prompt's
    /// prefill. An index of `keep` may be repeated as well. At least one row is asked for, and every index must be that
    /// of a row.
    fn arrange(self, keep: &[usize], newcomers: Option<(&Self, &[usize])>, room: usize) -> Self;

    /// Returns the cache as one that a captured graph of steps can fill. By default there is none, and the host
    /// launches every step.
    fn replayed(&mut self) -> Option<&mut dyn ReplayedCache> {
        None
    }

    /// Returns the cache as one that verifies drafts. By default there is none, and each pass decodes one token in
    /// every row.
    fn drafted(&mut self) -> Option<&mut dyn DraftedCache> {
        None
    }
}

/// A [`DecodeCache`] that the device fills by itself, while it replays a captured graph of decoding steps.
pub trait ReplayedCache {
    /// Prepares the cache for `tokens` more tokens in each row. Returns how many tokens each row can take until the
    /// host is needed again, or until a step must be launched in another way; 0 if the cache is in a form that no graph
    /// can fill. Everything that a step leaves for the next one must stay at its address, except the counter.
    fn make_ready(&mut self, tokens: usize) -> usize;

    /// Returns the number of tokens before each row's newest, `[rows]`, as the device counts them; `None` on a device
    /// that does not count, and before [`make_ready`](ReplayedCache::make_ready). Besides what it writes, this is the
    /// only number of a step that the device changes by itself.
    fn counter(&self) -> Option<Tensor<1, Int>>;

    /// Advances each row by `tokens` tokens, or takes some back if the number is negative. The device has written them
    /// and counted them in `counter`.
    fn advance(&mut self, counter: Tensor<1, Int>, tokens: isize);
}

/// A [`DecodeCache`] that takes several tokens of a row in one pass, a draft of the row's text, and gives back those
/// that were not sampled. The hidden state of each token must have the same bits as if the tokens came one by one.
pub trait DraftedCache {
    /// Makes the next pass append this many tokens to each row, at least one.
    fn plan_pass(&mut self, tokens: &[usize]);

    /// Takes this many of the newest tokens away from each row, fewer than it has.
    fn take_back(&mut self, tokens: &[usize]);
}

/// Arranges one tensor with a row for each sequence, `[rows, …]`, as [`DecodeCache::arrange`] says. A recurrent state
/// needs no more than this.
///
/// # Panics
/// Panics if no row is asked for, or one that is not there.
pub fn arrange_rows<const D: usize>(
    rows: Tensor<D>,
    keep: &[usize],
    newcomers: Option<(Tensor<D>, &[usize])>,
) -> Tensor<D> {
    let take = |rows: Tensor<D>, which: &[usize]| {
        let indices: Vec<i32> = which.iter().map(|&row| row as i32).collect();
        let indices = TensorData::new(indices, [which.len()]);
        let device = rows.device();
        rows.select(0, Tensor::<1, Int>::from_data(indices, &device))
    };

    let parts = [Some((rows, keep)), newcomers].into_iter().flatten();
    // A part without rows would be an empty tensor, which not every device takes.
    let parts = parts.filter(|(_, which)| !which.is_empty());
    Tensor::cat(parts.map(|(rows, which)| take(rows, which)).collect(), 0)
}
