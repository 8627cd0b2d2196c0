//! Facts that a plan is computed from: the sizes of the models and of the recipe's batches.

use firebrick_device::Kind;
use firebrick_models::{
    Compute, DecoderConfig, ExpertSizes, FrozenFormat, GatedDeltaSizes, KvSharing, Lora, QkNorm,
};
use serde::Serialize;

use super::ChunkPlan;
use crate::{
    Error,
    build::room_for_a_prompt,
    model,
    recipe::{BaseType, CriticKind, Kernels, Moments, OptimKind, Recipe, Recompute, TeacherKind},
};

/// Sizes of a run's models, which the recipe alone does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Models {
    /// Sizes of the policy.
    pub policy: DecoderConfig,
    /// Adapters of the policy, if only they are trained.
    pub lora: Option<Lora>,
    /// Number of values of the models that judge.
    pub reward: u64,
    /// Sizes of the local teachers, each with the format of its weights.
    pub teachers: Vec<(DecoderConfig, BaseType)>,
    /// True if the policy's sizes are built in, because neither this machine nor the Hub's cache has its `config.json`.
    pub published: bool,
}

/// Facts of a run that are known before it starts. Another way to train, such as adapters or half
/// precision, changes the facts and not the sums.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Facts {
    /// Number of values of the model.
    pub parameters: u128,
    /// Number of active values per token, with only the chosen experts.
    pub active: u128,
    /// Bytes of the values that are not trained, in the format that they are kept in.
    pub frozen_bytes: u128,
    /// Values that are trained: these have a gradient and moments.
    pub trainable: u128,
    /// Trained values of adapters.
    pub adapters: u128,
    /// Values of a copy of the adapters in which those of the same input are joined, with zeros between them.
    pub joined_adapters: u128,
    /// Trained values of which the optimizer stores one moment instead of two: under Muon those of the layers, which
    /// have few vectors.
    pub one_moment: u128,
    /// True if the optimizer's moments are in 8 bits.
    pub narrow_moments: bool,
    /// Values of the largest single parameter that is trained.
    pub largest: u128,
    /// Values of the largest parameter of a layer that is trained.
    pub largest_in_layer: u128,
    /// Values of the embedding. The gradient of a separate head has as many.
    pub lookup: u128,
    /// Values of the weights that are kept in 8 or 4 bits, with the few of norms and biases beside them.
    pub packed: u128,
    /// True if the engine unpacks these weights once for all its steps.
    pub unpacks_once: bool,
    /// Values of the largest projection, if it is unpacked before it is multiplied.
    pub unpacked: u128,
    /// Bytes of the largest tensor of the weights, which is an embedding or the head.
    pub largest_weight: u128,
    /// Values of the models that judge.
    pub reward: u128,
    /// Bytes of the local teachers' weights.
    pub teacher_bytes: u128,
    /// Number of active values per token of the largest teacher in this process, which may be the policy.
    pub teacher_values: u128,
    /// Values of a critic, all of them trained; 0 without one. The values that it does not train are the
    /// policy's.
    pub critic: u128,
    /// Values that the gradient of a critic with its own adapters has more while it is added up in joined form.
    pub critic_joined: u128,
    /// True if everything but adapters is frozen, embedding and head too.
    pub frozen: bool,
    /// True if matmuls are in 16 bits.
    pub half: bool,
    /// Matmul precision.
    pub compute: String,
    /// True if the engine keeps a rounded copy of weights that are not trained.
    pub rounds_frozen: bool,
    /// Widths of the model.
    #[serde(skip)]
    pub shape: Shape,
    /// Largest batches of the recipe.
    pub work: Work,
    /// Evaluations of the run.
    pub evaluations: Vec<Workload>,
    /// Chunk sizes of the tensors that never exist as a whole.
    pub chunks: ChunkPlan,
}

