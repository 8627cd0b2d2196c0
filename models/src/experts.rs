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
    config::{DecoderConfig, ExpertSizes},
    context::DecoderContext,
    gradient::GradientSum,
    projection::Projection,
    source::{ParameterSource, exact},
};

/// A layer's experts and their router.
#[derive(Module, Debug)]
pub(crate) struct Experts {
    router: Param<Tensor<2>>, // [hidden, experts]
    each: Vec<Expert>,
    /// Expert that all tokens go through.
    shared: Option<Expert>,
    /// The sigmoid of a token's product with it is the weight of that expert's output.
    shared_gate: Option<Param<Tensor<2>>>, // [hidden, 1]
    #[module(skip)]
    sizes: ExpertSizes,
    /// Gradient of the load-balancing loss, which the backward pass adds to that of a token's router probability of
    /// each expert; empty if it adds nothing.
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

        let mut expert = |name: &str, inner: usize| {
            let mut part = |part: &str, inputs: usize| {
                let path = format!("{layer}.experts.{name}.{part}");
                Projection::from_source(config, &path, inputs, false, source, device)
            };
            Ok(Expert { gate_up: part("gate_up", hidden)?, down: part("down", inner)? })
        };

        let each = (0..sizes.count)
            .map(|number| expert(&format!("each.{number}"), sizes.inner))
            .collect::<Result<_, CheckpointError>>()?;

        let shared = sizes.shared.map(|inner| expert("shared", inner)).transpose()?;
        let path = format!("{layer}.experts.shared_gate");
        let gate = shared.is_some().then(|| exact(source, &path, [hidden, 1], device));
        let shared_gate = gate.transpose()?;
        Ok(Experts { router, each, shared, shared_gate, sizes, load_balancing: Vec::new() })
    }

    pub(crate) fn projections_mut(&mut self) -> impl Iterator<Item = &mut Projection> {
        let all = self.each.iter_mut().chain(&mut self.shared);
        all.flat_map(|expert| [&mut expert.gate_up, &mut expert.down])
    }

    /// Makes the backward pass add `gradient` to the gradient of each token's router probabilities.
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
            counter.count(&routes.expert_ids, &routes.probs, token_mask);
        }
        let weights = routes.flat_weights();
        let sum = match self.shared() {
            Some((shared, gate)) => {
                shared.forward(x.clone(), context).cast(DType::F32) * open(&x, gate)
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
        let weights = routes.flat_weights();
        let mut d_x = self
            .shared_backward(plain, x, &d_y, context, sum)
            .unwrap_or_else(|| x.zeros_like().cast(DType::F32));
        let mut d_weights = weights.zeros_like();

        let experts = routes.tokens.iter().zip(self.each.iter().zip(&plain.each));
        for (chosen, (expert, plain)) in experts {
            let Some(chosen) = chosen else { continue };
            let of = |all: &Tensor<2>| all.clone().select(0, chosen.indices.clone());
            let weight = weights.clone().select(0, chosen.weights.clone());
            let [d_own, d_weight] = expert.backward(plain, of(x), of(&d_y), weight, context, sum);
            d_x = d_x.select_assign(0, chosen.indices.clone(), d_own, IndexingUpdateOp::Add);
            d_weights =
                d_weights.select_assign(0, chosen.weights.clone(), d_weight, IndexingUpdateOp::Add);
        }

        let d_weights = d_weights.reshape(routes.weights.dims());
        let d_logits = self.router_backward(&routes, d_weights, token_mask);
        let x = x.clone().cast(DType::F32);
        if self.router.is_require_grad() {
            sum.add_product(&self.router, x.transpose(), d_logits.clone(), Compute::F32);
        }

        let router = self.router.val().inner().cast(DType::F32);
        d_x + ops::product(d_logits, router.transpose(), Compute::F32)
    }

    fn shared(&self) -> Option<(&Expert, &Param<Tensor<2>>)> {
        self.shared.as_ref().zip(self.shared_gate.as_ref())
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
        let ((expert, gate), (plain, plain_gate)) = self.shared().zip(plain.shared())?;
        let open = open(x, plain_gate);
        let [d_x, d_open] =
            expert.backward(plain, x.clone(), d_y.clone(), open.clone(), context, sum);

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
        let probs = softmax(logits, 1);

        let (top, chosen) = probs.clone().topk_with_indices(self.sizes.chosen, 1);
        let divisor = if self.sizes.normalised {
            top.clone().sum_dim(1)
        } else {
            top.clone().slice_dim(1, 0..1).ones_like()
        };
        let weights = top / divisor.clone();

        // The host groups the tokens by expert, so that each expert has one matmul.
        let expert_ids: Vec<i64> = chosen.to_data().iter::<i64>().collect();
        let tokens = by_expert(&expert_ids, &self.sizes, &chosen.device());
        Routes { probs, weights, divisor, chosen, expert_ids, tokens }
    }

    /// Computes the gradient of the router's logits, `[tokens, experts]`, given that of the weights.
    fn router_backward(
        &self,
        routes: &Routes,
        d_weights: Tensor<2>,
        token_mask: Option<&Tensor<2>>,
    ) -> Tensor<2> {
        let d_top = if self.sizes.normalised {
            // The divisor is the sum of the chosen probabilities, so each of them changes all weights of its token.
            let weighted = (d_weights.clone() * routes.weights.clone()).sum_dim(1);
            (d_weights - weighted) / routes.divisor.clone()
        } else {
            d_weights
        };

        let d_probs = routes.probs.zeros_like();
        let mut d_probs = d_probs.scatter(1, routes.chosen.clone(), d_top, IndexingUpdateOp::Add);

        if !self.load_balancing.is_empty() {
            let gradient = TensorData::new(self.load_balancing.clone(), [1, self.sizes.count]);
            let gradient: Tensor<2> = Tensor::from_data(gradient, &d_probs.device());
            d_probs = d_probs
                + match token_mask {
                    Some(mask) => mask.clone() * gradient,
                    None => gradient,
                };
        }

        // Backward pass of the softmax: the probabilities times `d` minus its mean under the probabilities.
        let mean = (d_probs.clone() * routes.probs.clone()).sum_dim(1);
        routes.probs.clone() * (d_probs - mean)
    }
}

