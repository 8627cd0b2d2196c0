//! Number formats that files are written in.

use half::{bf16, f16};

use crate::BlockType;

/// The number format of a file's matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "their names are the format's")]
pub enum FileType {
    /// Four bytes a value: the weights, bit for bit.
    F32,
    /// Two bytes a value; at most 65504.
    F16,
    /// Two bytes a value, with the range of f32.
    BF16,
    /// 34 bytes for 32 values: a scale, and a byte for each.
    Q8_0,
}

/// Values of a block of Q8_0.
const Q8_0_VALUES: usize = 32;

impl FileType {
    /// Returns the number of the type in `general.file_type`.
    pub(crate) fn number(self) -> u32 {
        match self {
            FileType::F32 => 0,
            FileType::F16 => 1,
            FileType::Q8_0 => 7,
            FileType::BF16 => 32,
        }
    }

    /// Returns the blocks of such a tensor.
    pub fn block(self) -> BlockType {
        match self {
            FileType::F32 => BlockType::F32,
            FileType::F16 => BlockType::F16,
            FileType::BF16 => BlockType::BF16,
            FileType::Q8_0 => BlockType::Q8_0,
        }
    }

    /// Returns a type that has room for values beyond this one.
    pub(crate) fn wider(self) -> FileType {
        match self {
            FileType::F16 => FileType::BF16,
            FileType::F32 | FileType::BF16 | FileType::Q8_0 => FileType::F32,
        }
    }

    /// Returns the type of one of the file's tensors, by its name in the file and its shape, the innermost size last.
    pub(crate) fn of_tensor(self, name: &str, shape: &[usize]) -> FileType {
        // Programs compute with these in f32, and expect them so.
        let small = shape.len() == 1
            || !name.ends_with(".weight")
            || [
                "_norm.weight",
                "ffn_gate_inp.weight",
                "ffn_gate_inp_shexp.weight",
                "ssm_conv1d.weight",
                "shortconv.conv.weight",
            ]
            .iter()
            .any(|end| name.ends_with(end));
        let row = shape.last().copied().unwrap_or(0);

        match self {
            _ if small => FileType::F32,
            FileType::Q8_0 if !row.is_multiple_of(Q8_0_VALUES) => FileType::F16,
            FileType::F32 | FileType::F16 | FileType::BF16 | FileType::Q8_0 => self,
        }
    }

    /// Returns the number of bytes of a tensor whose rows are whole blocks.
    pub(crate) fn bytes(self, shape: &[usize]) -> u64 {
        let values: u64 = shape.iter().map(|&size| size as u64).product();
        values / self.block().values() as u64 * self.block().bytes() as u64
    }

    /// Appends the bytes of whole blocks of `values`, rounded. The error is the first value that the type does not
    /// hold: one that would become infinite, and in Q8_0 one that is not finite already.
    pub(crate) fn narrow(self, values: &[f32], bytes: &mut Vec<u8>) -> Result<(), f32> {
        match self {
            FileType::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            FileType::F16 => {
                for &value in values {
                    let narrow = f16::from_f32(value);
                    finite_as(value, narrow.to_f32())?;
                    bytes.extend(narrow.to_le_bytes());
                }
            }
            FileType::BF16 => {
                for &value in values {
                    let narrow = bf16::from_f32(value);
                    finite_as(value, narrow.to_f32())?;
                    bytes.extend(narrow.to_le_bytes());
                }
            }
            FileType::Q8_0 => {
                for block in values.chunks(Q8_0_VALUES) {
                    narrow_to_q8_0(block, bytes)?;
                }
            }
        }
        Ok(())
    }
}

/// Refuses a finite value that became infinite.
fn finite_as(value: f32, narrow: f32) -> Result<(), f32> {
    if value.is_finite() && !narrow.is_finite() { Err(value) } else { Ok(()) }
}

