//! What a safetensors file stores in another form than a matrix of numbers: the experts of a layer as one tensor, and
//! weights of 8 or 4 bits with scales. A model reads each of them as matrices, `[outputs, inputs]`, and the experts of
//! gpt-oss are written as they were stored.

use std::collections::{BTreeMap, BTreeSet};

use safetensors::{Dtype, tensor::TensorInfo};

use firebrick_core::config::Family;

use super::{CheckpointError, WeightDtype, file::TensorFile};
use crate::config::DecoderConfig;

/// Where a tensor is stored, and in which form.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    /// Index of its file.
    pub(super) file: usize,
    /// Its shape, the type of its numbers, and the bytes that hold it, perhaps among others.
    pub(super) info: TensorInfo,
    form: Form,
}

/// How the values of a tensor are made from its bytes.
#[derive(Clone, Debug)]
enum Form {
    /// They are its numbers, one after the other.
    Plain,
    /// They are among the columns of a matrix, `[inputs, columns]`.
    Columns(Every),
    /// MXFP4 (OCP 2023): of each row of a matrix, each 32 numbers of 4 bits share a scale. The values are among the
    /// rows.
    Mxfp4 { every: Every, scales: Part },
    /// Numbers of 8 bits (E4M3), of which each block of 128 · 128, or all, are multiplied by a scale.
    Fp8 { scales: Part },
}

/// Some rows or columns of a matrix: one in `step`, from `first` on.
#[derive(Clone, Copy, Debug)]
struct Every {
    first: usize,
    step: usize,
}

/// A tensor of a file, or a part of it.
#[derive(Clone, Debug)]
struct Part {
    file: usize,
    info: TensorInfo,
}

impl Part {
    fn stored(self, form: Form) -> Stored {
        Stored { file: self.file, info: self.info, form }
    }
}

/// Numbers that share a scale in MXFP4.
const GROUP: usize = 32;

/// Rows and columns of a block that shares a scale in FP8.
const BLOCK: usize = 128;

/// Ends of the names of tensors with one map, or two, of all experts of a layer, and the maps of each expert in them.
const STACKED: [(&str, &[&str]); 2] = [
    (".mlp.experts.gate_up_proj", &["gate_proj", "up_proj"]),
    (".mlp.experts.down_proj", &["down_proj"]),
];

/// Ends of names: biases of all experts, numbers of 4 bits and their scales, scales of 8 bits.
const BIAS: &str = "_bias";
const BLOCKS: &str = "_blocks";
const SCALES: &str = "_scales";
const SCALE_INV: &str = "_scale_inv";

/// The most experts that a layer may have, and the most matrices of experts in a folder. Beyond numbers that no model
/// has, the experts of a layer stay together, and no model takes them.
const EXPERTS: usize = 1 << 12;
const MATRICES: usize = 1 << 18;

/// Lists all tensors of these files, with the names that a model asks for. Names may occur twice.
pub(super) fn all(files: &[TensorFile]) -> Vec<(String, Stored)> {
    let mut parts = Vec::new();
    for (file, of) in files.iter().enumerate() {
        let named = |name: String| of.info(&name).cloned().map(|info| (name, Part { file, info }));
        parts.extend(of.names().into_iter().filter_map(named));
    }

    // gpt-oss alone has biases for experts. Its matrices are stored as they multiply, and gate and up in turns.
    let end = [STACKED[0].0, BIAS].concat();
    let in_turns = parts.iter().any(|(name, _)| name.ends_with(&end));

    let mut found = Vec::new();
    let mut scales = BTreeMap::new();
    for (name, part) in take_scales(&mut parts) {
        if let Some(other) = scales.insert(name.clone(), part.clone()) {
            // Whoever takes the names refuses one that occurs twice.
            found.extend([other, part].map(|part| (name.clone(), part.stored(Form::Plain))));
        }
    }

    let mut split = 0;
    for (name, part) in parts {
        if let Some(experts) = experts(&name, &part, &scales, in_turns, &mut split) {
            found.extend(experts);
            continue;
        }
        let scales = scales.get(&[&name, SCALE_INV].concat());
        let form = match scales.filter(|_| part.info.dtype == Dtype::F8_E4M3) {
            Some(scales) => Form::Fp8 { scales: scales.clone() },
            None => Form::Plain,
        };
        found.push((name, part.stored(form)));
    }
    found
}

