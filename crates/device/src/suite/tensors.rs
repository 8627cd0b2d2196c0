//! Cases of the suite: single tensor operations.

use burn::tensor::{Bool, Device, Int, Tensor, TensorData, activation};

use super::{Array, Case, Compute};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    let in_every_format = [
        ("tensors/matmul", Tolerance::PRODUCT, matmul as Compute),
        ("tensors/elementwise", Tolerance::ELEMENTWISE, elementwise),
        ("tensors/softmax", Tolerance::SUM, softmax),
    ];
    let in_f32_only = [
        in_f32("tensors/angles", Tolerance::FORWARD, angles),
        in_f32("tensors/reductions", Tolerance::EXACT, reductions),
        in_f32("tensors/means", Tolerance::SUM, means),
        in_f32("tensors/indexing", Tolerance::EXACT, indexing),
        in_f32("tensors/inplace", Tolerance::EXACT, inplace),
        in_f32("tensors/sorting", Tolerance::EXACT, sorting),
        in_f32("tensors/ints", Tolerance::EXACT, ints),
    ];

    let in_every_format = in_every_format
        .into_iter()
        .flat_map(|(name, tolerance, compute)| Case::in_every_format(name, tolerance, compute));
    in_every_format.chain(in_f32_only).collect()
}

/// Makes a case that is computed only in f32.
pub(super) fn in_f32(name: &'static str, tolerance: Tolerance, compute: Compute) -> Case {
    Case::new(name, Precision::F32, tolerance, compute)
}

/// Multiplies shapes that fill a tile and shapes that do not. Then it multiplies as attention and the head do: batches
/// with the last two dimensions swapped, one matrix for an entire batch, and a transpose.
fn matmul(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for [m, k, n] in [[64, 64, 64], [33, 70, 17], [1, 129, 65]] {
        let left = wave([m, k], 0.37, device).cast(precision.dtype());
        let right = wave([k, n], 0.73, device).cast(precision.dtype());
        arrays.push(Array::new(format!("{m}×{k}×{n}"), values(left.matmul(right))?));
    }

    // As in attention and the head.
    let query = wave([2, 3, 12, 8], 0.37, device).cast(precision.dtype());
    let key = wave([2, 3, 20, 8], 0.73, device).cast(precision.dtype());
    arrays.push(Array::new("query·keyᵀ", values(query.matmul(key.swap_dims(2, 3)))?));

    let hidden = wave([3, 5, 32], 0.37, device).cast(precision.dtype());
    let weights = wave([32, 48], 0.73, device).cast(precision.dtype());
    arrays.push(Array::new("one for all", values(hidden.matmul(weights.unsqueeze()))?));

    let hidden = wave([15, 32], 0.37, device).cast(precision.dtype());
    let head = wave([61, 32], 0.73, device).cast(precision.dtype());
    arrays.push(Array::new("hidden·headᵀ", values(hidden.matmul(head.transpose()))?));
    Ok(arrays)
}

/// Computes the functions of the model and of the optimizer, and arithmetic that broadcasts.
fn elementwise(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let x = wave([33, 70], 0.37, device).cast(precision.dtype());
    // Logarithms and roots need positive numbers, not near 0.
    let positive = x.clone().abs().add_scalar(0.5);
    let row = wave([1, 70], 0.73, device).cast(precision.dtype());
    let column = wave([33, 1], 0.53, device).cast(precision.dtype());

    [
        ("exp", x.clone().exp()),
        ("silu", activation::silu(x.clone())),
        ("tanh", x.clone().tanh()),
        ("log", positive.clone().log()),
        ("sqrt", positive.clone().sqrt()),
        ("recip", positive.clone().recip()),
        ("quotient", row.clone() / positive),
        ("sum with a row", x.clone() + row),
        ("product with a column", x.clone() * column),
        ("clamp", x.clamp(-0.5, 0.25)),
    ]
    .into_iter()
    .map(|(name, tensor)| Ok(Array::new(name, values(tensor)?)))
    .collect()
}

