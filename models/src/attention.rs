use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor},
};

use crate::{
    CheckpointError, DecoderConfig,
    cache::LayerCache,
    init::{ParameterSource, matrix, vector},
    ops::{self, Rotary},
};

/// Grouped-query self-attention; q, k and v are one projection, because on every device one large
/// product is faster than three small ones.
#[derive(Module, Debug)]
pub(crate) struct Attention {
    qkv: Param<Tensor<2>>, // [hidden, query + key + value]
    qkv_bias: Option<Param<Tensor<1>>>,
    output: Param<Tensor<2>>, // [query, hidden]
    #[module(skip)]
    heads: usize,
    #[module(skip)]
    kv_heads: usize,
    #[module(skip)]
    head_dim: usize,
}

impl Attention {
    pub(crate) fn from_source(
        config: &DecoderConfig,
        path: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let width = config.query_width() + 2 * config.key_width();
        Ok(Attention {
            qkv: matrix(source, &format!("{path}.qkv"), [config.hidden_size, width], device)?,
            qkv_bias: if config.qkv_bias {
                Some(vector(source, &format!("{path}.qkv_bias"), width, device)?)
            } else {
                None
            },
            output: matrix(
                source,
                &format!("{path}.output"),
                [config.query_width(), config.hidden_size],
                device,
            )?,
            heads: config.heads,
            kv_heads: config.kv_heads,
            head_dim: config.head_dim,
        })
    }

    /// `x` is `[rows, tokens, hidden]`; with a cache, its keys and values are written there first
    /// and the whole cache is attended to.
    pub(crate) fn forward(
        &self,
        x: Tensor<3>,
        rotary: &Rotary,
        bias: Tensor<4>,
        cache: Option<(&mut LayerCache, usize)>,
    ) -> Tensor<3> {
        let [rows, tokens, _] = x.dims();
        let (heads, kv_heads) = (self.heads, self.kv_heads);
        let mut qkv = x.matmul(self.qkv.val().unsqueeze());
        if let Some(bias) = &self.qkv_bias {
            qkv = qkv + bias.val().unsqueeze();
        }
        let qkv = qkv.reshape([rows, tokens, heads + 2 * kv_heads, self.head_dim]);
        let rotated = rotary.apply(qkv.clone().narrow(2, 0, heads + kv_heads));
        let query = rotated.clone().narrow(2, 0, heads);
        let key = rotated.narrow(2, heads, kv_heads).swap_dims(1, 2);
        let value = qkv.narrow(2, heads + kv_heads, kv_heads).swap_dims(1, 2);
        let (key, value) = match cache {
            Some((cache, cursor)) => cache.write(cursor, key, value),
            None => (key, value),
        };
        ops::attention(query, key, value, bias).matmul(self.output.val().unsqueeze())
    }
}
