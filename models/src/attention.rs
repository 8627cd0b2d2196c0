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
    /// Score of each query head's sink, `[heads]`.
    pub(crate) sinks: Option<Param<Tensor<1>>>,
    pub(crate) output: Projection,
    #[module(skip)]
    heads: Heads,
    /// How many projections there are to keys and values: one if values are the keys, and none if both are an earlier
    /// layer's.
    #[module(skip)]
    kv_maps: usize,
    #[module(skip)]
    qk_norm: QkNorm,
    #[module(skip)]
    value_norm: bool,
    #[module(skip)]
    query_scale: f64,
    #[module(skip)]
    gated: bool,
}

impl Attention {
    /// Reads the attention of the layer at `layer`, which is of this kind.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: &str,
        kind: LayerKind,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let path = |part: &str| format!("{layer}.attention.{part}");
        let mut optional = |part: &str, width: usize| {
            (width > 0).then(|| vector(source, &path(part), width, device)).transpose()
        };

        let heads = config.heads_of(kind);
        let [queries, keys] = config.qk_norm_widths(kind);
        let query_norm = optional("query_norm", queries)?;
        let key_norm = optional("key_norm", keys)?;
        let sinks = optional("sinks", if config.sinks { heads.query } else { 0 })?;

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
            sinks,
            output: Projection::from_source(
                config,
                &path("output"),
                config.query_width(kind),
                config.biases.output,
                source,
                device,
            )?,
            heads,
            kv_maps: config.kv_maps(kind),
            qk_norm: config.qk_norm,
            value_norm: config.value_norm && config.kv_maps(kind) > 0,
            // Every layer divides by the root of its own width, and scores are scaled alike in all layers.
            query_scale: config.query_scale * (heads.width as f64 / config.head_dim as f64).sqrt(),
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
        let (projected, gate) = self.projected(x, context.compute);
        let has_norms = self.qk_norm != QkNorm::None || self.value_norm;
        let before_norms = has_norms.then(|| projected.clone());
        let projected = self.normed(projected, context);
        let [query, key, value] =
            ops::qkv_rope(projected, self.heads, self.norms(context), rotary, context.compute);
        let [query, key] = self.weighted([query, key]);
        Qkv { query: self.scaled(query), key, value, before_norms, gate }
    }

    /// Computes the queries of each row's newest token and their gates, and appends the keys and values of these tokens
    /// to the cache, unless an earlier layer's are there.
    pub(crate) fn append(
        &self,
        x: Tensor<2>,
        (cache, layer): (&mut KvCache, usize),
        rotary: &RopeTable,
        context: &DecoderContext,
    ) -> (Tensor<3>, Option<Tensor<2>>) {
        let (projected, gate) = self.projected(x, context.compute);
        let projected = self.normed(projected, context);
        let heads = self.heads;
        let norms = self.norms(context);
        let query = match self.qk_norm {
            QkNorm::Rotated => None,
            _ if self.kv_maps == 0 => None,
            _ => cache.append(layer, &projected, heads, norms.as_ref(), rotary),
        };
        // A device that can't do this in one kernel rotates first, and then writes.
        let query = query.unwrap_or_else(|| {
            let [query, key, value] =
                ops::qkv_rope(projected, heads, norms, rotary, context.compute);
            let [query, key] = self.weighted([query, key]);
            if self.kv_maps > 0 {
                cache.fill(layer, &key, &value);
            }
            query
        });
        (self.scaled(query), gate)
    }

    /// Lets all tokens of a batch attend to each other and to the sinks.
    pub(crate) fn attend(
        &self,
        qkv: &Qkv,
        kind: LayerKind,
        context: &DecoderContext,
    ) -> AttentionOutput {
        let out = qkv.attend(kind, context);
        match &self.sinks {
            Some(sinks) => out.with_sinks(&sinks.val()),
            None => out,
        }
    }

    /// Adds the gradient of the sinks to `sum`, given that of the output of [`Attention::attend`].
    pub(crate) fn sinks_backward(
        &self,
        out: &AttentionOutput,
        d_output: &Tensor<3>,
        sum: &mut GradientSum,
    ) {
        if let Some(sinks) = self.sinks.as_ref().filter(|sinks| sinks.is_require_grad()) {
            sum.add(sinks.id, out.d_sinks(&sinks.val().inner(), d_output));
        }
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
        // `qkv_rope` in reverse: rotation and norms of heads, then the norms of all heads and of values, the values
        // that are keys, the gates, the matmul.
        let [d_query, d_key, d_value] = gradients;
        let norms = self.norms(context).map(|(rule, weights)| (rule, weights.map(Tensor::inner)));
        let norms = norms.zip(before_norms.clone());
        let (d_rotated, d_weights) =
            self.weighted_backward([self.scaled(d_query), d_key], norms.clone(), rotary);

        let [d_query, d_key] = d_rotated;
        let gradients = [d_query, d_key, d_value];
        let of_heads = [&self.query_norm, &self.key_norm].into_iter().flatten();
        let trained = of_heads.clone().any(|norm| norm.is_require_grad());
        let (d_projected, d_norms) =
            ops::qkv_rope_backward(self.heads, norms, trained, rotary, gradients);
        let d_norms = d_weights.or(d_norms);

        for (norm, d_norm) in of_heads.zip(d_norms.into_iter().flatten()) {
            if norm.is_require_grad() {
                sum.add(norm.id, d_norm);
            }
        }

        let d_projected = self.normed_backward(d_projected, before_norms, context, sum);
        let d_projected = self.append_values_backward(d_projected);
        let d_projected = match d_gate {
            Some(d_gate) => self.join_gates(d_projected, d_gate),
            None => d_projected,
        };
        self.qkv.backward(x, d_projected, context.compute, sum)
    }

    /// Computes queries, keys and values of `x` side by side, before any norm, and their gates.
    fn projected(&self, x: Tensor<2>, compute: Compute) -> (Tensor<2>, Option<Tensor<2>>) {
        let (projected, gate) = self.split_gates(self.qkv.forward(x, None, compute));
        (self.append_values(projected), gate)
    }

    /// Appends the keys once more, as values, if there is no projection to values. From here on the two differ, since
    /// keys are rotated and have another norm. Queries alone get zeros as keys and values, which nobody attends to: the
    /// kernels take all three side by side, and there are few heads of keys.
    fn append_values(&self, projected: Tensor<2>) -> Tensor<2> {
        let missing = match self.kv_maps {
            0 => {
                let shape = [projected.dims()[0], 2 * self.key_width()];
                Tensor::zeros(shape, (&projected.device(), projected.dtype()))
            }
            1 => projected.clone().narrow(1, self.query_width(), self.key_width()),
            _ => return projected,
        };
        Tensor::cat(vec![projected, missing], 1)
    }

    /// Computes the gradient of the input of [`Attention::append_values`], given that of its output: a number that is
    /// in a key and in a value has a gradient through both.
    fn append_values_backward(&self, d: Tensor<2>) -> Tensor<2> {
        let [d_query, d_key, d_value] = match self.kv_maps {
            0 | 1 => self.sides(d),
            _ => return d,
        };
        if self.kv_maps == 0 { d_query } else { Tensor::cat(vec![d_query, d_key + d_value], 1) }
    }

    /// Splits the gates from queries, keys and values, which stay side by side. In `projected`, each head's gate is
    /// next to its query.
    fn split_gates(&self, projected: Tensor<2>) -> (Tensor<2>, Option<Tensor<2>>) {
        if !self.gated {
            return (projected, None);
        }
        let [tokens, outputs] = projected.dims();
        let width = self.query_width();

        let both = projected.clone().narrow(1, 0, 2 * width);
        let both = both.reshape([tokens, self.heads.query, 2, self.heads.width]);
        let [query, gate] =
            [0, 1].map(|which| both.clone().narrow(2, which, 1).reshape([tokens, width]));
        let rest = projected.narrow(1, 2 * width, outputs - 2 * width);
        (Tensor::cat(vec![query, rest], 1), Some(gate))
    }

    /// Undoes [`Attention::split_gates`].
    fn join_gates(&self, qkv: Tensor<2>, gate: Tensor<2>) -> Tensor<2> {
        let [tokens, outputs] = qkv.dims();
        let width = self.query_width();
        let by_head = |x: Tensor<2>| x.reshape([tokens, self.heads.query, 1, self.heads.width]);
        let both = vec![by_head(qkv.clone().narrow(1, 0, width)), by_head(gate)];
        let both = Tensor::cat(both, 2).reshape([tokens, 2 * width]);
        Tensor::cat(vec![both, qkv.narrow(1, width, outputs - width)], 1)
    }

    /// Normalises queries and keys, if all heads of each are normalised together, and the heads of values, if these are
    /// normalised. Queries, keys and values are side by side.
    fn normed(&self, projected: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let full_width = self.full_width_norms();
        if full_width.is_none() && !self.value_norm {
            return projected;
        }

        let [mut query, mut key, mut value] = self.sides(projected);
        if let Some(norms) = full_width {
            let apply =
                |x, norm: &Param<Tensor<1>>| context.norm.apply(x, norm.val(), Compute::F32);
            query = apply(query, norms[0]);
            key = apply(key, norms[1]);
        }
        if self.value_norm {
            let (norm, weight) = self.norm_of_values(&value, context);
            let shape = value.dims();
            value = norm.apply(self.value_heads(value), weight, Compute::F32).reshape(shape);
        }
        Tensor::cat(vec![query, key, value], 1)
    }

    /// Computes the gradient of the input of [`Attention::normed`], given that of its output.
    fn normed_backward(
        &self,
        d: Tensor<2>,
        before: Option<Tensor<2>>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let full_width = self.full_width_norms();
        let changed = full_width.is_some() || self.value_norm;
        let Some(before) = before.filter(|_| changed) else { return d };

        let [query, key, value] = self.sides(before);
        let [mut d_query, mut d_key, mut d_value] = self.sides(d);
        if let Some(norms) = full_width {
            d_query = context.norm_backward(query, norms[0], d_query, None, sum);
            d_key = context.norm_backward(key, norms[1], d_key, None, sum);
        }
        if self.value_norm {
            let (norm, weight) = self.norm_of_values(&value, context);
            let shape = value.dims();
            let [value, d] = [value, d_value].map(|x| self.value_heads(x));
            d_value = norm.backward_input(value, weight, d, None).reshape(shape);
        }
        Tensor::cat(vec![d_query, d_key, d_value], 1)
    }

    /// Returns the norm of a head of values, with a weight that multiplies by one, on the device of `value`.
    fn norm_of_values(&self, value: &Tensor<2>, context: &DecoderContext) -> (Norm, Tensor<1>) {
        let norm = Norm { offset: 0.0, ..context.norm };
        (norm, Tensor::ones([self.heads.width], &value.device()))
    }

    /// Splits values by their heads: `[tokens, kv_heads · head_dim]` to `[tokens · kv_heads, head_dim]`.
    fn value_heads(&self, value: Tensor<2>) -> Tensor<2> {
        let tokens = value.dims()[0];
        value.reshape([tokens * self.heads.key, self.heads.width])
    }

    fn full_width_norms(&self) -> Option<[&Param<Tensor<1>>; 2]> {
        let full_width = self.qk_norm == QkNorm::Whole;
        let (query, key) = self.query_norm.as_ref().zip(self.key_norm.as_ref())?;
        full_width.then_some([query, key])
    }

    /// Returns the columns of queries, of keys and of values.
    fn sides(&self, all: Tensor<2>) -> [Tensor<2>; 3] {
        let queries = self.query_width();
        let keys = self.key_width();
        [(0, queries), (queries, keys), (queries + keys, keys)]
            .map(|(start, width)| all.clone().narrow(1, start, width))
    }

    /// Multiplies queries, or their gradient, by the family's factor.
    fn scaled(&self, query: Tensor<3>) -> Tensor<3> {
        if self.query_scale == 1.0 { query } else { query.mul_scalar(self.query_scale) }
    }

    fn query_width(&self) -> usize {
        self.heads.query * self.heads.width
    }

    fn key_width(&self) -> usize {
        self.heads.key * self.heads.width
    }

    /// Returns the norms of single heads before RoPE. A norm after RoPE begins as one before it, since a rotation
    /// changes no head's length; only its weights have to wait until the head is rotated ([`Attention::weighted`]).
    fn norms(&self, context: &DecoderContext) -> Option<(Norm, [Tensor<1>; 2])> {
        let query = self.query_norm.as_ref()?;
        // Without keys of its own, a layer has zeros in their place, whatever they are multiplied by.
        let key = self.key_norm.as_ref().unwrap_or(query);
        let weights = [query, key].map(Param::val);
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
            ops::qkv_rope(projected, self.heads, Some(norms), rotary, Compute::F32);

        let [d_query, d_key] = d;
        let d_weights = [(d_query.clone(), queries), (d_key.clone(), keys)].map(|(d, rotated)| {
            let width = self.heads.width;
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

    fn attend(&self, kind: LayerKind, context: &DecoderContext) -> AttentionOutput {
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
