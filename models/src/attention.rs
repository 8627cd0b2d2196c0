//! The attention of a layer: its projections to queries, keys and values, forward and backward.

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor, activation::sigmoid},
};

use firebrick_kernels::{
    self as ops, AttentionOptions, AttentionOutput, Compute, Heads, Norm, RopeTable, joined,
};

use crate::{
    cache::KvCache,
    checkpoint::CheckpointError,
    config::{DecoderConfig, LayerKind, QkNorm},
    context::DecoderContext,
    gradient::GradientSum,
    projection::Projection,
    source::{ParameterSource, vector},
};

/// Grouped-query self-attention.
#[derive(Module, Debug)]
pub(crate) struct Attention {
    pub(crate) qkv: Projection,
    /// Norms of queries and of keys, of each head, `[head_dim]`, or of all heads together.
    query_norm: Option<Param<Tensor<1>>>,
    key_norm: Option<Param<Tensor<1>>>,
    pub(crate) output: Projection,
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    kv_heads: usize,
    #[module(skip)]
    head_dim: usize,
    #[module(skip)]
    qk_norm: QkNorm,
    #[module(skip)]
    query_scale: f64,
    #[module(skip)]
    gated: bool,
}

impl Attention {
    /// Reads the attention of the layer at `layer`.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let path = |part: &str| format!("{layer}.attention.{part}");
        let mut norm = |part: &str, width: usize| {
            (width > 0).then(|| vector(source, &path(part), width, device)).transpose()
        };

