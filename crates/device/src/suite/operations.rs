//! Cases of the suite: the operations of `firebrick-kernels`, in odd shapes.

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_kernels::{
    Activation, AdamWStep, AdapterFactors, Compute, Heads, LmHead, Norm, QuantLayout,
    QuantisedMatrix, RopeFrequencies, RopeTable, Weight, adamw, add_product, add_rows,
    cast_in_columns, column_sums, factor, gated, gated_backward, head_backward,
    head_logprobs_saving, join_adapters, linear, linear_beside, qkv_rope, qkv_rope_backward,
    scaled_squares,
};

use super::{
    Array, Case,
    noise::Noise,
    tensors::{in_f32, values, wave},
};
use crate::{Failure, Precision, Tolerance};

/// Returns cases of the operations of `firebrick-kernels`, with its implementations for a device, in odd shapes.
pub(super) fn cases() -> Vec<Case> {
    let in_every_format = [
        ("operations/norm", Tolerance::SUM, norm as super::Compute),
        ("operations/gated", Tolerance::ELEMENTWISE, activation),
        ("operations/qkv_rope", Tolerance::SUM, queries_keys_values),
        ("operations/linear", Tolerance::PRODUCT, products),
        ("operations/head", Tolerance::FORWARD, head),
        ("operations/unpacked", Tolerance::ELEMENTWISE, unpacking),
        ("operations/adapters", Tolerance::FORWARD, adapters),
    ];
    let in_f32_only = [
        in_f32("operations/norm_backward", Tolerance::SUM, norm_backward),
        in_f32("operations/qkv_rope_backward", Tolerance::SUM, queries_keys_values_backward),
        in_f32("operations/lookup_backward", Tolerance::SUM, lookups),
        in_f32("operations/adamw", Tolerance::ELEMENTWISE, steps),
    ];

    let in_every_format = in_every_format
        .into_iter()
        .flat_map(|(name, tolerance, compute)| Case::in_every_format(name, tolerance, compute));
    in_every_format.chain(in_f32_only).collect()
}

const RULES: [Norm; 2] = [Norm { epsilon: 1e-6, offset: 0.0 }, Norm { epsilon: 1e-5, offset: 1.0 }];

fn norm(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (rows, width) in [(1, 1), (3, 7), (65, 64), (5, 1030)] {
        for rule in RULES {
            let x = wave([rows, width], 0.37, device);
            let branch = wave([rows, width], 0.73, device);
            let weight = wave([width], 0.53, device);
            let y = rule.apply(x.clone(), weight.clone(), compute(precision));
            arrays.push(Array::new(format!("norm of {rows}×{width}"), values(y)?));

            let [sum, y] = rule.of_sum(x, branch, weight, compute(precision));
            arrays.push(Array::new(format!("sum of {rows}×{width}"), values(sum)?));
            arrays.push(Array::new(format!("norm of the sum, {rows}×{width}"), values(y)?));
        }
    }
    Ok(arrays)
}

fn norm_backward(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (rows, width) in [(1, 1), (3, 7), (1100, 9), (5, 1030)] {
        for beside in [None, Some(wave([rows, width], 0.11, device))] {
            let x = wave([rows, width], 0.37, device);
            let d_y = wave([rows, width], 0.73, device);
            let weight = wave([width], 0.53, device);
            let [of_x, of_d] = [x.clone(), d_y.clone()];
            let frozen = RULES[1].backward_input(of_x, weight.clone(), of_d, beside.clone());
            let (d_x, d_weight) = RULES[1].backward(x, weight, d_y, beside);

            arrays.push(Array::new(format!("∂x of {rows}×{width}, frozen"), values(frozen)?));
            arrays.push(Array::new(format!("∂x of {rows}×{width}"), values(d_x)?));
            arrays.push(Array::new(format!("∂weight of {rows}×{width}"), values(d_weight)?));
        }
    }
    Ok(arrays)
}

fn activation(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (rows, width) in [(1, 1), (5, 3), (33, 70)] {
        for activation in [Activation::Silu, Activation::GeluTanh] {
            let gate_up = wave([rows, 2 * width], 0.37, device).mul_scalar(20.0);
            let d = wave([rows, width], 0.73, device);
            let name = format!("{activation:?} of {rows}×{width}");

            let y = gated(gate_up.clone(), activation, compute(precision));
            arrays.push(Array::new(name.clone(), values(y)?));

            let [inner, d] = gated_backward(gate_up, d, activation, compute(precision));
            arrays.push(Array::new(format!("{name} again"), values(inner)?));
            arrays.push(Array::new(format!("∂{name}"), values(d)?));
        }
    }
    Ok(arrays)
}

const HEADS: [Heads; 3] = [
    Heads { query: 1, key: 1, width: 2 },
    Heads { query: 6, key: 2, width: 10 },
    Heads { query: 3, key: 3, width: 64 },
];