/// Appends a block: a scale of 16 bits, by which the largest value becomes 127 or −127, and the rounded multiples of
/// it. The multiples are those of the scale in 32 bits, and ties go away from zero, as in ggml.
fn narrow_to_q8_0(block: &[f32], bytes: &mut Vec<u8>) -> Result<(), f32> {
    if let Some(&value) = block.iter().find(|value| !value.is_finite()) {
        return Err(value);
    }

    let largest = block.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    finite_as(largest, f16::from_f32(scale).to_f32())?;
    // Only a block of zeros has no inverse.
    let inverse = if scale == 0.0 { 0.0 } else { 1.0 / scale };

    bytes.extend(f16::from_f32(scale).to_le_bytes());
    bytes.extend(block.iter().map(|value| (value * inverse).round() as i8 as u8));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(file_type: FileType, values: &[f32]) -> Vec<f32> {
        let mut bytes = Vec::new();
        file_type.narrow(values, &mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, file_type.bytes(&[values.len()]));
        let mut read = Vec::new();
        file_type.block().dequantise(&bytes, &mut read);
        read
    }

    #[test]
    fn a_value_misses_by_at_most_half_a_step() {
        let values: Vec<f32> = (0..64)
            .map(|at| ((at * 37 % 64) as f32 - 31.5) / if at < 32 { 7.0 } else { 900.0 })
            .collect();
        assert_eq!(there_and_back(FileType::F32, &values), values);

        // f16 has 11 bits of significand, bf16 has 8: half a step is at most 2⁻¹¹ and 2⁻⁸ of a value.
        for (file_type, half_step) in
            [(FileType::F16, 2f32.powi(-11)), (FileType::BF16, 2f32.powi(-8))]
        {
            for (read, value) in there_and_back(file_type, &values).into_iter().zip(&values) {
                assert!((read - value).abs() <= half_step * value.abs(), "{value}: {read}");
            }
        }

        // A step of Q8_0 is 1/127 of the block's largest value. The step itself is rounded to 11 bits, by which a
        // multiple of 127 misses by up to 127 · 2⁻¹¹ of a step more.
        for (read, block) in
            there_and_back(FileType::Q8_0, &values).chunks(32).zip(values.chunks(32))
        {
            let largest = block.iter().fold(0.0, |largest: f32, value| largest.max(value.abs()));
            let step = largest / 127.0;
            for (read, value) in read.iter().zip(block) {
                assert!((read - value).abs() <= step * (0.5 + 127.0 / 2048.0), "{value}: {read}");
            }
        }
    }

    #[test]
    fn zeros_stay_zeros_and_what_does_not_fit_is_named() {
        assert_eq!(there_and_back(FileType::Q8_0, &[0.0; 32]), [0.0; 32]);
        // The inverse of this scale is infinite in 32 bits, and the scale is 0 in 16.
        assert_eq!(there_and_back(FileType::Q8_0, &[1e-40; 32]), [0.0; 32]);

        let refused = |file_type: FileType, value: f32| {
            let mut values = [0.5; 32];
            values[7] = value;
            file_type.narrow(&values, &mut Vec::new()).err()
        };
        assert_eq!(refused(FileType::F16, 70000.0), Some(70000.0));
        assert_eq!(refused(FileType::BF16, f32::MAX), Some(f32::MAX));
        assert_eq!(refused(FileType::BF16, 70000.0), None);
        assert_eq!(refused(FileType::Q8_0, 8.4e6), Some(8.4e6));
        assert_eq!(refused(FileType::Q8_0, f32::NEG_INFINITY), Some(f32::NEG_INFINITY));
        assert_eq!(refused(FileType::F16, f32::INFINITY), None);
    }

    #[test]
    fn small_tensors_stay_exact_and_rows_without_whole_blocks_are_f16() {
        let of = |name: &str, shape: &[usize]| FileType::Q8_0.of_tensor(name, shape);
        assert_eq!(of("blk.0.attn_q.weight", &[8, 64]), FileType::Q8_0);
        assert_eq!(of("blk.0.attn_q.weight", &[64, 8]), FileType::F16);
        assert_eq!(of("blk.0.attn_q.bias", &[64]), FileType::F32);
        assert_eq!(of("blk.0.ffn_gate_inp.weight", &[4, 64]), FileType::F32);
        assert_eq!(of("blk.0.ssm_conv1d.weight", &[64, 4]), FileType::F32);
        assert_eq!(of("blk.0.shortconv.conv.weight", &[64, 3]), FileType::F32);
        assert_eq!(of("blk.0.ssm_a", &[64]), FileType::F32);
        assert_eq!(of("blk.0.ffn_up_exps.weight", &[4, 8, 64]), FileType::Q8_0);
        assert_eq!(of("blk.0.ffn_up_exps.bias", &[4, 64]), FileType::F32);
        assert_eq!(of("blk.0.attn_sinks.weight", &[64]), FileType::F32);
    }
}
