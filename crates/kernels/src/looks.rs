//! Queries, keys and values out of one projection, with rotary positions, and the way back.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::{
    Compute, Norm, cpu,
    cpu::looks::{Angles, HeadNorms},
    flex::{Numbers, ints, numbers, tensor},
};

/// The numbers of heads in an attention, and the width of a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// The number of heads of queries: a multiple of `key`.
    pub query: usize,
    /// The number of heads of keys, and also of values.
    pub key: usize,
    /// The width of a head.
    pub width: usize,
}

/// The angles in radians by which the pairs of a head's numbers turn from one position to the next.
///
/// With n frequencies, number i makes a pair with number n + i. Numbers from 2n on are not turned.
#[derive(Clone, Debug)]
pub struct Frequencies {
    numbers: Arc<[f32]>,
    /// The factor of the turned numbers.
    scale: f32,
    /// The frequencies on the device that asked first, so that it need not be told at every token.
    on_device: Arc<OnceLock<Tensor<1>>>,
}

impl Frequencies {
    /// Makes frequencies of these numbers.
    pub fn new(numbers: Vec<f32>) -> Self {
        Frequencies { numbers: numbers.into(), scale: 1.0, on_device: Arc::default() }
    }

    /// Makes the numbers of each pair `scale` times as large beside turning them.
    #[must_use]
    pub fn scaled(self, scale: f32) -> Self {
        Frequencies { scale, ..self }
    }

    fn on(&self, device: &Device) -> Tensor<1> {
        let there = || Tensor::from_floats(&*self.numbers, device);
        let first = self.on_device.get_or_init(there);
        if first.device() == *device { first.clone() } else { there() }
    }
}

/// The angles of rotary position embedding for the places of a batch.
#[derive(Clone, Debug)]
pub struct Rotary(Form);

#[derive(Clone, Debug)]
enum Form {
    /// A row for each distinct position, `[positions, pairs]`, and the row of each place.
    Table { cos: Arc<[f32]>, sin: Arc<[f32]>, pairs: usize, rows: Arc<[u32]>, places: Range<usize> },
    /// Cosines and sines, `[places, 1, 2 · pairs]` each.
    Tensors(Box<[Tensor<3>; 2]>),
    /// Cosines beside sines, `[places, pairs, 2]`, on a GPU.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "they are made on GPUs alone"))]
    Pairs(Box<Tensor<3>>),
}

impl Rotary {
    /// Computes the angles at `positions`, `[rows, tokens]`.
    pub fn new(positions: &Tensor<2, Int>, frequencies: &Frequencies) -> Self {
        #[cfg(feature = "gpu")]
        if crate::cube::pages::is_gpu(&positions.device())
            && let Some(pairs) = crate::cube::angles::angles(
                positions,
                &frequencies.on(&positions.device()),
                frequencies.scale,
            )
        {
            return Rotary(Form::Pairs(Box::new(pairs)));
        }
        let Some(positions) = ints(positions) else { return Self::plain(positions, frequencies) };
        let (scale, frequencies) = (frequencies.scale, &frequencies.numbers);
        let mut all = positions.clone();
        all.sort_unstable();
        all.dedup();
        let angle =
            |at: usize| (all[at / frequencies.len()] as f32) * frequencies[at % frequencies.len()];
        let count = all.len() * frequencies.len();
        let row = |position| all.binary_search(position).unwrap_or_default() as u32;
        Rotary(Form::Table {
            cos: (0..count).map(|at| angle(at).cos() * scale).collect(),
            sin: (0..count).map(|at| angle(at).sin() * scale).collect(),
            pairs: frequencies.len(),
            rows: positions.iter().map(row).collect(),
            places: 0..positions.len(),
        })
    }

    pub(crate) fn plain(positions: &Tensor<2, Int>, frequencies: &Frequencies) -> Self {
        let [rows, tokens] = positions.dims();
        let (places, width) = (rows * tokens, 2 * frequencies.numbers.len());
        // Angles are f32 products, as in transformers; the frequencies are rounded only once.
        let (scale, frequencies) = (frequencies.scale, frequencies.on(&positions.device()));
        let positions = positions.clone().float().reshape([places, 1]);
        let angles = positions * frequencies.unsqueeze();
        let angles = Tensor::cat(vec![angles.clone(), angles], 1).reshape([places, 1, width]);
        let scaled = |x: Tensor<3>| if scale == 1.0 { x } else { x.mul_scalar(scale) };
        Rotary(Form::Tensors(Box::new([angles.clone().cos(), angles.sin()].map(scaled))))
    }

