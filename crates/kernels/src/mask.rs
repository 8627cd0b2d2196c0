//! Mask of a packed batch: which tokens each token attends to, as a list of segments instead of a matrix.

use std::{ops::Range, sync::OnceLock};

use burn::tensor::{Device, Int, Tensor, TensorData};

use crate::segment::Segment;

/// Attention mask of a packed batch: a token attends to the tokens up to it in its own segment, and all of the
/// segment's prefix. This is a block-diagonal causal mask over packed sequences; what other libraries pass as
/// `cu_seqlens`.
///
/// An [`attention`](crate::attention) takes this instead of a mask, whose size would be the square of the batch's.
#[derive(Clone, Debug)]
pub struct PackedMask {
    segments: Vec<Segment>,
    tokens: usize,
    device: Device,
    /// Segments as tensors, made on first use.
    tiled: OnceLock<Tiled>,
    #[cfg(feature = "gpu")]
    pub(crate) on_gpu: OnceLock<crate::cube::plan::Plan>,
}

/// A batch's segments as rectangles, so that tensor operations can process many segments together.
#[derive(Clone, Debug)]
pub(crate) struct Tiled {
    /// Every segment is a row of one of these.
    pub(crate) tiles: Vec<Tile>,
    pub(crate) shared_prefixes: Vec<SharedPrefix>,
    /// Maps each token of the batch to its index among the tiles' concatenated rows, and padding to an index after the
    /// last row. Absent if the two orders are the same.
    pub(crate) order: Option<Tensor<1, Int>>,
}

/// Segments of similar lengths as the rows of a rectangle, which begin together.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    /// Index of the tile's first token.
    first: usize,
    /// Indices of all tokens, unless they are contiguous. After a row's last token, its index is repeated.
    indices: Option<Tensor<1, Int>>,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// 1 at tokens and 0 after a row's last one, `[rows · width, 1, 1]`; absent if there are only tokens.
    pub(crate) present: Option<Tensor<3>>,
}

/// Neighbouring segments with the same prefix.
#[derive(Clone, Debug)]
pub(crate) struct SharedPrefix {
    /// Range of their tokens.
    pub(crate) queries: Range<usize>,
    /// Range of the prefix, which all of them attend to.
    pub(crate) keys: Range<usize>,
    /// Distance of each query from the first key.
    pub(crate) positions: Vec<usize>,
}

impl PackedMask {
    /// Makes the mask of a batch of `tokens` tokens, padding included. Its tensors are on `device`.
    pub fn new(segments: &[Segment], tokens: usize, device: &Device) -> Self {
        PackedMask {
            segments: segments.to_vec(),
            tokens,
            device: device.clone(),
            tiled: OnceLock::new(),
            #[cfg(feature = "gpu")]
            on_gpu: OnceLock::new(),
        }
    }

    /// Returns the texts that tokens belong to.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    #[cfg(feature = "gpu")]
    pub(crate) fn tokens(&self) -> usize {
        self.tokens
    }

    pub(crate) fn tiled(&self) -> &Tiled {
        self.tiled.get_or_init(|| Tiled::new(&self.segments, self.tokens, &self.device))
    }
}

impl Tiled {
    fn new(segments: &[Segment], tokens: usize, device: &Device) -> Self {
        let mut by_length: Vec<&Segment> = segments.iter().collect();
        by_length.sort_by_key(|segment| std::cmp::Reverse(segment.range.len()));

        let mut tiles = Vec::new();
        let mut order = vec![None; tokens];
        let mut length = 0;
        let mut rest = by_length.as_slice();

        // From the longest segment downward: each tile takes those that fill its rows well enough.
        while let Some(longest) = rest.first() {
            let width = longest.range.len();
            let like = rest.iter().take_while(|segment| fills_row(segment.range.len(), width));
            let (rows, others) = rest.split_at(like.count());

            let mut rows: Vec<Range<usize>> = rows.iter().map(|row| row.range.clone()).collect();
            rows.sort_by_key(|row| row.start);

            for (row, range) in rows.iter().enumerate() {
                for (column, token) in range.clone().enumerate() {
                    order[token] = Some(length + row * width + column);
                }
            }

            length += rows.len() * width;
            tiles.push(Tile::new(&rows, width, device));
            rest = others;
        }

        // Most batches need no reordering.
        let same =
            length == tokens && order.iter().enumerate().all(|(token, &at)| at == Some(token));
        let order = order.into_iter().map(|at| at.unwrap_or(length) as i32);

        Tiled {
            tiles,
            shared_prefixes: shared_prefixes(segments),
            order: (!same).then(|| int_tensor(order.collect(), device)),
        }
    }
}

impl Tile {
    fn new(rows: &[Range<usize>], width: usize, device: &Device) -> Self {
        let count = rows.len();
        let full = rows.iter().all(|row| row.len() == width);
        let adjacent = rows.windows(2).all(|pair| pair[0].end == pair[1].start);

        let indices = (!full || !adjacent).then(|| {
            let index =
                |row: &Range<usize>, column: usize| (row.start + column.min(row.len() - 1)) as i32;
            let of_row = |row: &Range<usize>| {
                let row = row.clone();
                (0..width).map(move |column| index(&row, column))
            };
            int_tensor(rows.iter().flat_map(of_row).collect(), device)
        });

        // The copies after a row's last token must not contribute to a gradient.
        let present = (!full).then(|| {
            let of_row = |row: &Range<usize>| {
                let length = row.len();
                (0..width).map(move |column| f32::from(u8::from(column < length)))
            };
            let present: Vec<f32> = rows.iter().flat_map(of_row).collect();
            Tensor::from_data(TensorData::new(present, [count * width, 1, 1]), device)
        });

        Tile { first: rows[0].start, indices, rows: count, width, present }
    }

    /// Takes the tile's rows out of `x`, `[tokens, …]` to `[rows · width, …]`.
    pub(crate) fn take(&self, x: &Tensor<3>) -> Tensor<3> {
        match &self.indices {
            None => x.clone().slice_dim(0, self.first..self.first + self.rows * self.width),
            Some(indices) => x.clone().select(0, indices.clone()),
        }
    }
}

/// Tells whether a segment is long enough for a row as wide as the longest. A fifth of padding is allowed, and any
/// padding in short rows.
fn fills_row(length: usize, longest: usize) -> bool {
    5 * length >= 4 * longest || longest <= 16
}

fn shared_prefixes(segments: &[Segment]) -> Vec<SharedPrefix> {
    let mut all: Vec<SharedPrefix> = Vec::new();
    for segment in segments {
        let Some(prefix) = segment.prefix else { continue };
        let keys = segments[prefix].range.clone();
        let queries = segment.range.clone();
        let positions = keys.len()..keys.len() + queries.len();

        // Neighbours with the same prefix attend to it together.
        match all.last_mut() {
            Some(last) if last.keys == keys && last.queries.end == queries.start => {
                last.queries.end = queries.end;
                last.positions.extend(positions);
            }
            _ => all.push(SharedPrefix { queries, keys, positions: positions.collect() }),
        }
    }
    all
}

fn int_tensor(numbers: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}
