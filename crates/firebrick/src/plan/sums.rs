//! Sums of a plan: the bytes of each part of a run at each moment of a step.

use firebrick_kernels::PAGE;

use super::{Facts, Moment, Part, Workload};

/// Bytes of an f32: gradients, moments and logits are f32, whatever the weights are.
const F32: u128 = 4;

/// Bytes of a bfloat16.
const BF16: u128 = 2;

/// Prompt tokens that the engine prefills together.
const PREFILL_TOKENS: u128 = 8192;

/// Memory of a process that trains a model of 20 thousand parameters, on Linux: 25 MB were measured for a run of
/// `recipes/ci/tiny.toml`. A large vocabulary or data set adds to it.
const PROCESS: u128 = 25 << 20;

pub(super) fn parts(facts: &Facts) -> Vec<Part> {
    let weights = facts.frozen_bytes + facts.trainable * F32;

    // The engine shares frozen weights with the policy, unless the matmul precision differs from the format that they
    // are kept in. It has its own copy of the others once they have changed. Of adapters it has only joined ones.
    let changed = facts.trainable * F32;
    let rounded = if facts.rounds_frozen { facts.parameters } else { facts.trainable };
    let rounded = (rounded - facts.adapters) * BF16;
    let joined = facts.joined_adapters * if facts.half { BF16 } else { F32 };
    let unpacked = if facts.unpacks_once { facts.packed * BF16 } else { 0 };

    // Gradients of adapters are added up joined, and taken apart at the end.
    let gradient = facts.trainable * F32;
    let joined_gradient = gradient + (facts.joined_adapters - facts.adapters) * F32;

    let work = &facts.work;
    let part = |name, exact, bytes: &dyn Fn(Moment) -> u128| Part {
        name,
        exact,
        bytes: Moment::ALL.map(|moment| u64::try_from(bytes(moment)).unwrap_or(u64::MAX)),
    };
    let when = |condition: bool, bytes: u128| if condition { bytes } else { 0 };

    let largest = EngineBytes::largest(facts);
    let ahead = EngineBytes::ahead(facts);
    let sampled = |moment: Moment| match moment {
        Moment::Rollout => largest,
        Moment::Saving => EngineBytes::default(),
        _ => ahead,
    };

    let parts = vec![
        part("weights", true, &|_| weights),
        // An engine that samples ahead continues with the weights of the step's beginning. They are shared with the
        // policy until the first update has made new ones, unless they are rounded. Other engines drop them.
        part("weights of the engine", true, &|moment| match moment {
            _ if work.elsewhere => 0,
            Moment::Rollout => joined + when(facts.half, rounded + unpacked),
            _ if !work.ahead => 0,
            _ if facts.half => joined + rounded + unpacked,
            Moment::Saving => joined + changed - facts.adapters * F32,
            _ => joined + when(work.updates > 1, changed - facts.adapters * F32),
        }),
        // An update rounds matrices once, and not in every micro-batch. It joins adapters once, too, and a GPU has them
        // in two layouts.
        part("rounded weights of an update", true, &|moment| match moment {
            Moment::Head | Moment::Backward | Moment::Gradient => when(facts.half, rounded),
            _ => 0,
        }),
        // On the CPU, in f32, the `A` of a projection with a single adapter is not copied.
        part("joined adapters of an update", false, &|moment| match moment {
            Moment::Head | Moment::Backward | Moment::Gradient if work.on_host => joined,
            Moment::Head | Moment::Backward | Moment::Gradient => 2 * joined,
            _ => 0,
        }),
        part("reference policy", true, &|_| when(work.reference, changed)),
        part("reward model", true, &|_| facts.reward * F32),
        // A teacher's pass keeps less than an update's.
        part("teacher", true, &|_| facts.teacher_bytes),
        // A critic has its moments, and in an update its gradient, which is in joined form until AdamW's step. Its pass
        // precedes the policy's, and never needs more memory than the policy's.
        part("critic", true, &|moment| match moment {
            Moment::Rollout | Moment::Saving => {
                facts.critic * F32 + moments(facts, facts.critic, 0)
            }
            Moment::Optimizer => 2 * facts.critic * F32 + moments(facts, facts.critic, 0),
            _ => (2 * facts.critic + facts.critic_joined) * F32 + moments(facts, facts.critic, 0),
        }),
        match facts.one_moment {
            0 => part("moments of AdamW", true, &|_| moments(facts, facts.trainable, 0)),
            one => part("moments of Muon", false, &|_| moments(facts, facts.trainable, one)),
        },
        // The gradient is accumulated over all layers and micro-batches. In the first micro-batch it begins with the
        // head. In AdamW's step new weights replace it, one parameter after the other.
        part("gradient", true, &|moment| match moment {
            Moment::Rollout | Moment::Saving => 0,
            Moment::Head | Moment::Backward if !facts.accumulates() => {
                when(!facts.frozen, facts.lookup * F32)
            }
            Moment::Optimizer => gradient,
            _ => joined_gradient,
        }),
        part("KV cache", false, &|moment| sampled(moment).cache),
        part("states of recurrent layers", false, &|moment| sampled(moment).states),
        part("prefill and decoding", false, &|moment| sampled(moment).passes),
        // It takes three times its size: the codes one by one, all of them together, and with their scales or rounded
        // to the matmul precision. Engine and update each have their own, unless the engine has unpacked all of them.
        part("an unpacked matrix", false, &|moment| {
            let of_engine = u128::from(!facts.unpacks_once);
            let ahead = when(work.ahead, of_engine);
            let matrices = match moment {
                Moment::Rollout => of_engine,
                Moment::Head | Moment::Backward => 1 + ahead,
                Moment::Gradient | Moment::Optimizer => ahead,
                Moment::Saving => 0,
            };
            3 * matrices * facts.unpacked * F32
        }),
        part("kept of the layers", false, &|moment| match moment {
            Moment::Head | Moment::Backward => kept(facts),
            Moment::Gradient => facts.tokens() * facts.shape.hidden * F32,
            _ => 0,
        }),
        part("one layer's passes", false, &|moment| match moment {
            Moment::Backward => layer_backward(facts),
            Moment::Gradient => when(!facts.frozen, lookup_gradient(facts)),
            _ => 0,
        }),
        part("hidden states", false, &|moment| when(moment == Moment::Head, hidden_states(facts))),
        part("logits", false, &|moment| {
            sampled(moment).logits + when(moment == Moment::Head, block_of_logits(facts))
        }),
        // The optimizer works on one parameter at a time: on its gradient's part of either moment, and on the
        // update before and after its division. Moments in 8 bits are widened for it, and coded again.
        part("work on one parameter", false, &|moment| match moment {
            Moment::Optimizer if facts.narrow_moments => 7 * facts.largest * F32,
            Moment::Optimizer => 3 * facts.largest * F32,
            Moment::Saving => when(work.on_host, facts.largest * F32),
            _ => 0,
        }),
        // The moments of a checkpoint are bytes in host memory before they are a file.
        part("bytes of the file", true, &|moment| {
            let moments = moments(facts, facts.trainable, 0);
            when(moment == Moment::Saving && work.on_host, moments)
        }),
        part("the process", false, &|_| when(work.on_host, PROCESS)),
    ];

    parts.into_iter().filter(|part| part.bytes.iter().any(|&bytes| bytes > 0)).collect()
}

