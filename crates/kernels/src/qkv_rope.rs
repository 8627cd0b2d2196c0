//! Queries, keys and values out of one projection, with QK-norm and RoPE, forward and backward.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::{
    compute::Compute,
    cpu,
    cpu::qkv_rope::{Angles, HeadNorms},
    flex::{Numbers, ints, numbers, tensor},
    heads::Heads,
    norm::Norm,
};

/// Frequencies of a rotary embedding: the angles in radians by which the pairs of a head's numbers rotate from one
/// position to the next. In `transformers` they are `inv_freq`.
///
/// With n frequencies, number i forms a pair with number n + i. Numbers at 2n and after are not rotated.
#[derive(Clone, Debug)]
pub struct RopeFrequencies {
    numbers: Arc<[f32]>,
    /// Factor on the rotated numbers.
    scale: f32,
    /// Frequencies on the device that asked first, so that they need not be sent at every token.
    on_device: Arc<OnceLock<Tensor<1>>>,
}

impl RopeFrequencies {
    /// Makes frequencies of these numbers.
    pub fn new(numbers: Vec<f32>) -> Self {
        RopeFrequencies { numbers: numbers.into(), scale: 1.0, on_device: Arc::default() }
    }

    /// Scales the numbers of each pair by `scale`, in addition to rotating them.
    #[must_use]
    pub fn scaled(self, scale: f32) -> Self {
        RopeFrequencies { scale, ..self }
    }

    fn on(&self, device: &Device) -> Tensor<1> {
        let there = || Tensor::from_floats(&*self.numbers, device);
        let first = self.on_device.get_or_init(there);
        if first.device() == *device { first.clone() } else { there() }
    }
}

/// Cosines and sines of a rotary embedding for the tokens of a batch.
#[derive(Clone, Debug)]
pub struct RopeTable(Form);

#[derive(Clone, Debug)]
enum Form {
    /// A row for each distinct position, `[positions, pairs]`, and the row of each token.
    Table { cos: Arc<[f32]>, sin: Arc<[f32]>, pairs: usize, rows: Arc<[u32]>, range: Range<usize> },
    /// Cosines and sines, `[tokens, 1, 2 · pairs]` each.
    Tensors(Box<[Tensor<3>; 2]>),
    /// Cosines next to sines, `[tokens, pairs, 2]`, on a GPU.
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "they are made on GPUs alone"))]
    Pairs(Box<Tensor<3>>),
}

impl RopeTable {
    /// Computes the angles at `positions`, `[rows, tokens]`.
    pub fn new(positions: &Tensor<2, Int>, frequencies: &RopeFrequencies) -> Self {
        #[cfg(feature = "gpu")]
        if crate::cube::is_gpu(&positions.device())
            && let Some(pairs) = crate::cube::angles::angles(
                positions,
                &frequencies.on(&positions.device()),
                frequencies.scale,
            )
        {
            return RopeTable(Form::Pairs(Box::new(pairs)));
        }

        let Some(positions) = ints(positions) else { return Self::plain(positions, frequencies) };
        let scale = frequencies.scale;
        let frequencies = &frequencies.numbers;

        // Each distinct position gets one row: the rows of a batch mostly have the same positions.
        let mut all = positions.clone();
        all.sort_unstable();
        all.dedup();

        let angle =
            |at: usize| (all[at / frequencies.len()] as f32) * frequencies[at % frequencies.len()];
        let count = all.len() * frequencies.len();
        let row = |position| all.binary_search(position).unwrap_or_default() as u32;

        RopeTable(Form::Table {
            cos: (0..count).map(|at| angle(at).cos() * scale).collect(),
            sin: (0..count).map(|at| angle(at).sin() * scale).collect(),
            pairs: frequencies.len(),
            rows: positions.iter().map(row).collect(),
            range: 0..positions.len(),
        })
    }

    pub(crate) fn plain(positions: &Tensor<2, Int>, frequencies: &RopeFrequencies) -> Self {
        let [rows, tokens] = positions.dims();
        let all = rows * tokens;
        let width = 2 * frequencies.numbers.len();

        // Angles are f32 products, as in transformers; the frequencies are rounded only once.
        let scale = frequencies.scale;
        let frequencies = frequencies.on(&positions.device());
        let positions = positions.clone().float().reshape([all, 1]);
        let angles = positions * frequencies.unsqueeze();
        let angles = Tensor::cat(vec![angles.clone(), angles], 1).reshape([all, 1, width]);

        let scaled = |x: Tensor<3>| if scale == 1.0 { x } else { x.mul_scalar(scale) };
        RopeTable(Form::Tensors(Box::new([angles.clone().cos(), angles.sin()].map(scaled))))
    }

