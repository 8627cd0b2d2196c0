//! The configuration of a decoder: its sizes, and everything that its family computes differently.

use burn::tensor::{Int, Tensor};
use firebrick_core::config::Family;
use firebrick_kernels::Activation;

use crate::{fields::ConfigError, rope::Rope};

/// Sizes of a decoder, and everything that its family computes differently, under names that do not depend on the
/// family.
#[derive(Clone, Debug, PartialEq)]
pub struct DecoderConfig {
    /// Family whose layout `config.json` has.
    pub family: Family,
    /// Number of rows of the embedding; may exceed the tokenizer's vocabulary.
    pub vocab_size: usize,
    /// Width of the residual stream.
    pub hidden_size: usize,
    /// Number of layers.
    pub layers: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Width of one head; even. `heads · head_dim` need not be `hidden_size`.
    pub head_dim: usize,
    /// Width of the MLP's inner layer.
    pub intermediate_size: usize,
    /// Length in tokens of the longest sequence that the model was made for.
    pub max_position_embeddings: usize,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Another rope, for layers with [`RopeKind::Local`].
    pub local_rope: Option<Rope>,
    /// Number that is added to the mean square in RMSNorm.
    pub norm_epsilon: f64,
    /// Number that is added to a norm's weight before it multiplies: 1 in Gemma, whose weights are kept around 0.
    pub norm_offset: f64,
    /// Factor of the embedding: √hidden_size in Gemma, a number of the file in Granite, else 1.
    pub embedding_scale: f64,
    /// Activation of the MLP's gate.
    pub activation: Activation,
    /// True if the MLP has no gate, and the square of ReLU instead (So et al. 2021): `down(relu(up(x))²)`.
    pub squared_relu: bool,
    /// Projections that have biases.
    pub biases: Biases,
    /// Normalisation of queries and keys.
    pub qk_norm: QkNorm,
    /// Factor of queries besides 1/√head_dim, which all models have. It is not 1 in larger models of Gemma 3, and in
    /// Granite.
    pub query_scale: f64,
    /// How queries grow with their position, in Ministral 3.
    pub query_growth: Option<QueryGrowth>,
    /// Factor of what a sublayer adds to the residual stream: 1, except in Granite.
    pub residual_scale: f64,
    /// Factor of the logits: 1, except in Granite.
    pub logit_scale: f64,
    /// Where a layer has norms: before its sublayers, after them, or both.
    pub norms: LayerNorms,
    /// Kind of each layer.
    pub kinds: Vec<LayerKind>,
    /// True if the head is the embedding.
    pub tied: bool,
    /// Which matrices a file has as one.
    pub fused: Fused,
    /// True if the numbers of a head that RoPE rotates together are next to each other in a folder's files. Here, as in
    /// most folders, they are half of the rotated numbers apart. (GGUF files have them side by side in other families.)
    pub paired: bool,
    /// True if each query has a gate next to it in the matrix of queries, which multiplies the attention's output.
    pub gated: bool,
    /// Experts of the layers that have them.
    pub experts: Option<ExpertSizes>,
    /// Recurrence of the layers that have one.
    pub delta: Option<GatedDeltaSizes>,
    /// How many tokens the convolution of LFM2's layers sees, the token itself included.
    pub convolution: Option<usize>,
}

/// What a layer is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerKind {
    /// How many positions a query attends to, its own included (sliding window). `None` means all positions up to it.
    pub window: Option<usize>,
    /// Rope of queries and keys.
    pub rope: RopeKind,
    /// True if the layer decodes from a state instead of keys and values: it has a GatedDeltaNet
    /// ([`DecoderConfig::delta`]) or a short convolution ([`DecoderConfig::convolution`]) instead of attention.
    pub recurrent: bool,
    /// True if the layer has experts instead of an MLP ([`DecoderConfig::experts`]).
    pub sparse: bool,
}

/// Sizes of a layer's experts: small MLPs, some of which a router chooses for each token (Shazeer et al. 2017).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpertSizes {
    /// How many experts there are.
    pub count: usize,
    /// How many of them a token goes through.
    pub chosen: usize,
    /// Width of an expert's inner layer.
    pub inner: usize,
    /// True if the weights of a token's experts sum to 1.
    pub normalised: bool,
    /// Width of the inner layer of one more expert, which all tokens go through, times the sigmoid of a number that the
    /// token decides. `None` if there is none.
    pub shared: Option<usize>,
}

/// How queries grow with their position `t`: by the factor `1 + beta · ln(1 + ⌊t / context⌋)`, as in Llama 4.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueryGrowth {
    /// How strongly they grow.
    pub beta: f64,
    /// Number of tokens up to which they do not grow.
    pub context: usize,
}

