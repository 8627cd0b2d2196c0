use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use crate::{
    CheckpointError, DecoderConfig, DecoderContext, KvCache,
    init::{ParameterSource, vector},
    ops,
    projection::Projection,
};

/// Grouped-query self-attention.
#[derive(Module, Debug)]
pub(crate) struct Attention {
    pub(crate) qkv: Projection,
    /// Norms of each query head and of each key head, `[head_dim]`.
    query_norm: Option<Param<Tensor<1>>>,
    key_norm: Option<Param<Tensor<1>>>,
    pub(crate) output: Projection,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    kv_heads: usize,
    #[module(skip)]
    head_dim: usize,
}

impl Attention {
    /// The attention of the layer at `layer`.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let path = |part: &str| format!("{layer}.attention.{part}");
        let mut norm = |part: &str| {
            let norm = config.qk_norm;
            norm.then(|| vector(source, &path(part), config.head_dim, device)).transpose()
        };
        let (query_norm, key_norm) = (norm("query_norm")?, norm("key_norm")?);
        Ok(Attention {
            qkv: Projection::from_source(
                config,
                &path("qkv"),
                config.hidden_size,
                config.biases.qkv,
                source,
                device,
            )?,
            query_norm,
            key_norm,
            output: Projection::from_source(
                config,
                &path("output"),
                config.query_width(),
                config.biases.output,
                source,
                device,
            )?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        })
    }

    /// `x` is `[rows, tokens, hidden]`; with a cache, its keys and values are written there first, as
    /// those of the layer beside it, and all of that layer is attended to.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        bias: Tensor<4>,
        cache: Option<(&mut KvCache, usize)>,
        context: &DecoderContext,
    ) -> Tensor<3> {
        let [rows, tokens, _] = x.dims();
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let format = context.compute.dtype();
        let qkv = self.qkv.forward(x, context.compute);
        let qkv = qkv.reshape([rows, tokens, heads + 2 * kv_heads, self.head_dim]);
        let value = qkv.clone().narrow(2, heads + kv_heads, kv_heads).swap_dims(1, 2).cast(format);
        let mut turned = qkv.narrow(2, 0, heads + kv_heads);
        if let (Some(query_norm), Some(key_norm)) = (&self.query_norm, &self.key_norm) {
            let query = turned.clone().narrow(2, 0, heads);
            let key = turned.narrow(2, heads, kv_heads);
            let query = context.norm.apply(query, query_norm.val());
            turned = Tensor::cat(vec![query, context.norm.apply(key, key_norm.val())], 2);
        }
        let turned = context.rotary.apply(turned);
        let query = turned.clone().narrow(2, 0, heads);
        let key = turned.narrow(2, heads, kv_heads).swap_dims(1, 2).cast(format);
        let (key, value) = match cache {
            Some((cache, layer)) => cache.write(layer, key, value),
            None => (key, value),
        };
        self.output.forward(ops::attention(query, key, value, bias), context.compute)
    }
}
