//! Converts between tensors and the slices of numbers that the CPU's functions compute on.

use std::ops::{Deref, Range};

use burn::tensor::{Bytes, DType, Int, Shape, Tensor};
use burn_flex::{Flex, FlexTensor, Layout};
use half::bf16;

use crate::{
    Kernels,
    cpu::{
        matrix::Matrix,
        weights::{Codes, Scales, Weights},
    },
    kernels,
    quant_layout::QuantLayout,
};

/// A tensor's numbers, row-major.
pub(crate) struct Numbers {
    tensor: FlexTensor,
    range: Range<usize>,
}

/// Returns the numbers of a tensor that the CPU implementations take: f32, on the CPU and without autodiff. `None` for
/// other tensors, and if the reference was chosen. Numbers are copied only if they are not stored row by row.
pub(crate) fn numbers<const D: usize>(x: &Tensor<D>) -> Option<Numbers> {
    let tensor = primitive(x, DType::F32)?.to_contiguous();
    let (start, end) = tensor.layout().contiguous_offsets()?;
    Some(Numbers { tensor, range: start..end })
}

impl Deref for Numbers {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.tensor.storage()[self.range.clone()]
    }
}

/// A tensor's matrix, whatever its strides: a transposed matrix is not copied.
pub(crate) struct Strided {
    tensor: FlexTensor,
    start: usize,
    steps: [usize; 2],
}

pub(crate) fn matrix(x: &Tensor<2>) -> Option<Strided> {
    strided(x, DType::F32)
}

fn strided(x: &Tensor<2>, format: DType) -> Option<Strided> {
    let tensor = primitive(x, format)?;
    // A flipped matrix has negative steps, which the CPU's functions don't take.
    let forward = |tensor: FlexTensor| match tensor.layout().strides() {
        [row, column] if *row >= 0 && *column >= 0 => tensor,
        _ => tensor.to_contiguous(),
    };
    let tensor = forward(tensor);
    let steps = [0, 1].map(|dim| tensor.layout().strides()[dim].unsigned_abs());
    Some(Strided { start: tensor.layout().start_offset(), steps, tensor })
}

impl Strided {
    pub(crate) fn view(&self) -> Matrix<'_> {
        Matrix::new(&self.tensor.storage()[self.start..], self.dims(), self.steps)
    }

    fn narrow_view(&self) -> Matrix<'_, bf16> {
        Matrix::new(&self.tensor.storage()[self.start..], self.dims(), self.steps)
    }

    fn dims(&self) -> [usize; 2] {
        let shape = self.tensor.layout().shape();
        [shape[0], shape[1]]
    }
}

/// The right factor of a matmul, in the format in which it is stored.
pub(crate) enum StoredWeights {
    F32(Strided),
    Bf16(Strided),
    Codes { words: FlexTensor, scales: FlexTensor, layout: QuantLayout, transposed: bool },
}

/// Returns a tensor's numbers as the right factor of a matmul in f32. A tensor in bfloat16 is not widened.
pub(crate) fn weights(x: &Tensor<2>) -> Option<StoredWeights> {
    match x.dtype() {
        DType::BF16 => strided(x, DType::BF16).map(StoredWeights::Bf16),
        _ => strided(x, DType::F32).map(StoredWeights::F32),
    }
}

/// Returns a quantised matrix as the right factor of a matmul in f32.
pub(crate) fn quantised_weights(
    words: &Tensor<2, Int>,
    scales: &Tensor<1>,
    layout: QuantLayout,
    transposed: bool,
) -> Option<StoredWeights> {
    let scales = primitive(scales, scales.dtype())?;
    let known = matches!(scales.dtype(), DType::F32 | DType::BF16);
    let words = words.clone().try_into_primitive::<Flex>().ok()?;
    let whole = |tensor: &FlexTensor| tensor.layout().contiguous_offsets().is_some();
    if !known || words.dtype() != DType::I32 || !whole(&words) || !whole(&scales) {
        return None;
    }
    Some(StoredWeights::Codes { words, scales, layout, transposed })
}

impl StoredWeights {
    pub(crate) fn view(&self) -> Weights<'_> {
        match self {
            StoredWeights::F32(matrix) => Weights::F32(matrix.view()),
            StoredWeights::Bf16(matrix) => Weights::Bf16(matrix.narrow_view()),
            StoredWeights::Codes { words, scales, layout, transposed } => {
                let range = |tensor: &FlexTensor| {
                    let (start, end) = tensor.layout().contiguous_offsets().unwrap_or_default();
                    start..end
                };
                let of_scales = match scales.dtype() {
                    DType::BF16 => Scales::Bf16(&scales.storage()[range(scales)]),
                    _ => Scales::F32(&scales.storage()[range(scales)]),
                };
                let width = words.layout().shape()[1];
                let words = &words.storage()[range(words)];
                let codes = Weights::Codes(Codes::new(words, of_scales, *layout, width));
                if *transposed { codes.transposed() } else { codes }
            }
        }
    }
}

/// Makes a tensor of these numbers, row-major.
pub(crate) fn tensor<const D: usize>(numbers: Vec<f32>, shape: [usize; D]) -> Tensor<D> {
    let layout = Layout::contiguous(Shape::from(shape));
    // Otherwise, a later operation would read beyond the numbers.
    assert_eq!(layout.num_elements(), numbers.len(), "a tensor of another size than its numbers");
    let tensor = FlexTensor::new(Bytes::from_elems(numbers), layout, DType::F32);
    Tensor::from_primitive::<Flex>(tensor)
}

/// Edits the numbers of a tensor, in place if its buffer is not shared. The tensor must be one that [`numbers`] takes.
pub(crate) fn edited<const D: usize>(x: Tensor<D>, edit: impl FnOnce(&mut [f32])) -> Tensor<D> {
    let shape = x.dims();

    let mut tensor = x.try_into_primitive::<Flex>().expect("it is on the CPU");
    let whole = tensor.layout().contiguous_offsets() == Some((0, tensor.storage::<f32>().len()));
    // `storage_mut` is the entire storage, so a view of a part of it, or a transposed one, is copied first.
    if !whole {
        let numbers = tensor.to_contiguous().into_data().try_into_vec().expect("they are f32");
        return edited(self::tensor(numbers, shape), edit);
    }

    edit(tensor.storage_mut());
    Tensor::from_primitive::<Flex>(tensor)
}

/// Reads the integers of a tensor on the CPU.
pub(crate) fn ints<const D: usize>(x: &Tensor<D, Int>) -> Option<Vec<usize>> {
    if kernels() == Kernels::Reference {
        return None;
    }
    let tensor = x.clone().try_into_primitive::<Flex>().ok()?.to_contiguous();
    match tensor.dtype() {
        DType::I64 => Some(tensor.as_slice::<i64>()?.iter().map(|&x| x as usize).collect()),
        DType::I32 => Some(tensor.as_slice::<i32>()?.iter().map(|&x| x as usize).collect()),
        _ => None,
    }
}

fn primitive<const D: usize>(x: &Tensor<D>, format: DType) -> Option<FlexTensor> {
    if kernels() == Kernels::Reference || x.is_autodiff() || x.dtype() != format {
        return None;
    }
    x.clone().try_into_primitive::<Flex>().ok()
}