impl QueryGrowth {
    /// Computes the factors at `positions`, `[rows, tokens]`, as `[rows · tokens, 1, 1]`.
    pub(crate) fn factors(&self, positions: Tensor<2, Int>) -> Tensor<3> {
        let tokens = positions.dims().iter().product();
        let contexts = positions.float().div_scalar(self.context as f64).floor();
        let growth = contexts.add_scalar(1.0).log().mul_scalar(self.beta).add_scalar(1.0);
        growth.reshape([tokens, 1, 1])
    }
}

/// Sizes of a GatedDeltaNet: linear attention whose memory is one matrix for each head (Yang et al. 2024).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatedDeltaSizes {
    /// How many heads of queries and keys there are.
    pub key_heads: usize,
    /// How many heads of values there are; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Width of a query or a key.
    pub key_dim: usize,
    /// Width of a value.
    pub value_dim: usize,
    /// How many tokens the convolution before the delta rule sees, the token itself included.
    pub kernel: usize,
}

impl GatedDeltaSizes {
    /// Counts the numbers of all queries, or of all keys, of a token.
    pub fn keys(&self) -> usize {
        self.key_heads * self.key_dim
    }

    /// Counts the numbers of all values of a token.
    pub fn values(&self) -> usize {
        self.value_heads * self.value_dim
    }

    /// Counts the channels of the convolution: queries, keys and values.
    pub fn channels(&self) -> usize {
        2 * self.keys() + self.values()
    }

    /// Counts the numbers of a layer's state for a text of any length: the matrices, and the tokens that the
    /// convolution still needs.
    pub fn state(&self) -> usize {
        self.value_heads * self.key_dim * self.value_dim + (self.kernel - 1) * self.channels()
    }
}

/// How queries and keys are normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QkNorm {
    /// Nothing is normalised.
    #[default]
    None,
    /// Each head is normalised by itself, with weights that all heads share.
    Heads,
    /// All heads of queries are normalised together, and all heads of keys.
    Whole,
    /// Each head is normalised by itself after RoPE.
    Rotated,
}

/// Which matrices of a layer a file has as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fused {
    /// None of them.
    #[default]
    None,
    /// The MLP's gate and up.
    GateUp,
    /// Queries, keys and values, and the MLP's gate and up.
    All,
}

/// Where the norms of a layer's two sublayers are, attention and MLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LayerNorms {
    /// Pre-norm: a norm is before each sublayer, on its input.
    #[default]
    Pre,
    /// Post-norm: a norm is after each sublayer, on what it adds to the residual stream.
    Post,
    /// Pre-norm and post-norm.
    Both,
}

impl LayerNorms {
    /// Tells whether a norm is before each sublayer.
    pub fn has_pre_norm(self) -> bool {
        self != LayerNorms::Post
    }

    /// Tells whether a norm is after each sublayer.
    pub fn has_post_norm(self) -> bool {
        self != LayerNorms::Pre
    }
}

/// Which rope rotates a layer's queries and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopeKind {
    /// [`DecoderConfig::rope`].
    #[default]
    Rope,
    /// [`DecoderConfig::local_rope`].
    Local,
    /// None (NoPE): the layer knows positions only through the other layers.
    None,
}

/// Which projections add a bias.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Biases {
    /// True for queries, keys and values.
    pub qkv: bool,
    /// True for the attention's output.
    pub output: bool,
    /// True for gate, up and down.
    pub mlp: bool,
}

/// Sizes of a new model.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// See [`DecoderConfig::vocab_size`].
    pub vocab_size: usize,
    /// See [`DecoderConfig::hidden_size`].
    pub hidden_size: usize,
    /// See [`DecoderConfig::layers`].
    pub layers: usize,
    /// See [`DecoderConfig::heads`].
    pub heads: usize,
    /// See [`DecoderConfig::kv_heads`].
    pub kv_heads: usize,
    /// See [`DecoderConfig::head_dim`].
    pub head_dim: usize,
    /// See [`DecoderConfig::intermediate_size`].
    pub intermediate_size: usize,
    /// See [`DecoderConfig::max_position_embeddings`].
    pub max_position_embeddings: usize,
    /// See [`Rope::theta`].
    pub rope_theta: f64,
    /// See [`DecoderConfig::tied`].
    pub tied: bool,
}

