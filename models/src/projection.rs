//! Linear maps of one input as one product, each with or without an adapter.

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, Tensor},
};

use firebrick_kernels as ops;

use crate::{
    CheckpointError, Compute, DecoderConfig, GradientSum,
    base::Packed,
    init::{ParameterSource, parameter, vector},
    lora::{Adapter, Joined},
    names,
};

/// A linear map, or several maps of the same input side by side: on every device one large product is faster than
/// three small ones.
#[derive(Module, Debug)]
pub(crate) struct Projection {
    weight: Option<Param<Tensor<2>>>, // [inputs, outputs]
    /// The weight, if it is kept in so few bits that its numbers have to be made before they are multiplied.
    packed: Option<Packed>,
    bias: Option<Param<Tensor<1>>>,
    /// One entry for each of the maps; empty if no map has an adapter.
    pub(crate) adapters: Vec<Option<Adapter>>,
    /// The adapters joined, in a copy whose parameters do not move.
    #[module(skip)]
    pub(crate) joined: Option<Joined>,
    /// The number of outputs of each map.
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
        let parts = names::projections(of_layer, config);
        let widths: Vec<usize> = parts.into_iter().map(|(_, outputs)| outputs).collect();
        let outputs = widths.iter().sum();
        let name = format!("{path}.weight");
        let base = source.base();
        let values = source.values(&name, &[inputs, outputs])?;
        let packed = Packed::new(&values, [inputs, outputs], base, device);
        Ok(Projection {
            weight: packed.is_none().then(|| parameter(values, [inputs, outputs], base, device)),
            packed,
            bias: match bias {
                true => Some(vector(source, &format!("{path}.bias"), outputs, device)?),
                false => None,
            },
            adapters: Vec::new(),
            joined: None,
            widths,
        })
    }

    /// Rounds the weight and joins the adapters once, in a copy that is prepared for an update or for sampling.
    pub(crate) fn prepare(&mut self, compute: Compute) {
        self.joined = self.joined(compute).map(Joined::inner);
        self.weight = self.weight.take().map(|weight| {
            let narrow = weight.val().dtype() != DType::F32;
            if compute == Compute::F32 || narrow {
                return weight;
            }
            remade(weight, |weight| ops::cast_in_columns(weight, compute.dtype()))
        });
    }

    fn joined(&self, compute: Compute) -> Option<Joined> {
        self.joined.clone().or_else(|| Joined::new(&self.adapters, &self.widths, compute))
    }

    /// Maps `[tokens, inputs]` to `[tokens, outputs]` and adds `onto`.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        onto: Option<Tensor<2>>,
        compute: Compute,
    ) -> Tensor<2> {
        let bias = self.bias.as_ref().map(Param::val);
        let beside = self.joined(compute).map(|joined| joined.beside(x.clone(), compute));
        ops::linear_beside(x, self.matrix(compute), beside, bias, onto, compute)
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
        let adapted = self.joined(compute).map(|joined| {
            let joined = joined.inner();
            let d_inner = joined.d_inner(narrow.clone(), compute);
            (joined, d_inner)
        });
        Upstream { d_y, narrow, adapted }
    }

    /// Computes the part of [`Projection::backward`] that does not need the input.
    pub(crate) fn backward_input(&self, upstream: &Upstream, compute: Compute) -> Tensor<2> {
        let across = self.matrix(compute).inner().transpose();
        let beside = upstream.adapted.as_ref();
        let beside = beside.map(|(joined, d_inner)| [d_inner.clone(), joined.a_across()]);
        ops::linear_beside(upstream.narrow.clone(), across, beside, None, None, compute)
    }

    /// Computes the other part: adds to the gradients of the parameters.
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

    /// Adds the adapters into the weight and removes them. A weight in codes becomes a weight in f32.
    pub(crate) fn merge(&mut self) {
        let adapters = std::mem::take(&mut self.adapters);
        self.joined = None;
        if adapters.is_empty() {
            if self.packed.is_some() {
                (self.weight, self.packed) =
                    (Some(Param::from_tensor(self.matrix(Compute::F32))), None);
            }
            return;
        }
        let weight = self.matrix(Compute::F32);
        let ([inputs, _], device) = (weight.dims(), weight.device());
        let added = adapters.into_iter().zip(&self.widths).map(|(adapter, &width)| match adapter {
            Some(adapter) => adapter.product(),
            None => Tensor::zeros([inputs, width], &device),
        });
        let added = Tensor::cat(added.collect(), 1);
        let merged = Param::from_tensor(weight.cast(DType::F32) + added);
        (self.weight, self.packed) = (Some(merged), None);
    }

    /// Returns the numbers of inputs and outputs.
    pub(crate) fn dims(&self) -> [usize; 2] {
        match (&self.weight, &self.packed) {
            (Some(weight), _) => weight.dims(),
            (None, Some(packed)) => packed.dims(),
            (None, None) => unreachable!("a projection has a weight"),
        }
    }

    /// Returns the weight, `[inputs, outputs]`, in the format in which it is kept. If it is kept in codes, it is for
    /// products in `compute`.
    fn matrix(&self, compute: Compute) -> Tensor<2> {
        match (&self.weight, &self.packed) {
            (Some(weight), _) => weight.val(),
            (None, Some(packed)) => packed.matrix(compute.dtype()),
            (None, None) => unreachable!("a projection has a weight"),
        }
    }
}

/// Makes a parameter's tensor again, without a gradient that goes through `make`. It wants one if the parameter did.
pub(crate) fn remade<const D: usize>(
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

/// The gradient of a projection's output, and what both parts of the backward pass need of it.
pub(crate) struct Upstream {
    /// The gradient, f32.
    d_y: Tensor<2>,
    /// The gradient in the format of products.
    narrow: Tensor<2>,
    /// The adapters, and the gradient between their two products.
    adapted: Option<(Joined, Tensor<2>)>,
}
