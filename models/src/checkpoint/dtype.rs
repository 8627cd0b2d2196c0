//! The number formats of stored weights, and conversions to and from f32.

use half::{bf16, f16};
use safetensors::Dtype;

/// Number formats of stored weights; in memory weights are f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WeightDtype {
    /// Four bytes: the trained weights, bit for bit.
    #[default]
    F32,
    /// Two bytes with the range of f32.
    BF16,
    /// Two bytes, more precise than bf16; at most 65504.
    F16,
}

impl WeightDtype {
    /// Returns the format's name in a `config.json`, such as `bfloat16`.
    pub fn name(self) -> &'static str {
        match self {
            WeightDtype::F32 => "float32",
            WeightDtype::BF16 => "bfloat16",
            WeightDtype::F16 => "float16",
        }
    }

    /// Returns the number of bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            WeightDtype::F32 => 4,
            WeightDtype::BF16 | WeightDtype::F16 => 2,
        }
    }

    /// Returns the format of a file's type. `None` for types that hold no weights: integers, and floats of 8 bits,
    /// which are useless without their scales.
    pub(super) fn of(dtype: Dtype) -> Option<Self> {
        match dtype {
            Dtype::F32 => Some(WeightDtype::F32),
            Dtype::BF16 => Some(WeightDtype::BF16),
            Dtype::F16 => Some(WeightDtype::F16),
            _ => None,
        }
    }

    /// Returns the format of the type with that name in a file, such as `BF16`.
    pub(super) fn named(name: &str) -> Option<Self> {
        let all = [WeightDtype::F32, WeightDtype::BF16, WeightDtype::F16];
        all.into_iter().find(|dtype| dtype.in_file().to_string() == name)
    }

    pub(super) fn in_file(self) -> Dtype {
        match self {
            WeightDtype::F32 => Dtype::F32,
            WeightDtype::BF16 => Dtype::BF16,
            WeightDtype::F16 => Dtype::F16,
        }
    }

    /// Appends the values in `bytes`, as f32, without loss.
    pub(super) fn widen(self, bytes: &[u8], values: &mut Vec<f32>) {
        let halves = bytes.as_chunks::<2>().0.iter();
        match self {
            WeightDtype::F32 => {
                values
                    .extend(bytes.as_chunks::<4>().0.iter().map(|four| f32::from_le_bytes(*four)));
            }
            WeightDtype::BF16 => {
                values.extend(halves.map(|two| bf16::from_le_bytes(*two).to_f32()))
            }
            WeightDtype::F16 => values.extend(halves.map(|two| f16::from_le_bytes(*two).to_f32())),
        }
    }

    /// Appends the bytes of `values`, each rounded to the nearest value of the format, ties to even.
    pub(super) fn narrow(self, values: &[f32], bytes: &mut Vec<u8>) {
        match self {
            WeightDtype::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
            WeightDtype::BF16 => {
                bytes.extend(values.iter().flat_map(|&value| bf16::from_f32(value).to_le_bytes()));
            }
            WeightDtype::F16 => {
                bytes.extend(values.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()));
            }
        }
    }

    /// Tells whether a finite value would be rounded to infinity.
    pub(super) fn overflows(self, value: f32) -> bool {
        let narrow = match self {
            WeightDtype::F32 => return false,
            WeightDtype::BF16 => bf16::from_f32(value).to_f32(),
            WeightDtype::F16 => f16::from_f32(value).to_f32(),
        };
        value.is_finite() && !narrow.is_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_the_nearest_and_ties_go_to_even() {
        let narrowed = |dtype: WeightDtype, value: f32| {
            let mut bytes = Vec::new();
            let mut values = Vec::new();
            dtype.narrow(&[value], &mut bytes);
            dtype.widen(&bytes, &mut values);
            values[0]
        };

        // bf16 has eight bits of significand: 257 is halfway between 256 and 258, 259 between 258 and 260.
        for (value, nearest) in [(257.0, 256.0), (257.01, 258.0), (259.0, 260.0), (-1.5, -1.5)] {
            assert_eq!(narrowed(WeightDtype::BF16, value), nearest, "{value}");
        }

        // f16 has eleven: 2049 is halfway between 2048 and 2050.
        for (value, nearest) in [(2049.0, 2048.0), (2051.0, 2052.0), (65504.0, 65504.0)] {
            assert_eq!(narrowed(WeightDtype::F16, value), nearest, "{value}");
        }

        assert!(WeightDtype::F16.overflows(70000.0) && !WeightDtype::F16.overflows(f32::INFINITY));
        assert!(WeightDtype::BF16.overflows(f32::MAX) && !WeightDtype::BF16.overflows(70000.0));
        assert!(!WeightDtype::F32.overflows(f32::MAX));
    }
}
