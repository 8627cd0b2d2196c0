//! GatedDeltaNet: the recurrence that some layers have instead of attention (Yang et al. 2024, "Gated Delta Networks").
//!
//! Each head has a matrix, its memory, that maps keys to values. A token decays the matrix, corrects the value that it
//! has for the token's key (delta rule), and reads it with the token's query. A single token, of a row that is being
//! decoded, takes these steps one by one, while many tokens take them in chunks, as matmuls.

use burn::{
    module::{Module, Param},
    tensor::{
        Bool, DType, Device, Tensor, TensorData,
        activation::{sigmoid, silu, softplus},
    },
};

use crate::{
    checkpoint::CheckpointError,
    config::{DecoderConfig, GatedDeltaSizes},
    gradient::GradientSum,
    projection::Projection,
    recurrence::{Recurrence, RecurrentState, backward_by_autodiff, convolved},
    source::{ParameterSource, exact},
};

/// How many tokens are in a chunk.
const CHUNK: usize = 32;

/// Is added to the squared length of a query or a key before it is divided by the root.
const EPSILON: f64 = 1e-6;

/// A layer's recurrence and the projections around it.
#[derive(Module, Debug)]
pub(crate) struct GatedDeltaNet {
    /// First projection: queries, keys and values side by side, then the output's gate, the strength β of a token's
    /// correction, and the token's part in the decay of the memory.
    pub(crate) input: Projection,
    convolution: Param<Tensor<3>>, // [channels, 1, kernel]
    /// Logarithm of each head's decay rate (`A_log`). `decay_bias` is added to a token's part in it (`dt_bias`).
    decay: Param<Tensor<1>>,
    decay_bias: Param<Tensor<1>>,
    /// Factors of a head's outputs, after these are normalised.
    scale: Param<Tensor<1>>,
    pub(crate) output: Projection,
    #[module(skip)]
    sizes: GatedDeltaSizes,
    #[module(skip)]
    norm_epsilon: f64,
}

/// Inputs of the recurrence, by head. Queries and keys have length 1; queries are then divided by the root of their
/// width.
struct Signals {
    query: Tensor<4>, // [rows, heads, tokens, key_dim]
    key: Tensor<4>,
    value: Tensor<4>,
    /// Strength β of a token's correction, in (0, 1), `[rows, heads, tokens, 1]`.
    beta: Tensor<4>,
    /// Logarithm of the decay factor of the memory, at most 0, `[rows, heads, tokens, 1]`.
    log_decay: Tensor<4>,
}

impl GatedDeltaNet {
    /// Reads the recurrence of the layer at `layer`.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let sizes = config.delta.expect("a recurrent layer has its sizes");
        let path = |part: &str| format!("{layer}.delta.{part}");
        let heads = [sizes.value_heads];
        let convolution = [sizes.channels(), 1, sizes.kernel];

        let mut projection = |part: &str, inputs: usize| {
            Projection::from_source(config, &path(part), inputs, false, source, device)
        };

        Ok(GatedDeltaNet {
            input: projection("input", config.hidden_size)?,
            output: projection("output", sizes.values())?,
            convolution: exact(source, &path("convolution"), convolution, device)?,
            decay: exact(source, &path("decay"), heads, device)?,
            decay_bias: exact(source, &path("decay_bias"), heads, device)?,
            scale: exact(source, &path("scale"), [sizes.value_dim], device)?,
            sizes,
            norm_epsilon: config.norm_epsilon,
        })
    }

    /// Splits the channels, `[rows, tokens, channels]`, and the two other maps, `[rows, tokens, heads]`, into heads.
    fn signals(&self, convolved: Tensor<3>, beta: Tensor<3>, log_decay: Tensor<3>) -> Signals {
        let [rows, tokens, _] = convolved.dims();
        let sizes = self.sizes;
        let heads = sizes.value_heads;

        let key = |start: usize| {
            let x = convolved.clone().narrow(2, start, sizes.keys());
            let x = x.reshape([rows, tokens, sizes.key_heads, sizes.key_dim]);
            // L2 norm, with an epsilon under the root as in `transformers`.
            let length = x.clone().powf_scalar(2.0).sum_dim(3).add_scalar(EPSILON).sqrt();
            // Several heads of values share a head of keys.
            let [each, width] = [heads / sizes.key_heads, sizes.key_dim];
            let x = (x / length).reshape([rows, tokens, sizes.key_heads, 1, width]);
            let x = x.expand([rows, tokens, sizes.key_heads, each, width]);
            x.reshape([rows, tokens, heads, width]).swap_dims(1, 2)
        };

        let value = convolved.clone().narrow(2, 2 * sizes.keys(), sizes.values());
        let of_head = |x: Tensor<3>| x.swap_dims(1, 2).reshape([rows, heads, tokens, 1]);
        let vector = |x: &Param<Tensor<1>>| x.val().cast(DType::F32).reshape([1, 1, heads]);

        // The decay factor is exp(−exp(decay) · softplus(x + bias)), of which this is the logarithm.
        let rate = softplus(log_decay + vector(&self.decay_bias), 1.0);
        let log_decay = (vector(&self.decay).exp() * rate).neg();

        Signals {
            query: key(0).div_scalar((sizes.key_dim as f64).sqrt()),
            key: key(sizes.keys()),
            value: value.reshape([rows, tokens, heads, sizes.value_dim]).swap_dims(1, 2),
            beta: of_head(sigmoid(beta)),
            log_decay: of_head(log_decay),
        }
    }
}

