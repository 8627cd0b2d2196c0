use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor, TensorData},
};
use firebrick_core::Seed;

use firebrick_kernels as ops;

use crate::{Compute, Decoder, DecoderConfig, GradientSum, PolicyModel};

/// Which adapters a model gets (Hu et al. 2021).
///
/// A projection `x·W` with an adapter computes `x·W + scale · x·A·B`, where `A` is `[inputs, rank]` and
/// `B` `[rank, outputs]`. `W` is frozen: it takes no gradient and has no state in the optimizer.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// Width of the adapters; at least 1.
    pub rank: usize,
    /// See [`Lora::scale`].
    pub alpha: f64,
    /// The projections that have one, such as `q_proj`.
    pub targets: Vec<String>,
    /// See [`Lora::scale`].
    pub rslora: bool,
}

impl Lora {
    /// The projections of a layer, by the last part of their names in a checkpoint.
    pub const PROJECTIONS: [&str; 7] =
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

    /// The names where a family keeps several of them in one matrix, and those of a recurrence.
    pub(crate) const OTHERS: [&str; 7] = [
        "qkv_proj",
        "gate_up_proj",
        "in_proj_qkv",
        "in_proj_z",
        "in_proj_b",
        "in_proj_a",
        "out_proj",
    ];

    /// The same for a model of these sizes: where it has several projections in one matrix, one adapter is beside them all;
    /// where layers have a recurrence in the place of the attention, its projections are meant with those of the attention.
    pub(crate) fn named_in(mut self, config: &DecoderConfig) -> Self {
        if config.delta.is_some() {
            let has = |names: &[&str]| self.targets.iter().any(|it| names.contains(&it.as_str()));
            let (looks, output) = (has(&["q_proj", "k_proj", "v_proj"]), has(&["o_proj"]));
            self.targets.extend(looks.then(|| "in_proj_qkv".into()));
            self.targets.extend(looks.then(|| "in_proj_z".into()));
            self.targets.extend(output.then(|| "out_proj".into()));
            self.targets.sort();
            self.targets.dedup();
        }
        if config.fused {
            for target in &mut self.targets {
                match target.as_str() {
                    "q_proj" | "k_proj" | "v_proj" => *target = "qkv_proj".into(),
                    "gate_proj" | "up_proj" => *target = "gate_up_proj".into(),
                    _ => {}
                }
            }
            self.targets.sort();
            self.targets.dedup();
        }
        self
    }

    /// What an adapter's output is multiplied by: `alpha / rank`, or with `rslora` `alpha / √rank`
    /// (Kalajdzievski 2023).
    pub fn scale(&self) -> f64 {
        let rank = self.rank as f64;
        self.alpha / if self.rslora { rank.sqrt() } else { rank }
    }
}

/// Two thin matrices beside a projection.
#[derive(Module, Debug)]
pub(crate) struct Adapter {
    pub(crate) a: Param<Tensor<2>>, // [inputs, rank]
    pub(crate) b: Param<Tensor<2>>, // [rank, outputs]
    #[module(skip)]
    scale: f64,
}

impl Adapter {
    /// From the values of both matrices, row-major.
    pub(crate) fn new(
        [inputs, rank, outputs]: [usize; 3],
        scale: f64,
        (a, b): (Vec<f32>, Vec<f32>),
        device: &Device,
    ) -> Self {
        Adapter {
            a: Param::from_data(TensorData::new(a, [inputs, rank]), device),
            b: Param::from_data(TensorData::new(b, [rank, outputs]), device),
            scale,
        }
    }

    /// `scale · x·A·B`: two thin products, so that nothing of the size of the weight is made.
    pub(crate) fn forward(&self, x: Tensor<2>, compute: Compute) -> Tensor<2> {
        let inner = ops::product(x, self.a.val(), compute);
        ops::product(inner, self.b.val(), compute).mul_scalar(self.scale)
    }

