//! The configuration of a decoder: its sizes, and everything that its family computes differently.

use burn::tensor::{Int, Tensor};
use firebrick_core::config::Family;
use firebrick_kernels::{Activation, Heads};

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
    /// Heads of layers with [`LayerKind::global`], if they differ from those of the other layers.
    pub global_heads: Option<GlobalHeads>,
    /// Width of the MLP's inner layer.
    pub intermediate_size: usize,
    /// True if the MLPs of layers with [`KvSharing::Reuse`] are twice as wide, as in Gemma 4 E2B.
    pub double_wide_mlp: bool,
    /// Embeddings that each layer has for itself, in the small models of Gemma 4.
    pub per_layer: Option<PerLayerSizes>,
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
    /// True if each head of values is normalised, without a weight, as in Gemma 4.
    pub value_norm: bool,
    /// Factor of queries besides 1/√head_dim, which all models have. It is not 1 in larger models of Gemma 3, in
    /// Gemma 4, and in Granite. Scores are scaled alike in all layers, whatever the width of their heads: global heads
    /// have a factor of their own, such that its product with 1/√width is the same.
    pub query_scale: f64,
    /// How queries grow with their position, in Ministral 3.
    pub query_growth: Option<QueryGrowth>,
    /// Factor of what a sublayer adds to the residual stream: 1, except in Granite.
    pub residual_scale: f64,
    /// Factor of the logits: 1, except in Granite.
    pub logit_scale: f64,
    /// Bound c of the logits, after that factor: a logit x becomes c · tanh(x / c). A positive number, 30 in Gemma 2;
    /// `None` in families that leave logits as they are.
    pub logit_cap: Option<f64>,
    /// True if a layer's output is multiplied by a number of the layer, which is never trained, as in Gemma 4.
    pub layer_scale: bool,
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
    /// True if each query head has a sink: a number that joins its scores, and has no value (gpt-oss).
    pub sinks: bool,
    /// Bounds of gate and up in gpt-oss.
    pub swiglu_clamp: Option<SwigluClamp>,
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
    /// True if the layer's attention has the heads of [`DecoderConfig::global_heads`].
    pub global: bool,
    /// Whose keys and values the layer attends to.
    pub kv: KvSharing,
}

/// Whose keys and values a layer attends to. In the small models of Gemma 4, the last layers have none: each attends to
/// those of the last layer before them that has some and the same reach, a window or everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvSharing {
    /// Its own, which no other layer attends to.
    #[default]
    Own,
    /// Its own, which later layers attend to as well.
    Store,
    /// Those of an earlier layer with [`KvSharing::Store`].
    Reuse,
}

/// Sizes of embeddings per layer: besides the embedding that begins the residual stream, each token has one for each
/// layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PerLayerSizes {
    /// Number of rows of the table, at least [`DecoderConfig::vocab_size`].
    pub vocab_size: usize,
    /// Width of a layer's embedding.
    pub width: usize,
}

/// Heads of the layers of Gemma 4 that see everything: wider than those of layers with a window, and fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlobalHeads {
    /// Number of key and value heads; divides [`DecoderConfig::heads`].
    pub kv_heads: usize,
    /// Width of one head; even.
    pub head_dim: usize,
    /// True if these layers have no projection to values: a value is its key, before the key's norm and RoPE.
    pub values_are_keys: bool,
}

impl LayerKind {
    /// Returns 1 for a layer with a window, and 0 for others: keys and values are shared among layers that see as far.
    pub(crate) fn reach(&self) -> usize {
        usize::from(self.window.is_some())
    }
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
    /// How the router scores the experts.
    pub scores: RouterScores,
    /// True if the weights of a token's experts sum to 1, or to the factor of [`RouterScores::Sigmoid`].
    pub normalised: bool,
    /// One more expert, which all tokens go through. `None` if there is none.
    pub shared: Option<SharedExpert>,
    /// True if the experts and their router add biases.
    pub biases: bool,
}

/// How a router turns its logits into scores. A token goes through the experts with the largest scores, and a score is
/// also the weight of its expert's output, before the weights are normalised.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RouterScores {
    /// The softmax of all logits.
    #[default]
    Softmax,
    /// The sigmoid of each logit, as in DeepSeek-V3 (2024, section 2.1.2), GLM-4.5 and MiniMax-M2. For the choice alone,
    /// a correction is added to the score of each expert: a number of the checkpoint that keeps loads even, and that no
    /// gradient changes.
    Sigmoid {
        /// Factor of the weights, after they are normalised; positive.
        scale: f64,
    },
}

/// An expert that all tokens go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedExpert {
    /// Width of its inner layer.
    pub inner: usize,
    /// True if its output is multiplied by the sigmoid of a number that the token decides. Otherwise the output is added
    /// as it is.
    pub gated: bool,
}

