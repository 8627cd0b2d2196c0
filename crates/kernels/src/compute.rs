//! Matmul precisions.

use burn::tensor::FloatDType;

/// Matmul precision: the number format to which the inputs of matmuls are rounded. Weights and everything between two
/// matmuls stay f32: the residual stream, norms, softmax, log-probabilities, sums of gradients, and moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compute {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits with the range of 32: keys and values take half the memory, and tensor cores support this format.
    Bf16,
    /// 16 bits that end at 65,504, for GPUs without arithmetic in bf16. Gradients need a scale.
    F16,
}

impl std::fmt::Display for Compute {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Compute::F32 => "float32",
            Compute::Bf16 => "bfloat16",
            Compute::F16 => "float16",
        })
    }
}

impl Compute {
    /// Returns burn's type of the format.
    pub fn dtype(self) -> FloatDType {
        match self {
            Compute::F32 => FloatDType::F32,
            Compute::Bf16 => FloatDType::BF16,
            Compute::F16 => FloatDType::F16,
        }
    }
}