    /// `onto` and the gradient of `x`, from that of what came out.
    pub(crate) fn back_input(
        &self,
        d_y: Tensor<2>,
        onto: Tensor<2>,
        compute: Compute,
    ) -> Tensor<2> {
        let d_inner = self.d_inner(d_y.mul_scalar(self.scale), compute);
        ops::linear(d_inner, self.a.val().inner().transpose(), None, Some(onto), compute)
    }

    /// Adds the gradients of `A` and `B` to `sum`, from that of what came out.
    pub(crate) fn back_weights(
        &self,
        x: &Tensor<2>,
        d_y: Tensor<2>,
        compute: Compute,
        sum: &mut GradientSum,
    ) {
        let d_y = d_y.mul_scalar(self.scale);
        if self.a.is_require_grad() {
            let d_inner = self.d_inner(d_y.clone(), compute);
            sum.add_product(&self.a, x.clone().transpose(), d_inner, compute);
        }
        if self.b.is_require_grad() {
            let inner = ops::product(x.clone(), self.a.val().inner(), compute);
            sum.add_product(&self.b, inner.transpose(), d_y, compute);
        }
    }

    /// The gradient of `x·A`.
    fn d_inner(&self, d_y: Tensor<2>, compute: Compute) -> Tensor<2> {
        ops::product(d_y, self.b.val().inner().transpose(), compute)
    }

    /// `scale · A·B`, `[inputs, outputs]`.
    pub(crate) fn product(&self) -> Tensor<2> {
        self.a.val().matmul(self.b.val()).mul_scalar(self.scale)
    }
}

impl Decoder {
    /// The same model with new adapters, which add nothing yet: `A` is uniform in ±1/√inputs and `B` is
    /// 0, as PEFT begins. Every other weight is frozen.
    ///
    /// Each matrix has a seed of its own, so its values do not depend on which others there are.
    pub fn with_lora(self, lora: Lora, seed: Seed) -> Decoder {
        let lora = lora.named_in(self.config());
        let (rank, scale, targets) = (lora.rank, lora.scale(), lora.targets.clone());
        self.adapted(lora, |name, [inputs, outputs], device| {
            let target = name.rsplit('.').next().unwrap_or(name);
            if !targets.iter().any(|wanted| wanted == target) {
                return Ok::<_, std::convert::Infallible>(None);
            }
            let mut stream = seed.derive(name, &[]).stream();
            let bound = 1.0 / (inputs as f64).sqrt();
            let a = (0..(inputs * rank) as u64)
                .map(|position| ((2.0 * stream.uniform_at(position) - 1.0) * bound) as f32);
            let values = (a.collect(), vec![0.0; rank * outputs]);
            Ok(Some(Adapter::new([inputs, rank, outputs], scale, values, device)))
        })
        .unwrap_or_else(|never| match never {})
    }

    /// The same model with the adapters that `make` gives for a projection of that name (in the
    /// checkpoint) and that shape, instead of those that it has.
    pub(crate) fn adapted<E>(
        self,
        lora: Lora,
        mut make: impl FnMut(&str, [usize; 2], &Device) -> Result<Option<Adapter>, E>,
    ) -> Result<Decoder, E> {
        let mut decoder = self.no_grad();
        let device = decoder.device();
        for (name, projection) in decoder.projections_mut() {
            let [inputs, _] = projection.dims();
            let adapters = name
                .iter()
                .zip(&projection.widths)
                .map(|(name, &outputs)| make(name, [inputs, outputs], &device))
                .collect::<Result<Vec<Option<Adapter>>, E>>()?;
            let some = adapters.iter().any(Option::is_some);
            projection.adapters = if some { adapters } else { Vec::new() };
        }
        decoder.set_lora(Some(lora));
        Ok(decoder)
    }

    /// The same model with its adapters added into the weights, to be saved or sampled from: it is
    /// without autodiff, and what was frozen stays so.
    pub fn merged(self) -> Decoder {
        let mut decoder = self.valid();
        for (_, projection) in decoder.projections_mut() {
            projection.merge();
        }
        for projection in decoder.experts_mut() {
            projection.merge();
        }
        decoder.set_lora(None);
        decoder
    }
}
