//! The tokens that each token of a batch sees, in place of an attention mask.

use std::{ops::Range, sync::OnceLock};

use burn::tensor::{Device, Int, Tensor, TensorData};

/// A text of a batch, or the part of a text that it does not share with others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The segment's places.
    pub places: Range<usize>,
    /// The segment whose text this one continues, if there is one. That segment must not continue another.
    pub after: Option<usize>,
}

/// A description of the tokens that each token of a batch sees: those up to it in its own segment, and all of the
/// segment that its own continues.
///
/// An [`attention`](crate::attention) gets this instead of a mask, whose size would be the square of the batch's.
#[derive(Clone, Debug)]
pub struct Sight {
    segments: Vec<Segment>,
    places: usize,
    device: Device,
    /// The segments as tensors, made when they are first asked for.
    tiled: OnceLock<Tiled>,
    #[cfg(feature = "gpu")]
    pub(crate) on_gpu: OnceLock<crate::cube::plan::Plan>,
}

/// A batch's segments as rectangles, so that tensor operations can go through many segments at once.
#[derive(Clone, Debug)]
pub(crate) struct Tiled {
    /// The rectangles. Every segment is a row of one of them.
    pub(crate) tiles: Vec<Tile>,
    pub(crate) joints: Vec<Joint>,
    /// The index of each place of the batch among the tiles' rows put one behind the other. At padding it points
    /// behind the last row. Absent if the two orders are the same.
    pub(crate) order: Option<Tensor<1, Int>>,
}

/// Segments of similar lengths as the rows of a rectangle, which begin together.
#[derive(Clone, Debug)]
pub(crate) struct Tile {
    /// The place of the tile's first token.
    first: usize,
    /// The places of all tokens, unless they lie side by side. A place without a token repeats one of its row.
    places: Option<Tensor<1, Int>>,
    pub(crate) rows: usize,
    pub(crate) width: usize,
    /// 1 at tokens and 0 behind a row's last one, `[rows · width, 1, 1]`; absent if there are only tokens.
    pub(crate) present: Option<Tensor<3>>,
}

/// Neighbouring segments that continue the same segment.
#[derive(Clone, Debug)]
pub(crate) struct Joint {
    /// The places of their tokens.
    pub(crate) queries: Range<usize>,
    /// The places of the segment that all of them see.
    pub(crate) keys: Range<usize>,
    /// The distance of each query from the first key.
    pub(crate) positions: Vec<usize>,
}

impl Sight {
    /// Makes the sight of a batch of so many places. `device` is the device of its tensors.
    pub fn new(segments: &[Segment], places: usize, device: &Device) -> Self {
        Sight {
            segments: segments.to_vec(),
            places,
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
    pub(crate) fn places(&self) -> usize {
        self.places
    }

    pub(crate) fn tiled(&self) -> &Tiled {
        self.tiled.get_or_init(|| Tiled::new(&self.segments, self.places, &self.device))
    }
}

impl Tiled {
    fn new(segments: &[Segment], places: usize, device: &Device) -> Self {
        let mut by_length: Vec<&Segment> = segments.iter().collect();
        by_length.sort_by_key(|segment| std::cmp::Reverse(segment.places.len()));
        let mut tiles = Vec::new();
        let mut order = vec![None; places];
        let mut length = 0;
        let mut rest = by_length.as_slice();
        while let Some(longest) = rest.first() {
            let width = longest.places.len();
            let like = rest.iter().take_while(|segment| alike(segment.places.len(), width));
            let (rows, others) = rest.split_at(like.count());
            let mut rows: Vec<Range<usize>> = rows.iter().map(|row| row.places.clone()).collect();
            rows.sort_by_key(|row| row.start);
            for (row, places) in rows.iter().enumerate() {
                for (column, place) in places.clone().enumerate() {
                    order[place] = Some(length + row * width + column);
                }
            }
            length += rows.len() * width;
            tiles.push(Tile::new(&rows, width, device));
            rest = others;
        }
        let same =
            length == places && order.iter().enumerate().all(|(place, &at)| at == Some(place));
        let order = order.into_iter().map(|at| at.unwrap_or(length) as i32);
        Tiled {
            tiles,
            joints: joints(segments),
            order: (!same).then(|| indices(order.collect(), device)),
        }
    }
}

impl Tile {
    fn new(rows: &[Range<usize>], width: usize, device: &Device) -> Self {
        let count = rows.len();
        let full = rows.iter().all(|row| row.len() == width);
        let adjacent = rows.windows(2).all(|pair| pair[0].end == pair[1].start);
        let places = (!full || !adjacent).then(|| {
            let place =
                |row: &Range<usize>, column: usize| (row.start + column.min(row.len() - 1)) as i32;
            let of_row = |row: &Range<usize>| {
                let row = row.clone();
                (0..width).map(move |column| place(&row, column))
            };
            indices(rows.iter().flat_map(of_row).collect(), device)
        });
        let present = (!full).then(|| {
            let of_row = |row: &Range<usize>| {
                let length = row.len();
                (0..width).map(move |column| f32::from(u8::from(column < length)))
            };
            let present: Vec<f32> = rows.iter().flat_map(of_row).collect();
            Tensor::from_data(TensorData::new(present, [count * width, 1, 1]), device)
        });
        Tile { first: rows[0].start, places, rows: count, width, present }
    }

    /// Takes the tile's rows out of `x`, `[places, …]` to `[rows · width, …]`.
    pub(crate) fn take(&self, x: &Tensor<3>) -> Tensor<3> {
        match &self.places {
            None => x.clone().slice_dim(0, self.first..self.first + self.rows * self.width),
            Some(places) => x.clone().select(0, places.clone()),
        }
    }
}

/// Tells whether a segment may be a row as wide as the longest. A fifth of padding is allowed, and any padding in
/// short rows.
fn alike(length: usize, longest: usize) -> bool {
    5 * length >= 4 * longest || longest <= 16
}

fn joints(segments: &[Segment]) -> Vec<Joint> {
    let mut joints: Vec<Joint> = Vec::new();
    for segment in segments {
        let Some(before) = segment.after else { continue };
        let (keys, queries) = (segments[before].places.clone(), segment.places.clone());
        let positions = keys.len()..keys.len() + queries.len();
        match joints.last_mut() {
            Some(last) if last.keys == keys && last.queries.end == queries.start => {
                last.queries.end = queries.end;
                last.positions.extend(positions);
            }
            _ => joints.push(Joint { queries, keys, positions: positions.collect() }),
        }
    }
    joints
}

fn indices(places: Vec<i32>, device: &Device) -> Tensor<1, Int> {
    let count = places.len();
    Tensor::from_data(TensorData::new(places, [count]), device)
}
