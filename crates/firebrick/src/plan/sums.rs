//! Bytes by part and moment.

use super::{Facts, Moment, Part};

/// Bytes of an f32: gradients, moments and logits are f32, whatever the weights are.
const F32: u128 = 4;

/// Bytes of a bfloat16.
const BF16: u128 = 2;

/// Prompt tokens that the engine prefills at once.
const PREFILL_TOKENS: u128 = 8192;

/// What a process holds that trains a model of 20 thousand parameters, on Linux: 25 MB were measured
/// for a run of `recipes/ci/tiny.toml`. A large vocabulary or data set adds to it.
const PROCESS: u128 = 25 << 20;

/// Blocks of this size and more are never kept by glibc when they are freed (its largest threshold).
const GIVEN_BACK: u128 = 32 << 20;

pub(super) fn parts(facts: &Facts) -> Vec<Part> {
    let weights = facts.parameters * F32;
    // What the engine does not share with the policy. Frozen weights are never others.
    let changed = facts.trainable * F32;
    let halves = facts.parameters * BF16;
    let gradient = facts.trainable * F32;
    let work = &facts.work;
    let (activations, sum) = fullest_micro_batch(facts, gradient);
    let part = |name, exact, bytes: &dyn Fn(Moment) -> u128| Part {
        name,
        exact,
        bytes: Moment::ALL.map(|moment| u64::try_from(bytes(moment)).unwrap_or(u64::MAX)),
    };
    let when = |condition: bool, bytes: u128| if condition { bytes } else { 0 };
    let all = vec![
        part("weights", true, &|_| weights),
        // The engine goes on sampling from the weights of the step's beginning. They are the
        // policy's own until the first update has made others.
        part("weights of the engine", true, &|moment| match moment {
            _ if facts.half => halves,
            Moment::Rollout => 0,
            Moment::Saving => changed,
            _ => when(work.updates > 1, changed),
        }),
        // A forward pass rounds the weights that it multiplies, and its backward pass needs them.
        part("rounded weights", false, &|moment| match moment {
            Moment::Head | Moment::Backward | Moment::Gradient => when(facts.half, halves),
            _ => 0,
        }),
        part("reference policy", true, &|_| when(work.reference, changed)),
        part("reward model", true, &|_| facts.reward * F32),
        // With its moments, and in an update with its gradient: its pass comes before the policy's, and
        // needs no more at any moment than that.
        part("critic", true, &|moment| match moment {
            Moment::Rollout | Moment::Saving => 3 * facts.critic * F32,
            _ => 4 * facts.critic * F32,
        }),
        match facts.one_moment {
            0 => part("moments of AdamW", true, &|_| 2 * gradient),
            one => part("moments of Muon", false, &|_| 2 * gradient - one * F32),
        },
        // The sum over earlier micro-batches is there when the next one's is made. In AdamW's step
        // new weights take the place of the gradient, one parameter after the other.
        part("gradient", true, &|moment| match moment {
            Moment::Rollout | Moment::Saving => 0,
            Moment::Head | Moment::Backward => sum,
            Moment::Gradient => gradient + when(facts.accumulates(), gradient),
            Moment::Optimizer => gradient,
        }),
        part("KV cache", false, &|moment| when(moment == Moment::Rollout, kv_cache(facts))),
        part("prefill and decoding", false, &|moment| {
            when(moment == Moment::Rollout, prefill(facts).max(decoding(facts)))
        }),
        part("activations", false, &|moment| match moment {
            Moment::Head | Moment::Backward => activations,
            _ => 0,
        }),
        part("logits", false, &|moment| match moment {
            Moment::Rollout => sampled_logits(facts),
            Moment::Head => chunk_of_logits(facts),
            _ => 0,
        }),
        part("head's gradient", false, &|moment| head_gradient(facts, moment)),
        part("one layer's backward pass", false, &|moment| match moment {
            Moment::Backward => layer_backward(facts) + weight_gradient(facts),
            Moment::Gradient => weight_gradient(facts),
            _ => 0,
        }),
        // Of one parameter at a time: its gradient's part of either moment, the update before and
        // after its division.
        part("work on one parameter", false, &|moment| match moment {
            Moment::Optimizer => 3 * facts.largest * F32,
            Moment::Saving => when(work.on_host, facts.largest * F32),
            _ => 0,
        }),
        // A checkpoint's moments are bytes in the machine's memory before they are a file.
        part("bytes of the file", true, &|moment| {
            when(moment == Moment::Saving && work.on_host, 2 * gradient)
        }),
        part("the process", false, &|_| when(work.on_host, PROCESS)),
    ];
    all.into_iter().filter(|part| part.bytes.iter().any(|&bytes| bytes > 0)).collect()
}

/// Activations of the micro-batch that needs most, and the sum of gradients beside them. The sum is
/// not there in the first, which is the largest, but from the second on, which may have fewer tokens.
fn fullest_micro_batch(facts: &Facts, gradient: u128) -> (u128, u128) {
    let tokens = facts.tokens();
    let second = (facts.work.mini_batch * facts.length() - tokens).min(tokens);
    let (first, second) = (activations(facts, tokens), activations(facts, second));
    match second > 0 && second + gradient > first {
        true => (second, gradient),
        false => (first, 0),
    }
}