impl Recurrence for GatedDeltaNet {
    fn input(&self) -> &Projection {
        &self.input
    }

    fn output(&self) -> &Projection {
        &self.output
    }

    fn forward(
        &self,
        projected: Tensor<2>,
        rows: usize,
        before: Option<RecurrentState>,
    ) -> (Tensor<2>, RecurrentState) {
        let [all, width] = projected.dims();
        let sizes = self.sizes;
        let tokens = all / rows;

        let projected = projected.cast(DType::F32).reshape([rows, tokens, width]);
        let part = |start: usize, width: usize| projected.clone().narrow(2, start, width);
        let channels = sizes.channels();
        let heads = sizes.value_heads;
        let gate = part(channels, sizes.values());
        let beta = part(channels + sizes.values(), heads);
        let log_decay = part(channels + sizes.values() + heads, heads);

        let (recent, memory) = before.map(|it| (it.recent, it.memory)).unzip();
        let (convolved, recent) = convolved(part(0, channels), self.convolution.val(), recent);

        let signals = self.signals(silu(convolved), beta, log_decay);
        let (output, memory) = match memory.flatten() {
            Some(memory) if tokens == 1 => signals.step(memory),
            memory => signals.scan(memory),
        };

        // From [rows, heads, tokens, value_dim] to [rows, tokens, heads, value_dim], then a gated RMSNorm of each head.
        let output = output.swap_dims(1, 2);
        let square = output.clone().powf_scalar(2.0).mean_dim(3).add_scalar(self.norm_epsilon);
        let scale = self.scale.val().cast(DType::F32).reshape([1, 1, 1, sizes.value_dim]);
        let gate = silu(gate.reshape([rows, tokens, heads, sizes.value_dim]));
        let output = output / square.sqrt() * scale * gate;
        (output.reshape([all, sizes.values()]), RecurrentState { recent, memory: Some(memory) })
    }

    /// Autodiff keeps the memory after each chunk, not after each token.
    fn backward(
        &self,
        projected: Tensor<2>,
        rows: usize,
        d_output: Tensor<2>,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        backward_by_autodiff(self, projected, rows, d_output, sum)
    }
}

impl Signals {
    /// Runs over one token of each row. Returns the output, `[rows, heads, 1, value_dim]`, and the memory after it.
    fn step(self, memory: Tensor<4>) -> (Tensor<4>, Tensor<4>) {
        // Decay, look up the key's value, correct it, and only then read: a token sees its own correction.
        let memory = memory * self.log_decay.exp();
        let known = self.key.clone().matmul(memory.clone());
        let correction = (self.value - known) * self.beta;
        let memory = memory + self.key.swap_dims(2, 3).matmul(correction);
        (self.query.matmul(memory.clone()), memory)
    }