/// What the engine takes besides its weights, in bytes.
#[derive(Clone, Copy, Default)]
struct EngineBytes {
    /// Keys and values.
    cache: u128,
    /// States of recurrent layers.
    states: u128,
    /// A layer's tensors, in a prefill or in decoding.
    passes: u128,
    /// Logits of one token in every sequence.
    logits: u128,
}

impl EngineBytes {
    /// Counts the bytes of the largest workload: a step's completions, or those of an evaluation. Evaluations mostly
    /// have fewer completions per prompt, and so more prompts at a time.
    fn largest(facts: &Facts) -> Self {
        if facts.work.elsewhere {
            return EngineBytes::default();
        }
        let evaluations = facts.evaluations.iter().map(|it| EngineBytes::of_workload(facts, it));
        let all = evaluations.chain([EngineBytes::of_workload(facts, &training(facts))]);
        all.max_by_key(|it| it.cache + it.states + it.passes + it.logits).unwrap_or_default()
    }

    /// Counts the bytes of the next step's completions, if they are sampled while a step is trained on.
    fn ahead(facts: &Facts) -> Self {
        if facts.work.ahead {
            EngineBytes::of_workload(facts, &training(facts))
        } else {
            EngineBytes::default()
        }
    }

    fn of_workload(facts: &Facts, workload: &Workload) -> Self {
        let rows = workload.completions.min(facts.work.sequences);
        let prompts = rows.div_ceil(workload.group_size.max(1));
        EngineBytes {
            cache: kv_cache(facts, rows, prompts),
            states: states(facts, rows, prompts),
            passes: prefill(facts, prompts).max(decoding(facts, rows)),
            logits: sampled_logits(facts, rows),
        }
    }
}

