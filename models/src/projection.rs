//! Linear maps of the same input as one matmul, each with or without an adapter.

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, FloatDType, Tensor},
};

use firebrick_kernels::{self as ops, Compute, Weight};

use crate::{
    base::{FrozenFormat, Quantised},
    checkpoint::CheckpointError,
    config::DecoderConfig,
    gradient::GradientSum,
    lora::{Adapter, JoinedAdapters},
    names,
    source::{ParameterSource, parameter, vector},
};

/// A linear map, or several maps of the same input side by side, because on every device one large matmul is faster
/// than three small ones.
#[derive(Module, Debug)]
pub(crate) struct Projection {
    weight: Option<Param<Tensor<2>>>, // [inputs, outputs]
    /// Weight in 8 or 4 bits.
    quantised: Option<Quantised>,
    bias: Option<Param<Tensor<1>>>,
    /// One entry for each of the maps; empty if no map has an adapter, and in a copy for sampling.
    pub(crate) adapters: Vec<Option<Adapter>>,
    /// Joined adapters, in a copy whose parameters do not move.
    #[module(skip)]
    pub(crate) joined: Option<JoinedAdapters>,
    /// How many outputs each map has.
    #[module(skip)]
    pub(crate) widths: Vec<usize>,
}

impl Projection {
    /// Reads the projection at `path`, to which `.weight` and `.bias` are added.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        path: &str,
        inputs: usize,
        bias: bool,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let of_layer = path.splitn(3, '.').nth(2).unwrap_or(path);
        let maps = names::projections(of_layer, names::kind_at(path, config), config);
        let widths: Vec<usize> = maps.into_iter().map(|(_, outputs)| outputs).collect();
        let outputs = widths.iter().sum();

        let name = format!("{path}.weight");
        let base = source.base();
        let values = source.values(&name, &[inputs, outputs])?;
        let quantised = Quantised::new(&values, [inputs, outputs], base, device);

