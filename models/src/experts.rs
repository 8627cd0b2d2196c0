//! Experts: many small MLPs, some of which a router chooses for each token.
//!
//! The host reads the router's choice, and each expert then processes its tokens together. An update keeps none of
//! this, because the backward pass recomputes it from the tokens.

use burn::{
    module::{Module, Param},
    tensor::{
        DType, Device, IndexingUpdateOp, Int, Tensor, TensorData,
        activation::{sigmoid, softmax},
    },
};

use firebrick_kernels::{self as ops, Compute};

use crate::{
    checkpoint::CheckpointError,
    config::{DecoderConfig, ExpertSizes, RouterScores},
    context::DecoderContext,
    gate::{inner, inner_backward},
    gradient::GradientSum,
    projection::Projection,
    source::{ParameterSource, exact, vector},
};

/// A layer's experts and their router.
#[derive(Module, Debug)]
pub(crate) struct Experts {
    router: Param<Tensor<2>>, // [hidden, experts]
    router_bias: Option<Param<Tensor<1>>>,
    /// Added to the scores of [`RouterScores::Sigmoid`] when experts are chosen, `[experts]`. It is part of a checkpoint
    /// and takes no gradient.
    correction: Option<Param<Tensor<1>>>,
    each: Vec<Expert>,
    /// Expert that all tokens go through.
    shared: Option<Expert>,
    /// The sigmoid of a token's product with it is the weight of that expert's output, which is 1 without it.
    shared_gate: Option<Param<Tensor<2>>>, // [hidden, 1]
    #[module(skip)]
    sizes: ExpertSizes,
    /// Gradient of the load-balancing loss, which the backward pass adds to that of each expert's share of a token's
    /// scores; empty if it adds nothing.
    #[module(skip)]
    load_balancing: Vec<f32>,
}

/// A gated MLP.
#[derive(Module, Debug)]
struct Expert {
    gate_up: Projection,
    down: Projection,
}

impl Experts {
    /// Reads the experts of the layer at `layer`.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let sizes = config.experts.expect("a sparse layer has the sizes of its experts");
        let hidden = config.hidden_size;
        let shape = [hidden, sizes.count];
        let router = exact(source, &format!("{layer}.experts.router"), shape, device)?;
        let path = format!("{layer}.experts.router_bias");
        let router_bias = sizes.biases.then(|| vector(source, &path, sizes.count, device));
        let router_bias = router_bias.transpose()?;
        let correction = match sizes.scores {
            RouterScores::Softmax => None,
            RouterScores::Sigmoid { .. } => {
                let path = format!("{layer}.experts.correction");
                Some(vector(source, &path, sizes.count, device)?.no_grad())
            }
        };

        let mut expert = |name: &str, inner: usize| {
            let mut part = |part: &str, inputs: usize| {
                let path = format!("{layer}.experts.{name}.{part}");
                Projection::from_source(config, &path, inputs, sizes.biases, source, device)
            };
            Ok(Expert { gate_up: part("gate_up", hidden)?, down: part("down", inner)? })
        };

        let each = (0..sizes.count)
            .map(|number| expert(&format!("each.{number}"), sizes.inner))
            .collect::<Result<_, CheckpointError>>()?;

