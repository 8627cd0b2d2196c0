//! Right factors of matmuls, in the formats in which they are stored.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::__m256;
use std::ops::Range;

use half::bf16;
#[cfg(target_arch = "x86_64")]
use pulp::{cast, x86::V3};

use super::{matrix::Matrix, pieces, rows_of_a_task, simd};
use crate::quant_layout::QuantLayout;

/// A right factor. It is widened to f32 where it is multiplied, so that memory moves no more than is stored.
#[derive(Clone, Copy)]
pub(crate) enum Weights<'a> {
    F32(Matrix<'a>),
    Bf16(Matrix<'a, bf16>),
    Codes(Codes<'a>),
}

impl<'a> From<Matrix<'a>> for Weights<'a> {
    fn from(matrix: Matrix<'a>) -> Self {
        Weights::F32(matrix)
    }
}

impl<'a> Weights<'a> {
    pub(crate) fn dims(&self) -> [usize; 2] {
        match self {
            Weights::F32(matrix) => matrix.dims(),
            Weights::Bf16(matrix) => matrix.dims(),
            Weights::Codes(codes) => codes.dims(),
        }
    }

    pub(crate) fn rows(self, which: Range<usize>) -> Self {
        match self {
            Weights::F32(matrix) => Weights::F32(matrix.rows(which)),
            Weights::Bf16(matrix) => Weights::Bf16(matrix.rows(which)),
            Weights::Codes(codes) => Weights::Codes(codes.rows(which)),
        }
    }

    pub(crate) fn columns(self, which: Range<usize>) -> Self {
        self.transposed().rows(which).transposed()
    }

    pub(crate) fn transposed(self) -> Self {
        match self {
            Weights::F32(matrix) => Weights::F32(matrix.transposed()),
            Weights::Bf16(matrix) => Weights::Bf16(matrix.transposed()),
            Weights::Codes(codes) => Weights::Codes(codes.transposed()),
        }
    }

    /// Tells whether the weights of an output are stored one after the other.
    pub(super) fn is_by_outputs(&self) -> bool {
        match self {
            Weights::F32(matrix) => matrix.steps[0] == 1,
            Weights::Bf16(matrix) => matrix.steps[0] == 1,
            Weights::Codes(_) => false,
        }
    }

    /// Returns the numbers in f32. They are written to `room` unless they are stored so.
    pub(super) fn widened<'b>(&self, room: &'b mut Vec<f32>) -> Matrix<'b>
    where
        'a: 'b,
    {
        match self {
            Weights::F32(matrix) => *matrix,
            Weights::Bf16(matrix) if matrix.steps[1] != 1 => {
                widen(matrix.transposed(), room).transposed()
            }
            Weights::Bf16(matrix) => widen(*matrix, room),
            Weights::Codes(codes) => codes.decoded(room),
        }
    }
}

/// Returns all numbers in f32, row by row.
pub(crate) fn decoded(weights: Weights<'_>) -> Vec<f32> {
    let [rows, columns] = weights.dims();
    let step = rows_of_a_task(columns);
    let ([all], _) = pieces(rows, [columns], step, |rows, [out]| {
        let mut room = Vec::new();
        let matrix = weights.rows(rows).widened(&mut room);
        for row in 0..matrix.rows {
            let row = &matrix.values[row * matrix.steps[0]..];
            out.put((0..columns).map(|column| row[column * matrix.steps[1]]));
        }
    });
    all
}

/// Widens a matrix by rows.
fn widen<'b>(matrix: Matrix<'_, bf16>, room: &'b mut Vec<f32>) -> Matrix<'b> {
    let [rows, columns] = matrix.dims();
    room.resize(rows * columns, 0.0);
    for (row, wide) in room.chunks_exact_mut(columns.max(1)).enumerate() {
        let row = &matrix.values[row * matrix.steps[0]..];
        match matrix.steps[1] {
            1 => simd!({
                for (wide, number) in wide.iter_mut().zip(&row[..columns]) {
                    *wide = number.wide();
                }
            }),
            step => {
                for (column, wide) in wide.iter_mut().enumerate() {
                    *wide = row[column * step].wide();
                }
            }
        }
    }
    Matrix::new(room, [rows, columns], [columns, 1])
}

