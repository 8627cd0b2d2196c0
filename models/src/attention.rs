use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use firebrick_kernels::{self as ops, Heads, Norm, Rotary, joined};

use crate::{
    CheckpointError, DecoderConfig, DecoderContext, GradientSum, KvCache,
    init::{ParameterSource, vector},
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
        let projected = self.qkv.forward(x, None, context.compute);
        let norms = self.norms(context);
        let before_norms = norms.as_ref().map(|_| projected.clone());
        let [query, key, value] =
            ops::looks(projected, self.counts(), norms, rotary, context.compute);
        Looks { query, key, value, before_norms }
    }

    /// Queries of the newest token of each row, whose keys and values the cache then has.
    pub(crate) fn remember(
        &self,
        x: Tensor<2>,
        (cache, layer): (&mut KvCache, usize),
        context: &DecoderContext,
    ) -> Tensor<3> {
        let projected = self.qkv.forward(x, None, context.compute);
        let (heads, norms, rotary) = (self.counts(), self.norms(context), &context.rotary);
        let query = cache.remember(layer, &projected, heads, norms.as_ref(), rotary);
        query.unwrap_or_else(|| {
            let [query, key, value] = ops::looks(projected, heads, norms, rotary, context.compute);
            cache.fill(layer, &key, &value);
            query
        })
    }

    /// From the gradients of queries, keys and values, f32, to that of `x`; the parameters' is added to
    /// `sum`. Tensors are without autodiff.
    pub(crate) fn looks_back(
        &self,
        x: &Tensor<2>,
        before_norms: Option<Tensor<2>>,
        gradients: [Tensor<3>; 3],
        rotary: &Rotary,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let norms = self.norms(context).map(|(rule, weights)| (rule, weights.map(Tensor::inner)));
        let norms = norms.zip(before_norms);
        let (d_projected, d_norms) = ops::looks_back(self.counts(), norms, rotary, gradients);
        let norms = [&self.query_norm, &self.key_norm].into_iter().flatten();
        for (norm, d_norm) in norms.zip(d_norms.into_iter().flatten()) {
            if norm.is_require_grad() {
                sum.add(norm.id, d_norm);
            }
        }
        self.qkv.back(x, d_projected, context.compute, sum)
    }

    fn counts(&self) -> Heads {
        Heads { query: self.heads, key: self.kv_heads, width: self.head_dim }
    }

    fn norms(&self, context: &DecoderContext) -> Option<(Norm, [Tensor<1>; 2])> {
        let (query, key) = self.query_norm.as_ref().zip(self.key_norm.as_ref())?;
        Some((context.norm, [query, key].map(|norm| norm.val())))
    }
}

/// Queries, keys and values of some tokens, `[places, heads, head_dim]`; keys and values have the heads of keys.
pub(crate) struct Looks {
    pub(crate) query: Tensor<3>,
    pub(crate) key: Tensor<3>,
    pub(crate) value: Tensor<3>,
    /// All three side by side, `[places, outputs]`, before the norms, where there are some.
    pub(crate) before_norms: Option<Tensor<2>>,
}

impl Looks {
    /// Those of some tokens, and of those behind them, and so on.
    pub(crate) fn joined(parts: Vec<Looks>) -> Looks {
        let mut all = [const { Vec::new() }; 3];
        let mut before_norms = Vec::new();
        for part in parts {
            for (all, look) in all.iter_mut().zip([part.query, part.key, part.value]) {
                all.push(look);
            }
            before_norms.extend(part.before_norms);
        }
        let [query, key, value] = all.map(|parts| joined(parts, 0));
        let before_norms = (!before_norms.is_empty()).then(|| joined(before_norms, 0));
        Looks { query, key, value, before_norms }
    }
}
