//! Adapters of maps of the same input, joined into two matrices.

use burn::tensor::{DType, Tensor};

use crate::Compute;

/// Adapter of one of the maps: `x · a · b · scale` is added to the map's outputs.
#[derive(Clone, Debug)]
pub struct AdapterFactors {
    /// `[inputs, rank]`.
    pub a: Tensor<2>,
    /// `[rank, width]`.
    pub b: Tensor<2>,
    /// Factor of the product.
    pub scale: f64,
    /// First output of the map among those of all maps.
    pub first_output: usize,
}

/// Joins the adapters of maps that have `outputs` outputs together, in the matmul precision. Returns all `a` side by
/// side, `[inputs, ranks]`, and all `b` times their scales, `[ranks, outputs]`, each in its own rows and columns. The
/// rest is 0.
///
/// Each matrix comes twice. On a GPU, the first is stored in columns, the layout in which the right factor of a matmul
/// is read fastest, and the second in rows, so that the same holds for the transposed matrix. Without `both_layouts`,
/// and on the CPU, the second is the first.
///
/// # Panics
/// If there is no adapter.
pub fn join_adapters(
    adapters: &[AdapterFactors],
    outputs: usize,
    compute: Compute,
    both_layouts: bool,
) -> [[Tensor<2>; 2]; 2] {
    on_gpu!(join_adapters::join(adapters, outputs, compute, both_layouts));
    #[cfg(not(feature = "gpu"))]
    let _ = both_layouts;

    let joined = plain(adapters, outputs);
    joined.map(|matrix| {
        let matrix = matrix.cast(compute.dtype());
        [matrix.clone(), matrix]
    })
}

fn plain(adapters: &[AdapterFactors], outputs: usize) -> [Tensor<2>; 2] {
    let a = adapters.iter().map(|adapter| adapter.a.clone());
    let b = adapters.iter().map(|adapter| {
        let scaled = adapter.b.clone().cast(DType::F32).mul_scalar(adapter.scale);
        let [rank, width] = scaled.dims();

        // Block-diagonal: the numbers left and right of the adapter's columns are 0.
        let zeros = |width| Tensor::zeros([rank, width], &scaled.device());
        let end = adapter.first_output + width;
        let row = [zeros(adapter.first_output), scaled.clone(), zeros(outputs - end)];
        // Not every device takes an empty tensor.
        let row = row.into_iter().filter(|part| part.dims()[1] > 0);
        Tensor::cat(row.collect(), 1)
    });
    [Tensor::cat(a.collect(), 1), Tensor::cat(b.collect(), 0)]
}
