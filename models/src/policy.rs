use burn::{
    module::{Module, ModuleDisplay, Param},
    tensor::{Device, Int, Tensor, TensorData},
};

use crate::{Compute, GradientSum, Loads, Tape, TokenBatch};

/// A model, as sampling and training need it, whatever its layers are made of.
///
/// A pass over a batch goes through [`embed`](PolicyModel::embed), each [`layer`](PolicyModel::layer)
/// and [`finish`](PolicyModel::finish). The layers are apart, so that an update can keep a layer's
/// input alone and go through the layer once more when it needs the rest
/// ([`replay`](PolicyModel::replay)). What a pass gives for a
/// token must not depend on later tokens, on other texts or on padding: right padding lies behind every
/// token, left padding before, and a model has to see to it that it reads none of it
/// ([`TokenBatch::sight`], [`TokenBatch::present`]).
///
/// [`prefill`](PolicyModel::prefill) and [`decode`](PolicyModel::decode) compute the same hidden states
/// from what they remember. Tokens are drawn from the one and trained on the other: write both over
/// the same code.
///
/// Hidden states and the head are separate, because logits are the largest tensor of a step (a
/// vocabulary of 150,000 makes them 200 times as wide as the hidden states) and are only ever
/// needed for some positions, a block at a time.
///
/// `ModuleDisplay`, which deriving a module gives, is what a module must have to be a part of another.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a policy that can be sampled from and trained",
    note = "implement `firebrick_models::PolicyModel` for a burn `Module`, with a cache of its own if \
            it is no transformer; `Decoder` is the one for the Llama-like families"
)]
pub trait PolicyModel: Module + ModuleDisplay + Send + Sync + 'static {
    /// The memory of the rows that are being decoded: keys and values, a recurrent state, or both.
    type Cache: DecodeCache;

    /// The things that all layers of a pass over a batch share: masks, rotary angles; `()` where there is
    /// nothing.
    type Context;

    /// Where the weights are; with autodiff while training, without for [`Module::valid`]'s copy.
    fn device(&self) -> Device;

    /// Prepares the things that the layers share in a pass over `batch`. They are constants: no gradient
    /// goes through them.
    fn context(&self, batch: &TokenBatch) -> Self::Context;

    /// Gives the input of the first layer, `[rows, tokens, hidden]`.
    fn embed(&self, batch: &TokenBatch) -> Tensor<3>;

    /// Number of layers.
    fn layers(&self) -> usize;

    /// One layer, `[rows, tokens, hidden]` to the same. It has no state: the same input gives the same
    /// output as often as it is asked.
    ///
    /// # Panics
    /// When `index` is not below [`layers`](PolicyModel::layers).
    fn layer(&self, index: usize, x: Tensor<3>, context: &Self::Context) -> Tensor<3>;

    /// From the last layer to hidden states, in the format that the head is multiplied in: the last
    /// norm. It works token by token: an update asks it for those alone that it needs.
    fn finish(&self, x: Tensor<3>) -> Tensor<3>;

    /// The format that matrices are multiplied in; an update keeps in it what it goes through once more.
    fn compute(&self) -> Compute {
        Compute::F32
    }

    /// Computes in pieces half as large from here on, where the device has no memory for larger ones; false
    /// where the pieces are small already, or there are none. It changes no result.
    fn halve_pieces(&mut self) -> bool {
        false
    }

    /// Tells if batches may come without padding, all texts in one row ([`Padding::None`]), some of them
    /// going on from others ([`TokenBatch::packed`]).
    ///
    /// [`Padding::None`]: crate::Padding::None
    fn packs(&self) -> bool {
        false
    }

    /// A layer with a way back: its output, and a tape with everything that its backward pass needs.
    /// `x` and the output are without autodiff.
    ///
    /// As it is here, autodiff goes back through [`layer`](PolicyModel::layer).
    fn record<'a>(
        &'a self,
        index: usize,
        x: Tensor<3>,
        context: &'a Self::Context,
    ) -> (Tensor<3>, Tape<'a>) {
        let x = Tensor::from_inner(x).require_grad();
        let y = self.layer(index, x.clone(), context);
        let values = y.clone().inner();
        let tape = Tape::new(move |d_y, sum| {
            let mut gradients = (y * Tensor::from_inner(d_y)).sum().backward();
            sum.take(self, &mut gradients);
            x.grad_remove(&mut gradients).unwrap_or_else(|| x.inner().zeros_like())
        });
        (values, tape)
    }

    /// Goes through a layer once more and back: from the gradient of its output, `d_y`, to that of its
    /// input; the parameters' is added to `sum`. Tensors are without autodiff.
    ///
    /// A model that can do with less memory than a whole layer's says how.
    fn replay(
        &self,
        index: usize,
        x: Tensor<3>,
        d_y: Tensor<3>,
        context: &Self::Context,
        sum: &mut GradientSum,
    ) -> Tensor<3> {
        self.record(index, x, context).1.back(d_y, sum)
    }

    /// Adds the loads of experts in a pass over `batch` to `loads`; nothing where there are none.
    fn count_loads(&self, batch: &TokenBatch, loads: &mut Loads) {
        let _ = (batch, loads);
    }

    /// The same model, whose ways back ([`record`](PolicyModel::record), [`replay`](PolicyModel::replay)) add the gradient of
    /// `weight` times [`Loads::loss`]. `loads` are those of all the tokens that they go through.
    fn balanced(self, loads: &Loads, weight: f64) -> Self {
        let _ = (loads, weight);
        self
    }

    /// The table that [`embed`](PolicyModel::embed) looks tokens up in, if that is all it does: its
    /// gradient is then made for the rows that occur.
    fn lookup(&self) -> Option<Lookup<'_>> {
        None
    }

    /// Hidden states after the last norm, `[rows, tokens, hidden]`.
    fn hidden(&self, batch: &TokenBatch) -> Tensor<3> {
        let context = self.context(batch);
        let layers = 0..self.layers();
        self.finish(layers.fold(self.embed(batch), |x, index| self.layer(index, x, &context)))
    }

    /// Runs left-padded prompts; gives the hidden state of each one's last token, `[rows,
    /// hidden]`, and what decoding goes on from.
    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, Self::Cache);

    /// Appends one token to each row of the cache, `[rows]`; gives its hidden state, `[rows,
    /// hidden]`. The cache has room for it.
    fn decode(&self, tokens: Tensor<1, Int>, cache: &mut Self::Cache) -> Tensor<2>;

    /// The matrix that turns hidden states into logits, `[vocab, hidden]`; it may be the
    /// embedding.
    fn head(&self) -> &Param<Tensor<2>>;

    /// The copy to sample from: without autodiff, and with whatever can be prepared once.
    fn sampler(&self) -> Self {
        self.valid()
    }

    /// The same model without a head of its own, where it can do without: what gives hidden states
    /// to a critic. [`head`](PolicyModel::head) is still as wide as they are.
    fn trunk(self) -> Self {
        self
    }
}