    /// Returns the angles of some places.
    pub fn of(&self, part: Range<usize>) -> Rotary {
        Rotary(match &self.0 {
            Form::Table { cos, sin, pairs, rows, places } => Form::Table {
                cos: cos.clone(),
                sin: sin.clone(),
                pairs: *pairs,
                rows: rows.clone(),
                places: places.start + part.start..places.start + part.end,
            },
            Form::Tensors(both) => {
                let part = |x: &Tensor<3>| x.clone().slice_dim(0, part.clone());
                Form::Tensors(Box::new(both.each_ref().map(part)))
            }
            Form::Pairs(pairs) => Form::Pairs(Box::new(pairs.as_ref().clone().slice_dim(0, part))),
        })
    }

    fn angles(&self) -> Option<Angles<'_>> {
        match &self.0 {
            Form::Table { cos, sin, pairs, rows, places } => {
                Some(Angles { cos, sin, pairs: *pairs, rows: &rows[places.clone()] })
            }
            Form::Tensors(_) | Form::Pairs(_) => None,
        }
    }

    #[cfg(feature = "gpu")]
    pub(crate) fn pairs(&self) -> Option<&Tensor<3>> {
        if let Form::Pairs(pairs) = &self.0 { Some(pairs) } else { None }
    }

    /// Returns cosines and sines, `[places, 1, 2 · pairs]`, on `device`. From a table they are made each time,
    /// because on a CPU only tensors under autodiff ask for them.
    fn tensors(&self, device: &Device) -> [Tensor<3>; 2] {
        match &self.0 {
            Form::Tensors(both) => (**both).clone(),
            Form::Pairs(pairs) => [0, 1].map(|which| {
                let [places, count, _] = pairs.dims();
                let once = pairs.clone().narrow(2, which, 1).reshape([places, 1, count]);
                Tensor::cat(vec![once.clone(), once], 2)
            }),
            Form::Table { cos, sin, pairs, rows, places } => [cos, sin].map(|table| {
                let rows = &rows[places.clone()];
                let row = |&row: &u32| &table[row as usize * pairs..(row as usize + 1) * pairs];
                let values: Vec<f32> =
                    rows.iter().flat_map(|at| [row(at), row(at)].concat()).collect();
                Tensor::from_data(TensorData::new(values, [rows.len(), 1, 2 * pairs]), device)
            }),
        }
    }

    /// Rotates `[places, heads, width]` in halves: (x₁, x₂) → (x₁c − x₂s, x₂c + x₁s).
    fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        self.rotate(x, |first, second| vec![second.neg(), first])
    }

    /// Computes the gradient of the rotated numbers, given that of the result: it is turned back.
    fn back(&self, d_y: Tensor<3>) -> Tensor<3> {
        self.rotate(d_y, |first, second| vec![second, first.neg()])
    }

    fn rotate(
        &self,
        x: Tensor<3>,
        turned: impl FnOnce(Tensor<3>, Tensor<3>) -> Vec<Tensor<3>>,
    ) -> Tensor<3> {
        let [cos, sin] = self.tensors(&x.device());
        let (width, both) = (x.dims()[2], cos.dims()[2]);
        let first = x.clone().narrow(2, 0, both / 2);
        let second = x.clone().narrow(2, both / 2, both / 2);
        let turning = if both == width { x.clone() } else { x.clone().narrow(2, 0, both) };
        let turned = turning * cos + Tensor::cat(turned(first, second), 2) * sin;
        if both == width {
            return turned;
        }
        Tensor::cat(vec![turned, x.narrow(2, both, width - both)], 2)
    }
}

/// Splits `projected` into queries, keys and values, `[places, heads, width]` each. `projected` has all of them
/// side by side, `[places, (heads of queries + 2 · heads of keys) · width]`. Each head of queries and of keys goes
/// through its norm, if there are norms, and is turned, all of it or its first numbers ([`Frequencies`]). The
/// results are rounded to the format of products.
pub fn looks(
    projected: Tensor<2>,
    heads: Heads,
    norms: Option<(Norm, [Tensor<1>; 2])>,
    rotary: &Rotary,
    compute: Compute,
) -> [Tensor<3>; 3] {
    #[cfg(feature = "gpu")]
    if let Some(pairs) = rotary.pairs()
        && let Some(looks) =
            crate::cube::looks::apply(&projected, heads, norms.as_ref(), pairs, compute)
    {
        return looks;
    }
    on_cpu_or_plain(projected, heads, norms, rotary).map(|look| look.cast(compute.dtype()))
}

fn on_cpu_or_plain(
    projected: Tensor<2>,
    heads: Heads,
    norms: Option<(Norm, [Tensor<1>; 2])>,
    rotary: &Rotary,
) -> [Tensor<3>; 3] {
    let weights = norms.as_ref().map(|(rule, weights)| HeadWeights::of(*rule, weights));
    let (Some(values), Some(angles), None | Some(Some(_))) =
        (numbers(&projected), rotary.angles(), &weights)
    else {
        return plain(projected, heads, norms, rotary);
    };
    let weights = weights.flatten();
    let places = projected.dims()[0];
    let norms = weights.as_ref().map(HeadWeights::view);
    let [query, key, value] = cpu::looks::apply(&values, heads, norms, angles);
    let wide = |count: usize| [places, count, heads.width];
    [tensor(query, wide(heads.query)), tensor(key, wide(heads.key)), tensor(value, wide(heads.key))]
}

