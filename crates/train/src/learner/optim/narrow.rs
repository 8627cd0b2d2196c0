//! Moments of an optimizer in 8 bits.

use burn::tensor::{DType, Device, Int, Tensor};

/// The number of values that share a scale.
const RUN: usize = 64;

/// The number of codes in an integer.
const CODES_PER_WORD: usize = 4;

/// An optimizer's numbers in 8 bits each, with a scale for every 64.
///
/// A number is a code from -127 to 127 times the scale, which is a 127th of the largest number of its run.
/// For squares the roots are coded, from 0 to 255, because squares have twice as many orders of magnitude.
///
/// A moment changes by a thousandth in a step, which 8 bits can't resolve: rounded to the nearest code, it
/// would stay where it is. So codes are rounded up or down by turns, in such proportions that their mean over
/// the turns is the number, or the root. Squares of such roots are too large in the mean, most of all with
/// small codes. A root that is not 0 never gets the code 0: a step is divided by it, and a root that is too
/// small would make the step too large.
#[derive(Clone, Debug)]
pub(super) struct Narrow {
    /// Codes, `[words]`, four in each word. The four come from the four quarters of the numbers, the first in
    /// the lowest bits.
    pub(super) words: Tensor<1, Int>,
    /// The scales, `[4 · words / 64]`.
    pub(super) scales: Tensor<1>,
    /// The number of values; the rest of the words is zeros.
    count: usize,
    pub(super) kind: Kind,
}

/// Sign and range of the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any numbers.
    Signed,
    /// Squares, whose roots are coded.
    Squares,
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::Signed, Kind::Squares];

    /// Returns the largest code, and the offset that makes a code non-negative.
    fn codes(self) -> (f64, f64) {
        match self {
            Kind::Signed => (127.0, 128.0),
            Kind::Squares => (255.0, 0.0),
        }
    }
}

impl Narrow {
    /// Codes `values`, `[count]`, the `turn`-th time.
    pub(super) fn new(values: Tensor<1>, kind: Kind, turn: u64) -> Self {
        let [count] = values.dims();
        let device = values.device();
        let runs = Narrow::words(count) * CODES_PER_WORD / RUN;
        let missing = runs * RUN - count;
        let values = if missing == 0 {
            values
        } else {
            Tensor::cat(vec![values, Tensor::zeros([missing], &device)], 0)
        };

        // Every run of 64 is a row, so that its largest number is a maximum along the row.
        let values = values.reshape([runs, RUN]);
        let values = if kind == Kind::Squares { values.sqrt() } else { values };

        let (max_code, offset) = kind.codes();
        let scales = values.clone().abs().max_dim(1).div_scalar(max_code);
        let codes = values.clone() / scales.clone().clamp_min(f32::MIN_POSITIVE);
        let codes = (codes + rounding_offsets(runs, turn, &device)).floor();
        // The sign of a root is 1 unless it is 0, so no root but 0 gets the code 0.
        let codes = match kind {
            Kind::Signed => codes.clamp(-max_code, max_code),
            Kind::Squares => codes.max_pair(values.sign()).clamp_max(max_code),
        };

        // Four codes are packed into one word by shifts, each from its own quarter of the numbers.
        let codes = codes.add_scalar(offset).int().cast(DType::I32);
        let codes = codes.reshape([CODES_PER_WORD, runs * RUN / CODES_PER_WORD]);
        let quarter = |index: usize| codes.clone().slice_dim(0, index..index + 1);
        let words = (1..CODES_PER_WORD).fold(quarter(0), |words, index| {
            words.bitwise_or(quarter(index).bitwise_left_shift_scalar(8 * index as i32))
        });

        let words = words.reshape([runs * RUN / CODES_PER_WORD]);
        Narrow { words, scales: scales.reshape([runs]), count, kind }
    }

    /// Takes the content of a file: `[words]` and their scales, for `count` numbers.
    pub(super) fn from_parts(
        words: Tensor<1, Int>,
        scales: Tensor<1>,
        kind: Kind,
        count: usize,
    ) -> Self {
        Narrow { words, scales, count, kind }
    }

    /// Returns the number of integers that `count` numbers take.
    pub(super) fn words(count: usize) -> usize {
        count.div_ceil(RUN * CODES_PER_WORD) * RUN
    }

    /// Returns the number of scales that `count` numbers have.
    pub(super) fn runs(count: usize) -> usize {
        Narrow::words(count) * CODES_PER_WORD / RUN
    }

    /// Decodes the numbers, `[count]`, f32.
    pub(super) fn values(self) -> Tensor<1> {
        let Narrow { words, scales, count, kind } = self;
        let (_, offset) = kind.codes();

        let parts = (0..CODES_PER_WORD).map(|index| {
            let code = words.clone().bitwise_right_shift_scalar(8 * index as i32);
            code.bitwise_and_scalar(255).float()
        });
        let codes = Tensor::cat(parts.collect(), 0).sub_scalar(offset);

        let [runs] = scales.dims();
        let values = codes.reshape([runs, RUN]) * scales.reshape([runs, 1]);
        let values = if kind == Kind::Squares { values.square() } else { values };
        values.reshape([runs * RUN]).slice_dim(0, 0..count)
    }
}

/// Computes the offsets that are added before rounding down, in [0, 1), `[runs, 64]`. Over the turns the
/// offsets of a position fill the interval evenly, while those of its neighbours do so in another order. They
/// are the fractional parts of multiples of irrational numbers (Weyl 1916): not random, and the same in every
/// run.
fn rounding_offsets(runs: usize, turn: u64, device: &Device) -> Tensor<2> {
    // The inverse of the plastic number, its square, and the golden section.
    const ALONG: f64 = 0.754_877_666_246_693;
    const ACROSS: f64 = 0.569_840_290_998_053;
    const TURN: f64 = 0.618_033_988_749_895;

    let along: Vec<f32> = (0..RUN).map(|at| (at as f64 * ALONG).fract() as f32).collect();
    let along = Tensor::<1>::from_floats(along.as_slice(), device).reshape([1, RUN]);
    // The remainder keeps the products small, so that f32 has digits left after the decimal point.
    let across = Tensor::<1, Int>::arange(0..runs as i64, device).remainder_scalar(1024).float();
    let across = across.mul_scalar(ACROSS).reshape([runs, 1]);

    let sum = across + along.add_scalar((turn as f64 * TURN).fract());
    let floor = sum.clone().floor();
    // The offset is never 0: the largest code of a run is 127 or 255 except for its last digit, and must not
    // lose one.
    const MIN_OFFSET: f64 = 1e-4;
    (sum - floor).mul_scalar(1.0 - MIN_OFFSET).add_scalar(MIN_OFFSET)
}
