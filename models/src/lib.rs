//! Decoder-only policies on burn, and their Hugging Face checkpoints.
//!
//! [`Decoder`] is one implementation for every family. A family is a file that reads and writes its
//! `config.json` ([`Family`]). Sampling and training need no more of a model than the trait [`PolicyModel`], so you can
//! replace the decoder by another architecture. [`DecodeCache`] is the state of a model while it decodes. Families
//! are read from Hugging Face folders and written to them. [`save_parameters`] and [`load_parameters`] keep the
//! weights of any module.
//!
//! A model is both a module of burn and a Hugging Face folder: the module computes the same as Hugging Face's
//! libraries do with the folder. A checkpoint that needs more than this crate computes is refused by name, because no
//! part of it is ever left out.
//!
//! ```
//! use burn::tensor::Device;
//! use firebrick_core::Seed;
//! use firebrick_models::{DecoderConfig, Family, Padding, PolicyModel as _, Sizes, TokenBatch, random};
//!
//! let sizes = Sizes {
//!     vocab_size: 13,
//!     hidden_size: 16,
//!     layers: 2,
//!     heads: 2,
//!     kv_heads: 1,
//!     head_dim: 8,
//!     intermediate_size: 32,
//!     max_position_embeddings: 64,
//!     rope_theta: 10_000.0,
//!     tied: true,
//! };
//! let device = Device::flex();
//! let policy = random(&DecoderConfig::new(Family::Qwen2, sizes), Seed::run(1), &device)?;
//!
//! // Two rows of three and two tokens: [rows, tokens, hidden].
//! let batch = TokenBatch::new(&[&[1, 2, 3], &[4, 5]], Padding::Right, &device);
//! assert_eq!(policy.hidden(&batch).dims(), [2, 3, 16]);
//! # Ok::<(), firebrick_models::CheckpointError>(())
//! ```

mod adapted;
mod attention;
mod base;
mod batch;
mod cache;
mod checkpoint;
mod chunk_sizes;
mod config;
mod context;
mod count;
mod decoder;
mod experts;
mod family;
mod fields;
mod gate;
mod gated_delta_net;
mod gradient;
mod init;
mod layer;
mod layer_types;
mod layout;
mod load_balancing;
mod lora;
mod mixer;
mod mlp;
mod names;
mod normal;
mod parameters;
mod pattern;
mod per_layer;
mod policy;
mod projection;
mod recurrence;
mod reward_model;
mod rope;
mod selection;
mod shared;
mod short_convolution;
mod source;

pub use base::FrozenFormat;
pub use batch::{Padding, TokenBatch};
pub use cache::KvCache;
pub use checkpoint::{
    AdapterBase, CheckpointError, Formats, Inventory, Loaded, NamedTensor, ParameterSet,
    SaveOptions, TensorInfo, WeightDtype, adapter_config, adapter_lora, check_adapter, inventory,
    is_adapter, is_gguf, load, load_adapter, load_config, load_noting, load_parameters,
    named_tensors, save, save_adapter, save_as, save_gguf, save_parameters, unread_tensors,
};
pub use chunk_sizes::ChunkSizes;
pub use config::{
    Biases, DecoderConfig, ExpertSizes, Fused, GatedDeltaSizes, GlobalHeads, KvSharing, LayerKind,
    LayerNorms, PerLayerSizes, QkNorm, QueryGrowth, RopeKind, RouterScores, SharedExpert, Sizes,
    SwigluClamp,
};
pub use context::DecoderContext;
pub use count::ParameterCount;
pub use decoder::Decoder;

pub use fields::ConfigError;
pub use firebrick_core::config::Family;
pub use firebrick_kernels::{
    Activation, AttentionOptions, AttentionOutput, Compute, Heads, LmHead, PackedMask, Segment,
    TokenLogProbs, attention, attention_backward, head_logits, head_logprobs, head_logprobs_saving,
};
pub use gradient::{GradientMap, GradientSum, SavedActivations, head_backward};
pub use init::{random, random_in};
pub use load_balancing::Loads;
pub(crate) use lora::Adapter;
pub use lora::{Lora, Selection};
pub use parameters::{Parameter, parameters};
pub use policy::{DecodeCache, DraftedCache, Lookup, PolicyModel, ReplayedCache, arrange_rows};
pub use reward_model::{Conversation, ModelVerifier, RewardModel, Transform};
pub use rope::{Llama3, LongRope, Rope, RopeScaling, Yarn};