/// Keys and values of every layer, as wide as the longest sequence, beside the prompts' own while the
/// rows of a group are made from them.
///
/// A full cache is copied to a wider one layer by layer, so two layers more are there: as they were,
/// and as they were taken. But where freed memory is kept for what has its size, the wider layers do
/// not fit into what the narrower ones leave, and it is two caches: on a device, whose memory is in
/// pools, and on the host below the 32 MiB from which glibc gives every block back. (For 128
/// sequences of 242 tokens, with layers of 16 MB, 324 MiB were measured; one cache and two layers made
/// it 261, two caches 322.)
fn kv_cache(facts: &Facts) -> u128 {
    let (shape, work) = (&facts.shape, &facts.work);
    let keys = shape.key * if facts.half { BF16 } else { F32 };
    let layer = work.sequences * facts.length() * keys;
    let given_back = work.on_host && layer >= GIVEN_BACK;
    let layers = if given_back { shape.layers + 2 } else { 2 * shape.layers };
    let prompts = work.sequences.div_ceil(work.group_size) * work.prompt * keys;
    2 * (layers * layer + shape.layers * prompts)
}

/// The widest layer of a prefill. Nothing is kept for a backward pass, so it is one layer's tensors.
fn prefill(facts: &Facts) -> u128 {
    let (shape, work) = (&facts.shape, &facts.work);
    let prompts = work.sequences.div_ceil(work.group_size);
    let tokens = (prompts * work.prompt).min(PREFILL_TOKENS.max(work.prompt));
    // The residual stream and its norm; beside them first q, k and v, rotated, with the scores
    // and their softmax, then gate and up with two halves of their product.
    let attention = 3 * (shape.query + 2 * shape.key) + 2 * shape.heads * work.prompt;
    let widest = 3 * shape.hidden + attention.max(4 * shape.inner);
    // What hides the future and the padding, on the host and as a tensor.
    tokens * (widest * F32 + 2 * work.prompt * F32)
}

/// One token in every sequence: what is wide is the attention's scores.
fn decoding(facts: &Facts) -> u128 {
    let (shape, work) = (&facts.shape, &facts.work);
    let widest = 3 * shape.hidden + (2 * shape.heads * facts.length()).max(4 * shape.inner);
    work.sequences * widest * F32
}

/// Logits of one token in every sequence. The host reads them back, which makes two of them; a
/// device sorts them with their ids, beside their sums and what hides the cut ones.
fn sampled_logits(facts: &Facts) -> u128 {
    let copies = if facts.work.on_host { 2 } else { 6 };
    copies * facts.work.sequences * facts.shape.vocab * F32
}

/// What autodiff keeps of the forward pass of so many tokens. It keeps the inputs of every operation whose
/// derivative needs them, and a view keeps the whole tensor that it looks into. Per token and layer:
///
/// - twice the residual stream, its scaled form and its norm: 6 hidden;
/// - q, k and v as projected, of which v is a view (query + 2 key), q and k rotated, of which k is a
///   view (query + key), q scaled and folded, and what goes into the output projection: 4 query + 3
///   key in all;
/// - of the softmax over the scores its shifted input, its exponential and its result: 3 per head and
///   token of the sequence;
/// - gate and up (2), the sigmoid, silu and the product: 5 inner.
fn activations(facts: &Facts, tokens: u128) -> u128 {
    let shape = &facts.shape;
    let layer = 6 * shape.hidden
        + 4 * shape.query
        + 3 * shape.key
        + 5 * shape.inner
        + 3 * shape.heads * facts.length();
    // Before and behind the layers: embedding, the last norm, and the hidden states that predict,
    // their gradient, whole and in chunks.
    let around = 6 * shape.hidden;
    tokens * (shape.layers * layer + around) * F32
}

/// A chunk of logits as they are normalised: themselves, their logarithms and their gradient; two
/// more where entropy has a gradient.
fn chunk_of_logits(facts: &Facts) -> u128 {
    let copies = if facts.work.entropy { 5 } else { 3 };
    let tokens = facts.logits_chunk().min(predictions(facts));
    copies * tokens * facts.shape.vocab * F32
}

/// Hidden states that predict a token, at most.
fn predictions(facts: &Facts) -> u128 {
    facts.tokens().min(facts.work.mini_batch * facts.work.completion)
}

/// It is added up chunk by chunk, so two of it are there from the second chunk on, and one to the end
/// of the backward pass; there, that of a head that is the embedding is beside the embedding's.
fn head_gradient(facts: &Facts, moment: Moment) -> u128 {
    let one = facts.lookup * F32;
    match moment {
        _ if facts.frozen => 0,
        Moment::Head if predictions(facts) > facts.logits_chunk() => 2 * one,
        Moment::Head | Moment::Backward => one,
        Moment::Gradient if facts.tied => one,
        _ => 0,
    }
}

/// The gradients inside the layer that the backward pass is in, while the layer's own tensors are
/// still there.
fn layer_backward(facts: &Facts) -> u128 {
    let shape = &facts.shape;
    let widest = (4 * shape.inner).max(3 * shape.heads * facts.length());
    facts.tokens() * widest * F32
}

/// The gradient of the largest weight of a layer, before it is in its place.
fn weight_gradient(facts: &Facts) -> u128 {
    facts.largest_in_layer * F32
}