/// Makes the rotary embedding of positions up to a hundred thousand.
fn rotary(heads: Heads, device: &Device) -> RopeTable {
    let positions: Vec<i32> = (0..TOKENS as i32).map(|token| token * token * 83 % 99_991).collect();
    let positions = TensorData::new(positions, [1, TOKENS]);
    let positions = Tensor::<2, Int>::from_data(positions, device);

    // The narrowest heads are rotated entirely, as in most models. The others are rotated in part, and scaled up by a
    // tenth.
    let (pairs, scale) = if heads.width == 2 { (1, 1.0) } else { (heads.width * 3 / 8, 1.1) };
    let frequencies: Vec<f32> = (0..pairs).map(|at| 0.7f32.powi(at as i32)).collect();
    RopeTable::new(&positions, &RopeFrequencies::new(frequencies).scaled(scale))
}

const TOKENS: usize = 37;

fn norms(heads: Heads, device: &Device) -> [Option<(Norm, [Tensor<1>; 2])>; 2] {
    [None, Some((RULES[1], [0.31, 0.57].map(|pitch| wave([heads.width], pitch, device))))]
}

fn queries_keys_values(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for heads in HEADS {
        let projected = wave([TOKENS, (heads.query + 2 * heads.key) * heads.width], 0.37, device);
        for norms in norms(heads, device) {
            let normed = norms.is_some();
            let rotary = rotary(heads, device);
            let all = qkv_rope(projected.clone(), heads, norms, &rotary, compute(precision));

            for (x, name) in all.into_iter().zip(["query", "key", "value"]) {
                let name = format!("{name}, {heads:?}, norms: {normed}");
                arrays.push(Array::new(name, values(x)?));
            }
        }
    }
    Ok(arrays)
}

fn queries_keys_values_backward(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for heads in HEADS {
        let projected = wave([TOKENS, (heads.query + 2 * heads.key) * heads.width], 0.37, device);
        for norms in norms(heads, device) {
            let gradients = [(heads.query, 0.73), (heads.key, 0.53), (heads.key, 0.11)]
                .map(|(count, pitch)| wave([TOKENS, count, heads.width], pitch, device));

            let name = format!("{heads:?}, norms: {}", norms.is_some());
            let norms = norms.map(|norms| (norms, projected.clone()));
            let rotary = rotary(heads, device);
            let (frozen, _) =
                qkv_rope_backward(heads, norms.clone(), false, &rotary, gradients.clone());
            let (d, d_weights) = qkv_rope_backward(heads, norms, true, &rotary, gradients);

            arrays.push(Array::new(format!("∂projected, frozen, {name}"), values(frozen)?));
            arrays.push(Array::new(format!("∂projected, {name}"), values(d)?));
            for d_weight in d_weights.into_iter().flatten() {
                arrays.push(Array::new(format!("∂weight, {name}"), values(d_weight)?));
            }
        }
    }
    Ok(arrays)
}

/// Multiplies by a transposed matrix: with a bias, added to a sum, and alone.
fn products(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (rows, inner, columns) in [(1, 5, 300), (2, 3, 4), (70, 33, 65), (20, 2304, 66)] {
        let x = wave([rows, inner], 0.37, device);
        let across = wave([columns, inner], 0.73, device).transpose();
        let prepared = cast_in_columns(across.clone(), compute(precision).dtype());
        let bias = wave([columns], 0.53, device);
        let onto = wave([rows, columns], 0.11, device);

        let name = format!("{rows}×{inner}×{columns}");
        for (bias, onto) in [(None, Some(onto.clone())), (Some(bias), None), (None, None)] {
            let y = linear(x.clone(), prepared.clone(), bias, onto, compute(precision));
            arrays.push(Array::new(name.clone(), values(y)?));
        }

        let sum = add_product(Some(onto.clone()), x, across, compute(precision));
        arrays.push(Array::new(format!("{name}, added"), values(sum)?));
        arrays.push(Array::new(format!("columns of {name}"), values(column_sums(onto))?));
    }

    // This many rows are summed in more than one round.
    let many = column_sums(wave([20_000, 3], 0.37, device));
    arrays.push(Array::new("columns of many rows", values(many)?));
    Ok(arrays)
}

fn lookups(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (rows, width, tokens) in [(1, 1, 3), (40, 17, 200), (5000, 33, 70)] {
        let table = wave([rows, width], 0.37, device);
        let gradient = wave([tokens, width], 0.73, device);
        let named: Vec<u32> = (0..tokens).map(|at| (at * at * 7 % rows) as u32).collect();
        let sum = add_rows(table, &named, gradient, 1 << 10);
        arrays.push(Array::new(format!("{tokens} of {rows}×{width}"), values(sum)?));
    }
    Ok(arrays)
}