/// Widths of the tensors of a forward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// Number of layers.
    pub layers: u128,
    /// Width of the residual stream.
    pub hidden: u128,
    /// Number of query heads.
    pub heads: u128,
    /// How many of queries, keys and values have norms, so that they are kept as they were before: 0, 2 or 3.
    pub normed: u128,
    /// Width of all query heads side by side, in the layer where they are widest.
    pub query: u128,
    /// Width of all key heads side by side, in the layer where they are widest. The value heads are as wide.
    pub key: u128,
    /// Widths of all query heads, added up over the layers with attention.
    pub queries: u128,
    /// Widths of all key heads, added up over the layers with keys of their own.
    pub keys: u128,
    /// Width of the widest MLP, or of an expert if all layers have experts.
    pub inner: u128,
    /// Widths of a token's embeddings per layer, added up over the layers.
    pub per_layer: u128,
    /// Number of layers with experts. An update keeps only their input.
    pub sparse: u128,
    /// Number of experts of such a layer.
    pub experts: u128,
    /// Number of layers with a recurrence instead of the attention.
    pub recurrent: u128,
    /// Size of such a layer's state of a text, however long the text is.
    pub state: u128,
    /// Outputs of such a layer's first projection.
    pub projected: u128,
    /// Inputs of its last projection.
    pub mixed: u128,
    /// Values per token in the backward pass through such a layer.
    pub recurrence: u128,
    /// Width of the logits.
    pub vocab: u128,
}

impl Shape {
    /// Counts what layers keep as it was before norms, given the widths of their queries and of their keys.
    pub(super) fn before_norms(&self, query: u128, key: u128) -> u128 {
        match self.normed {
            0 => 0,
            sides => query + (sides - 1) * key,
        }
    }
}

/// Largest batches that a recipe may lead to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Tokens of the longest prompt.
    pub prompt: u128,
    /// Tokens of the longest completion.
    pub completion: u128,
    /// Limit of those among them that an environment says and the policy does not write.
    pub observed: u128,
    /// Tokens of the longest completion that the model was made for, after such a prompt.
    pub room: u128,
    /// Completions of a prompt.
    pub group_size: u128,
    /// Limit of the completions that are decoded concurrently.
    pub sequences: u128,
    /// True if servers sample, so that sampling takes no memory here.
    pub elsewhere: bool,
    /// True if the next step is sampled here while a step is trained on (`rollout.max_staleness`).
    pub ahead: bool,
    /// True if a device records its steps (`rollout.graphs`), which the host must take no part in.
    pub graphs: bool,
    /// Completions that a step trains on.
    pub completions: u128,
    /// Completions per update.
    pub mini_batch: u128,
    /// Limit of a step's updates.
    pub updates: u128,
    /// Tokens of a micro-batch.
    pub micro_batch_tokens: u128,
    /// Number of layers of which an update keeps more than the input.
    pub whole_layers: u128,
    /// True if the plan decides the number of those layers.
    pub recompute_auto: bool,
    /// True if the inputs of layers are offloaded to host memory.
    pub offload: bool,
    /// True if a frozen policy is kept next to the trained one.
    pub reference: bool,
    /// True if entropy has a gradient.
    pub entropy: bool,
    /// True if tensors are in host memory, as on the CPU.
    pub on_host: bool,
    /// True if plain tensor code computes instead of the CPU's kernels.
    pub plain: bool,
}

/// Completions that are sampled together: those of a step, or those of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Workload {
    /// Number of completions.
    pub completions: u128,
    /// Completions of a prompt.
    pub group_size: u128,
}

impl Workload {
    fn new(prompts: usize, samples: usize) -> Self {
        let samples = samples.max(1);
        let completions = bounded(prompts.saturating_mul(samples));
        Workload { completions, group_size: bounded(samples) }
    }

    /// Returns a run's evaluations: on the held-out prompts, and on each further set. A plan reads no data, so prompts
    /// with their own file or split are as many as the recipe allows.
    fn evaluations(recipe: &Recipe) -> Vec<Self> {
        let data = &recipe.data;
        let eval = &recipe.eval;
        let limited =
            |limit: usize, there: usize| if limit == 0 { there } else { limit.min(there) };
        let separate = data.heldout.is_some() || data.heldout_split.is_some();
        let there = if separate { usize::MAX } else { data.heldout_size };
        let heldout = Workload::new(limited(eval.prompts, there), eval.samples);

        let sets = eval.sets.iter().map(|set| {
            let samples = set.samples.unwrap_or(eval.samples);
            Workload::new(limited(set.prompts, usize::MAX), samples)
        });
        std::iter::once(heldout).chain(sets).filter(|it| it.completions > 0).collect()
    }
}

/// Keeps multiplications of several numbers in range, whatever a recipe says.
fn bounded(number: usize) -> u128 {
    number.min(u32::MAX as usize) as u128
}