impl Expert {
    fn forward(&self, x: Tensor<2>, context: &DecoderContext) -> Tensor<2> {
        let inner = self.gate_up.forward(x, None, context.compute);
        let inner = ops::gated(inner, context.activation, context.compute);
        self.down.forward(inner, None, context.compute)
    }

    /// Computes the gradients of `x` and of `weight`. `d_y` is the gradient of the sum to which `weight` times the
    /// output is added.
    fn backward(
        &self,
        plain: &Expert,
        x: Tensor<2>,
        d_y: Tensor<2>,
        weight: Tensor<2>,
        context: &DecoderContext,
        sum: &mut GradientSum,
    ) -> [Tensor<2>; 2] {
        let compute = context.compute;
        let gate_up = plain.gate_up.forward(x.clone(), None, compute);

        let d_own = d_y.clone() * weight;
        let upstream = self.down.upstream(d_own, compute);
        let d_inner = self.down.backward_input(&upstream, compute);
        let [inner, d_gate_up] = ops::gated_backward(gate_up, d_inner, context.activation, compute);
        self.down.backward_weights(&inner, &upstream, compute, sum);

        // The output is recomputed: its product with `d_y` is the gradient of the weight.
        let y = plain.down.forward(inner, None, compute).cast(DType::F32);
        let d_weight = (d_y * y).sum_dim(1);
        [self.gate_up.backward(&x, d_gate_up, compute, sum), d_weight]
    }
}

/// Computes the weight that each token gives to the output of the expert that all go through, `[tokens, 1]`, in f32 as
/// the router does.
fn open(x: &Tensor<2>, gate: &Param<Tensor<2>>) -> Tensor<2> {
    sigmoid(ops::product(x.clone().cast(DType::F32), gate.val(), Compute::F32))
}

/// Which experts each token goes through.
struct Routes {
    /// Router probabilities, `[tokens, experts]`.
    probs: Tensor<2>,
    /// Factors of the chosen experts' outputs, `[tokens, chosen]`.
    weights: Tensor<2>,
    /// Weights are probabilities divided by this, `[tokens, 1]`.
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