/// Takes two steps, the first of them without moments. Then it sums the squares of numbers whose squares overflow f32.
fn steps(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    let mut step =
        AdamWStep { betas: [0.9, 0.999], epsilon: 1e-8, weight_decay: 0.1, lr: 0.01, time: 1 };

    let first = adamw(wave([1001], 0.37, device), wave([1001], 0.73, device), None, step);
    step.time = 2;
    let [moved, first, second] = first;
    // The old weights are also held elsewhere, and must be kept.
    let old_weights = moved.clone();
    let second = adamw(moved, wave([1001], 0.53, device), Some([first, second]), step);

    for (name, x) in ["weights", "first moments", "second moments"].into_iter().zip(second) {
        arrays.push(Array::new(name, values(x)?));
    }
    arrays.push(Array::new("weights before", values(old_weights)?));

    for size in [1e-25, 1.0, 1e25] {
        // The first takes two pieces, and the others one.
        let tensors = [21_000, 1, 300].map(|count| wave([count], 0.37, device).mul_scalar(size));
        let pairs = values(scaled_squares(tensors.to_vec()))?;
        let roots = pairs.as_chunks::<2>().0.iter().map(|&[scale, sum]| {
            let root = f64::from(scale) * f64::from(sum).sqrt();
            root as f32
        });
        arrays.push(Array::new(format!("norms of numbers of {size}"), roots.collect()));
    }
    Ok(arrays)
}

/// Computes log-probabilities, entropy and gradients: over the entire vocabulary with logits that are kept, and in
/// blocks.
fn head(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (tokens, width, vocab, logits, cap) in [
        (7, 33, 300, [1 << 20, 1 << 20], None),
        (7, 33, 300, [7 * 130, 0], None),
        (7, 33, 300, [7 * 130, 0], Some(2.0)),
    ] {
        let format = compute(precision).dtype();
        let hidden = wave([tokens, width], 0.37, device).cast(format);
        let weights = wave([vocab, width], 0.73, device);
        let labels: Vec<i32> = (0..tokens).map(|at| (at * 41 % vocab) as i32).collect();
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [tokens]), device);

        let lm_head = LmHead { matrix: weights.clone(), cap };
        let token_logprobs = head_logprobs_saving(&hidden, &lm_head, &labels, 0.7, logits);
        let name = format!("{tokens}×{width}×{vocab}, {logits:?}, cap {cap:?}");
        arrays.push(Array::new(
            format!("log-probs, {name}"),
            values(token_logprobs.logprobs.clone())?,
        ));
        arrays
            .push(Array::new(format!("entropy, {name}"), values(token_logprobs.entropy.clone())?));

        let [d_logprobs, d_entropy] = [0.53, 0.31].map(|pitch| wave([tokens], pitch, device));
        let (d_hidden, d_head) = head_backward(
            &hidden,
            &weights,
            &labels,
            0.7,
            logits[0],
            token_logprobs,
            &d_logprobs,
            (logits[1] == 0).then_some(&d_entropy),
            Some(wave([vocab, width], 0.11, device)),
        );

        arrays.push(Array::new(format!("∂hidden, {name}"), values(d_hidden)?));
        if let Some(d_head) = d_head {
            arrays.push(Array::new(format!("∂head, {name}"), values(d_head)?));
        }
    }
    Ok(arrays)
}

/// Unpacks matrices of real widths, and those that do not fill a vector or a square, which the host does code by code.
fn unpacking(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = Vec::new();
    for (sides, bits, run) in
        [([4864, 896], 4, 32), ([1536, 1792], 8, 32), ([264, 131], 4, 24), ([36, 67], 8, 12)]
    {
        let (matrix, exact) = packed(sides, QuantLayout { bits, group_size: run }, device);
        let format = compute(precision).dtype();
        let [inputs, outputs] = sides;
        let name = format!("{inputs}×{outputs} in {bits} bits");

        // A transposed matrix is unpacked into another layout.
        let found = matrix.dequantise(format);
        let of_transposed = matrix.transpose().dequantise(format).transpose();
        arrays.push(Array::with_expected(name.clone(), values(found)?, exact.clone()));
        let name = format!("{name}, transposed");
        arrays.push(Array::with_expected(name, values(of_transposed)?, exact));
    }
    Ok(arrays)
}