/// Returns the width of the widest MLP that a token passes through.
fn inner(config: &DecoderConfig) -> u128 {
    let dense = config.kinds.iter().filter(|kind| !kind.sparse);
    let dense = dense.map(|kind| config.mlp_width(*kind)).max().unwrap_or(0);
    let widest =
        |experts: ExpertSizes| experts.inner.max(experts.shared.map_or(0, |shared| shared.inner));
    let expert = config.experts.map_or(0, widest);
    expert.max(dense) as u128
}

/// Counts the values of the embedding, of a head of its own, and of the table of embeddings per layer.
fn lookups(config: &DecoderConfig) -> u128 {
    let lookup = (config.vocab_size * config.hidden_size) as u128;
    let count = if config.tied { 1 } else { 2 };
    count * lookup + per_layer_table(config)
}

/// Counts the values of the table of embeddings per layer.
fn per_layer_table(config: &DecoderConfig) -> u128 {
    config.per_layer.map_or(0, |sizes| (sizes.vocab_size * config.per_layer_width()) as u128)
}

/// Counts the values per token of a recurrent layer: the outputs of its first projection, the inputs of its last one,
/// and what autodiff holds between the two in the backward pass.
fn recurrent(config: &DecoderConfig) -> [u128; 3] {
    match (&config.delta, config.convolution) {
        (Some(delta), _) => {
            let projected = delta.channels() + delta.values() + 2 * delta.value_heads;
            [projected as u128, delta.values() as u128, recurrence(delta)]
        }
        // Two products, and one for each token that the convolution sees, all of the width of the residual stream.
        (None, Some(tokens)) => [3, 1, 2 * tokens + 6].map(|it| (it * config.hidden_size) as u128),
        (None, None) => [0; 3],
    }
}

/// Counts the values per token that autodiff holds in the backward pass through a recurrence: copies of the
/// convolution's channels, and for each head copies of queries, keys and values, rows of a chunk's squares, and a
/// chunk's share of its matrices. (By the bench `memory`, with one shape: an update took 380 kB for each further token,
/// and this sum gives 430.)
fn recurrence(delta: &GatedDeltaSizes) -> u128 {
    const CHUNK: usize = 32;
    let widths = 2 * delta.key_dim + delta.value_dim;
    let of_head = 3 * widths + 30 * CHUNK + 2 * delta.key_dim * delta.value_dim / CHUNK;
    ((1 + delta.kernel) * delta.channels() + delta.value_heads * of_head) as u128
}

impl Models {
    /// Checks that the model's context has room for a prompt next to a completion of `recipe`. A run without that
    /// room does not begin.
    ///
    /// # Errors
    /// When there is no room.
    pub fn check_context(&self, recipe: &Recipe) -> Result<(), Error> {
        room_for_a_prompt(recipe, self.policy.max_position_embeddings).map(drop)
    }
}