        let [queries, keys] = config.qk_norm_widths();
        let query_norm = norm("query_norm", queries)?;
        let key_norm = norm("key_norm", keys)?;

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
            qk_norm: config.qk_norm,
            query_scale: config.query_scale,
            gated: config.gated,
        })
    }

    /// Computes queries, keys and values of `x`, `[tokens, inputs]`, in the matmul precision.
    pub(crate) fn qkv_rope(
        &self,
        x: Tensor<2>,
        rotary: &RopeTable,
        context: &DecoderContext,
    ) -> Qkv {
        let (projected, gate) = self.split_gates(self.qkv.forward(x, None, context.compute));
        let before_norms = (self.qk_norm != QkNorm::None).then(|| projected.clone());
        let projected = self.normed(projected, context);
        let [query, key, value] =
            ops::qkv_rope(projected, self.counts(), self.norms(context), rotary, context.compute);
        let [query, key] = self.weighted([query, key]);
        Qkv { query: self.scaled(query), key, value, before_norms, gate }
    }

    /// Computes the queries of each row's newest token and their gates, and appends the keys and values of these tokens
    /// to the cache.
    pub(crate) fn append(
        &self,
        x: Tensor<2>,
        (cache, layer): (&mut KvCache, usize),
        rotary: &RopeTable,
        context: &DecoderContext,
    ) -> (Tensor<3>, Option<Tensor<2>>) {
        let (projected, gate) = self.split_gates(self.qkv.forward(x, None, context.compute));
        let projected = self.normed(projected, context);
        let heads = self.counts();
        let norms = self.norms(context);
        let query = match self.qk_norm {
            QkNorm::Rotated => None,
            _ => cache.append(layer, &projected, heads, norms.as_ref(), rotary),
        };
        // A device that can't do this in one kernel rotates first, and then writes.
        let query = query.unwrap_or_else(|| {
            let [query, key, value] =
                ops::qkv_rope(projected, heads, norms, rotary, context.compute);
            let [query, key] = self.weighted([query, key]);
            cache.fill(layer, &key, &value);
            query
        });
        (self.scaled(query), gate)
    }

    /// Computes the gradient of `x`, given the gradients of queries, keys and values, f32, and of the gates. The
    /// gradients of the parameters are added to `sum`. Tensors are without autodiff.
    pub(crate) fn qkv_rope_backward(
        &self,
        x: &Tensor<2>,
        before_norms: Option<Tensor<2>>,
        (gradients, d_gate): ([Tensor<3>; 3], Option<Tensor<2>>),
        rotary: &RopeTable,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        // `qkv_rope` in reverse: rotation and norms of heads, then the norms of all heads, the gates, the matmul.
        let [d_query, d_key, d_value] = gradients;
        let norms = self.norms(context).map(|(rule, weights)| (rule, weights.map(Tensor::inner)));
        let norms = norms.zip(before_norms.clone());
        let (d_rotated, d_weights) =
            self.weighted_backward([self.scaled(d_query), d_key], norms.clone(), rotary);

        let [d_query, d_key] = d_rotated;
        let (d_projected, d_norms) =
            ops::qkv_rope_backward(self.counts(), norms, rotary, [d_query, d_key, d_value]);
        let d_norms = d_weights.or(d_norms);

        let norms = [&self.query_norm, &self.key_norm].into_iter().flatten();
        for (norm, d_norm) in norms.zip(d_norms.into_iter().flatten()) {
            if norm.is_require_grad() {
                sum.add(norm.id, d_norm);
            }
        }

        let d_projected = self.normed_backward(d_projected, before_norms, context, sum);
        let d_projected = match d_gate {
            Some(d_gate) => self.join_gates(d_projected, d_gate),
            None => d_projected,
        };
        self.qkv.backward(x, d_projected, context.compute, sum)
    }

    /// Splits the gates from queries, keys and values, which stay side by side. In `projected`, each head's gate is
    /// next to its query.
    fn split_gates(&self, projected: Tensor<2>) -> (Tensor<2>, Option<Tensor<2>>) {
        if !self.gated {
            return (projected, None);
        }
        let [tokens, outputs] = projected.dims();
        let width = self.heads * self.head_dim;

        let both = projected.clone().narrow(1, 0, 2 * width);
        let both = both.reshape([tokens, self.heads, 2, self.head_dim]);
        let [query, gate] =
            [0, 1].map(|which| both.clone().narrow(2, which, 1).reshape([tokens, width]));
        let rest = projected.narrow(1, 2 * width, outputs - 2 * width);
        (Tensor::cat(vec![query, rest], 1), Some(gate))
    }

    /// Undoes [`Attention::split_gates`].
    fn join_gates(&self, qkv: Tensor<2>, gate: Tensor<2>) -> Tensor<2> {
        let [tokens, outputs] = qkv.dims();
        let width = self.heads * self.head_dim;
        let by_head = |x: Tensor<2>| x.reshape([tokens, self.heads, 1, self.head_dim]);
        let both = vec![by_head(qkv.clone().narrow(1, 0, width)), by_head(gate)];
        let both = Tensor::cat(both, 2).reshape([tokens, 2 * width]);
        Tensor::cat(vec![both, qkv.narrow(1, width, outputs - width)], 1)
    }

    /// Normalises queries and keys, if all heads of each are normalised together. Queries, keys and values are
    /// side by side.
    fn normed(&self, projected: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let Some(norms) = self.full_width_norms() else { return projected };
        let [query, key, value] = self.sides(projected);
        let apply = |x, norm: &Param<Tensor<1>>| context.norm.apply(x, norm.val(), Compute::F32);
        Tensor::cat(vec![apply(query, norms[0]), apply(key, norms[1]), value], 1)
    }

    /// Computes the gradient of the input of [`Attention::normed`], given that of its output.
    fn normed_backward(
        &self,
        d: Tensor<2>,
        before: Option<Tensor<2>>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let Some((norms, before)) = self.full_width_norms().zip(before) else { return d };
        let [query, key, _] = self.sides(before);
        let [d_query, d_key, d_value] = self.sides(d);
        let d_query = context.norm_backward(query, norms[0], d_query, None, sum);
        let d_key = context.norm_backward(key, norms[1], d_key, None, sum);
        Tensor::cat(vec![d_query, d_key, d_value], 1)
    }

    fn full_width_norms(&self) -> Option<[&Param<Tensor<1>>; 2]> {
        let full_width = self.qk_norm == QkNorm::Whole;
        let (query, key) = self.query_norm.as_ref().zip(self.key_norm.as_ref())?;
        full_width.then_some([query, key])
    }

    /// Returns the columns of queries, of keys and of values.
    fn sides(&self, all: Tensor<2>) -> [Tensor<2>; 3] {
        let queries = self.heads * self.head_dim;
        let keys = self.kv_heads * self.head_dim;
        [(0, queries), (queries, keys), (queries + keys, keys)]
            .map(|(start, width)| all.clone().narrow(1, start, width))
    }

    /// Multiplies queries, or their gradient, by the family's factor.
    fn scaled(&self, query: Tensor<3>) -> Tensor<3> {
        if self.query_scale == 1.0 { query } else { query.mul_scalar(self.query_scale) }
    }

    fn counts(&self) -> Heads {
        Heads { query: self.heads, key: self.kv_heads, width: self.head_dim }
    }

    /// Returns the norms of single heads before RoPE. A norm after RoPE begins as one before it, since a rotation
    /// changes no head's length; only its weights have to wait until the head is rotated ([`Attention::weighted`]).
    fn norms(&self, context: &DecoderContext) -> Option<(Norm, [Tensor<1>; 2])> {
        let weights = [self.query_norm.as_ref()?, self.key_norm.as_ref()?].map(Param::val);
        match self.qk_norm {
            QkNorm::Heads => Some((context.norm, weights)),
            QkNorm::Rotated => Some((context.norm, weights.map(|it| it.ones_like()))),
            QkNorm::None | QkNorm::Whole => None,
        }
    }

    /// Multiplies rotated queries and keys by the weights of their norms, if these norms are after RoPE.
    fn weighted(&self, rotated: [Tensor<3>; 2]) -> [Tensor<3>; 2] {
        match self.weights_after_rope() {
            Some([query, key]) => {
                let [queries, keys] = rotated;
                [(queries, query), (keys, key)].map(|(x, weight)| {
                    let dtype = x.dtype();
                    x * by_head(weight.val()).cast(dtype)
                })
            }
            None => rotated,
        }
    }

    /// Computes the gradients of the inputs of [`Attention::weighted`] and of the weights, given those of its results.
    fn weighted_backward(
        &self,
        d: [Tensor<3>; 2],
        norms: Option<((Norm, [Tensor<1>; 2]), Tensor<2>)>,
        rotary: &RopeTable,
    ) -> ([Tensor<3>; 2], Option<[Tensor<1>; 2]>) {
        let Some((weights, (norms, projected))) = self.weights_after_rope().zip(norms) else {
            return (d, None);
        };
        let [queries, keys, _] =
            ops::qkv_rope(projected, self.counts(), Some(norms), rotary, Compute::F32);

        let [d_query, d_key] = d;
        let d_weights = [(d_query.clone(), queries), (d_key.clone(), keys)].map(|(d, rotated)| {
            let width = self.head_dim;
            (d * rotated).sum_dim(0).sum_dim(1).reshape([width])
        });

        let [query, key] = weights.map(|weight| by_head(weight.val().inner()));
        ([d_query * query, d_key * key], Some(d_weights))
    }

    fn weights_after_rope(&self) -> Option<[&Param<Tensor<1>>; 2]> {
        let after = self.qk_norm == QkNorm::Rotated;
        Some([self.query_norm.as_ref()?, self.key_norm.as_ref()?]).filter(|_| after)
    }
}