/// Computes the gradient of the input of [`looks`] and those of the norms' weights, given those of queries, keys
/// and values, `[places, heads, width]`. If there are norms, their input stands beside them in `norms`.
pub fn looks_back(
    heads: Heads,
    norms: Option<((Norm, [Tensor<1>; 2]), Tensor<2>)>,
    rotary: &Rotary,
    gradients: [Tensor<3>; 3],
) -> (Tensor<2>, Option<[Tensor<1>; 2]>) {
    #[cfg(feature = "gpu")]
    if let Some(pairs) = rotary.pairs()
        && let Some(done) =
            crate::cube::looks::back(heads, norms.as_ref(), pairs, gradients.each_ref())
    {
        return done;
    }
    let weights = norms.as_ref().map(|((rule, weights), projected)| {
        Some((HeadWeights::of(*rule, weights)?, numbers(projected)?))
    });
    let of_looks = gradients.each_ref().map(numbers);
    let (Some(angles), None | Some(Some(_)), [Some(d_query), Some(d_key), Some(d_value)]) =
        (rotary.angles(), &weights, of_looks)
    else {
        return plain_back(heads, norms, rotary, gradients);
    };
    let weights = weights.flatten();
    let norms = weights.as_ref().map(|(weights, projected)| (weights.view(), &**projected));
    let (d_projected, d_weights) =
        cpu::looks::back(heads, norms, angles, [&d_query, &d_key, &d_value]);
    let shape = [gradients[0].dims()[0], (heads.query + 2 * heads.key) * heads.width];
    let d_weights = norms.map(|_| {
        let (of_queries, of_keys) = d_weights.split_at(heads.width);
        [of_queries, of_keys].map(|d_weight| tensor(d_weight.to_vec(), [heads.width]))
    });
    (tensor(d_projected, shape), d_weights)
}

struct HeadWeights {
    rule: Norm,
    weights: [Numbers; 2],
}

impl HeadWeights {
    fn of(rule: Norm, [query, key]: &[Tensor<1>; 2]) -> Option<HeadWeights> {
        Some(HeadWeights { rule, weights: [numbers(query)?, numbers(key)?] })
    }

    fn view(&self) -> HeadNorms<'_> {
        HeadNorms {
            weights: self.weights.each_ref().map(|weight| &**weight),
            rule: self.rule.rule(),
        }
    }
}

pub(crate) fn plain(
    projected: Tensor<2>,
    heads: Heads,
    norms: Option<(Norm, [Tensor<1>; 2])>,
    rotary: &Rotary,
) -> [Tensor<3>; 3] {
    let projected = by_head(projected, heads);
    let mut turned = projected.clone().narrow(1, 0, heads.query + heads.key);
    let value = projected.narrow(1, heads.query + heads.key, heads.key);
    if let Some((rule, [of_queries, of_keys])) = norms {
        let query = turned.clone().narrow(1, 0, heads.query);
        let key = turned.narrow(1, heads.query, heads.key);
        turned = Tensor::cat(vec![rule.plain(query, of_queries), rule.plain(key, of_keys)], 1);
    }
    let turned = rotary.apply(turned);
    let query = turned.clone().narrow(1, 0, heads.query);
    [query, turned.narrow(1, heads.query, heads.key), value]
}

pub(crate) fn plain_back(
    heads: Heads,
    norms: Option<((Norm, [Tensor<1>; 2]), Tensor<2>)>,
    rotary: &Rotary,
    [d_query, d_key, d_value]: [Tensor<3>; 3],
) -> (Tensor<2>, Option<[Tensor<1>; 2]>) {
    let shape = [d_query.dims()[0], (heads.query + 2 * heads.key) * heads.width];
    let (mut d_query, mut d_key) = (rotary.back(d_query), rotary.back(d_key));
    let mut d_weights = None;
    if let Some(((rule, [of_queries, of_keys]), projected)) = norms {
        let projected = by_head(projected, heads);
        let query = projected.clone().narrow(1, 0, heads.query);
        let key = projected.narrow(1, heads.query, heads.key);
        let (of_query, d_of_queries) = rule.plain_back(query, of_queries, d_query, None);
        let (of_key, d_of_keys) = rule.plain_back(key, of_keys, d_key, None);
        (d_query, d_key) = (of_query, of_key);
        d_weights = Some([d_of_queries, d_of_keys]);
    }
    (Tensor::cat(vec![d_query, d_key, d_value], 1).reshape(shape), d_weights)
}

fn by_head(projected: Tensor<2>, heads: Heads) -> Tensor<3> {
    let places = projected.dims()[0];
    projected.reshape([places, heads.query + 2 * heads.key, heads.width])
}