    /// Runs over all tokens, a chunk at a time. Returns the output, `[rows, heads, tokens, value_dim]`, and the memory
    /// after the last token.
    ///
    /// Within a chunk, each correction depends on those before it. They solve a triangular system whose matrix is
    /// inverted once, so that a chunk takes a few matmuls.
    fn scan(self, memory: Option<Tensor<4>>) -> (Tensor<4>, Tensor<4>) {
        let [rows, heads, tokens, key_dim] = self.key.dims();
        let value_dim = self.value.dims()[3];
        let chunks = tokens.div_ceil(CHUNK);
        let all = rows * heads;
        let device = self.key.device();

        // Tokens that pad the last chunk correct nothing and decay nothing.
        let cut = |x: Tensor<4>| {
            let width = x.dims()[3];
            let missing = chunks * CHUNK - tokens;
            let x = x.reshape([all, tokens, width]);
            let x = match missing {
                0 => x,
                _ => {
                    let zeros = Tensor::zeros([all, missing, width], (&device, DType::F32));
                    Tensor::cat(vec![x, zeros], 1)
                }
            };
            x.reshape([all, chunks, CHUNK, width])
        };

        let [query, key, value, beta, log_decay] =
            [self.query, self.key, self.value, self.beta, self.log_decay].map(cut);
        let square = |wanted: fn(usize, usize) -> bool| triangle(wanted, &device);

        // Cumulative sums of the logarithms within a chunk: the lower triangle of ones adds up all tokens so far.
        let log_decayed = square(|i, j| j <= i).matmul(log_decay);
        // `decay` is the factor by which a token's correction has decayed at each later token.
        let decay = log_decayed.clone() - log_decayed.clone().swap_dims(2, 3);
        let later: Tensor<4, Bool> = square(|i, j| j > i).equal_scalar(1.0);
        // Differences to later tokens are masked before `exp`, where they could overflow.
        let decay = decay.mask_fill(later.expand([all, chunks, CHUNK, CHUNK]), -1e30).exp();

        // Corrections solve (1 + system) · corrections = β · (value − key · memory), so they are
        // `from_values` − `from_keys` · memory.
        let beta_key = key.clone() * beta.clone();
        let system = beta_key.clone().matmul(key.clone().swap_dims(2, 3)) * decay.clone();
        let inverse = inverse(system);
        let from_values = inverse.clone().matmul(value * beta);
        let since_start = log_decayed.clone().exp();
        let from_keys = inverse.matmul(beta_key * since_start.clone());

        // Scores of queries for keys within the chunk, and queries for the memory at its beginning.
        let scores = query.clone().matmul(key.clone().swap_dims(2, 3)) * decay;
        let query = query * since_start;

        // Decay of each correction, and of the memory, until the end of the chunk.
        let log_end = log_decayed.clone().narrow(2, CHUNK - 1, 1);
        let key = (key * (log_end.clone() - log_decayed).exp()).swap_dims(2, 3);
        let chunk_decay = log_end.exp();

        let mut memory = match memory {
            Some(memory) => memory.reshape([all, key_dim, value_dim]),
            None => Tensor::zeros([all, key_dim, value_dim], (&device, DType::F32)),
        };

        let mut outputs = Vec::with_capacity(chunks);
        for chunk in 0..chunks {
            let of = |x: &Tensor<4>| -> Tensor<3> { x.clone().narrow(1, chunk, 1).squeeze_dim(1) };
            let corrections = of(&from_values) - of(&from_keys).matmul(memory.clone());
            let output = of(&query).matmul(memory.clone());
            outputs.push(output + of(&scores).matmul(corrections.clone()));
            memory = memory * of(&chunk_decay) + of(&key).matmul(corrections);
        }

        let output = Tensor::cat(outputs, 1).narrow(1, 0, tokens);
        (
            output.reshape([rows, heads, tokens, value_dim]),
            memory.reshape([rows, heads, key_dim, value_dim]),
        )
    }
}

/// Computes `(1 + system)⁻¹`, from the numbers below the diagonal of each chunk's square.
///
/// Two neighbouring blocks on the diagonal, whose inverses are known, make one block of twice the size. Below these
/// two, its inverse is minus the product of the lower block's inverse, the part of the system between the two, and the
/// upper block's inverse.
fn inverse(system: Tensor<4>) -> Tensor<4> {
    let device = system.device();
    let mut inverse = triangle(|i, j| i == j, &device).expand(system.dims());
    let mut size = 1;
    while size < CHUNK {
        let lower_left = triangle(
            |i, j| i / (2 * size) == j / (2 * size) && i / size % 2 == 1 && j / size % 2 == 0,
            &device,
        );
        let correction =
            inverse.clone().matmul(system.clone() * lower_left).matmul(inverse.clone());
        inverse = inverse - correction;
        size *= 2;
    }
    inverse
}

/// Makes a chunk's square with a 1 at the wanted rows and columns, `[1, 1, chunk, chunk]`.
fn triangle(wanted: impl Fn(usize, usize) -> bool, device: &Device) -> Tensor<4> {
    let of = |index: usize| f32::from(u8::from(wanted(index / CHUNK, index % CHUNK)));
    let values: Vec<f32> = (0..CHUNK * CHUNK).map(of).collect();
    Tensor::from_data(TensorData::new(values, [1, 1, CHUNK, CHUNK]), device)
}