/// Queries, keys and values of some tokens, `[tokens, heads, head_dim]`. Values have as many heads as keys.
pub(crate) struct Qkv {
    pub(crate) query: Tensor<3>,
    pub(crate) key: Tensor<3>,
    pub(crate) value: Tensor<3>,
    /// All three side by side before the norms, `[tokens, outputs]`, if there are norms.
    pub(crate) before_norms: Option<Tensor<2>>,
    /// Gates, `[tokens, heads · head_dim]`, if there are any.
    pub(crate) gate: Option<Tensor<2>>,
}

impl Qkv {
    /// Joins queries, keys and values of successive tokens.
    pub(crate) fn joined(parts: Vec<Qkv>) -> Qkv {
        let mut all = [const { Vec::new() }; 3];
        let mut before_norms = Vec::new();
        let mut gate = Vec::new();
        for part in parts {
            for (all, x) in all.iter_mut().zip([part.query, part.key, part.value]) {
                all.push(x);
            }
            before_norms.extend(part.before_norms);
            gate.extend(part.gate);
        }

        let [query, key, value] = all.map(|parts| joined(parts, 0));
        let [before_norms, gate] =
            [before_norms, gate].map(|parts| (!parts.is_empty()).then(|| joined(parts, 0)));
        Qkv { query, key, value, before_norms, gate }
    }

    pub(crate) fn attend(&self, kind: LayerKind, context: &DecoderContext) -> AttentionOutput {
        let options = AttentionOptions { window: kind.window, scores: context.chunk_sizes.scores };
        ops::attention(&self.query, &self.key, &self.value, context.mask(), options)
    }

    pub(crate) fn attend_backward(
        self,
        out: AttentionOutput,
        d_output: Tensor<3>,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> [Tensor<3>; 3] {
        let options = AttentionOptions { window: kind.window, scores: context.chunk_sizes.scores };
        let qkv = [&self.query, &self.key, &self.value];
        ops::attention_backward(qkv, &out, &d_output, context.mask(), options)
    }
}

/// Shapes the weights of a head, `[head_dim]`, for all heads of all tokens, `[tokens, heads, head_dim]`.
fn by_head(weights: Tensor<1>) -> Tensor<3> {
    weights.unsqueeze()
}

/// Multiplies the output of an attention by the sigmoid of its gates.
pub(crate) fn gate_output(output: Tensor<2>, gate: Option<Tensor<2>>) -> Tensor<2> {
    match gate {
        Some(gate) => output * sigmoid(gate),
        None => output,
    }
}

/// Computes the gradients of the inputs of [`gate_output`], the output and the gates, given that of its result.
pub(crate) fn gate_output_backward(
    output: Tensor<2>,
    gate: Option<Tensor<2>>,
    d: Tensor<2>,
) -> (Tensor<2>, Option<Tensor<2>>) {
    let Some(gate) = gate else { return (d, None) };
    let open = sigmoid(gate);
    // The derivative of the sigmoid is s·(1 − s).
    let d_gate = d.clone() * output * open.clone() * open.clone().neg().add_scalar(1.0);
    (d * open, Some(d_gate))
}