/// Computes the sine and cosine of a rotary embedding's angles. A driver that is only exact within a few turns would
/// rotate late positions by the wrong amount.
fn angles(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let positions = Tensor::<1, Int>::arange(0..1024, device).float();
    let frequencies = Tensor::<1>::from_floats([1.0, 0.31, 0.01], device);
    let angles = positions.unsqueeze_dim::<2>(1) * frequencies.unsqueeze();
    Ok(vec![
        Array::new("cos", values(angles.clone().cos())?),
        Array::new("sin", values(angles.sin())?),
    ])
}

/// Computes the softmax of scores with hidden keys. In the second row, all but one key are hidden, and in the third all
/// are. The third must be uniform instead of NaN, which the backward pass would spread.
fn softmax(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let width = 129;
    // The largest number in f16 is 65504.
    let masked = if precision == Precision::F16 { -3e4 } else { -1e30 };

    let bias: Vec<f32> = (0..4 * width)
        .map(|index| match (index / width, index % width) {
            (1, column) if column != 5 => masked,
            (2, _) => masked,
            _ => 0.0,
        })
        .collect();
    let bias = Tensor::<2>::from_data(TensorData::new(bias, [4, width]), device);

    let scores = wave([4, width], 0.37, device).mul_scalar(4.0).cast(precision.dtype());
    let weights = activation::softmax(scores.clone() + bias.cast(precision.dtype()), 1);

    Ok(vec![
        Array::new("softmax", values(weights)?),
        Array::new("log_softmax", values(activation::log_softmax(scores, 1))?),
    ])
}

/// Reduces integers. Sums of integers below 2²⁴ are exact in any order. No two numbers are equal, so there is one
/// largest.
fn reductions(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for width in [1, 7, 129, 1000] {
        let x = scattered([5, width], device);
        let mut add = |what: &str, values: Vec<f32>| {
            arrays.push(Array::new(format!("{what} of {width}"), values));
        };

        add("sum", values(x.clone().sum_dim(1))?);
        add("max", values(x.clone().max_dim(1))?);
        add("argmax", whole(x.clone().argmax(1))?);
    }

    // Over dimensions other than the last.
    let x = scattered([33, 6, 5], device);
    for dim in [0, 1] {
        arrays.push(Array::new(format!("sum over {dim}"), values(x.clone().sum_dim(dim))?));
        arrays.push(Array::new(format!("max over {dim}"), values(x.clone().max_dim(dim))?));
    }

    arrays.push(Array::new("sum of all", values(x.clone().sum())?));
    arrays.push(Array::new("largest of all", values(x.neg().abs().max())?));
    Ok(arrays)
}

/// Computes mean squares, as RMSNorm and the gradient's norm do.
fn means(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let x = wave([3, 5, 129], 0.37, device).square();
    Ok(vec![
        Array::new("mean over the last", values(x.clone().mean_dim(2))?),
        Array::new("sum over the middle", values(x.clone().sum_dim(1))?),
        Array::new("sum of all", values(x.sum())?),
    ])
}

/// Copies entries. A copied entry must not change.
fn indexing(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let x = wave([5, 13], 0.37, device);
    let cube = wave([4, 3, 6], 0.73, device);

    let rows = Tensor::<1, Int>::from_ints([3, 0, 4, 3, 3, 1, 2], device);
    let columns = Tensor::<2, Int>::from_ints([[12], [0], [7], [7], [3]], device);
    let added = Tensor::<2>::ones([5, 1], device);
    let negative: Tensor<2, Bool> = x.clone().lower_elem(0.0);

    let flat = [
        ("select", x.clone().select(0, rows)),
        ("gather", x.clone().gather(1, columns.clone())),
        ("scatter", x.clone().scatter(1, columns, added, burn::tensor::IndexingUpdateOp::Add)),
        ("narrow", x.clone().narrow(1, 3, 7)),
        ("cat of columns", Tensor::cat(vec![x.clone().narrow(1, 6, 7), x.clone()], 1)),
        ("cat of rows", Tensor::cat(vec![x.clone(), x.clone().narrow(0, 1, 2)], 0)),
        ("slice_assign", x.clone().slice_assign([1..3, 2..6], x.clone().slice([3..5, 7..11]))),
        ("mask_fill", x.clone().mask_fill(negative.clone(), -1e30)),
        ("mask_where", x.clone().mask_where(negative, x.clone().neg())),
        ("swapped and flattened", cube.clone().swap_dims(0, 1).reshape([12, 6])),
        ("narrowed and flattened", cube.clone().narrow(2, 1, 4).reshape([6, 8])),
        ("a column, expanded", cube.narrow(1, 2, 1).reshape([4, 6]).narrow(1, 5, 1).expand([4, 6])),
    ];
    flat.into_iter().map(|(name, tensor)| Ok(Array::new(name, values(tensor)?))).collect()
}

