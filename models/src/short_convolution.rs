//! The short convolution that some layers have instead of attention, in LFM2.
//!
//! A token is projected to three vectors. The product of the first and the third goes through a convolution over a few
//! tokens, each channel by itself, and is then multiplied by the second.

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, Tensor},
};

use crate::{
    checkpoint::CheckpointError,
    config::DecoderConfig,
    gradient::GradientSum,
    projection::Projection,
    recurrence::{Recurrence, RecurrentState, backward_by_autodiff, convolved},
    source::{ParameterSource, exact},
};

/// A layer's convolution and the projections around it.
#[derive(Module, Debug)]
pub(crate) struct ShortConvolution {
    pub(crate) input: Projection,
    kernel: Param<Tensor<3>>, // [hidden, 1, kernel]
    pub(crate) output: Projection,
}

impl ShortConvolution {
    /// Reads the convolution of the layer at `layer`.
    pub(crate) fn from_source(
        config: &DecoderConfig,
        layer: &str,
        source: &mut dyn ParameterSource,
        device: &Device,
    ) -> Result<Self, CheckpointError> {
        let hidden = config.hidden_size;
        let tokens = config.convolution.expect("a layer with a convolution has its size");
        let path = |part: &str| format!("{layer}.convolution.{part}");
        let mut projection = |part: &str| {
            Projection::from_source(config, &path(part), hidden, false, source, device)
        };
        Ok(ShortConvolution {
            input: projection("input")?,
            output: projection("output")?,
            kernel: exact(source, &path("kernel"), [hidden, 1, tokens], device)?,
        })
    }
}

impl Recurrence for ShortConvolution {
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
        let hidden = width / 3;
        let projected = projected.cast(DType::F32).reshape([rows, all / rows, width]);
        let [opens, closes, x] =
            [0, 1, 2].map(|part| projected.clone().narrow(2, part * hidden, hidden));

        let recent = before.map(|before| before.recent);
        let (convolved, recent) = convolved(opens * x, self.kernel.val(), recent);
        let output = (closes * convolved).reshape([all, hidden]);
        (output, RecurrentState { recent, memory: None })
    }

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