/// Returns the completions that a step samples.
fn training(facts: &Facts) -> Workload {
    Workload { completions: facts.work.completions, group_size: facts.work.group_size }
}

/// Counts the bytes of the optimizer's moments of `values` values: two moments for each value, but a single one for
/// `one` of them. In 8 bits there is a scale for every 64 values.
fn moments(facts: &Facts, values: u128, one: u128) -> u128 {
    let numbers = 2 * values - one;
    if facts.narrow_moments { numbers * 17 / 16 } else { numbers * F32 }
}

/// Counts the bytes of the keys and values of every layer: each row's completion and each prompt, in full pages. On the
/// CPU the prompts count twice, because prompts that were prefilled together are kept until the last of them is
/// finished. A GPU copies a prompt's pages when its rows begin, so it has only the prompts of one prefill twice. A
/// recorded graph has pages up to the next 256 tokens. To attend to them, plain tensor code copies the keys and values
/// of one layer to a layout by rows, in f32.
fn kv_cache(facts: &Facts, rows: u128, prompts: u128) -> u128 {
    let shape = &facts.shape;
    let work = &facts.work;
    let pages = |tokens: u128| tokens.next_multiple_of(PAGE as u128);
    let extra_tokens = if work.graphs { 256.min(pages(work.completion)) } else { PAGE as u128 };

    let prefilled = if work.on_host {
        prompts
    } else {
        prompts.min((PREFILL_TOKENS / work.prompt.max(1)).max(1))
    };
    let prompts = (prompts + prefilled) * pages(work.prompt);

    let tokens = rows * (pages(work.completion) + extra_tokens) + prompts;
    let cached = shape.keys * tokens * if facts.half { BF16 } else { F32 };
    2 * (cached + shape.key * rows * facts.length() * F32)
}

/// Counts the bytes of recurrent layers' states, of each row and of each prompt. One layer counts twice, because rows
/// are rearranged by copying.
fn states(facts: &Facts, rows: u128, prompts: u128) -> u128 {
    let shape = &facts.shape;
    let layers = shape.recurrent + u128::from(shape.recurrent > 0);
    layers * (rows + prompts) * shape.state * F32
}

/// Counts the bytes of a prefill's widest layer: nothing is kept for a backward pass, so only one layer's tensors
/// exist.
fn prefill(facts: &Facts, prompts: u128) -> u128 {
    let shape = &facts.shape;
    let work = &facts.work;
    let tokens = (prompts * work.prompt).min(PREFILL_TOKENS.max(work.prompt));
    // A recurrence keeps nothing for a backward pass either.
    let recurrence = if shape.recurrent > 0 { shape.projected + shape.recurrence / 2 } else { 0 };
    tokens * attention(shape).max(recurrence) * F32 + chunk(facts, tokens) + scores(facts)
}

/// Adds up a token's values in a layer's forward pass around its attention: the residual stream before, between and
/// after; queries, keys and values in parts and joined; queries once more by heads; and the attention's result, also
/// twice.
fn attention(shape: &super::facts::Shape) -> u128 {
    3 * shape.hidden + 5 * shape.query + 6 * shape.key
}

/// Counts the bytes of the projections of some tokens: gate and up together, the two apart, and their product. With
/// experts, one of them may get all of the tokens; the router's values and the sum over experts are added.
fn chunk(facts: &Facts, tokens: u128) -> u128 {
    let shape = &facts.shape;
    let tokens = tokens.min(facts.chunks.tokens as u128);
    let routed = if shape.sparse > 0 { 6 * shape.experts + 6 * shape.hidden } else { 0 };
    tokens * (9 * shape.inner + 4 * shape.hidden + routed) * F32
}

/// Counts the bytes of a block's scores and their weights, and in the backward pass of the gradients of both.
fn scores(facts: &Facts) -> u128 {
    5 * facts.chunks.scores as u128 * F32
}

/// Counts the bytes of decoding one token in every sequence. The attention's scores are the largest, or the MLP if the
/// texts are short.
fn decoding(facts: &Facts, rows: u128) -> u128 {
    let shape = &facts.shape;
    let widest = 3 * shape.hidden + (2 * shape.heads * facts.length()).max(4 * shape.inner);
    rows * widest * F32
}

/// Counts the bytes of the logits of one token in every sequence. The host reads them back, which makes two copies. A
/// device sorts them with their ids, and also has their cumulative sums and the mask of the dropped ones.
fn sampled_logits(facts: &Facts, rows: u128) -> u128 {
    let copies = if facts.work.on_host { 2 } else { 6 };
    copies * rows * facts.shape.vocab * F32
}

