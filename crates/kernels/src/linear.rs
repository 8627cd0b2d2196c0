//! Matmuls: with a bias, added to a residual stream, or added to a sum of gradients.

use burn::tensor::{FloatDType, Tensor};

use crate::{
    Compute, Weight, cpu,
    flex::{edited, matrix, numbers, tensor},
};

/// Computes `x · y` in the matmul precision `compute`, and returns it in f32.
pub fn product(x: Tensor<2>, y: Tensor<2>, compute: Compute) -> Tensor<2> {
    linear(x, y, None, None, compute)
}

/// One of the ways in which a GPU can compute a matmul, for a bench that compares them. [`product`] takes the best one,
/// by rules.
#[derive(Clone, Debug)]
pub struct ProductWay {
    #[cfg(feature = "gpu")]
    way: crate::cube::product::Way,
}

impl ProductWay {
    /// Returns the ways in which the device of `x` and `y` can compute their product, from 17 rows on; none if it has
    /// only one.
    pub fn all(x: &Tensor<2>, y: &Tensor<2>) -> Vec<Self> {
        #[cfg(feature = "gpu")]
        {
            let ways = crate::cube::product::Way::all(x, y).unwrap_or_default();
            ways.into_iter().map(|way| ProductWay { way }).collect()
        }
        #[cfg(not(feature = "gpu"))]
        {
            let _ = (x, y);
            Vec::new()
        }
    }

    /// Returns the way's name: how the result is split.
    pub fn name(&self) -> String {
        #[cfg(feature = "gpu")]
        return self.way.name();
        #[cfg(not(feature = "gpu"))]
        String::new()
    }

    /// Computes `x · y` in f32; `None` if the device refuses it.
    pub fn product(&self, x: &Tensor<2>, y: &Tensor<2>) -> Option<Tensor<2>> {
        #[cfg(feature = "gpu")]
        return self.way.product(x, y);
        #[cfg(not(feature = "gpu"))]
        {
            let _ = (x, y);
            None
        }
    }
}

/// Computes `x · y` in the format of `compute`, to be a factor of another matmul.
pub fn factor(x: Tensor<2>, y: Tensor<2>, compute: Compute) -> Tensor<2> {
    let format = compute.dtype();
    let (x, y) = (x.cast(format), y.cast(format));
    on_gpu!(product::factor(&x, &y));
    product(x, y, compute).cast(format)
}

/// Computes `x · weight + bias + onto`: `[tokens, inputs]` and `[inputs, outputs]` to `[tokens, outputs]`, in the
/// matmul precision `compute`, returned in f32.
pub fn linear(
    x: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    onto: Option<Tensor<2>>,
    compute: Compute,
) -> Tensor<2> {
    linear_beside(x, weight, None, bias, onto, compute)
}

/// Computes `x · weight + inner · more + bias + onto`, as a projection with an adapter does: `adapter` holds `inner`,
/// `[tokens, rank]`, and `more`, `[rank, outputs]`.
pub fn linear_beside(
    x: Tensor<2>,
    weight: impl Into<Weight>,
    adapter: Option<[Tensor<2>; 2]>,
    bias: Option<Tensor<1>>,
    onto: Option<Tensor<2>>,
    compute: Compute,
) -> Tensor<2> {
    let format = compute.dtype();
    let (x, weight) = (x.cast(format), weight.into());
    let adapter = adapter.map(|pair| pair.map(|factor| factor.cast(format)));

    let sides = matrix(&x).and_then(|left| Some((left, weight.stored(compute)?)));
    let Some((left, right)) = sides else {
        let weight = weight.into_float(format);
        on_gpu!(product::linear(&x, &weight, adapter.as_ref(), bias.as_ref(), onto.as_ref()));
        return plain(x, weight, adapter, bias, onto, compute);
    };

    // Without summands there is nothing to begin with, so no sum has to be cleared first.
    let shape = [x.dims()[0], weight.dims()[1]];
    if adapter.is_none() && bias.is_none() && onto.is_none() {
        return tensor(cpu::product::product(left.view(), right.view(), 1.0), shape);
    }

    let factors = adapter.as_ref().map(|pair| pair.each_ref().map(matrix));
    let (Some(bias_numbers), Some(onto_numbers), None | Some([Some(_), Some(_)])) =
        (same(bias.as_ref()), same(onto.as_ref()), &factors)
    else {
        return plain(x, weight.into_float(format), adapter, bias, onto, compute);
    };

    // Bias and stream are summed first: the matmuls are then added to them in place.
    let mut sum =
        cpu::rows::begin(shape[0], shape[1], bias_numbers.as_deref(), onto_numbers.as_deref());
    cpu::product::add_product(&mut sum, left.view(), right.view());
    if let Some([Some(inner), Some(more)]) = &factors {
        cpu::product::add_product(&mut sum, inner.view(), more.view());
    }

    tensor(sum, shape)
}

/// Computes `sum + x · y`, in place if the sum's buffer is not shared, or `x · y` if there is no sum.
pub fn add_product(
    sum: Option<Tensor<2>>,
    x: Tensor<2>,
    y: Tensor<2>,
    compute: Compute,
) -> Tensor<2> {
    let Some(sum) = sum else { return product(x, y, compute) };

    let format = compute.dtype();
    let (x, y) = (x.cast(format), y.cast(format));
    #[cfg(feature = "gpu")]
    if crate::cube::takes(&sum) {
        return crate::cube::product::added(Some(sum), 0, &x, &y);
    }

    match (matrix(&x), matrix(&y), numbers(&sum).map(drop)) {
        (Some(left), Some(right), Some(())) => edited(sum, |sum| {
            cpu::product::add_product(sum, left.view(), right.view());
        }),
        _ => sum + product(x, y, compute),
    }
}

/// Casts a matrix. On a GPU, its columns are then stored one after the other, the layout in which the right factor of a
/// matmul is read fastest.
pub fn cast_in_columns(x: Tensor<2>, format: FloatDType) -> Tensor<2> {
    on_gpu!(columns::cast_in_columns(&x, format));
    x.cast(format)
}

/// Sums all rows, in f32: `[rows, width]` to `[width]`.
pub fn column_sums(x: Tensor<2>) -> Tensor<1> {
    let x = x.cast(FloatDType::F32);
    on_gpu!(rows::column_sums(&x));
    let width = x.dims()[1];
    match numbers(&x) {
        Some(numbers) => tensor(cpu::rows::sum(&numbers, width), [width]),
        None => x.sum_dim(0).squeeze_dim(0),
    }
}

pub(crate) fn plain(
    x: Tensor<2>,
    weight: Tensor<2>,
    adapter: Option<[Tensor<2>; 2]>,
    bias: Option<Tensor<1>>,
    onto: Option<Tensor<2>>,
    compute: Compute,
) -> Tensor<2> {
    let format = compute.dtype();
    let times =
        |x: Tensor<2>, y: Tensor<2>| x.cast(format).matmul(y.cast(format)).cast(FloatDType::F32);

    let mut y = times(x, weight);
    if let Some([inner, more]) = adapter {
        y = y + times(inner, more);
    }
    if let Some(bias) = bias {
        y = y + bias.unsqueeze();
    }

    match onto {
        Some(onto) => onto + y,
        None => y,
    }
}

/// Reads the numbers of a tensor that may be missing. `None` means that the tensor exists and the CPU implementations
/// do not take it.
fn same<const D: usize>(x: Option<&Tensor<D>>) -> Option<Option<crate::flex::Numbers>> {
    match x {
        Some(x) => numbers(x).map(Some),
        None => Some(None),
    }
}