/// A number in the format in which it is stored.
pub(super) trait Stored: Copy + Sync {
    fn wide(self) -> f32;

    /// Number of numbers in 32 bits.
    #[cfg(target_arch = "x86_64")]
    const IN_32_BITS: usize;

    /// Returns as many numbers as a vector of 256 bits holds, as they are stored.
    #[cfg(target_arch = "x86_64")]
    fn vector(numbers: &[Self]) -> __m256;

    /// Widens one number out of each 32 bits.
    #[cfg(target_arch = "x86_64")]
    fn part(simd: V3, vector: __m256, part: usize) -> __m256;
}

impl Stored for f32 {
    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[cfg(target_arch = "x86_64")]
    const IN_32_BITS: usize = 1;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn vector(numbers: &[f32]) -> __m256 {
        cast(*numbers.first_chunk::<8>().expect("there are enough numbers"))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn part(_: V3, vector: __m256, _: usize) -> __m256 {
        vector
    }
}

impl Stored for bf16 {
    /// The upper half of an f32.
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[cfg(target_arch = "x86_64")]
    const IN_32_BITS: usize = 2;

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn vector(numbers: &[bf16]) -> __m256 {
        let bits = numbers.first_chunk::<16>().expect("there are enough numbers");
        cast(bits.map(bf16::to_bits))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn part(simd: V3, vector: __m256, part: usize) -> __m256 {
        match part {
            0 => cast(simd.avx2._mm256_slli_epi32::<16>(cast(vector))),
            _ => {
                simd.avx._mm256_and_ps(vector, simd.avx._mm256_set1_ps(f32::from_bits(0xffff_0000)))
            }
        }
    }
}

/// A matrix `[inputs, outputs]`, or its transpose, as [`crate::QuantisedMatrix`] describes it.
#[derive(Clone, Copy)]
pub(crate) struct Codes<'a> {
    /// Codes of neighbouring inputs in each, `[inputs / codes of a word, outputs]`.
    words: &'a [i32],
    scales: Scales<'a>,
    layout: QuantLayout,
    /// Outputs of the entire matrix.
    width: usize,
    inputs: (usize, usize),
    outputs: (usize, usize),
    transposed: bool,
}

/// Scales of each group and output.
#[derive(Clone, Copy)]
pub(crate) enum Scales<'a> {
    F32(&'a [f32]),
    Bf16(&'a [bf16]),
}

impl<'a> Codes<'a> {
    /// # Panics
    /// If there are fewer scales than groups and outputs.
    pub(crate) fn new(
        words: &'a [i32],
        scales: Scales<'a>,
        layout: QuantLayout,
        width: usize,
    ) -> Self {
        let inputs = words.len() / width.max(1) * layout.per_word();
        let known = match scales {
            Scales::F32(scales) => scales.len(),
            Scales::Bf16(scales) => scales.len(),
        };
        assert!(inputs.div_ceil(layout.group_size) * width <= known, "every group has its scales");
        Codes {
            words,
            scales,
            layout,
            width,
            inputs: (0, inputs),
            outputs: (0, width),
            transposed: false,
        }
    }

    pub(super) fn dims(&self) -> [usize; 2] {
        let [inputs, outputs] = [self.inputs, self.outputs].map(|(start, end)| end - start);
        if self.transposed { [outputs, inputs] } else { [inputs, outputs] }
    }

    fn transposed(self) -> Self {
        Codes { transposed: !self.transposed, ..self }
    }

    fn rows(mut self, which: Range<usize>) -> Self {
        assert!(which.start <= which.end && which.end <= self.dims()[0], "a matrix has these rows");
        let side = if self.transposed { &mut self.outputs } else { &mut self.inputs };
        *side = (side.0 + which.start, side.0 + which.end);
        self
    }

    /// Tells whether sums over inputs can be computed word by word.
    pub(super) fn is_by_words(&self) -> bool {
        let is_whole = |input: usize| input.is_multiple_of(self.layout.per_word());
        !self.transposed && is_whole(self.inputs.0) && is_whole(self.inputs.1)
    }

    /// Returns the number of inputs.
    pub(super) fn inputs(&self) -> usize {
        self.inputs.1 - self.inputs.0
    }

    /// Returns the number of words from one row of words to the next.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    pub(super) fn layout(&self) -> QuantLayout {
        self.layout
    }

    /// Returns the words of an input and of those in the same words.
    #[inline(always)]
    pub(super) fn words_of(&self, input: usize) -> &'a [i32] {
        let row = (self.inputs.0 + input) / self.layout.per_word();
        &self.words[row * self.width + self.outputs.0..row * self.width + self.outputs.1]
    }