/// Takes the scales of other tensors out of the list.
fn take_scales(parts: &mut Vec<(String, Part)>) -> Vec<(String, Part)> {
    let of_8_bits: BTreeSet<String> = parts
        .iter()
        .filter(|(_, part)| part.info.dtype == Dtype::F8_E4M3)
        .map(|(name, _)| name.clone())
        .collect();

    let is_scale = |(name, part): &mut (String, Part)| match name.strip_suffix(SCALES) {
        Some(name) => of_experts(name).is_some() && part.info.dtype == Dtype::U8,
        None => scaled(name).is_some_and(|weight| of_8_bits.contains(&weight)),
    };
    parts.extract_if(.., is_scale).collect()
}

/// Returns the name of the matrix in 8 bits that a tensor of this name belongs to: its scales, or that of its input,
/// which only arithmetic in 8 bits needs.
fn scaled(name: &str) -> Option<String> {
    let of_input = || Some([name.strip_suffix("activation_scale")?, "weight"].concat());
    name.strip_suffix(SCALE_INV).map(str::to_owned).or_else(of_input)
}

/// Returns the layer of a tensor with maps of all experts, and the maps in it.
fn of_experts(name: &str) -> Option<(&str, &'static [&'static str])> {
    STACKED.iter().find_map(|(end, maps)| Some((name.strip_suffix(end)?, *maps)))
}

/// Lists each expert's matrices or biases in a tensor that has those of all experts. `None` if it is not such a tensor.
/// `split` counts them.
fn experts(
    name: &str,
    part: &Part,
    scales: &BTreeMap<String, Part>,
    in_turns: bool,
    split: &mut usize,
) -> Option<Vec<(String, Stored)>> {
    let is_bias = in_turns && name.ends_with(BIAS);
    let blocks = name.strip_suffix(BLOCKS).filter(|_| part.info.dtype == Dtype::U8);
    let base = if is_bias { name.strip_suffix(BIAS)? } else { blocks.unwrap_or(name) };
    let (layer, maps) = of_experts(base)?;
    if !super::pictures::text_name(layer).starts_with("model.layers.") {
        return None;
    }

    let info = &part.info;
    let of_blocks = blocks.and_then(|base| scales.get(&[base, SCALES].concat()));
    let (count, rows, columns) = match (info.shape[..].to_vec().as_slice(), of_blocks) {
        (&[count, outputs], None) if is_bias => (count, 1, outputs),
        (&[count, outputs, groups, bytes], Some(scales))
            if 2 * bytes == GROUP && scales.info.shape == [count, outputs, groups] =>
        {
            (count, outputs, GROUP.checked_mul(groups)?)
        }
        (&[count, rows, columns], None) if WeightDtype::of(info.dtype).is_some() && !is_bias => {
            (count, rows, columns)
        }
        _ => return None,
    };

    // Outputs are the columns of a matrix that is stored as it multiplies, and else its rows.
    let as_it_multiplies = in_turns && of_blocks.is_none();
    let [outputs, inputs] = if as_it_multiplies { [columns, rows] } else { [rows, columns] };
    *split = split.saturating_add(count.saturating_mul(maps.len()));
    let fits = (1..=EXPERTS).contains(&count) && *split <= MATRICES;
    if !fits || outputs * inputs == 0 || !outputs.is_multiple_of(maps.len()) {
        return None;
    }

    let of_each = outputs / maps.len();
    let end = if is_bias { "bias" } else { "weight" };
    let one = |expert: usize, at: usize| {
        let every = Every { first: at, step: maps.len() };
        let whole = slice(part, expert, count);
        let form = match of_blocks {
            Some(scales) => Form::Mxfp4 { every, scales: slice(scales, expert, count) },
            None if in_turns => Form::Columns(every),
            None => Form::Plain,
        };

        let (begin, end_of) = whole.info.data_offsets;
        let bytes = (end_of - begin) / maps.len();
        // Without turns, the maps of an expert are one after the other.
        let data_offsets = match form {
            Form::Plain => (begin + at * bytes, begin + (at + 1) * bytes),
            _ => (begin, end_of),
        };
        let shape = if is_bias { vec![of_each] } else { vec![of_each, inputs] };
        let info = TensorInfo { dtype: info.dtype, shape, data_offsets };
        let name = format!("{layer}.mlp.experts.{expert}.{}.{end}", maps[at]);
        (name, Stored { file: part.file, info, form })
    };
    let all = (0..count).flat_map(|expert| (0..maps.len()).map(move |at| (expert, at)));
    Some(all.map(|(expert, at)| one(expert, at)).collect())
}

