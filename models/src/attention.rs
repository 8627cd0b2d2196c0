use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use crate::{
    CheckpointError, DecoderConfig, DecoderContext, GradientSum,
    init::{ParameterSource, vector},
    ops::{Rotary, joined},
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

    /// Queries, keys and values of `x`, `[places, inputs]`, in the format of products.
    pub(crate) fn looks(&self, x: Tensor<2>, rotary: &Rotary, context: &DecoderContext) -> Looks {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let places = x.dims()[0];
        let projected = self.qkv.forward(x, context.compute);
        let projected = projected.reshape([places, heads + 2 * kv_heads, self.head_dim]);
        let mut turned = projected.clone().narrow(1, 0, heads + kv_heads);
        let value = projected.clone().narrow(1, heads + kv_heads, kv_heads);
        let norms = self.query_norm.as_ref().zip(self.key_norm.as_ref());
        if let Some((query_norm, key_norm)) = norms {
            let query = turned.clone().narrow(1, 0, heads);
            let key = turned.narrow(1, heads, kv_heads);
            let query = context.norm.apply(query, query_norm.val());
            turned = Tensor::cat(vec![query, context.norm.apply(key, key_norm.val())], 1);
        }
        let turned = rotary.apply(turned);
        let format = context.compute.dtype();
        Looks {
            query: turned.clone().narrow(1, 0, heads).cast(format),
            key: turned.narrow(1, heads, kv_heads).cast(format),
            value: value.cast(format),
            before_norms: norms.map(|_| projected.narrow(1, 0, heads + kv_heads)),
        }
    }

    /// From the gradients of queries, keys and values, f32, to that of `x`; the parameters' is added to
    /// `sum`. Tensors are without autodiff.
    pub(crate) fn looks_back(
        &self,
        x: &Tensor<2>,
        before_norms: Option<Tensor<3>>,
        [d_query, d_key, d_value]: [Tensor<3>; 3],
        rotary: &Rotary,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let places = x.dims()[0];
        let (mut d_query, mut d_key) = (rotary.back(d_query), rotary.back(d_key));
        let norms = self.query_norm.as_ref().zip(self.key_norm.as_ref());
        if let Some(((query_norm, key_norm), before)) = norms.zip(before_norms) {
            let query = before.clone().narrow(1, 0, heads);
            let key = before.narrow(1, heads, kv_heads);
            d_query = context.norm_back(query, query_norm, d_query, sum);
            d_key = context.norm_back(key, key_norm, d_key, sum);
        }
        let d_projected = Tensor::cat(vec![d_query, d_key, d_value], 1);
        let width = (heads + 2 * kv_heads) * self.head_dim;
        self.qkv.back(x, d_projected.reshape([places, width]), context.compute, sum)
    }
}

/// Queries, keys and values of some tokens, `[places, heads, head_dim]`; keys and values have the heads of keys.
pub(crate) struct Looks {
    pub(crate) query: Tensor<3>,
    pub(crate) key: Tensor<3>,
    pub(crate) value: Tensor<3>,
    /// Queries and keys before their norms, where they have some.
    pub(crate) before_norms: Option<Tensor<3>>,
}

impl Looks {
    /// Those of some tokens, and of those behind them, and so on.
    pub(crate) fn joined(parts: Vec<Looks>) -> Looks {
        let join = |which: fn(&Looks) -> Option<&Tensor<3>>| -> Option<Tensor<3>> {
            let parts: Option<Vec<Tensor<3>>> = parts.iter().map(|it| which(it).cloned()).collect();
            parts.map(|parts| joined(parts, 0))
        };
        let all = |which| join(which).expect("a pass has tokens");
        Looks {
            query: all(|part| Some(&part.query)),
            key: all(|part| Some(&part.key)),
            value: all(|part| Some(&part.value)),
            before_norms: join(|part| part.before_norms.as_ref()),
        }
    }
}