impl Facts {
    /// Works out the facts of `recipe` for models of these sizes with the matmul precision `compute`, on a device with
    /// `memory` bytes, if that is known.
    pub fn new(models: &Models, recipe: &Recipe, compute: Compute, memory: Option<u64>) -> Self {
        let config = &models.policy;
        let count = config.parameters();
        let adapters = models.lora.as_ref().map(|lora| config.adapter_parameters(lora));
        let joined = models.lora.as_ref().map(|lora| config.joined_adapter_parameters(lora));

        let [projected, mixed, recurrence] = recurrent(config);
        let attentions = || {
            let kinds = config.kinds.iter().filter(|kind| !kind.recurrent);
            kinds.map(move |kind| (kind.kv, config.heads_of(*kind)))
        };
        let queries = || attentions().map(|(_, it)| (it.query * it.width) as u128);
        let own_keys = || attentions().filter(|(kv, _)| *kv != KvSharing::Reuse);
        let keys = || own_keys().map(|(_, it)| (it.key * it.width) as u128);

        let shape = Shape {
            layers: config.layers as u128,
            hidden: config.hidden_size as u128,
            heads: config.heads as u128,
            normed: match config.qk_norm {
                _ if config.value_norm => 3,
                QkNorm::None => 0,
                QkNorm::Heads | QkNorm::Whole | QkNorm::Rotated => 2,
            },
            query: queries().max().unwrap_or(0),
            key: keys().max().unwrap_or(0),
            queries: queries().sum(),
            keys: keys().sum(),
            inner: inner(config),
            per_layer: config.per_layer_width() as u128,
            sparse: config.kinds.iter().filter(|kind| kind.sparse).count() as u128,
            experts: config.experts.map_or(0, |experts| experts.count as u128),
            recurrent: config.kinds.iter().filter(|kind| kind.recurrent).count() as u128,
            state: config.recurrent_state() as u128,
            projected,
            mixed,
            recurrence,
            vocab: config.vocab_size as u128,
        };

        let base = model::base(recipe, adapters.is_some(), compute);
        let lookup = shape.vocab * shape.hidden;
        let lookups = lookups(config);

        // Some matrices of the model are trained next to adapters. Each is as large as the embedding.
        let wholes: &[String] = models.lora.as_ref().map_or(&[], |lora| &lora.modules_to_save);
        let whole_values = lookup * wholes.len() as u128;
        // Without adapters everything is trained.
        let frozen = adapters.map_or(0, |_| u128::from(count.total) - whole_values);

        // A GPU that does not compute bfloat16 keeps 32 bits instead of 16.
        let on_cpu = recipe.device.kind == Kind::Cpu;
        let narrow_bytes = if on_cpu || compute == Compute::Bf16 { 2 } else { 4 };

        // Returns the bytes of `values` weights, of which embedding and head, `lookups`, are never in few bits.
        let stored = |format, values: u128, lookups: u128| match format {
            FrozenFormat::F32 => 4 * values,
            FrozenFormat::Bf16 => narrow_bytes * values,
            // Every 32 values have one scale.
            FrozenFormat::Int8 => {
                narrow_bytes * lookups + (values - lookups) * (32 + narrow_bytes) / 32
            }
            FrozenFormat::Int4 => {
                narrow_bytes * lookups + (values - lookups) * (16 + narrow_bytes) / 32
            }
        };
        let of_teacher = |(config, base): &(DecoderConfig, BaseType)| {
            let values = config.parameters().total.into();
            stored(model::base_of(*base, compute), values, self::lookups(config))
        };

        let fast = on_cpu && recipe.device.kernels == Kernels::Fast;
        let evaluations = Workload::evaluations(recipe);
        // Anything but f32 on the fast kernels uses plain tensor code.
        let plain = !fast || compute != Compute::F32 || base != FrozenFormat::F32;

        let active = (count.active + adapters.map_or(0, |(all, _)| all)).into();
        let teaches_itself = recipe.teacher_kinds().contains(&&TeacherKind::Policy);
        Facts {
            frozen_bytes: stored(base, frozen, lookups - whole_values),
            teacher_bytes: models.teachers.iter().map(of_teacher).sum(),
            teacher_values: models
                .teachers
                .iter()
                .map(|(config, _)| config.parameters().active.into())
                .chain(teaches_itself.then_some(active))
                .max()
                .unwrap_or(0),
            packed: match base {
                FrozenFormat::F32 | FrozenFormat::Bf16 => 0,
                FrozenFormat::Int8 | FrozenFormat::Int4 => frozen - (lookups - whole_values),
            },
            unpacks_once: false,
            unpacked: match base {
                FrozenFormat::F32 | FrozenFormat::Bf16 => 0,
                // The CPU's own products unpack a part at a time.
                _ if fast && compute == Compute::F32 => 0,
                FrozenFormat::Int8 | FrozenFormat::Int4 => {
                    let across = (2 * shape.inner).max(shape.query + 2 * shape.key);
                    shape.hidden * across.max(shape.query)
                }
            },
            largest_weight: lookup.max(per_layer_table(config))
                * if base == FrozenFormat::F32 { 4 } else { narrow_bytes },
            rounds_frozen: base == FrozenFormat::F32 && compute != Compute::F32,
            parameters: (count.total + adapters.map_or(0, |(all, _)| all)).into(),
            active,
            trainable: adapters
                .map_or(count.total.into(), |(all, _)| u128::from(all) + whole_values),
            adapters: adapters.map_or(0, |(all, _)| all.into()),
            joined_adapters: joined.unwrap_or(0).into(),
            one_moment: match recipe.optim.kind {
                OptimKind::AdamW { .. } => 0,
                OptimKind::Muon { .. } => {
                    let layers = count.layers;
                    adapters.map_or(layers, |(all, _)| all).into()
                }
            },
            narrow_moments: recipe.optim.moments == Moments::Int8,
            largest: match adapters {
                Some((_, largest)) if wholes.is_empty() => largest.into(),
                Some((_, largest)) => lookup.max(largest.into()),
                None => count.largest.into(),
            },
            largest_in_layer: adapters.map_or(count.largest_in_layer, |(_, it)| it).into(),
            lookup,
            reward: models.reward.into(),
            critic: match recipe.critic.kind {
                _ if !recipe.has_critic() => 0,
                CriticKind::Head { .. } => shape.hidden + 1,
                CriticKind::Separate => {
                    // The critic has no head over the vocabulary, unless the embedding is the head.
                    let unused = if config.tied { 0 } else { shape.vocab * shape.hidden };
                    let trunk = u128::from(count.total) - unused;
                    let embedding = wholes.iter().filter(|it| *it == "embed_tokens").count();
                    let own = |(all, _): (u64, u64)| u128::from(all) + lookup * embedding as u128;
                    adapters.map_or(trunk, own) + shape.hidden + 1
                }
            },
            critic_joined: match (recipe.critic.kind, adapters) {
                (CriticKind::Separate, Some((all, _))) if recipe.has_critic() => {
                    (joined.unwrap_or(all) - all).into()
                }
                _ => 0,
            },
            frozen: adapters.is_some() && wholes.is_empty(),
            half: compute != Compute::F32,
            compute: compute.to_string(),
            shape,
            work: Work::new(config, recipe, plain, &evaluations),
            evaluations,
            chunks: ChunkPlan::for_device(recipe.device.name(), memory, config.intermediate_size),
        }
    }

