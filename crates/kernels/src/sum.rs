//! Sums all numbers of a tensor in one order.

use burn::tensor::Tensor;

/// Adds up all numbers, so that equal numbers have equal sums on every device.
///
/// On a device that can add to memory atomically, as CUDA and most Vulkan drivers can, burn's own `sum` adds the parts
/// of four cubes in the order in which they happen to end. Here, a GPU sums one dimension after the other.
pub fn sum_all<const D: usize>(x: Tensor<D>) -> Tensor<1> {
    if !is_gpu(&x) {
        return x.sum();
    }
    let rows = (0..D).rev().fold(x, |x, dim| x.sum_dim(dim));
    rows.reshape([1])
}

fn is_gpu<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(feature = "gpu")]
    return crate::cube::is_gpu(&x.device().without_autodiff());
    #[cfg(not(feature = "gpu"))]
    {
        let _ = x;
        false
    }
}