/// Makes a packed matrix, and its numbers row by row.
fn packed(
    [inputs, outputs]: [usize; 2],
    layout: QuantLayout,
    device: &Device,
) -> (QuantisedMatrix, Vec<f32>) {
    let QuantLayout { bits, group_size } = layout;
    // Codes are unsigned in memory: half of their range is added.
    let half = 1i64 << (bits - 1);
    let noise = Noise::new(bits as u64).numbers(inputs * outputs);
    let codes: Vec<i64> = noise.iter().map(|&at| (at * half as f32).floor() as i64).collect();
    // As in a model, scales are numbers of bfloat16.
    let narrow = |scale: f32| f32::from_bits(scale.to_bits() & 0xffff_0000);
    let scales = Noise::new(3).numbers(inputs / group_size * outputs);
    let scales: Vec<f32> = scales.into_iter().map(narrow).collect();

    // The first input of a word is in its lowest bits.
    let mut words = vec![0u32; inputs / layout.per_word() * outputs];
    let mut exact = vec![0.0; inputs * outputs];
    for (at, code) in codes.into_iter().enumerate() {
        let (input, output) = (at / outputs, at % outputs);
        let word = &mut words[input / layout.per_word() * outputs + output];
        *word |= ((code + half) as u32) << (input % layout.per_word() * bits);
        exact[at] = code as f32 * scales[input / group_size * outputs + output];
    }

    let words: Vec<i32> = words.into_iter().map(|word| word as i32).collect();
    let words = TensorData::new(words, [inputs / layout.per_word(), outputs]);
    let words = Tensor::<2, Int>::from_data(words, device);
    let scales = Tensor::<1>::from_data(scales.as_slice(), device);
    (QuantisedMatrix::new(words, scales, layout), exact)
}

/// Joins adapters, and multiplies next to them as an update does, by packed weights and by their transposes. Some
/// adapters have so many inputs that a device may split the sum, and one has too high a rank to be multiplied where it
/// is added.
fn adapters(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let compute = compute(precision);
    let format = compute.dtype();
    let noise = |salt, shape: [usize; 2]| Noise::new(salt).tensor(shape, device);

    let mut arrays = Vec::new();
    for (rows, inputs, rank) in [(5, 264, 5), (64, 2304, 6), (70, 2048, 48)] {
        let x = noise(1, [rows, inputs]);
        let a = noise(2, [inputs, rank]);
        let prepared = factor(x.clone(), cast_in_columns(a.clone(), format), compute);
        let plain = factor(x, a, compute);
        let name = format!("factor of {rows}×{inputs}×{rank}");
        arrays.push(Array::new(format!("{name}, prepared"), values(prepared)?));
        arrays.push(Array::new(name, values(plain)?));
    }

    let of_map = |rank, width, first_output| AdapterFactors {
        a: noise(2, [33, rank]),
        b: noise(3, [rank, width]),
        scale: 0.7,
        first_output,
    };
    // The map between the two has no adapter.
    let maps = [of_map(4, 7, 0), of_map(3, 9, 12)];
    for both_layouts in [false, true] {
        let joined = join_adapters(&maps, 21, compute, both_layouts);
        let names = ["a", "a in rows", "b", "b in rows"];
        for (matrix, name) in joined.into_iter().flatten().zip(names) {
            let name = format!("joined {name}, in both layouts: {both_layouts}");
            arrays.push(Array::new(name, values(matrix)?));
        }
    }

    for (sides, bits, run, rank) in
        [([264, 131], 4, 24, 6), ([128, 70], 8, 32, 70), ([2048, 70], 8, 32, 6)]
    {
        let (matrix, _) = packed(sides, QuantLayout { bits, group_size: run }, device);
        let [inputs, outputs] = sides;
        let a = noise(2, [inputs, rank]);
        let b = noise(3, [rank, outputs]);
        for rows in [5, 70] {
            let x = noise(1, [rows, inputs]);
            let d_y = noise(4, [rows, outputs]);
            let bias = wave([outputs], 0.53, device);
            let onto = wave([rows, outputs], 0.11, device);

            let inner = factor(x.clone(), cast_in_columns(a.clone(), format), compute);
            let pair = [inner, cast_in_columns(b.clone(), format)];
            let weight = Weight::Quantised(matrix.clone());
            let y = linear_beside(x, weight, Some(pair), Some(bias), Some(onto), compute);

            let d_inner = factor(d_y.clone(), b.clone().cast(format).transpose(), compute);
            let pair = [d_inner, a.clone().transpose()];
            let transposed = Weight::Quantised(matrix.clone().transpose());
            let d_x = linear_beside(d_y, transposed, Some(pair), None, None, compute);

            let name = format!("{rows}×{inputs}×{outputs} in {bits} bits, rank {rank}");
            arrays.push(Array::new(name.clone(), values(y)?));
            arrays.push(Array::new(format!("∂x of {name}"), values(d_x)?));
        }
    }
    Ok(arrays)
}

/// Returns the name by which the kernels know a format.
pub(super) fn compute(precision: Precision) -> Compute {
    match precision {
        Precision::F32 => Compute::F32,
        Precision::F16 => Compute::F16,
        Precision::Bf16 => Compute::Bf16,
    }
}