impl DecoderConfig {
    /// Describes a new model of `family`, which so far computes everything as Llama does.
    pub(crate) fn llama_like(family: Family, sizes: Sizes) -> Self {
        DecoderConfig {
            family,
            vocab_size: sizes.vocab_size,
            hidden_size: sizes.hidden_size,
            layers: sizes.layers,
            heads: sizes.heads,
            kv_heads: sizes.kv_heads,
            head_dim: sizes.head_dim,
            intermediate_size: sizes.intermediate_size,
            max_position_embeddings: sizes.max_position_embeddings,
            rope: Rope::new(sizes.rope_theta),
            local_rope: None,
            norm_epsilon: 1e-6,
            norm_offset: 0.0,
            embedding_scale: 1.0,
            activation: Activation::Silu,
            squared_relu: false,
            biases: Biases::default(),
            qk_norm: QkNorm::None,
            query_scale: 1.0,
            query_growth: None,
            residual_scale: 1.0,
            logit_scale: 1.0,
            norms: LayerNorms::Pre,
            kinds: vec![LayerKind::default(); sizes.layers],
            tied: sizes.tied,
            fused: Fused::None,
            paired: false,
            gated: false,
            experts: None,
            delta: None,
            convolution: None,
        }
    }

    /// Checks that the sizes can work together, before the first matmul panics.
    ///
    /// # Errors
    /// Fails if they can't. The error names the sizes and what is expected.
    pub fn check(&self) -> Result<(), ConfigError> {
        let positive = [
            ("vocab_size", self.vocab_size),
            ("hidden_size", self.hidden_size),
            ("num_hidden_layers", self.layers),
            ("num_attention_heads", self.heads),
            ("num_key_value_heads", self.kv_heads),
            ("head_dim", self.head_dim),
            ("intermediate_size", self.intermediate_size),
            ("max_position_embeddings", self.max_position_embeddings),
        ];

        if let Some((name, size)) =
            positive.into_iter().find(|(_, size)| !(1..=1 << 24).contains(size))
        {
            return Err(ConfigError::Size(format!("{name} is {size}; expected 1 to 16777216")));
        }

        // A file that asks for wider matrices is damaged, and allocating them would end the process.
        let query = self.heads as u128 * self.head_dim as u128;
        let widest = [self.vocab_size, 2 * self.intermediate_size].map(|width| width as u128);
        let query = query * if self.gated { 2 } else { 1 };
        let largest =
            query.max(self.hidden_size as u128) * widest.into_iter().fold(query, u128::max);

        if largest > 1 << 31 {
            return Err(ConfigError::Size(format!(
                "the sizes make a matrix of {largest} values; expected at most 2147483648"
            )));
        }

        if !self.heads.is_multiple_of(self.kv_heads) {
            return Err(ConfigError::Size(format!(
                "{} attention heads cannot share {} key-value heads: the second must divide the first",
                self.heads, self.kv_heads
            )));
        }

        // The classes of these families ask for it even if head_dim is there.
        let asks = matches!(self.family, Family::Llama | Family::Gemma3 | Family::Arcee);
        if asks && !self.hidden_size.is_multiple_of(self.heads) {
            return Err(ConfigError::Size(format!(
                "hidden_size is {}, which {} attention heads cannot share; expected a multiple",
                self.hidden_size, self.heads
            )));
        }

        if !self.head_dim.is_multiple_of(2) {
            return Err(ConfigError::Size(format!(
                "head_dim is {}; rotary position embedding needs an even number",
                self.head_dim
            )));
        }

        if !(self.norm_epsilon > 0.0 && self.norm_epsilon <= 1.0) {
            return Err(ConfigError::Size(format!(
                "rms_norm_eps is {}; expected a number above 0 and at most 1",
                self.norm_epsilon
            )));
        }

        for rope in [Some(&self.rope), self.local_rope.as_ref()].into_iter().flatten() {
            rope.check(self.head_dim, self.max_position_embeddings)?;
        }

        self.check_parts()?;
        for (what, factor) in [
            ("queries", self.query_scale),
            ("embeddings", self.embedding_scale),
            ("the outputs of sublayers", self.residual_scale),
            ("logits", self.logit_scale),
        ] {
            if !(factor.is_finite() && factor > 0.0) {
                return Err(ConfigError::Size(format!(
                    "{what} are multiplied by {factor}; expected a positive number"
                )));
            }
        }

        if let Some(QueryGrowth { beta, context }) = self.query_growth
            && !(beta >= 0.0 && beta.is_finite() && context > 0)
        {
            return Err(ConfigError::Size(format!(
                "queries grow by {beta} beyond {context} tokens; expected 0 or more, and at least one token"
            )));
        }

        let different = |window: &usize| self.window().is_some_and(|first| first != *window);
        if self.local_rope.is_none() && self.kinds.iter().any(|kind| kind.rope == RopeKind::Local) {
            return Err(ConfigError::Size(
                "some layers use a local rope, but there is none".into(),
            ));
        }

        let mut windows = self.kinds.iter().filter_map(|kind| kind.window);
        if self.kinds.len() != self.layers || windows.any(|window| different(&window)) {
            return Err(ConfigError::Size("layers have windows of different sizes".into()));
        }

        if self.window() == Some(0) {
            return Err(ConfigError::Size(
                "sliding_window is 0; a query sees at least its own position".into(),
            ));
        }
        Ok(())
    }