/// Cuts the bytes of one of `count` equal parts out of a tensor.
fn slice(part: &Part, index: usize, count: usize) -> Part {
    let (begin, end) = part.info.data_offsets;
    let bytes = (end - begin) / count;
    let data_offsets = (begin + index * bytes, begin + (index + 1) * bytes);
    Part { file: part.file, info: TensorInfo { data_offsets, ..part.info.clone() } }
}

/// Returns the tensor that has a parameter of an expert of gpt-oss, those of all experts together: its name and shape,
/// and the expert's number. `None` for other parameters.
pub(super) fn stacked(
    config: &DecoderConfig,
    path: &str,
    shape: &[usize],
) -> Option<(String, Vec<usize>, usize)> {
    let count = config.experts.filter(|_| config.family == Family::GptOss)?.count;
    let (layer, rest) = path.strip_prefix("layers.")?.split_once(".experts.each.")?;
    let [expert, map, kind] = rest.split('.').collect::<Vec<_>>()[..] else { return None };
    let end = if kind == "bias" { BIAS } else { "" };
    let name = format!("model.layers.{layer}.mlp.experts.{map}_proj{end}");
    Some((name, [&[count], shape].concat(), expert.parse().ok()?))
}

/// Puts the columns of a parameter of [`stacked`] in the order of its file: gate and up, which are side by side here,
/// in turns.
pub(super) fn in_turns(path: &str, shape: &[usize], values: Vec<f32>) -> Vec<f32> {
    if !path.contains(".gate_up.") {
        return values;
    }
    let columns = shape.last().copied().unwrap_or(1);
    let halves = values.chunks(columns).map(|row| row.split_at(columns / 2));
    halves.flat_map(|(gate, up)| gate.iter().zip(up).flat_map(|(gate, up)| [*gate, *up])).collect()
}

impl Stored {
    /// Returns the name of the format.
    pub(super) fn dtype(&self) -> String {
        match self.form {
            Form::Mxfp4 { .. } => "MXFP4".into(),
            _ => self.info.dtype.to_string(),
        }
    }

    /// Counts the bytes of its numbers and their scales.
    pub(super) fn bytes(&self) -> usize {
        let of = |info: &TensorInfo| info.data_offsets.1 - info.data_offsets.0;
        let bytes = of(&self.info);
        match &self.form {
            Form::Plain => bytes,
            Form::Columns(every) => bytes / every.step,
            Form::Mxfp4 { every, scales } => (bytes + of(&scales.info)) / every.step,
            Form::Fp8 { scales } => bytes + of(&scales.info),
        }
    }

    /// Returns the format of its numbers, if they are its values, one after the other.
    pub(super) fn plain(&self) -> Option<WeightDtype> {
        WeightDtype::of(self.info.dtype).filter(|_| matches!(self.form, Form::Plain))
    }

    /// Tells whether [`Stored::read`] reads such a tensor.
    pub(super) fn is_read(&self) -> bool {
        match &self.form {
            Form::Plain | Form::Columns(_) => WeightDtype::of(self.info.dtype).is_some(),
            Form::Mxfp4 { .. } => true,
            Form::Fp8 { scales } => {
                let shape = &scales.info.shape;
                let blocks = self.info.shape.iter().map(|side| side.div_ceil(BLOCK));
                let one = shape.iter().product::<usize>() == 1;
                let fits = one || shape.iter().copied().eq(blocks);
                fits && self.info.shape.len() == 2 && WeightDtype::of(scales.info.dtype).is_some()
            }
        }
    }

