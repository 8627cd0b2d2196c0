use burn::tensor::{DType, Device, Int, Tensor};

/// Numbers that share a scale.
const RUN: usize = 64;

/// Codes in an integer.
const IN_WORD: usize = 4;

/// Numbers of an optimizer in 8 bits each, and a scale for every 64.
///
/// A number is a code from -127 to 127 times the scale, which is a 127th of the largest of its run; of squares
/// it is their roots that are coded, from 0 to 255, because squares have twice as many orders of magnitude.
///
/// A moment changes by a thousandth in a step, which is less than what 8 bits can tell apart: rounded to the
/// nearest code it would stay where it is. So codes are rounded up or down by turns, in such shares that their
/// mean over the turns is the number, or the root. The squares of such roots are too large in the mean, those of small
/// codes most. A root that is not 0 has no code of 0: it divides a step, and one that is too small would make the
/// step too large.
#[derive(Clone, Debug)]
pub(super) struct Narrow {
    /// `[words]`: four codes each, those of neighbouring quarters of the numbers, the first in the lowest bits.
    pub(super) words: Tensor<1, Int>,
    /// `[4 · words / 64]`.
    pub(super) scales: Tensor<1>,
    /// How many numbers there are; the rest of the words is zeros.
    count: usize,
    pub(super) kind: Kind,
}

/// The kind of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Any numbers.
    Signed,
    /// Squares, whose roots are coded.
    Squares,
}

impl Kind {
    pub(super) const ALL: [Kind; 2] = [Kind::Signed, Kind::Squares];

    /// The largest code, and what is added to a code to have no sign.
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
        let runs = Narrow::words(count) * IN_WORD / RUN;
        let missing = runs * RUN - count;
        let values = match missing {
            0 => values,
            _ => Tensor::cat(vec![values, Tensor::zeros([missing], &device)], 0),
        };
        let values = values.reshape([runs, RUN]);
        let values = if kind == Kind::Squares { values.sqrt() } else { values };
        let (most, offset) = kind.codes();
        let scales = values.clone().abs().max_dim(1).div_scalar(most);
        let codes = values.clone() / scales.clone().clamp_min(f32::MIN_POSITIVE);
        let codes = (codes + up(runs, turn, &device)).floor();
        let codes = match kind {
            Kind::Signed => codes.clamp(-most, most),
            Kind::Squares => codes.max_pair(values.sign()).clamp_max(most),
        };
        let codes = codes.add_scalar(offset).int().cast(DType::I32);
        let codes = codes.reshape([IN_WORD, runs * RUN / IN_WORD]);
        let quarter = |index: usize| codes.clone().slice_dim(0, index..index + 1);
        let words = (1..IN_WORD).fold(quarter(0), |words, index| {
            words.bitwise_or(quarter(index).bitwise_left_shift_scalar(8 * index as i32))
        });
        let words = words.reshape([runs * RUN / IN_WORD]);
        Narrow { words, scales: scales.reshape([runs]), count, kind }
    }

    /// From what a file holds: `[words]` and their scales, for so many numbers.
    pub(super) fn from_parts(
        words: Tensor<1, Int>,
        scales: Tensor<1>,
        kind: Kind,
        count: usize,
    ) -> Self {
        Narrow { words, scales, count, kind }
    }

    /// Integers that so many numbers take.
    pub(super) fn words(count: usize) -> usize {
        count.div_ceil(RUN * IN_WORD) * RUN
    }

    /// Scales that so many numbers have.
    pub(super) fn runs(count: usize) -> usize {
        Narrow::words(count) * IN_WORD / RUN
    }

    /// The numbers, `[count]`, f32.
    pub(super) fn values(self) -> Tensor<1> {
        let Narrow { words, scales, count, kind } = self;
        let (_, offset) = kind.codes();
        let parts = (0..IN_WORD).map(|index| {
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

/// The shares that are added before rounding down, in [0, 1), `[runs, 64]`. Over the turns the numbers of a place fill the
/// interval evenly, those of its neighbours in another order: multiples of irrational numbers, without what is
/// before the point (Weyl 1916). It is no randomness, and the same in every run.
fn up(runs: usize, turn: u64, device: &Device) -> Tensor<2> {
    // The powers of the inverse of the plastic number, and the golden section.
    const ALONG: f64 = 0.754_877_666_246_693;
    const ACROSS: f64 = 0.569_840_290_998_053;
    const TURN: f64 = 0.618_033_988_749_895;
    let along: Vec<f32> = (0..RUN).map(|at| (at as f64 * ALONG).fract() as f32).collect();
    let along = Tensor::<1>::from_floats(along.as_slice(), device).reshape([1, RUN]);
    // Few enough that f32 has something behind the point.
    let across = Tensor::<1, Int>::arange(0..runs as i64, device).remainder_scalar(1024).float();
    let across = across.mul_scalar(ACROSS).reshape([runs, 1]);
    let sum = across + along.add_scalar((turn as f64 * TURN).fract());
    let whole = sum.clone().floor();
    // Never 0, so that the largest of a run, which is 127 or 255 but for its last digit, is not one less.
    const LEAST: f64 = 1e-4;
    (sum - whole).mul_scalar(1.0 - LEAST).add_scalar(LEAST)
}