        Ok(Projection {
            weight: quantised.is_none().then(|| {
                let weight = parameter(values, [inputs, outputs], base, device);
                // A frozen weight is laid out once, and one that is trained in each update.
                if base == FrozenFormat::Bf16 { laid_out(weight) } else { weight }
            }),
            quantised,
            bias: if bias {
                Some(vector(source, &format!("{path}.bias"), outputs, device)?)
            } else {
                None
            },
            adapters: Vec::new(),
            joined: None,
            widths,
        })
    }

    /// Rounds the weight and joins the adapters once, in a copy that is prepared for an update or for sampling.
    pub(crate) fn prepare(&mut self, compute: Compute) {
        self.joined = self.joined_no_grad(compute);
        self.weight = self.weight.take().map(|weight| {
            let narrow = weight.val().dtype() != DType::F32;
            if compute == Compute::F32 || narrow {
                return weight;
            }
            map_without_grad(weight, |weight| ops::cast_in_columns(weight, compute.dtype()))
        });
    }

    /// Unpacks a weight of a few bits once, in a copy that has room for it.
    pub(crate) fn unpack(&mut self, compute: Compute) {
        if let Some(quantised) = self.quantised.take() {
            let weight = quantised.matrix().dequantise(compute.dtype());
            self.weight = Some(Param::from_tensor(weight).no_grad());
        }
    }

    fn joined(&self, compute: Compute) -> Option<JoinedAdapters> {
        self.joined.clone().or_else(|| JoinedAdapters::new(&self.adapters, &self.widths, compute))
    }

    /// Returns the joined adapters for a computation that autodiff takes no part in.
    fn joined_no_grad(&self, compute: Compute) -> Option<JoinedAdapters> {
        let make = || JoinedAdapters::prepared(&self.adapters, &self.widths, compute);
        self.joined.clone().or_else(make)
    }

    /// Maps `[tokens, inputs]` to `[tokens, outputs]` and adds `onto`.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        onto: Option<Tensor<2>>,
        compute: Compute,
    ) -> Tensor<2> {
        let bias = self.bias.as_ref().map(Param::val);
        let low_rank = self.joined(compute).map(|joined| joined.factors(x.clone(), compute));
        ops::linear_beside(x, self.weight(), low_rank, bias, onto, compute)
    }

    /// Computes the gradient of the input, given the input and the gradient of the output. The gradients of the
    /// parameters are added to `sum`. Tensors are without autodiff.
    pub(crate) fn backward(
        &self,
        x: &Tensor<2>,
        d_y: Tensor<2>,
        compute: Compute,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        let upstream = self.upstream(d_y, compute);
        self.backward_weights(x, &upstream, compute, sum);
        self.backward_input(&upstream, compute)
    }

    /// Prepares the gradient of the output for both parts of [`Projection::backward`].
    pub(crate) fn upstream(&self, d_y: Tensor<2>, compute: Compute) -> Upstream {
        let narrow = d_y.clone().cast(compute.dtype());
        let adapted = self.joined_no_grad(compute).map(|joined| {
            let d_inner = joined.d_inner(narrow.clone(), compute);
            (joined, d_inner)
        });
        Upstream { d_y, narrow, adapted }
    }

    /// Computes the part of [`Projection::backward`] that does not need the input.
    pub(crate) fn backward_input(&self, upstream: &Upstream, compute: Compute) -> Tensor<2> {
        let transposed = match self.weight() {
            Weight::Float(weight) => Weight::Float(weight.inner()),
            quantised => quantised,
        };
        let transposed = transposed.transpose();
        let low_rank = upstream.adapted.as_ref();
        let low_rank = low_rank.map(|(joined, d_inner)| [d_inner.clone(), joined.a_transposed()]);
        ops::linear_beside(upstream.narrow.clone(), transposed, low_rank, None, None, compute)
    }

    /// Computes the other part of [`Projection::backward`], which adds to the gradients of the parameters.
    pub(crate) fn backward_weights(
        &self,
        x: &Tensor<2>,
        upstream: &Upstream,
        compute: Compute,
        sum: &mut GradientSum,
    ) {
        let Upstream { d_y, narrow, adapted } = upstream;
        if let Some(weight) = &self.weight
            && weight.is_require_grad()
        {
            sum.add_product(weight, x.clone().transpose(), narrow.clone(), compute);
        }

        if let Some(bias) = &self.bias
            && bias.is_require_grad()
        {
            sum.add(bias.id, ops::column_sums(d_y.clone()));
        }

        if let Some((joined, d_inner)) = adapted {
            let maps = (self.adapters.as_slice(), self.widths.as_slice());
            joined.backward_weights(maps, x, [d_inner.clone(), narrow.clone()], compute, sum);
        }
    }

    /// Adds the adapters into the weight and removes them. A quantised weight becomes a weight in f32.
    ///
    /// # Panics
    /// If the projection is a copy for sampling.
    pub(crate) fn merge(&mut self) {
        assert!(
            !self.has_only_joined(),
            "a copy for sampling has no single adapters: merge the policy that it was made of"
        );
        let adapters = std::mem::take(&mut self.adapters);
        self.joined = None;

        if adapters.is_empty() {
            if self.quantised.is_some() {
                self.weight = Some(Param::from_tensor(self.weight().into_float(FloatDType::F32)));
                self.quantised = None;
            }
            return;
        }

        let weight = self.weight().into_float(FloatDType::F32);
        let [inputs, _] = weight.dims();
        let device = weight.device();
        // The maps are side by side in the weight, so a map without an adapter adds zeros.
        let added = adapters.into_iter().zip(&self.widths).map(|(adapter, &width)| match adapter {
            Some(adapter) => adapter.product(),
            None => Tensor::zeros([inputs, width], &device),
        });
        let added = Tensor::cat(added.collect(), 1);
        let merged = Param::from_tensor(weight + added);
        self.weight = Some(merged);
        self.quantised = None;
    }

    /// Tells whether there are adapters, but no single ones, as in a copy for sampling.
    pub(crate) fn has_only_joined(&self) -> bool {
        self.joined.is_some() && self.adapters.is_empty()
    }

    /// Returns the numbers of inputs and outputs.
    pub(crate) fn dims(&self) -> [usize; 2] {
        match (&self.weight, &self.quantised) {
            (Some(weight), _) => weight.dims(),
            (None, Some(quantised)) => quantised.dims(),
            (None, None) => unreachable!("a projection has a weight"),
        }
    }

    /// Returns the weight, `[inputs, outputs]`, in the format in which it is kept.
    fn weight(&self) -> Weight {
        match (&self.weight, &self.quantised) {
            (Some(weight), _) => Weight::Float(weight.val()),
            (None, Some(quantised)) => Weight::Quantised(quantised.matrix()),
            (None, None) => unreachable!("a projection has a weight"),
        }
    }
}

/// Lays a weight out as matmuls read it fastest.
fn laid_out(weight: Param<Tensor<2>>) -> Param<Tensor<2>> {
    match weight.val().dtype() {
        DType::BF16 => {
            map_without_grad(weight, |weight| ops::cast_in_columns(weight, FloatDType::BF16))
        }
        _ => weight,
    }
}

/// Changes a parameter's tensor by `make`, which no gradient goes through. The result requires a gradient if the
/// parameter did.
pub(crate) fn map_without_grad<const D: usize>(
    parameter: Param<Tensor<D>>,
    make: impl Fn(Tensor<D>) -> Tensor<D>,
) -> Param<Tensor<D>> {
    if !parameter.val().is_autodiff() {
        return parameter.map(make);
    }

    let trained = parameter.is_require_grad();
    let made = parameter.map(|tensor| Tensor::from_inner(make(tensor.inner())));
    made.set_require_grad(trained)
}

/// Gradient of a projection's output, and what both parts of the backward pass need from it.
pub(crate) struct Upstream {
    /// In f32.
    d_y: Tensor<2>,
    /// In the matmul precision.
    narrow: Tensor<2>,
    /// Adapters, with the gradient between their two matmuls.
    adapted: Option<(JoinedAdapters, Tensor<2>)>,
}