        let shared = sizes.shared.map(|shared| expert("shared", shared.inner)).transpose()?;
        let path = format!("{layer}.experts.shared_gate");
        let gated = sizes.shared.is_some_and(|shared| shared.gated);
        let gate = gated.then(|| exact(source, &path, [hidden, 1], device));
        let shared_gate = gate.transpose()?;
        Ok(Experts {
            router,
            router_bias,
            correction,
            each,
            shared,
            shared_gate,
            sizes,
            load_balancing: Vec::new(),
        })
    }

    pub(crate) fn projections_mut(&mut self) -> impl Iterator<Item = &mut Projection> {
        let all = self.each.iter_mut().chain(&mut self.shared);
        all.flat_map(|expert| [&mut expert.gate_up, &mut expert.down])
    }

    /// Makes the backward pass add `gradient` to the gradient of the experts' shares of each token's scores.
    pub(crate) fn set_load_balancing(&mut self, gradient: Vec<f32>) {
        self.load_balancing = gradient;
    }

    /// Sums the outputs of the chosen experts by their weights, `[tokens, hidden]` to `[tokens, hidden]`.
    /// `token_mask`, `[tokens, 1]`, is 0 at padding, whose experts are not counted.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        token_mask: Option<&Tensor<2>>,
        context: &DecoderContext,
    ) -> Tensor<2> {
        let routes = self.routes(&x);
        if let Some(counter) = &context.counter {
            counter.count(&routes.expert_ids, &self.shares(&routes), token_mask);
        }
        let weights = self.scaled(routes.flat_weights());
        let sum = match &self.shared {
            Some(shared) => {
                let y = shared.forward(x.clone(), context).cast(DType::F32);
                match &self.shared_gate {
                    Some(gate) => y * open(&x, gate),
                    None => y,
                }
            }
            None => x.zeros_like().cast(DType::F32),
        };
        routes.tokens.iter().zip(&self.each).fold(sum, |sum, (chosen, expert)| {
            let Some(chosen) = chosen else { return sum };
            let y = expert.forward(x.clone().select(0, chosen.indices.clone()), context);
            let y = y.cast(DType::F32) * weights.clone().select(0, chosen.weights.clone());
            // Added up, because a token has several experts.
            sum.select_assign(0, chosen.indices.clone(), y, IndexingUpdateOp::Add)
        })
    }

    /// Computes the gradient of `x`, given that of the sum. The gradients of the parameters are added to `sum`.
    /// `plain` is the copy without autodiff.
    pub(crate) fn backward(
        &self,
        plain: &Experts,
        (x, token_mask): (&Tensor<2>, Option<&Tensor<2>>),
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let routes = plain.routes(x);
        let weights = self.scaled(routes.flat_weights());
        let mut d_x = self
            .shared_backward(plain, x, &d_y, context, sum)
            .unwrap_or_else(|| x.zeros_like().cast(DType::F32));
        let mut d_weights = weights.zeros_like();

        let experts = routes.tokens.iter().zip(self.each.iter().zip(&plain.each));
        for (chosen, (expert, plain)) in experts {
            let Some(chosen) = chosen else { continue };
            let of = |all: &Tensor<2>| all.clone().select(0, chosen.indices.clone());
            let weight = weights.clone().select(0, chosen.weights.clone());
            let [d_own, d_weight] =
                expert.weighted_backward(plain, of(x), of(&d_y), weight, context, sum);
            d_x = d_x.select_assign(0, chosen.indices.clone(), d_own, IndexingUpdateOp::Add);
            d_weights =
                d_weights.select_assign(0, chosen.weights.clone(), d_weight, IndexingUpdateOp::Add);
        }

        let d_weights = self.scaled(d_weights).reshape(routes.weights.dims());
        let d_logits = self.router_backward(&routes, d_weights, token_mask);
        let x = x.clone().cast(DType::F32);
        if self.router.is_require_grad() {
            sum.add_product(&self.router, x.transpose(), d_logits.clone(), Compute::F32);
        }
        if let Some(bias) = self.router_bias.as_ref().filter(|bias| bias.is_require_grad()) {
            sum.add(bias.id, ops::column_sums(d_logits.clone()));
        }

        let router = self.router.val().inner().cast(DType::F32);
        d_x + ops::product(d_logits, router.transpose(), Compute::F32)
    }

    /// Computes the gradient of `x` through the expert that all tokens go through, given that of the sum.
    fn shared_backward(
        &self,
        plain: &Experts,
        x: &Tensor<2>,
        d_y: &Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> Option<Tensor<2>> {
        let (expert, plain_expert) = self.shared.as_ref().zip(plain.shared.as_ref())?;
        let gates = self.shared_gate.as_ref().zip(plain.shared_gate.as_ref());
        let Some((gate, plain_gate)) = gates else {
            let [d_x, _] = expert.backward(plain_expert, x.clone(), d_y.clone(), context, sum);
            return Some(d_x.cast(DType::F32));
        };

        let open = open(x, plain_gate);
        let [d_x, d_open] = expert.weighted_backward(
            plain_expert,
            x.clone(),
            d_y.clone(),
            open.clone(),
            context,
            sum,
        );

        // The derivative of the sigmoid is s·(1 − s).
        let d_product = d_open * open.clone() * open.neg().add_scalar(1.0);
        if gate.is_require_grad() {
            let x = x.clone().cast(DType::F32).transpose();
            sum.add_product(gate, x, d_product.clone(), Compute::F32);
        }
        let through_gate = ops::product(d_product, plain_gate.val().transpose(), Compute::F32);
        Some(d_x.cast(DType::F32) + through_gate)
    }

    /// Chooses the experts of each token. The router computes in f32, so that sampling and training choose the
    /// same experts.
    fn routes(&self, x: &Tensor<2>) -> Routes {
        let router = self.router.val().cast(DType::F32);
        let logits = ops::product(x.clone().cast(DType::F32), router, Compute::F32);
        let logits = match &self.router_bias {
            Some(bias) => logits + bias.val().unsqueeze(),
            None => logits,
        };
        let (scores, top, chosen) = self.choose(logits);
        let divisor = if self.sizes.normalised {
            // All sigmoids of a token may be 0 in f32, which would make their shares 0 / 0.
            let sum = top.clone().sum_dim(1);
            match self.sizes.scores {
                RouterScores::Softmax => sum,
                RouterScores::Sigmoid { .. } => sum.add_scalar(SMALLEST_SUM),
            }
        } else {
            top.clone().slice_dim(1, 0..1).ones_like()
        };
        let weights = top / divisor.clone();

        // The host groups the tokens by expert, so that each expert has one matmul.
        let expert_ids: Vec<i64> = chosen.to_data().iter::<i64>().collect();
        let tokens = by_expert(&expert_ids, &self.sizes, &chosen.device());
        Routes { scores, weights, divisor, chosen, expert_ids, tokens }
    }

    /// Computes the scores of all experts from the router's logits, `[tokens, experts]`, and chooses experts for each
    /// token: their scores and their indices, `[tokens, chosen]`.
    fn choose(&self, logits: Tensor<2>) -> (Tensor<2>, Tensor<2>, Tensor<2, Int>) {
        let count = self.sizes.chosen;
        let Some(correction) = &self.correction else {
            let scores = softmax(logits, 1);
            let (top, chosen) = scores.clone().topk_with_indices(count, 1);
            return (scores, top, chosen);
        };

        // The correction decides who is chosen, but not with which weight.
        let scores = sigmoid(logits);
        let correction: Tensor<2> = correction.val().unsqueeze();
        let (_, chosen) = (scores.clone() + correction).topk_with_indices(count, 1);
        let top = scores.clone().gather(1, chosen.clone());
        (scores, top, chosen)
    }

    /// Multiplies the weights of the chosen experts, or their gradients, by the factor that the router has for them.
    fn scaled(&self, weights: Tensor<2>) -> Tensor<2> {
        match self.sizes.scores {
            RouterScores::Sigmoid { scale } if scale != 1.0 => weights.mul_scalar(scale),
            _ => weights,
        }
    }

    /// Computes each expert's share of a token's scores, `[tokens, experts]`, which the load-balancing loss is about.
    /// The shares sum to 1, as the scores of a softmax do by themselves.
    fn shares(&self, routes: &Routes) -> Tensor<2> {
        let scores = routes.scores.clone();
        match self.sizes.scores {
            RouterScores::Softmax => scores,
            RouterScores::Sigmoid { .. } => {
                let sum = scores.clone().sum_dim(1).add_scalar(SMALLEST_SUM);
                scores / sum
            }
        }
    }

    /// Computes the gradient of the router's logits, `[tokens, experts]`, given that of the weights before they are
    /// [scaled](Experts::scaled).
    fn router_backward(
        &self,
        routes: &Routes,
        d_weights: Tensor<2>,
        token_mask: Option<&Tensor<2>>,
    ) -> Tensor<2> {
        let d_top = if self.sizes.normalised {
            // The divisor is the sum of the chosen scores, so each of them changes all weights of its token.
            let weighted = (d_weights.clone() * routes.weights.clone()).sum_dim(1);
            (d_weights - weighted) / routes.divisor.clone()
        } else {
            d_weights
        };

        let d_scores = routes.scores.zeros_like();
        let mut d_scores = d_scores.scatter(1, routes.chosen.clone(), d_top, IndexingUpdateOp::Add);

        if !self.load_balancing.is_empty() {
            let gradient = TensorData::new(self.load_balancing.clone(), [1, self.sizes.count]);
            let gradient: Tensor<2> = Tensor::from_data(gradient, &d_scores.device());
            let gradient = self.shares_backward(routes, gradient);
            d_scores = d_scores
                + match token_mask {
                    Some(mask) => mask.clone() * gradient,
                    None => gradient,
                };
        }

        match self.sizes.scores {
            // The probabilities times `d` minus its mean under the probabilities.
            RouterScores::Softmax => {
                let mean = (d_scores.clone() * routes.scores.clone()).sum_dim(1);
                routes.scores.clone() * (d_scores - mean)
            }
            // The derivative of the sigmoid is s·(1 − s).
            RouterScores::Sigmoid { .. } => {
                let scores = routes.scores.clone();
                d_scores * scores.clone() * scores.neg().add_scalar(1.0)
            }
        }
    }

    /// Computes the gradient of a token's scores, given that of their [shares](Experts::shares), `[1, experts]`.
    fn shares_backward(&self, routes: &Routes, d_shares: Tensor<2>) -> Tensor<2> {
        match self.sizes.scores {
            RouterScores::Softmax => d_shares,
            // A share is sᵢ / Σ sⱼ, so its gradient minus the mean under the shares is divided by the sum.
            RouterScores::Sigmoid { .. } => {
                let mean = (self.shares(routes) * d_shares.clone()).sum_dim(1);
                let sum = routes.scores.clone().sum_dim(1).add_scalar(SMALLEST_SUM);
                (d_shares - mean) / sum
            }
        }
    }
}