/// A table of embeddings.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// `[vocab, hidden]`.
    pub table: &'a Param<Tensor<2>>,
    /// The factor of its rows.
    pub scale: f64,
}

/// A policy's memory of the rows that are being decoded.
///
/// Rows are independent of each other. They begin and end at different times: an engine drops those
/// that have ended, and lets others join.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the cache of a policy",
    note = "use `firebrick_models::KvCache` for keys and values; implement \
            `firebrick_models::DecodeCache` for anything else, such as a recurrent state"
)]
pub trait DecodeCache: Clone + Send {
    /// Number of rows.
    fn rows(&self) -> usize;

    /// How many more tokens each row can take before the cache must be arranged anew; `usize::MAX`
    /// where it does not grow with them.
    fn room(&self) -> usize;

    /// Makes ready for `tokens` more of each row, which a device writes by itself, as launches that were recorded are
    /// repeated: gives how many it can take until the host is needed again or a step is launched in another way. Whatever a
    /// step leaves for the next has to lie where it lay, but for the counter. Those who can't say 0, and are asked for
    /// nothing more.
    fn make_ready(&mut self, tokens: usize) -> usize {
        let _ = tokens;
        0
    }

    /// How many tokens stand before each row's newest, `[rows]`, as the device counts them: the one number of a step that the
    /// device changes by itself beside what it writes.
    fn counter(&self) -> Option<Tensor<1, Int>> {
        None
    }

    /// Has `tokens` more for each row, or as many fewer: the device has written and counted them in `counter`.
    fn count_on(&mut self, counter: Tensor<1, Int>, tokens: isize) {
        let _ = (counter, tokens);
    }

    /// A cache of the rows `keep` of this one, in that order, followed by the rows of `newcomers` at
    /// the indices beside it, with room for more tokens: for `room` of them, which is the most that a row
    /// still takes, or for fewer, and at least one.
    ///
    /// A newcomer's index that stands there several times is copied: that is how the completions of
    /// a group share their prompt's prefill. An index of `keep` may be repeated as well. At least one
    /// row is asked for, and every index is that of a row.
    fn arrange(self, keep: &[usize], newcomers: Option<(&Self, &[usize])>, room: usize) -> Self;
}

/// [`DecodeCache::arrange`] of one tensor with a row for each sequence, `[rows, …]`: all that a
/// recurrent state needs.
///
/// # Panics
/// When no row is asked for, or one that is not there.
pub fn arrange_rows<const D: usize>(
    own: Tensor<D>,
    keep: &[usize],
    newcomers: Option<(Tensor<D>, &[usize])>,
) -> Tensor<D> {
    let take = |rows: Tensor<D>, which: &[usize]| {
        let indices: Vec<i32> = which.iter().map(|&row| row as i32).collect();
        let indices = TensorData::new(indices, [which.len()]);
        let device = rows.device();
        rows.select(0, Tensor::<1, Int>::from_data(indices, &device))
    };
    let parts = [Some((own, keep)), newcomers].into_iter().flatten();
    // A part of no rows would be an empty tensor, which not every device takes.
    let parts = parts.filter(|(_, which)| !which.is_empty());
    Tensor::cat(parts.map(|(rows, which)| take(rows, which)).collect(), 0)
}