    /// Returns the number of tokens of the longest sequence.
    pub fn length(&self) -> u128 {
        self.work.prompt + self.work.completion
    }

    /// Returns the number of tokens of the largest micro-batch, padding included. A sequence that is longer than the
    /// recipe's limit is a separate micro-batch.
    pub fn tokens(&self) -> u128 {
        let most = self.work.micro_batch_tokens.max(self.length());
        most.min(self.work.mini_batch * self.length())
    }

    /// Tells whether an update is split into several micro-batches.
    pub fn accumulates(&self) -> bool {
        self.work.mini_batch * self.length() > self.tokens()
    }
}

impl Work {
    fn new(config: &DecoderConfig, recipe: &Recipe, plain: bool, evaluations: &[Workload]) -> Self {
        let rollout = &recipe.rollout;
        let context = config.max_position_embeddings;
        let completion = recipe.longest_completion();
        let prompt = recipe.data.max_prompt_tokens.min(context.saturating_sub(completion)).max(1);
        let completions = recipe.sampling.prompts_per_step.saturating_mul(rollout.group_size);

        // The trainer splits a step into updates of equal size.
        let updates = completions.div_ceil(recipe.train.mini_batch).max(1);
        // A mini-batch may get several updates.
        let passes = recipe.train.adaptive.as_ref().map_or(1, |adaptive| adaptive.n_max);
        let sampled =
            evaluations.iter().map(|it| it.completions).fold(bounded(completions), u128::max);
        let remote = rollout.engine.is_remote();

        // The host reads which experts are chosen, and a recurrent layer's state moves. Plain tensor code keeps pages
        // that the host counts.
        let with_host = recipe.device.kernels == Kernels::Reference
            || config.kinds.iter().any(|kind| kind.recurrent || kind.sparse);

        Work {
            prompt: bounded(prompt),
            completion: bounded(completion),
            observed: bounded(recipe.environment.observation_tokens()),
            room: bounded(context.saturating_sub(prompt)),
            group_size: bounded(rollout.group_size),
            sequences: if remote { 1 } else { sampled.min(bounded(rollout.max_sequences)) },
            elsewhere: remote,
            ahead: !remote && rollout.max_staleness > 0,
            graphs: recipe.records_graphs() && !with_host,
            completions: bounded(completions),
            mini_batch: bounded(completions.div_ceil(updates)),
            updates: bounded(updates.saturating_mul(passes)),
            micro_batch_tokens: bounded(recipe.train.micro_batch_tokens),
            whole_layers: match recipe.train.recompute {
                Recompute::None => config.layers as u128,
                Recompute::Auto | Recompute::Layers => 0,
            },
            recompute_auto: recipe.train.recompute == Recompute::Auto,
            offload: recipe.train.offload,
            reference: recipe.loss.kl.is_some(),
            entropy: recipe.loss.entropy_coef != 0.0,
            on_host: recipe.device.kind == Kind::Cpu,
            plain,
        }
    }
}