    /// Appends the values to `values`, and tells whether all are finite. `None` if they are not read.
    pub(super) fn read(
        &self,
        files: &[TensorFile],
        values: &mut Vec<f32>,
    ) -> Result<Option<bool>, CheckpointError> {
        if !self.is_read() {
            return Ok(None);
        }

        let file = &files[self.file];
        if let Some(dtype) = self.plain() {
            return file.read(&self.info, dtype, values).map(Some);
        }

        let before = values.len();
        match &self.form {
            Form::Plain => {}
            Form::Columns(every) => {
                let mut all = Vec::new();
                if let Some(dtype) = WeightDtype::of(self.info.dtype) {
                    file.read(&self.info, dtype, &mut all)?;
                }
                let columns = self.info.shape[0] * every.step;
                for column in (every.first..columns).step_by(every.step) {
                    values.extend(all.iter().skip(column).step_by(columns));
                }
            }

            Form::Mxfp4 { every, scales } => {
                let numbers = file.bytes(self.info.data_offsets)?;
                let scales = files[scales.file].bytes(scales.info.data_offsets)?;
                let groups = self.info.shape[1] / GROUP;
                let rows = numbers.chunks(groups * GROUP / 2).zip(scales.chunks(groups));
                for (numbers, scales) in rows.skip(every.first).step_by(every.step) {
                    mxfp4(numbers, scales, values);
                }
            }

            Form::Fp8 { scales } => {
                let numbers = file.bytes(self.info.data_offsets)?;
                let mut factors = Vec::new();
                if let Some(dtype) = WeightDtype::of(scales.info.dtype) {
                    files[scales.file].read(&scales.info, dtype, &mut factors)?;
                }
                fp8(&numbers, self.info.shape[1], &factors, values);
            }
        }
        Ok(Some(values[before..].iter().all(|value| value.is_finite())))
    }
}

/// Appends the values of a row of numbers of 4 bits (E2M1), two in a byte, with their scales, powers of two (E8M0).
fn mxfp4(numbers: &[u8], scales: &[u8], values: &mut Vec<f32>) {
    const POSITIVE: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let number = |bits: u8| {
        let size = POSITIVE[usize::from(bits & 7)];
        if bits & 8 == 0 { size } else { -size }
    };

    for (numbers, &scale) in numbers.chunks(GROUP / 2).zip(scales) {
        // The last code is no number.
        let scale = if scale == 255 { f32::NAN } else { 2f64.powi(i32::from(scale) - 127) as f32 };
        let pairs = numbers.iter().flat_map(|byte| [byte & 15, byte >> 4]);
        values.extend(pairs.map(|bits| number(bits) * scale));
    }
}

/// Appends the values of a matrix of numbers of 8 bits with so many columns: each times the scale of its block, or times
/// the only scale.
fn fp8(numbers: &[u8], columns: usize, scales: &[f32], values: &mut Vec<f32>) {
    let table: Vec<f32> = (0..=255).map(e4m3).collect();
    let across = columns.div_ceil(BLOCK);
    for (row, numbers) in numbers.chunks(columns.max(1)).enumerate() {
        for (block, numbers) in numbers.chunks(BLOCK).enumerate() {
            let scale = if scales.len() == 1 { 0 } else { row / BLOCK * across + block };
            values.extend(numbers.iter().map(|bits| table[usize::from(*bits)] * scales[scale]));
        }
    }
}

/// Returns the number that these bits are: a sign, four bits of exponent and three of mantissa, without infinities.
fn e4m3(bits: u8) -> f32 {
    let mantissa = f32::from(bits & 7) / 8.0;
    let size = match bits >> 3 & 15 {
        0 => mantissa / 64.0,
        15 if bits & 7 == 7 => f32::NAN,
        exponent => (1.0 + mantissa) * 2f32.powi(i32::from(exponent) - 7),
    };
    if bits < 128 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_eight_bits_are_those_of_the_format() {
        for (bits, number) in
            [(0, 0.0), (1, 0.001_953_125), (8, 0.015_625), (0x38, 1.0), (0x7e, 448.0), (0xb8, -1.0)]
        {
            assert_eq!(e4m3(bits), number, "{bits:x}");
        }
        assert!(e4m3(0x7f).is_nan() && e4m3(0xff).is_nan());
    }

    #[test]
    fn each_block_of_a_matrix_has_its_scale() {
        let mut values = Vec::new();
        fp8(&[0x38; 130 * 129], 129, &[1.0, 2.0, 3.0, 4.0], &mut values);
        let at = |row: usize, column: usize| values[row * 129 + column];
        assert_eq!([at(127, 127), at(0, 128), at(128, 0), at(129, 128)], [1.0, 2.0, 3.0, 4.0]);
    }

    #[test]
    fn the_first_of_two_numbers_of_four_bits_is_the_lower_half_of_a_byte() {
        let mut values = Vec::new();
        mxfp4(&[[0x1f; 16], [0xa7; 16]].concat(), &[128, 126], &mut values);
        assert_eq!(values[..2], [-12.0, 1.0]);
        assert_eq!(values[32..34], [3.0, -0.5]);
        assert_eq!(values.len(), 64);
    }
}
