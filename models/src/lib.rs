//! Decoder-only policies on burn, and their Hugging Face checkpoints.
//!
//! [`Decoder`] is one implementation for every family; a family is a file that reads its
//! `config.json` and names its tensors ([`Family`]). [`PolicyModel`] is what sampling and training
//! need from a model, so that another architecture can take its place, with a memory of its own while
//! it decodes ([`DecodeCache`]). Families are read from Hugging Face folders and written to them;
//! [`save_parameters`] and [`load_parameters`] keep the weights of any module.

mod attention;
mod batch;
mod cache;
mod checkpoint;
mod config;
mod count;
mod decoder;
mod gemma;
mod init;
mod layout;
mod llama;
mod logprob;
mod lora;
mod mistral;
mod names;
mod ops;
mod parameters;
mod policy;
mod projection;
mod qwen2;
mod qwen3;
mod reward_model;

pub use batch::{Padding, TokenBatch};
pub use cache::KvCache;
pub use checkpoint::{
    AdapterBase, CheckpointError, Inventory, Loaded, NamedTensor, SaveOptions, TensorInfo,
    WeightDtype, Which, adapter_config, adapter_lora, inventory, is_adapter, load, load_adapter,
    load_config, load_noting, load_parameters, named_tensors, save, save_adapter, save_parameters,
    unread_tensors,
};
pub use config::{
    Activation, Biases, ConfigError, DecoderConfig, Family, Rope, RopeScaling, Sizes,
};
pub use count::ParameterCount;
pub use decoder::{Decoder, DecoderContext};
pub use init::random;
pub use logprob::{
    TokenLogProbs, head_backward, head_logits, head_logprobs, logits_gradient, token_logprobs,
};
pub(crate) use lora::Adapter;
pub use lora::Lora;
pub use ops::{Compute, Mask};
pub use parameters::{Parameter, parameters};
pub use policy::{DecodeCache, PolicyModel, arrange_rows};
pub use reward_model::{Conversation, ModelVerifier, RewardModel, Transform};
