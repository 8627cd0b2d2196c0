//! Turns weights in blocks into f32.
//!
//! The formulas are those of ggml (`ggml-quants.c`) in the order of operations of the package `gguf`
//! (`gguf/quants.py`, 0.19), so that every bit is the same.

use half::{bf16, f16};

/// How the weights of a tensor are stored.
///
/// A block of 32 values has a scale in 16 bits, and a minimum too if the type ends in 1. A block of 256 values has
/// scales of 6 or 8 bits for runs of 32 or 16 values, and a scale for those scales. MXFP4, in which the experts of
/// gpt-oss are published, scales 32 numbers of 4 bits by a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "their names are the format's")]
#[allow(non_camel_case_types, reason = "their names are the format's")]
pub enum BlockType {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
    MXFP4,
}

/// Numbers of MXFP4 by their codes, doubled, so that all are whole: 1 bit of sign, 2 of exponent and 1 of significand.
const E2M1: [f32; 16] =
    [0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 0.0, -1.0, -2.0, -3.0, -4.0, -6.0, -8.0, -12.0];

impl BlockType {
    /// All types that are read.
    pub const ALL: [BlockType; 12] = [
        BlockType::F32,
        BlockType::F16,
        BlockType::BF16,
        BlockType::Q4_0,
        BlockType::Q4_1,
        BlockType::Q5_0,
        BlockType::Q5_1,
        BlockType::Q8_0,
        BlockType::Q4_K,
        BlockType::Q5_K,
        BlockType::Q6_K,
        BlockType::MXFP4,
    ];

    /// Finds the type of that number in the format. `None` if the type is not read.
    pub(crate) fn of(number: u32) -> Option<Self> {
        BlockType::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Returns the type's number in the format.
    pub fn number(self) -> u32 {
        match self {
            BlockType::F32 => 0,
            BlockType::F16 => 1,
            BlockType::Q4_0 => 2,
            BlockType::Q4_1 => 3,
            BlockType::Q5_0 => 6,
            BlockType::Q5_1 => 7,
            BlockType::Q8_0 => 8,
            BlockType::Q4_K => 12,
            BlockType::Q5_K => 13,
            BlockType::Q6_K => 14,
            BlockType::BF16 => 30,
            BlockType::MXFP4 => 39,
        }
    }

    /// Returns the type's name in the format, such as `Q4_K`.
    pub fn name(self) -> &'static str {
        match self {
            BlockType::F32 => "F32",
            BlockType::F16 => "F16",
            BlockType::BF16 => "BF16",
            BlockType::Q4_0 => "Q4_0",
            BlockType::Q4_1 => "Q4_1",
            BlockType::Q5_0 => "Q5_0",
            BlockType::Q5_1 => "Q5_1",
            BlockType::Q8_0 => "Q8_0",
            BlockType::Q4_K => "Q4_K",
            BlockType::Q5_K => "Q5_K",
            BlockType::Q6_K => "Q6_K",
            BlockType::MXFP4 => "MXFP4",
        }
    }

    /// Returns the number of values in a block.
    pub fn values(self) -> usize {
        match self {
            BlockType::F32 | BlockType::F16 | BlockType::BF16 => 1,
            BlockType::Q4_0
            | BlockType::Q4_1
            | BlockType::Q5_0
            | BlockType::Q5_1
            | BlockType::Q8_0
            | BlockType::MXFP4 => 32,
            BlockType::Q4_K | BlockType::Q5_K | BlockType::Q6_K => 256,
        }
    }

    /// Returns the number of bytes of a block.
    pub fn bytes(self) -> usize {
        match self {
            BlockType::F32 => 4,
            BlockType::F16 | BlockType::BF16 => 2,
            BlockType::MXFP4 => 17,
            BlockType::Q4_0 => 18,
            BlockType::Q4_1 => 20,
            BlockType::Q5_0 => 22,
            BlockType::Q5_1 => 24,
            BlockType::Q8_0 => 34,
            BlockType::Q4_K => 144,
            BlockType::Q5_K => 176,
            BlockType::Q6_K => 210,
        }
    }

