//! Sums of rows on GPUs, and additions to rows.

use super::{split::Parts, *};

/// Approximate number of rows that one unit sums, if there are many.
const AT_ONCE: usize = 64;

/// Sums all rows, `[rows, width]` to `[width]`.
pub(crate) fn column_sums(x: &Tensor<2>) -> Option<Tensor<1>> {
    let width = x.dims()[1];
    Some(sums(wide(x)?, width))
}

/// Sums all rows of a buffer: by blocks of rows, until one row is left.
pub(super) fn sums(mut x: Buffer, width: usize) -> Tensor<1> {
    loop {
        let rows = count(&x) / width;
        let at_once = if rows <= 2 * AT_ONCE { rows } else { AT_ONCE };
        let blocks = rows.div_ceil(at_once);

        let sum = empty(&x, [blocks, width], DType::F32);
        sum_rows::launch(
            &x.client.clone(),
            units(blocks * width),
            dim(),
            x.into_buffer_arg(),
            sum.clone().into_buffer_arg(),
            width,
            at_once,
        );

        if blocks == 1 {
            return tensor::<2>(sum).reshape([width]);
        }
        x = sum;
    }
}

#[cube(launch)]
fn sum_rows(x: &[f32], sum: &mut [f32], width: usize, at_once: usize) {
    if ABSOLUTE_POS < sum.len() {
        let mut at = ABSOLUTE_POS / width * at_once * width + ABSOLUTE_POS % width;
        // The last block may have fewer rows.
        let end = min((ABSOLUTE_POS / width + 1) * at_once * width, x.len());

        let mut all = f32::new(0.0);
        while at < end {
            all += x[at];
            at += width;
        }
        sum[ABSOLUTE_POS] = all;
    }
}

/// Adds each row of `gradient` to the row of `table` that its token names, equal tokens in their order.
pub(crate) fn add(table: Tensor<2>, tokens: &[u32], gradient: &Tensor<2>) -> Tensor<2> {
    let gradient = taken(gradient);
    let [rows, width] = table.dims();

    // `indices` lists the tokens in the order of their rows. For each row that is named, `named` has its number and
    // where its own indices begin.
    let mut indices: Vec<u32> = (0..tokens.len() as u32).collect();
    indices.sort_by_key(|&index| tokens[index as usize]);
    let mut named: Vec<[u32; 2]> = Vec::new();
    for (at, &index) in indices.iter().enumerate() {
        let row = tokens[index as usize];
        assert!((row as usize) < rows, "token {row} has no row among {rows}");
        if named.last().is_none_or(|[last, _]| *last != row) {
            named.push([row, at as u32]);
        }
    }

    let count = named.len();
    // An end for the last row: a kernel reads where the next one begins.
    named.push([0, indices.len() as u32]);
    let table = own(table);
    let indices = uploaded(indices, &gradient);
    let named = uploaded(named.concat(), &gradient);

    add_rows::launch(
        &table.client.clone(),
        units(count * width),
        dim(),
        gradient.into_buffer_arg(),
        indices.into_buffer_arg(),
        named.into_buffer_arg(),
        table.clone().into_buffer_arg(),
        width,
        count,
    );

    tensor(table)
}

#[cube(launch)]
fn add_rows(
    gradient: &[f32],
    indices: &[u32],
    named: &[u32],
    table: &mut [f32],
    width: usize,
    count: usize,
) {
    let (of, column) = (ABSOLUTE_POS / width, ABSOLUTE_POS % width);
    if of < count {
        let row = named[2 * of] as usize;
        let mut at = named[2 * of + 1] as usize;
        let end = named[2 * of + 3] as usize;

        let mut sum = f32::new(0.0);
        while at < end {
            sum += gradient[indices[at] as usize * width + column];
            at += 1;
        }
        table[row * width + column] += sum;
    }
}

/// Computes `y + beside + bias + onto` in a format, row by row, where `y` may be in parts. Any of the three may be
/// missing. Sums are f32, and are rounded at their end.
pub(super) fn plus(
    y: Parts,
    bias: Option<Buffer>,
    more: [Option<Buffer>; 2],
    out_format: DType,
) -> Buffer {
    let Parts { sums: y, count } = y;
    let with = more.each_ref().map(Option::is_some);
    let with_bias = bias.is_some();
    if count == 1 && !with_bias && with == [false; 2] && y.dtype == out_format {
        return y;
    }
    debug_assert_eq!(y.dtype, DType::F32, "what is added up is f32");

    // A missing buffer is replaced by one that is not read.
    let [rows, columns] = y.meta.shape().dims::<2>();
    let sum = empty(&y, [rows / count, columns], out_format);
    let bias = bias.unwrap_or(y.clone());
    let [beside, onto] = more.map(|more| more.unwrap_or(y.clone()));

    plus_rows::launch(
        &y.client.clone(),
        units(self::count(&sum)),
        dim(),
        y.into_buffer_arg(),
        beside.into_buffer_arg(),
        bias.into_buffer_arg(),
        onto.into_buffer_arg(),
        sum.clone().into_buffer_arg(),
        count,
        with[0],
        with_bias,
        with[1],
        format(&sum),
    );

    sum
}

#[cube(launch)]
fn plus_rows<S: Float>(
    y: &[f32],
    beside: &[f32],
    bias: &[f32],
    onto: &[f32],
    sum: &mut [S],
    parts: usize,
    #[comptime] with_beside: bool,
    #[comptime] with_bias: bool,
    #[comptime] with_onto: bool,
    #[define(S)] _format: ElemType,
) {
    if ABSOLUTE_POS < sum.len() {
        let mut all = y[ABSOLUTE_POS];
        for part in 1..parts {
            all += y[part * sum.len() + ABSOLUTE_POS];
        }

        if with_beside {
            all += beside[ABSOLUTE_POS];
        }
        if with_bias {
            all += bias[ABSOLUTE_POS % bias.len()];
        }
        if with_onto {
            all += onto[ABSOLUTE_POS];
        }

        sum[ABSOLUTE_POS] = S::cast_from(all);
    }
}

/// Adds `more` to the numbers of `sum` starting at `start`, in place.
pub(super) fn add_to(sum: Buffer, more: Buffer, start: usize) -> Buffer {
    add_in_place::launch(
        &sum.client.clone(),
        units(count(&more)),
        dim(),
        more.into_buffer_arg(),
        sum.clone().into_buffer_arg(),
        start,
    );
    sum
}

#[cube(launch)]
fn add_in_place(more: &[f32], sum: &mut [f32], start: usize) {
    if ABSOLUTE_POS < more.len() {
        sum[start + ABSOLUTE_POS] += more[ABSOLUTE_POS];
    }
}

/// Copies numbers into new memory.
pub(super) fn copied(x: Buffer) -> Buffer {
    let to = Buffer { handle: x.client.empty(count(&x) * x.dtype.size()), ..x.clone() };
    copy(x, &to);
    to
}

/// Copies numbers to the beginning of others.
pub(super) fn copy(from: Buffer, to: &Buffer) {
    copy_all::launch(
        &to.client.clone(),
        units(count(&from)),
        dim(),
        from.into_buffer_arg(),
        to.clone().into_buffer_arg(),
        format(to),
    );
}

#[cube(launch)]
fn copy_all<X: Float>(from: &[X], to: &mut [X], #[define(X)] _format: ElemType) {
    if ABSOLUTE_POS < from.len() {
        to[ABSOLUTE_POS] = from[ABSOLUTE_POS];
    }
}