    /// Returns the number of the group that an input is in.
    #[inline(always)]
    pub(super) fn group(&self, input: usize) -> usize {
        (self.inputs.0 + input) / self.layout.group_size
    }

    /// Writes the scales of a group.
    pub(super) fn scales(&self, group: usize, scales: &mut [f32]) {
        let these = group * self.width + self.outputs.0..group * self.width + self.outputs.1;
        match self.scales {
            Scales::F32(all) => {
                for (scale, stored) in scales.iter_mut().zip(&all[these]) {
                    *scale = *stored;
                }
            }
            Scales::Bf16(all) => {
                for (scale, stored) in scales.iter_mut().zip(&all[these]) {
                    *scale = stored.wide();
                }
            }
        }
    }

    fn decoded<'b>(&self, room: &'b mut Vec<f32>) -> Matrix<'b> {
        let [inputs, outputs] = [self.inputs, self.outputs].map(|(start, end)| end - start);
        room.resize(inputs * outputs, 0.0);
        let mut scales = vec![0.0; outputs];
        let mut group = None;

        for (input, numbers) in room.chunks_exact_mut(outputs.max(1)).enumerate() {
            if group != Some(self.group(input)) {
                group = Some(self.group(input));
                self.scales(self.group(input), &mut scales);
            }
            let words = self.words_of(input);
            let nth = (self.inputs.0 + input) % self.layout.per_word();
            match self.layout.bits {
                4 => simd!({
                    let code = Code::<4>::new(nth);
                    for ((number, word), scale) in numbers.iter_mut().zip(words).zip(&scales) {
                        *number = code.decode(*word, *scale);
                    }
                }),
                _ => simd!({
                    let code = Code::<8>::new(nth);
                    for ((number, word), scale) in numbers.iter_mut().zip(words).zip(&scales) {
                        *number = code.decode(*word, *scale);
                    }
                }),
            }
        }

        let decoded = Matrix::new(room, [inputs, outputs], [outputs, 1]);
        if self.transposed { decoded.transposed() } else { decoded }
    }
}

/// How a code of `BITS` bits becomes a number.
///
/// The code is put into the upper bits of a fraction, behind the exponent of 2⁷ or 2⁸: that is the number 2⁷ or 2⁸
/// plus the code, without a conversion. What was added, there and in the code, is taken off when the number is
/// multiplied by its scale, which is exact, because a scale has 8 bits.
pub(super) struct Code<const BITS: usize> {
    /// Bits by which a word is moved to the left or to the right.
    pub(super) left: u32,
    pub(super) right: u32,
    /// Bits of the fraction that are the code.
    pub(super) mask: u32,
    pub(super) exponent: u32,
    pub(super) added: f32,
}

impl<const BITS: usize> Code<BITS> {
    /// Describes the code number `nth` of a word.
    #[inline(always)]
    pub(super) const fn new(nth: usize) -> Self {
        let (power, to): (u32, u32) = if BITS == 4 { (128, 16) } else { (256, 15) };
        let at = (nth * BITS) as u32;
        let half = 1 << (BITS - 1);
        Code {
            left: to.saturating_sub(at),
            right: at.saturating_sub(to),
            mask: ((1 << BITS) - 1) << to,
            exponent: (power as f32).to_bits(),
            added: (power + half) as f32,
        }
    }

    #[inline(always)]
    fn decode(&self, word: i32, scale: f32) -> f32 {
        let moved = (word as u32) << self.left >> self.right;
        let number = f32::from_bits((moved & self.mask) | self.exponent);
        number.mul_add(scale, -self.added * scale)
    }
}