    /// Appends the values of whole blocks to `values`, as f32.
    pub fn dequantise(self, blocks: &[u8], values: &mut Vec<f32>) {
        let halves = || blocks.as_chunks::<2>().0.iter();

        match self {
            BlockType::F32 => {
                let fours = blocks.as_chunks::<4>().0.iter();
                values.extend(fours.map(|four| f32::from_le_bytes(*four)));
            }
            BlockType::F16 => values.extend(halves().map(|two| f16::from_le_bytes(*two).to_f32())),
            BlockType::BF16 => {
                values.extend(halves().map(|two| bf16::from_le_bytes(*two).to_f32()))
            }
            BlockType::Q4_0 => each::<18>(blocks, |block| {
                let scale = half(block, 0);
                values.extend(fours(&block[2..]).map(|code| scale * (code as f32 - 8.0)));
            }),

            BlockType::Q4_1 => each::<20>(blocks, |block| {
                let scale = half(block, 0);
                let min = half(block, 2);
                values.extend(fours(&block[4..]).map(|code| scale * code as f32 + min));
            }),
            BlockType::Q5_0 => each::<22>(blocks, |block| {
                let scale = half(block, 0);
                values.extend(fives(&block[2..]).map(|code| scale * (code as f32 - 16.0)));
            }),
            BlockType::Q5_1 => each::<24>(blocks, |block| {
                let scale = half(block, 0);
                let min = half(block, 2);
                values.extend(fives(&block[4..]).map(|code| scale * code as f32 + min));
            }),

            BlockType::Q8_0 => each::<34>(blocks, |block| {
                let scale = half(block, 0);
                values.extend(block[2..].iter().map(|&code| f32::from(code as i8) * scale));
            }),

            BlockType::Q4_K => each::<144>(blocks, |block| {
                let codes = &block[16..];
                runs(block, |run, scale, min| {
                    let codes = codes[run / 2 * 32..][..32].iter();
                    let codes = codes.map(|&two| nibble(two, run % 2));
                    values.extend(codes.map(|code| scale * f32::from(code) - min));
                });
            }),

            BlockType::Q5_K => each::<176>(blocks, |block| {
                let highest = &block[16..48];
                let codes = &block[48..];
                runs(block, |run, scale, min| {
                    let codes = codes[run / 2 * 32..][..32].iter().zip(highest);
                    let codes =
                        codes.map(|(&two, &bits)| nibble(two, run % 2) | (bits >> run & 1) << 4);
                    values.extend(codes.map(|code| scale * f32::from(code) - min));
                });
            }),

            BlockType::Q6_K => each::<210>(blocks, |block| {
                let low = &block[..128];
                let high = &block[128..192];
                let scales = &block[192..208];
                let scale = half(block, 208);
                // The block has two halves of 128 values. Each half has four runs of 32, and each run has a scale for
                // either half of it.
                for run in 0..8 {
                    let part = run / 4;
                    let of_part = run % 4;
                    // A byte of `low` has the lower four bits of two values, a byte of `high` the upper two of four.
                    let low = &low[part * 64 + of_part % 2 * 32..][..32];
                    let high = &high[part * 32..][..32];
                    for (at, (&two, &four)) in low.iter().zip(high).enumerate() {
                        let code = nibble(two, of_part / 2) | (four >> (2 * of_part) & 3) << 4;
                        let scale = scale * f32::from(scales[2 * run + at / 16] as i8);
                        values.push(scale * (f32::from(code) - 32.0));
                    }
                }
            }),

            BlockType::MXFP4 => each::<17>(blocks, |block| {
                let scale = half_power(block[0]);
                values.extend(fours(&block[1..]).map(|code| scale * E2M1[code as usize]));
            }),
        }
    }
}

fn each<const N: usize>(blocks: &[u8], mut with: impl FnMut(&[u8; N])) {
    blocks.as_chunks::<N>().0.iter().for_each(&mut with);
}

fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Returns half of 2^(exponent − 127), the scale of doubled numbers. Every exponent has a scale, even 255, which the
/// format's standard reserves for NaN: ggml takes it as 2¹²⁸, whose half an f32 still holds.
fn half_power(exponent: u8) -> f32 {
    let bits = match exponent {
        // The smallest two have no exponent of their own in an f32.
        0 | 1 => 0x0020_0000_u32 << exponent,
        _ => u32::from(exponent - 1) << 23,
    };
    f32::from_bits(bits)
}

fn nibble(two: u8, which: usize) -> u8 {
    if which == 0 { two & 15 } else { two >> 4 }
}

/// Splits 16 bytes into 32 codes: first the low halves of the bytes, then the high halves.
fn fours(codes: &[u8]) -> impl Iterator<Item = i32> {
    let low = codes.iter().map(|&two| i32::from(two & 15));
    low.chain(codes.iter().map(|&two| i32::from(two >> 4)))
}

/// Adds a fifth bit to the codes of [`fours`]. The fifth bits are stored before the codes.
fn fives(block: &[u8]) -> impl Iterator<Item = i32> {
    let highest = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
    let code = move |(at, four): (usize, i32)| four | ((highest >> at & 1) as i32) << 4;
    fours(&block[4..]).enumerate().map(code)
}

/// Finds the scale and the minimum of each of the eight runs of a block. The block begins with a scale for the scales
/// and a scale for the minima, followed by 12 bytes with eight pairs of six bits.
fn runs(block: &[u8], mut with: impl FnMut(usize, f32, f32)) {
    let of_scales = half(block, 0);
    let of_mins = half(block, 2);
    let packed = &block[4..16];

    for run in 0..8 {
        let (scale, min) = match run {
            // The first four pairs have their own bytes, whose two upper bits complete the other four pairs.
            0..4 => (packed[run] & 63, packed[run + 4] & 63),
            _ => (
                packed[run + 4] & 15 | packed[run - 4] >> 6 << 4,
                packed[run + 4] >> 4 | packed[run] >> 6 << 4,
            ),
        };
        with(run, of_scales * f32::from(scale), of_mins * f32::from(min));
    }
}