/// Writes columns into a cache in place. A clone taken before must keep its entries.
fn inplace(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut cache = wave([2, 3, 8, 4], 0.37, device);
    let mut write = |columns: std::ops::Range<usize>| {
        for column in columns {
            let new = wave([2, 3, 1, 4], 0.73, device).add_scalar(column as f32);
            let span = [0..2, 0..3, column..column + 1, 0..4];
            cache.inplace(|cache| cache.slice_assign(span, new));
        }
        cache.clone()
    };

    let first = write(0..0);
    let second = write(0..3);
    let third = write(2..8);
    [("before", first), ("half full", second), ("full", third)]
        .into_iter()
        .map(|(name, cache)| Ok(Array::new(name, values(cache)?)))
        .collect()
}

/// Computes the sorts and sums that sampling from a truncated distribution needs.
fn sorting(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let x = scattered([5, 129], device);
    let (sorted, order) = x.clone().sort_descending_with_indices(1);
    Ok(vec![
        Array::new("sorted", values(sorted)?),
        Array::new("order", whole(order)?),
        Array::new("cumulative sums", values(x.cumsum(1))?),
    ])
}

/// Computes token ids, positions and counts. Ids below 2²⁴ are exact in f32.
fn ints(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let x = Tensor::<1, Int>::arange(0..1000, device);
    let shifted = x.clone().sub_scalar(500);
    let late: Tensor<1, Bool> = x.clone().greater_equal_elem(300);
    let third: Tensor<1, Bool> = x.clone().remainder_scalar(3).equal_elem(0);
    let ids = Tensor::<1, Int>::from_ints([0, 1, 151_935, (1 << 24) - 1], device);

    Ok(vec![
        Array::new("range", whole(x.clone())?),
        Array::new("shifted", whole(shifted.clone())?),
        Array::new("product", whole(shifted.clone() * x.clone())?),
        Array::new("as float", values(shifted.clone().float())?),
        Array::new("ids as float", values(ids.float())?),
        Array::new("sum", whole(x.sum())?),
        Array::new("count", whole(late.clone().int().sum())?),
        Array::new("either", whole(late.clone().bool_or(third.clone()).int())?),
        Array::new("both", values(late.bool_and(third).float())?),
        Array::new("largest", whole(shifted.reshape([4, 250]).max_dim(1))?),
    ])
}

/// Returns numbers within ±1 that every format of a [`Precision`] holds exactly: multiples of 1/128.
pub(super) fn wave<const D: usize>(shape: [usize; D], pitch: f64, device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> =
        (0..count).map(|i| ((i as f64 * pitch).sin() * 128.0).round() as f32 / 128.0).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Returns different integers below 5003, for at most as many entries.
fn scattered<const D: usize>(shape: [usize; D], device: &Device) -> Tensor<D> {
    let count: usize = shape.iter().product();
    let values: Vec<f32> = (0..count).map(|i| (i * 611 % 5003) as f32).collect();
    Tensor::from_data(TensorData::new(values, shape), device)
}

/// Reads a tensor of any format back as f32.
pub(super) fn values<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, Failure> {
    tensor
        .cast(burn::tensor::FloatDType::F32)
        .try_into_vec_as::<f32>()
        .map_err(|error| Failure::new(format!("{error:?}")))
}

/// Reads integers below 2²⁴ back, as f32.
pub(super) fn whole<const D: usize>(tensor: Tensor<D, Int>) -> Result<Vec<f32>, Failure> {
    let values =
        tensor.try_into_vec_as::<i32>().map_err(|error| Failure::new(format!("{error:?}")))?;
    Ok(values.into_iter().map(|value| value as f32).collect())
}