    /// Checks the sizes of experts and of recurrent layers, and that no layer needs sizes that are missing.
    fn check_parts(&self) -> Result<(), ConfigError> {
        let size = |name: &str, size: usize, limit: usize| {
            if (1..=limit).contains(&size) {
                Ok(())
            } else {
                Err(ConfigError::Size(format!("{name} is {size}; expected 1 to {limit}")))
            }
        };

        let without = |parts: &str| {
            Err(ConfigError::Size(format!("some layers have {parts}, but the sizes are missing")))
        };

        let largest = |name: &str, outputs: usize| {
            let values = self.hidden_size as u128 * outputs as u128;
            if values > 1 << 31 {
                return Err(ConfigError::Size(format!(
                    "{name} make a matrix of {values} values; expected at most 2147483648"
                )));
            }
            Ok(())
        };

        match &self.experts {
            Some(experts) => {
                size("num_experts", experts.count, 1 << 12)?;
                size("num_experts_per_tok", experts.chosen, experts.count)?;
                size("moe_intermediate_size", experts.inner, 1 << 24)?;
                let shared = experts.shared.unwrap_or(1);
                size("shared_expert_intermediate_size", shared, 1 << 24)?;
                largest("the experts", 2 * experts.inner.max(shared))?;
            }
            None if self.kinds.iter().any(|kind| kind.sparse) => return without("experts"),
            None => {}
        }

        if let Some(tokens) = self.convolution {
            if !(2..=64).contains(&tokens) {
                return Err(ConfigError::Size(format!(
                    "conv_L_cache is {tokens}; expected 2 to 64"
                )));
            }
            largest("the convolutions", 3 * self.hidden_size)?;
        }

        match &self.delta {
            Some(delta) => {
                size("linear_num_key_heads", delta.key_heads, 1 << 12)?;
                size("linear_num_value_heads", delta.value_heads, 1 << 12)?;
                size("linear_key_head_dim", delta.key_dim, 1 << 12)?;
                size("linear_value_head_dim", delta.value_dim, 1 << 12)?;
                if !(2..=64).contains(&delta.kernel) {
                    return Err(ConfigError::Size(format!(
                        "linear_conv_kernel_dim is {}; expected 2 to 64",
                        delta.kernel
                    )));
                }

                largest("the heads of recurrent layers", delta.channels() + delta.values())?;
                if !delta.value_heads.is_multiple_of(delta.key_heads) {
                    return Err(ConfigError::Size(format!(
                        "{} value heads cannot share {} key heads in recurrent layers: the second must divide the \
                         first",
                        delta.value_heads, delta.key_heads
                    )));
                }
            }
            None if self.convolution.is_none() && self.is_recurrent() => {
                return without("a recurrence");
            }
            None => {}
        }
        Ok(())
    }

    /// Tells whether some layers are recurrent.
    pub fn is_recurrent(&self) -> bool {
        self.kinds.iter().any(|kind| kind.recurrent)
    }

    /// Counts the numbers of a recurrent layer's state for a text of any length; 0 if there is no such layer.
    pub fn recurrent_state(&self) -> usize {
        match (&self.delta, self.convolution) {
            (Some(delta), _) => delta.state(),
            (None, Some(tokens)) => (tokens - 1) * self.hidden_size,
            (None, None) => 0,
        }
    }

    /// Returns the window of the layers that have one.
    pub(crate) fn window(&self) -> Option<usize> {
        self.kinds.iter().find_map(|kind| kind.window)
    }

    /// Returns the number of weights in the norms of queries and of keys; 0 if there is no norm.
    pub(crate) fn qk_norm_widths(&self) -> [usize; 2] {
        match self.qk_norm {
            QkNorm::None => [0, 0],
            QkNorm::Heads | QkNorm::Rotated => [self.head_dim; 2],
            QkNorm::Whole => [self.query_width(), self.key_width()],
        }
    }

    /// Returns the width of all queries of a token.
    pub(crate) fn query_width(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Returns the number of outputs of the matrix of queries, which also has the gates, if there are gates.
    pub(crate) fn query_outputs(&self) -> usize {
        self.query_width() * if self.gated { 2 } else { 1 }
    }

    pub(crate) fn key_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }
}