/// Returns the bytes that an update keeps of the layers in its forward pass, with the last layer's output, or in its
/// backward pass with the gradient. It keeps the input of most layers, in the matmul precision. For the last layers it
/// also keeps queries, keys and values, the attention's result, the residual stream after it, and gate and up. It keeps
/// embeddings per layer from the first layer on, and their gradients until that layer's turn.
fn kept(facts: &Facts) -> u128 {
    let shape = &facts.shape;
    let work = &facts.work;
    let format = if facts.half { BF16 } else { F32 };
    let whole_layers = work.whole_layers.min(shape.layers);
    let input = if work.offload && !work.on_host { 0 } else { shape.hidden * format };

    let attentions = shape.layers - shape.recurrent;
    let before_norms = shape.before_norms(shape.queries, shape.keys);
    let qkv = (shape.queries + 2 * shape.keys) * format
        + (shape.queries + attentions * shape.heads + before_norms) * F32;

    // Layers of each kind are evenly spread, so the last layers have their share of each kind.
    let recurrent = (shape.projected + shape.mixed) * F32;
    let of_kinds = qkv
        + shape.recurrent * recurrent
        + (shape.layers - shape.sparse) * 2 * shape.inner * F32
        + shape.sparse * shape.hidden * format;

    let more = 2 * shape.hidden * F32 + of_kinds / shape.layers.max(1);
    let stream = shape.hidden * F32 + shape.per_layer * (format + F32);
    facts.tokens() * ((shape.layers - whole_layers) * input + whole_layers * more + stream)
}

/// Returns the bytes of the layer that the backward pass is in, when it goes through the attention: queries, keys,
/// values and their results, with their gradients; the residual stream and its gradient; and the gradient of one of the
/// layer's weights. On a GPU the gradients of keys and values of long texts have four parts. (By the bench `memory`,
/// with the shapes of 135 and 494 million parameters, with adapters and sequences of 1,024 to 8,192 tokens, updates
/// took 84 and 107 kB per token; this sum and that of the kept layers give 88 and 113.)
fn layer_backward(facts: &Facts) -> u128 {
    let shape = &facts.shape;
    let long = !facts.work.on_host && facts.length() > 1024;
    let keys = 4 * shape.key + if long { 2 * 3 * shape.key } else { 0 };
    let attention = 4 * shape.query + keys + shape.before_norms(shape.query, shape.key);
    let recurrence = match shape.recurrent {
        0 => 0,
        _ => 2 * shape.projected + 2 * shape.mixed + shape.recurrence,
    };

    let layer = 2 * shape.hidden + attention.max(recurrence);
    let tokens = facts.tokens();
    tokens * layer * F32 + chunk(facts, tokens) + scores(facts) + facts.largest_in_layer * F32
}

/// Counts the bytes of the hidden states that predict, of the values that the last norm keeps of them, and of their
/// gradient, twice.
fn hidden_states(facts: &Facts) -> u128 {
    8 * predictions(facts) * facts.shape.hidden * F32
}

/// Counts the bytes of the logits: all of a micro-batch if they wait for its backward pass, and otherwise a block of
/// them. Plain tensor code has a block several times while it normalises it: the block itself, its distance from the
/// largest logit, its weights and its gradient, and two more if entropy has a gradient. That block of the head is
/// added.
fn block_of_logits(facts: &Facts) -> u128 {
    let shape = &facts.shape;
    if !facts.work.plain {
        let all = predictions(facts) * shape.vocab;
        let block = (512 * predictions(facts)).max(1 << 20);
        return if all <= facts.chunks.waiting_logits as u128 { all } else { all.min(block) } * F32;
    }

    let copies = if facts.work.entropy { 6 } else { 4 };
    let rows = facts.chunks.logits as u128 / predictions(facts).max(shape.hidden).max(1);
    let rows = rows.max(64).min(shape.vocab);
    (copies * predictions(facts) * rows + 3 * rows * shape.hidden) * F32
}

/// Returns the largest number of hidden states that predict a token.
fn predictions(facts: &Facts) -> u128 {
    facts.tokens().min(facts.work.mini_batch * facts.work.completion)
}

/// Returns the bytes of the gradient of the embedding's rows that occur, and of the zeros and ones that it is
/// summed with.
fn lookup_gradient(facts: &Facts) -> u128 {
    let rows = facts.tokens().min(facts.shape.vocab);
    (2 * rows * facts.shape.hidden + 2 * facts.chunks.logits as u128) * F32
}