impl Expert {
    fn forward(&self, x: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let gate_up = self.gate_up.forward(x, None, context.compute);
        self.down.forward(inner(gate_up, context), None, context.compute)
    }

    /// Computes the gradients of `x` and of `weight`, `[tokens, 1]`. `d_y` is the gradient of the sum to which `weight`
    /// times the output is added.
    fn weighted_backward(
        &self,
        plain: &Expert,
        x: Tensor<2>,
        d_y: Tensor<2>,
        weight: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> [Tensor<2>; 2] {
        let [d_x, inner] = self.backward(plain, x, d_y.clone() * weight, context, sum);
        // The output is recomputed: its product with `d_y` is the gradient of the weight.
        let y = plain.down.forward(inner, None, context.compute).cast(DType::F32);
        [d_x, (d_y * y).sum_dim(1)]
    }

    /// Computes the gradient of `x`, given that of the output, and the input of the last projection.
    fn backward(
        &self,
        plain: &Expert,
        x: Tensor<2>,
        d_y: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> [Tensor<2>; 2] {
        let compute = context.compute;
        let gate_up = plain.gate_up.forward(x.clone(), None, compute);

        let upstream = self.down.upstream(d_y, compute);
        let d_inner = self.down.backward_input(&upstream, compute);
        let [inner, d_gate_up] = inner_backward(gate_up, d_inner, context);
        self.down.backward_weights(&inner, &upstream, compute, sum);
        [self.gate_up.backward(&x, d_gate_up, compute, sum), inner]
    }
}

/// Added to sums of sigmoids that divide, as in `transformers`.
const SMALLEST_SUM: f64 = 1e-20;

/// Computes the weight that each token gives to the output of the expert that all go through, `[tokens, 1]`, in f32 as
/// the router does.
fn open(x: &Tensor<2>, gate: &Param<Tensor<2>>) -> Tensor<2> {
    sigmoid(ops::product(x.clone().cast(DType::F32), gate.val(), Compute::F32))
}

/// Which experts each token goes through.
struct Routes {
    /// Scores of all experts, `[tokens, experts]`.
    scores: Tensor<2>,
    /// Factors of the chosen experts' outputs before they are [scaled](Experts::scaled), `[tokens, chosen]`.
    weights: Tensor<2>,
    /// Weights are scores divided by this, `[tokens, 1]`.
    divisor: Tensor<2>,
    /// Indices of the chosen experts, `[tokens, chosen]`.
    chosen: Tensor<2, Int>,
    /// Indices of the chosen experts, on the host.
    expert_ids: Vec<i64>,
    /// Tokens of each expert; `None` if an expert has no tokens.
    tokens: Vec<Option<ExpertTokens>>,
}

/// Tokens of an expert.
struct ExpertTokens {
    /// Indices of the tokens.
    indices: Tensor<1, Int>,
    /// Indices of their weights among the weights of all tokens in order.
    weights: Tensor<1, Int>,
}

impl Routes {
    /// Returns the weights as `[tokens · chosen, 1]`.
    fn flat_weights(&self) -> Tensor<2> {
        let [tokens, chosen] = self.weights.dims();
        self.weights.clone().reshape([tokens * chosen, 1])
    }
}

/// Lists the tokens of each expert, given the experts of each token.
fn by_expert(
    expert_ids: &[i64],
    sizes: &ExpertSizes,
    device: &Device,
) -> Vec<Option<ExpertTokens>> {
    let mut tokens = vec![[const { Vec::new() }; 2]; sizes.count];
    for (at, &expert) in expert_ids.iter().enumerate() {
        let [indices, weights] = &mut tokens[expert as usize];
        indices.push((at / sizes.chosen) as i32);
        weights.push(at as i32);
    }

    let tensor = |numbers: Vec<i32>| {
        let length = numbers.len();
        Tensor::from_data(TensorData::new(numbers, [length]), device)
    };
    let of = |[indices, weights]: [Vec<i32>; 2]| {
        // Not every device takes an empty tensor.
        (!indices.is_empty())
            .then(|| ExpertTokens { indices: tensor(indices), weights: tensor(weights) })
    };

    tokens.into_iter().map(of).collect()
}
