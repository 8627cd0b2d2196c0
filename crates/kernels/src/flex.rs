//! Converts between tensors and the slices of numbers that the CPU's functions compute on.

use std::ops::{Deref, Range};

use burn::tensor::{Bytes, DType, Int, Shape, Tensor};
use burn_flex::{Flex, FlexTensor, Layout};

use crate::{Kernels, cpu::product::Matrix, kernels};

/// A tensor's numbers, row-major.
pub(crate) struct Numbers {
    tensor: FlexTensor,
    range: Range<usize>,
}

/// Returns the numbers of a tensor that the CPU implementations take: f32, on the CPU and without autodiff. `None` for
/// other tensors, and if the reference was chosen. Numbers are copied only if they are not stored row by row.
pub(crate) fn numbers<const D: usize>(x: &Tensor<D>) -> Option<Numbers> {
    let tensor = primitive(x)?.to_contiguous();
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
    let tensor = primitive(x)?;
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
        let shape = self.tensor.layout().shape();
        Matrix::new(&self.tensor.storage()[self.start..], [shape[0], shape[1]], self.steps)
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

fn primitive<const D: usize>(x: &Tensor<D>) -> Option<FlexTensor> {
    if kernels() == Kernels::Reference || x.is_autodiff() || x.dtype() != DType::F32 {
        return None;
    }
    x.clone().try_into_primitive::<Flex>().ok()
}