    /// Returns the angles of some tokens.
    pub fn slice(&self, part: Range<usize>) -> RopeTable {
        RopeTable(match &self.0 {
            Form::Table { cos, sin, pairs, rows, range } => Form::Table {
                cos: cos.clone(),
                sin: sin.clone(),
                pairs: *pairs,
                rows: rows.clone(),
                range: range.start + part.start..range.start + part.end,
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
            Form::Table { cos, sin, pairs, rows, range } => {
                Some(Angles { cos, sin, pairs: *pairs, rows: &rows[range.clone()] })
            }
            Form::Tensors(_) | Form::Pairs(_) => None,
        }
    }

    #[cfg(feature = "gpu")]
    pub(crate) fn pairs(&self) -> Option<&Tensor<3>> {
        if let Form::Pairs(pairs) = &self.0 { Some(pairs) } else { None }
    }

    /// Returns cosines and sines, `[tokens, 1, 2 · pairs]`, on `device`. From a table they are computed each time,
    /// because on a CPU only tensors under autodiff need them.
    fn tensors(&self, device: &Device) -> [Tensor<3>; 2] {
        match &self.0 {
            Form::Tensors(both) => (**both).clone(),
            Form::Pairs(pairs) => [0, 1].map(|which| {
                let [tokens, count, _] = pairs.dims();
                let once = pairs.clone().narrow(2, which, 1).reshape([tokens, 1, count]);
                Tensor::cat(vec![once.clone(), once], 2)
            }),
            Form::Table { cos, sin, pairs, rows, range } => [cos, sin].map(|table| {
                let rows = &rows[range.clone()];
                let row = |&row: &u32| &table[row as usize * pairs..(row as usize + 1) * pairs];

                let values: Vec<f32> =
                    rows.iter().flat_map(|at| [row(at), row(at)].concat()).collect();
                Tensor::from_data(TensorData::new(values, [rows.len(), 1, 2 * pairs]), device)
            }),
        }
    }

    /// Rotates `[tokens, heads, width]` in halves: (x₁, x₂) → (x₁c − x₂s, x₂c + x₁s).
    fn apply(&self, x: Tensor<3>) -> Tensor<3> {
        self.rotate(x, |first, second| vec![second.neg(), first])
    }

    /// Computes the gradient of the rotated numbers, given that of the result, by rotating it back.
    fn backward(&self, d_y: Tensor<3>) -> Tensor<3> {
        self.rotate(d_y, |first, second| vec![second, first.neg()])
    }

    fn rotate(
        &self,
        x: Tensor<3>,
        rotated: impl FnOnce(Tensor<3>, Tensor<3>) -> Vec<Tensor<3>>,
    ) -> Tensor<3> {
        let [cos, sin] = self.tensors(&x.device());
        let width = x.dims()[2];
        let both = cos.dims()[2];

        let first = x.clone().narrow(2, 0, both / 2);
        let second = x.clone().narrow(2, both / 2, both / 2);

        // Numbers after those of the pairs are not changed.
        let rotating = if both == width { x.clone() } else { x.clone().narrow(2, 0, both) };
        let rotated = rotating * cos + Tensor::cat(rotated(first, second), 2) * sin;

        if both == width {
            return rotated;
        }
        Tensor::cat(vec![rotated, x.narrow(2, both, width - both)], 2)
    }
}

/// Splits `projected` into queries, keys and values, `[tokens, heads, width]` each. `projected` holds all of them
/// concatenated, `[tokens, (heads of queries + 2 · heads of keys) · width]`. Each query and key head is normed, if
/// there are norms, and then rotated: all of it or its first numbers ([`RopeFrequencies`]). The results are rounded to
/// the matmul precision.
pub fn qkv_rope(
    projected: Tensor<2>,
    heads: Heads,
    norms: Option<(Norm, [Tensor<1>; 2])>,
    rotary: &RopeTable,
    compute: Compute,
) -> [Tensor<3>; 3] {
    #[cfg(feature = "gpu")]
    if let Some(pairs) = rotary.pairs()
        && let Some(qkv) =
            crate::cube::qkv_rope::apply(&projected, heads, norms.as_ref(), pairs, compute)
    {
        return qkv;
    }
    on_cpu_or_plain(projected, heads, norms, rotary).map(|x| x.cast(compute.dtype()))
}

fn on_cpu_or_plain(
    projected: Tensor<2>,
    heads: Heads,
    norms: Option<(Norm, [Tensor<1>; 2])>,
    rotary: &RopeTable,
) -> [Tensor<3>; 3] {
    let weights = norms.as_ref().map(|(rule, weights)| HeadWeights::of(*rule, weights));
    let (Some(values), Some(angles), None | Some(Some(_))) =
        (numbers(&projected), rotary.angles(), &weights)
    else {
        return plain(projected, heads, norms, rotary);
    };

    let weights = weights.flatten();
    let tokens = projected.dims()[0];
    let norms = weights.as_ref().map(HeadWeights::view);
    let [query, key, value] = cpu::qkv_rope::apply(&values, heads, norms, angles);

    let wide = |count: usize| [tokens, count, heads.width];
    [tensor(query, wide(heads.query)), tensor(key, wide(heads.key)), tensor(value, wide(heads.key))]
}

/// Computes the gradients of the input of [`qkv_rope`] and of the norms' weights, given those of queries, keys and
/// values, `[tokens, heads, width]`. If there are norms, `norms` also holds their input. If their weights are not
/// `trained`, a GPU leaves out their gradients.
pub fn qkv_rope_backward(
    heads: Heads,
    norms: Option<((Norm, [Tensor<1>; 2]), Tensor<2>)>,
    trained: bool,
    rotary: &RopeTable,
    gradients: [Tensor<3>; 3],
) -> (Tensor<2>, Option<[Tensor<1>; 2]>) {
    #[cfg(not(feature = "gpu"))]
    let _ = trained;
    #[cfg(feature = "gpu")]
    if let Some(pairs) = rotary.pairs()
        && let Some(done) = crate::cube::qkv_rope::backward(
            heads,
            norms.as_ref(),
            trained,
            pairs,
            gradients.each_ref(),
        )
    {
        return done;
    }

    let weights = norms.as_ref().map(|((rule, weights), projected)| {
        Some((HeadWeights::of(*rule, weights)?, numbers(projected)?))
    });
    let of_qkv = gradients.each_ref().map(numbers);
    let (Some(angles), None | Some(Some(_)), [Some(d_query), Some(d_key), Some(d_value)]) =
        (rotary.angles(), &weights, of_qkv)
    else {
        return plain_backward(heads, norms, rotary, gradients);
    };

    let weights = weights.flatten();
    let norms = weights.as_ref().map(|(weights, projected)| (weights.view(), &**projected));
    let (d_projected, d_weights) =
        cpu::qkv_rope::backward(heads, norms, angles, [&d_query, &d_key, &d_value]);

    let shape = [gradients[0].dims()[0], (heads.query + 2 * heads.key) * heads.width];
    // The CPU's implementation returns the gradients of both weights one after the other.
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
    rotary: &RopeTable,
) -> [Tensor<3>; 3] {
    let projected = by_head(projected, heads);
    let mut rotated = projected.clone().narrow(1, 0, heads.query + heads.key);
    let value = projected.narrow(1, heads.query + heads.key, heads.key);

    if let Some((rule, [of_queries, of_keys])) = norms {
        let query = rotated.clone().narrow(1, 0, heads.query);
        let key = rotated.narrow(1, heads.query, heads.key);
        rotated = Tensor::cat(vec![rule.plain(query, of_queries), rule.plain(key, of_keys)], 1);
    }

    let rotated = rotary.apply(rotated);
    let query = rotated.clone().narrow(1, 0, heads.query);
    [query, rotated.narrow(1, heads.query, heads.key), value]
}

pub(crate) fn plain_backward(
    heads: Heads,
    norms: Option<((Norm, [Tensor<1>; 2]), Tensor<2>)>,
    rotary: &RopeTable,
    [d_query, d_key, d_value]: [Tensor<3>; 3],
) -> (Tensor<2>, Option<[Tensor<1>; 2]>) {
    let shape = [d_query.dims()[0], (heads.query + 2 * heads.key) * heads.width];
    let mut d_query = rotary.backward(d_query);
    let mut d_key = rotary.backward(d_key);

    let mut d_weights = None;
    if let Some(((rule, [of_queries, of_keys]), projected)) = norms {
        let projected = by_head(projected, heads);
        let query = projected.clone().narrow(1, 0, heads.query);
        let key = projected.narrow(1, heads.query, heads.key);
        let (of_query, d_of_queries) = rule.plain_backward(query, of_queries, d_query, None);
        let (of_key, d_of_keys) = rule.plain_backward(key, of_keys, d_key, None);
        (d_query, d_key) = (of_query, of_key);
        d_weights = Some([d_of_queries, d_of_keys]);
    }
    (Tensor::cat(vec![d_query, d_key, d_value], 1).reshape(shape), d_weights)
}

fn by_head(projected: Tensor<2>, heads: Heads) -> Tensor<3> {
    let tokens = projected.dims()[0];
    projected.reshape([tokens, heads.query + 2 * heads.key, heads.width])
}