/// Returns the sizes of a new model's experts: eight, two of which are for each token. Their width is still 0.
impl Default for ExpertSizes {
    fn default() -> Self {
        ExpertSizes {
            count: 8,
            chosen: 2,
            inner: 0,
            scores: RouterScores::Softmax,
            normalised: true,
            shared: None,
            biases: false,
        }
    }
}

/// Bounds of an MLP's gate and up, and the slope of the gate, in gpt-oss: an MLP computes
/// `down((up + 1) · gate · sigmoid(slope · gate))`, where the gate is at most `limit`, and up is between `-limit` and
/// `limit`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SwigluClamp {
    /// Slope of the sigmoid.
    pub slope: f64,
    /// Bound.
    pub limit: f64,
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
            global_heads: None,
            intermediate_size: sizes.intermediate_size,
            double_wide_mlp: false,
            per_layer: None,
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
            value_norm: false,
            query_scale: 1.0,
            query_growth: None,
            residual_scale: 1.0,
            logit_scale: 1.0,
            logit_cap: None,
            layer_scale: false,
            norms: LayerNorms::Pre,
            kinds: vec![LayerKind::default(); sizes.layers],
            tied: sizes.tied,
            fused: Fused::None,
            paired: false,
            gated: false,
            sinks: false,
            swiglu_clamp: None,
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
        let global = self.global_heads.into_iter().flat_map(|it| {
            [("num_global_key_value_heads", it.kv_heads), ("global_head_dim", it.head_dim)]
        });

        if let Some((name, size)) =
            positive.into_iter().chain(global).find(|(_, size)| !(1..=1 << 24).contains(size))
        {
            return Err(ConfigError::Size(format!("{name} is {size}; expected 1 to 16777216")));
        }

        // A file that asks for larger matrices is damaged, and allocating them would end the process. One side of each
        // matrix is the residual stream.
        let gates = if self.gated { 2 } else { 1 };
        let qkv = |it: Heads| (gates * it.query + 2 * it.key) as u128 * it.width as u128;
        let wide = if self.double_wide_mlp { 2 } else { 1 };
        let others = [self.vocab_size, 2 * wide * self.intermediate_size, self.per_layer_width()];
        let others = others.map(|width| width as u128);
        let widest = self.sizes_of_heads().map(qkv).chain(others).max().unwrap_or(0);
        let largest = self.hidden_size as u128 * widest;

        if largest > 1 << 31 {
            return Err(ConfigError::Size(format!(
                "the sizes make a matrix of {largest} values; expected at most 2147483648"
            )));
        }

        self.check_heads()?;
        if !(self.norm_epsilon > 0.0 && self.norm_epsilon <= 1.0) {
            return Err(ConfigError::Size(format!(
                "rms_norm_eps is {}; expected a number above 0 and at most 1",
                self.norm_epsilon
            )));
        }

        let local = self.local_rope.as_ref().map(|rope| (RopeKind::Local, rope));
        for (kind, rope) in [(RopeKind::Rope, &self.rope)].into_iter().chain(local) {
            rope.check(self.rope_width(kind), self.max_position_embeddings)?;
        }

        self.check_parts()?;
        self.check_per_layer()?;
        self.check_sharing()?;
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

        // Logits are f32, so the cap has to be a number there too.
        if let Some(cap) = self.logit_cap
            && !(cap > 0.0 && (cap as f32).is_normal())
        {
            return Err(ConfigError::Size(format!(
                "logits are capped at {cap}; expected a positive number"
            )));
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

    /// Checks that heads can share what they have to share, and that a rope can rotate them.
    fn check_heads(&self) -> Result<(), ConfigError> {
        for Heads { query, key, .. } in self.sizes_of_heads() {
            if !query.is_multiple_of(key) {
                return Err(ConfigError::Size(format!(
                    "{query} attention heads cannot share {key} key-value heads: the second must divide the first"
                )));
            }
        }

        // The classes of these families ask for it even if head_dim is there.
        let asks = matches!(self.family, Family::Llama | Family::Gemma3 | Family::Arcee);
        if asks && !self.hidden_size.is_multiple_of(self.heads) {
            return Err(ConfigError::Size(format!(
                "hidden_size is {}, which {} attention heads cannot share; expected a multiple",
                self.hidden_size, self.heads
            )));
        }

        let odd = |heads: &Heads| !heads.width.is_multiple_of(2);
        if let Some(Heads { width, .. }) = self.sizes_of_heads().find(odd) {
            return Err(ConfigError::Size(format!(
                "head_dim is {width}; rotary position embedding needs an even number"
            )));
        }

        // One table of angles is made for all layers that share a rope.
        let rotates = |kind: &&LayerKind| !kind.recurrent && kind.rope != RopeKind::None;
        let misfit = |kind: &LayerKind| self.heads_of(*kind).width != self.rope_width(kind.rope);
        if self.kinds.iter().filter(rotates).any(misfit) {
            return Err(ConfigError::Size(
                "layers that share a rope have heads of different widths".into(),
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

        if self.global_heads.is_none() && self.kinds.iter().any(|kind| kind.global) {
            return without("global heads");
        }

        match &self.experts {
            Some(experts) => {
                size("num_experts", experts.count, 1 << 12)?;
                size("num_experts_per_tok", experts.chosen, experts.count)?;
                size("moe_intermediate_size", experts.inner, 1 << 24)?;
                let shared = experts.shared.map_or(1, |shared| shared.inner);
                size("shared_expert_intermediate_size", shared, 1 << 24)?;
                largest("the experts", 2 * experts.inner.max(shared))?;

                if let RouterScores::Sigmoid { scale } = experts.scores
                    && !(scale > 0.0 && (scale as f32).is_normal())
                {
                    return Err(ConfigError::Size(format!(
                        "routed_scaling_factor is {scale}; expected a positive number"
                    )));
                }
            }
            None if self.kinds.iter().any(|kind| kind.sparse) => return without("experts"),
            None => {}
        }

        if let Some(SwigluClamp { slope, limit }) = self.swiglu_clamp
            && !(slope.is_normal() && limit > 0.0 && limit.is_finite())
        {
            return Err(ConfigError::Size(format!(
                "swiglu_alpha is {slope} and swiglu_limit {limit}; expected a number that is not 0, and a positive one"
            )));
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

    /// Checks the sizes of embeddings per layer. Their table is the largest matrix of its models, with 2.8 billion
    /// values in Gemma 4 E4B, so it has a limit of its own.
    fn check_per_layer(&self) -> Result<(), ConfigError> {
        let Some(PerLayerSizes { vocab_size, width }) = self.per_layer else { return Ok(()) };
        if !(1..=1 << 16).contains(&width) {
            return Err(ConfigError::Size(format!(
                "hidden_size_per_layer_input is {width}; expected 1 to 65536"
            )));
        }

        // A token without a row would have no embedding.
        if !(self.vocab_size..=1 << 24).contains(&vocab_size) {
            return Err(ConfigError::Size(format!(
                "vocab_size_per_layer_input is {vocab_size}; expected vocab_size, {}, or more, and at most 16777216",
                self.vocab_size
            )));
        }

        let values = vocab_size as u128 * self.per_layer_width() as u128;
        if values > 1 << 32 {
            return Err(ConfigError::Size(format!(
                "the embeddings per layer make a matrix of {values} values; expected at most 4294967296"
            )));
        }
        Ok(())
    }

    /// Checks that each layer without keys and values finds those of an earlier layer with the same heads.
    fn check_sharing(&self) -> Result<(), ConfigError> {
        let mut stored = [None; 2];
        for (layer, kind) in self.kinds.iter().enumerate() {
            let stored = &mut stored[kind.reach()];
            match kind.kv {
                KvSharing::Own => {}
                KvSharing::Store => *stored = Some(self.heads_of(*kind)),
                KvSharing::Reuse if *stored == Some(self.heads_of(*kind)) => {}
                KvSharing::Reuse => {
                    return Err(ConfigError::Size(format!(
                        "layer {layer} has no keys and values, and neither has an earlier layer of its type with such \
                         heads; expected fewer num_kv_shared_layers"
                    )));
                }
            }
        }

        let shares = self.kinds.iter().any(|kind| kind.kv == KvSharing::Reuse);
        if shares && matches!(self.qk_norm, QkNorm::Whole | QkNorm::Rotated) {
            return Err(ConfigError::Size(
                "layers without keys and values normalise queries in another way than head by head"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Takes keys and values away from the last `layers` layers, and lets each attend to those of the last layer before
    /// them that has the same reach ([`KvSharing`]).
    pub fn share_kv(&mut self, layers: usize) {
        let own = self.kinds.len().saturating_sub(layers);
        let (before, last) = self.kinds.split_at_mut(own);
        last.iter_mut().for_each(|kind| kind.kv = KvSharing::Reuse);

        for reach in [0, 1] {
            let alike = |kind: &LayerKind| kind.reach() == reach;
            let shares = last.iter().any(alike);
            if shares && let Some(kind) = before.iter_mut().rev().find(|kind| alike(kind)) {
                kind.kv = KvSharing::Store;
            }
        }
    }

    /// Returns the index of each layer in a cache, which counts layers with keys and values and recurrent layers by
    /// themselves. A layer without keys and values of its own has the index of the one that stores them.
    pub(crate) fn cache_indices(&self) -> Vec<usize> {
        let mut counts = [0; 2];
        let mut stored = [0; 2];
        let index_of = |kind: &LayerKind| {
            let stored = &mut stored[kind.reach()];
            if kind.kv == KvSharing::Reuse {
                return *stored;
            }

            let count = &mut counts[usize::from(kind.recurrent)];
            *count += 1;
            let index = *count - 1;
            if kind.kv == KvSharing::Store {
                *stored = index;
            }
            index
        };
        self.kinds.iter().map(index_of).collect()
    }

    /// Returns the width of all embeddings that a token has for its layers, side by side; 0 if it has none.
    pub fn per_layer_width(&self) -> usize {
        // A file may claim any width, until it is checked.
        self.per_layer.map_or(0, |sizes| self.layers.saturating_mul(sizes.width))
    }

    /// Returns the width of such a layer's MLP, if it has one.
    pub fn mlp_width(&self, kind: LayerKind) -> usize {
        let wide = self.double_wide_mlp && kind.kv == KvSharing::Reuse;
        self.intermediate_size * if wide { 2 } else { 1 }
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

    /// Returns the heads of such a layer's attention.
    pub fn heads_of(&self, kind: LayerKind) -> Heads {
        let global = self.global_heads.filter(|_| kind.global);
        let own = (self.kv_heads, self.head_dim);
        let (key, width) = global.map_or(own, |it| (it.kv_heads, it.head_dim));
        Heads { query: self.heads, key, width }
    }

    /// Returns the heads that layers may have: those of most layers, and global ones.
    fn sizes_of_heads(&self) -> impl Iterator<Item = Heads> {
        let global = self.global_heads.map(|_| LayerKind { global: true, ..LayerKind::default() });
        let kinds = [LayerKind::default()].into_iter().chain(global);
        kinds.map(move |kind| self.heads_of(kind))
    }

    /// Returns how many projections such a layer has to keys and values: 2, or 1 if the values are the keys
    /// ([`GlobalHeads::values_are_keys`]), or none if both are those of an earlier layer.
    pub(crate) fn kv_maps(&self, kind: LayerKind) -> usize {
        let values_are_keys = self.global_heads.is_some_and(|it| it.values_are_keys);
        match kind.kv {
            KvSharing::Reuse => 0,
            KvSharing::Own | KvSharing::Store if kind.global && values_are_keys => 1,
            KvSharing::Own | KvSharing::Store => 2,
        }
    }

    /// Returns the width of the heads that a rope rotates.
    pub(crate) fn rope_width(&self, rope: RopeKind) -> usize {
        let rotated = |kind: &&LayerKind| !kind.recurrent && kind.rope == rope;
        let kind = self.kinds.iter().find(rotated);
        self.heads_of(kind.copied().unwrap_or_default()).width
    }

    /// Returns the number of weights in the norms of queries and of keys; 0 if there is no norm.
    pub(crate) fn qk_norm_widths(&self, kind: LayerKind) -> [usize; 2] {
        let [queries, keys] = match self.qk_norm {
            QkNorm::None => [0, 0],
            QkNorm::Heads | QkNorm::Rotated => [self.heads_of(kind).width; 2],
            QkNorm::Whole => [self.query_width(kind), self.key_width(kind)],
        };
        [queries, if kind.kv == KvSharing::Reuse { 0 } else { keys }]
    }

    /// Returns the width of all queries of a token.
    pub(crate) fn query_width(&self, kind: LayerKind) -> usize {
        self.heads * self.heads_of(kind).width
    }

    /// Returns the number of outputs of the matrix of queries, which also has the gates, if there are gates.
    pub(crate) fn query_outputs(&self, kind: LayerKind) -> usize {
        self.query_width(kind) * if self.gated { 2 } else { 1 }
    }

    /// Returns the width of all keys of a token, which is that of all values too.
    pub(crate) fn key_width(&self, kind: LayerKind) -> usize {
        let heads = self.heads_of(kind);
        heads.key * heads.width
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_are_capped_at_a_positive_number() {
        let sizes = Sizes {
            vocab_size: 11,
            hidden_size: 12,
            layers: 1,
            heads: 3,
            kv_heads: 1,
            head_dim: 6,
            intermediate_size: 7,
            max_position_embeddings: 32,
            rope_theta: 10_000.0,
            tied: true,
        };

        let mut config = DecoderConfig::new(Family::Qwen2, sizes);
        let mut accepted = |cap| {
            config.logit_cap = Some(cap);
            config.check().is_ok()
        };
        assert!(accepted(30.0));
        // The last is too large for f32.
        for cap in [0.0, -30.0, f64::NAN, f64::INFINITY, 1e60] {
            assert!(!accepted(cap), "{cap}");
        }
    }
}
