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
    lora::Adapter,
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
    /// One place for each of the maps; empty if no map has an adapter.
    pub(crate) adapters: Vec<Option<Adapter>>,
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
            widths,
        })
    }

    /// Maps `[places, inputs]` to `[places, outputs]` and adds `onto`.
    pub(crate) fn forward(
        &self,
        x: Tensor<2>,
        onto: Option<Tensor<2>>,
        compute: Compute,
    ) -> Tensor<2> {
        let bias = self.bias.as_ref().map(Param::val);
        let y = ops::linear(x.clone(), self.matrix(), bias, onto, compute);
        if self.adapters.is_empty() {
            return y;
        }
        let places = x.dims()[0];
        let added = self.adapters.iter().zip(&self.widths).map(|(adapter, &width)| match adapter {
            Some(adapter) => adapter.forward(x.clone(), compute),
            None => Tensor::zeros([places, width], &x.device()),
        });
        y + Tensor::cat(added.collect(), 1)
    }

    /// Computes the gradient of the input, given the input and the gradient of the output. The gradients of the
    /// parameters are added to `sum`. Tensors are without autodiff.
    pub(crate) fn back(
        &self,
        x: &Tensor<2>,
        d_y: Tensor<2>,
        compute: Compute,
        sum: &mut GradientSum,
    ) -> Tensor<2> {
        self.back_weights(x, &d_y, compute, sum);
        self.back_input(&d_y, compute)
    }

    /// Computes the part of [`Projection::back`] that does not need the input.
    pub(crate) fn back_input(&self, d_y: &Tensor<2>, compute: Compute) -> Tensor<2> {
        let weight = self.matrix().inner();
        let d_x = ops::product(d_y.clone(), weight.transpose(), compute);
        let parts = self.adapters.iter().zip(self.parts(d_y));
        parts.fold(d_x, |d_x, (adapter, d_y)| match adapter {
            Some(adapter) => adapter.back_input(d_y, d_x, compute),
            None => d_x,
        })
    }

    /// Computes the other part: adds to the gradients of the parameters.
    pub(crate) fn back_weights(
        &self,
        x: &Tensor<2>,
        d_y: &Tensor<2>,
        compute: Compute,
        sum: &mut GradientSum,
    ) {
        if let Some(weight) = &self.weight
            && weight.is_require_grad()
        {
            sum.add_product(weight, x.clone().transpose(), d_y.clone(), compute);
        }
        if let Some(bias) = &self.bias
            && bias.is_require_grad()
        {
            sum.add(bias.id, ops::column_sums(d_y.clone()));
        }
        for (adapter, d_y) in self.adapters.iter().zip(self.parts(d_y)) {
            if let Some(adapter) = adapter {
                adapter.back_weights(x, d_y, compute, sum);
            }
        }
    }

    /// Splits columns by map.
    fn parts(&self, y: &Tensor<2>) -> impl Iterator<Item = Tensor<2>> {
        self.widths.iter().scan(0, |first, &width| {
            let start = std::mem::replace(first, *first + width);
            Some(y.clone().narrow(1, start, width))
        })
    }

    /// Adds the adapters into the weight and removes them. A weight in codes becomes a weight in f32.
    pub(crate) fn merge(&mut self) {
        let adapters = std::mem::take(&mut self.adapters);
        if adapters.is_empty() {
            if self.packed.is_some() {
                (self.weight, self.packed) = (Some(Param::from_tensor(self.matrix())), None);
            }
            return;
        }
        let weight = self.matrix();
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

    /// Returns the weight, `[inputs, outputs]`, in the format in which it is kept, or in f32 if it is kept in
    /// codes.
    fn matrix(&self) -> Tensor<2> {
        match (&self.weight, &self.packed) {
            (Some(weight), _) => weight.val(),
            (None, Some(packed)) => packed.matrix(),
            (None, None) => unreachable!("a projection has a weight"),
        }
    }
}
