//! One file for each topic, which calls training's functions with a case's arrays and compares the results.

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_tests::golden::Array;

pub(crate) mod adaptive;
pub(crate) mod advantage;
pub(crate) mod critic;
pub(crate) mod curriculum;
pub(crate) mod distillation;
pub(crate) mod kl;
pub(crate) mod length;
pub(crate) mod logprob;
pub(crate) mod optim;
pub(crate) mod overlong;
pub(crate) mod policy_loss;
pub(crate) mod sampling;

/// Makes a tensor of `array`, in its own shape.
fn tensor<const D: usize>(array: &Array, device: &Device) -> Tensor<D> {
    let shape: [usize; D] = array.shape.clone().try_into().expect("the array has D dimensions");
    Tensor::from_data(TensorData::new(array.f32(), shape), device)
}

/// Returns the values of `tensor`, row-major.
fn values<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.try_into_vec_as::<f32>().expect("the CPU gives its values back")
}
