use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use crate::{
    DecodeCache, TokenBatch,
    ops::{Compute, MASKED, Mask},
};

/// Keys and values of the rows that are being decoded.
///
/// All rows write at the same column, the cursor; a row that began later starts at a later column.
/// So a decode step is one write in place for the whole batch, a new row can join at any time with
/// its prompt right before the cursor, and a finished row costs nothing once it is dropped
/// ([`DecodeCache::arrange`]).
///
/// A prefill makes one of its batch, writes the keys and values of every layer
/// ([`KvCache::write`]), attending with the batch's own mask, and then moves the cursor past them
/// ([`KvCache::advance`]). Decoding a token opens a column ([`KvCache::next_column`]), writes to it in
/// every layer, attends to all that the write gives back, and moves on by one.
#[derive(Clone, Debug)]
pub struct KvCache {
    layers: Vec<LayerCache>,
    starts: Vec<usize>,
    cursor: usize,
    positions: Tensor<2, Int>, // [rows, 1]: of the next token
    mask: Mask,                // [rows, 1, 1, width]: hides what a row has not written
    window: Option<usize>,
}

impl KvCache {
    /// An empty cache for the tokens of `prompts`, padded on the left, in the format of `compute`:
    /// for each layer keys and values of so many heads and numbers per head. Layers with a window
    /// look back through `window` columns.
    pub fn new(
        prompts: &TokenBatch,
        layers: usize,
        [kv_heads, head_dim]: [usize; 2],
        window: Option<usize>,
        compute: Compute,
    ) -> Self {
        let ([rows, width], device) = (prompts.tokens.dims(), prompts.tokens.device());
        let shape = [rows, kv_heads, width, head_dim];
        let empty = || Tensor::zeros(shape, (&device, DType::from(compute.dtype())));
        let starts = prompts.starts();
        KvCache {
            layers: (0..layers).map(|_| LayerCache { keys: empty(), values: empty() }).collect(),
            cursor: 0,
            positions: positions(&starts, 0, &device),
            mask: mask(&starts, 0, width, window, &device),
            starts,
            window,
        }
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.mask.full.dims()[3]
    }

    /// Opens the cursor's column to all rows, and closes the one that falls out of the window; gives
    /// the positions, `[rows, 1]`, and the mask for the token that is written there.
    ///
    /// # Panics
    /// When there is no room.
    pub fn next_column(&mut self) -> (Tensor<2, Int>, Mask) {
        let (rows, cursor) = (self.rows(), self.cursor);
        let set = |bias: &mut Tensor<4>, column: usize, value: f32| {
            let values = Tensor::full([rows, 1, 1, 1], value, &bias.device());
            bias.inplace(|bias| {
                bias.slice_assign([0..rows, 0..1, 0..1, column..column + 1], values)
            });
        };
        set(&mut self.mask.full, cursor, 0.0);
        if let (Some(windowed), Some(window)) = (&mut self.mask.windowed, self.window) {
            set(windowed, cursor, 0.0);
            if cursor >= window {
                set(windowed, cursor - window, MASKED);
            }
        }
        (self.positions.clone(), self.mask.clone())
    }

    /// Writes keys and values of a layer, `[rows, kv_heads, tokens, head_dim]`, at the cursor, in
    /// place; gives all of the layer, `[rows, kv_heads, width, head_dim]`.
    ///
    /// # Panics
    /// When there is no such layer, or no room.
    pub fn write(
        &mut self,
        layer: usize,
        keys: Tensor<4>,
        values: Tensor<4>,
    ) -> (Tensor<4>, Tensor<4>) {
        self.layers[layer].write(self.cursor, keys, values)
    }

    /// Moves the cursor past so many tokens, which every layer has written.
    pub fn advance(&mut self, tokens: usize) {
        self.cursor += tokens;
        self.positions.inplace(|positions| positions.add_scalar(tokens as i64));
    }
}

impl DecodeCache for KvCache {
    fn rows(&self) -> usize {
        self.starts.len()
    }

    fn room(&self) -> usize {
        self.width() - self.cursor
    }

    /// Columns that no row uses any more are given up.
    fn arrange(
        self,
        keep: &[usize],
        newcomers: Option<(&KvCache, &[usize])>,
        room: usize,
    ) -> KvCache {
        let device = self.mask.full.device();
        let first_used = keep.iter().map(|&row| self.starts[row]).min().unwrap_or(self.cursor);
        let kept_length = self.cursor - first_used;
        let new_length = newcomers.map_or(0, |(cache, _)| cache.cursor);
        let cursor = kept_length.max(new_length);
        let width = cursor + room;

        let kept_starts =
            keep.iter().map(|&row| self.starts[row] - first_used + cursor - kept_length);
        let new_starts = newcomers.into_iter().flat_map(|(cache, join)| {
            join.iter().map(move |&row| cache.starts[row] + cursor - new_length)
        });
        let starts: Vec<usize> = kept_starts.chain(new_starts).collect();

        let layers = self
            .layers
            .into_iter()
            .enumerate()
            .map(|(index, layer)| {
                let mut parts = Vec::new();
                if !keep.is_empty() {
                    parts.push((layer.take(keep, first_used..self.cursor), kept_length));
                }
                if let Some((cache, join)) = newcomers {
                    parts.push((cache.layers[index].take(join, 0..new_length), new_length));
                }
                LayerCache::assemble(parts, starts.len(), cursor, width)
            })
            .collect();
        KvCache {
            layers,
            cursor,
            positions: positions(&starts, cursor, &device),
            mask: mask(&starts, cursor, width, self.window, &device),
            starts,
            window: self.window,
        }
    }
}

/// One layer's keys and values, `[rows, kv_heads, width, head_dim]`.
#[derive(Clone, Debug)]
struct LayerCache {
    keys: Tensor<4>,
    values: Tensor<4>,
}

impl LayerCache {
    fn write(
        &mut self,
        column: usize,
        keys: Tensor<4>,
        values: Tensor<4>,
    ) -> (Tensor<4>, Tensor<4>) {
        let [rows, heads, tokens, head_dim] = keys.dims();
        let place = [0..rows, 0..heads, column..column + tokens, 0..head_dim];
        self.keys.inplace(|cache| cache.slice_assign(place.clone(), keys));
        self.values.inplace(|cache| cache.slice_assign(place, values));
        (self.keys.clone(), self.values.clone())
    }

    fn take(&self, rows: &[usize], columns: std::ops::Range<usize>) -> LayerCache {
        let indices: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
        let indices = Tensor::<1, Int>::from_data(
            TensorData::new(indices, [rows.len()]),
            &self.keys.device(),
        );
        let take = |cache: &Tensor<4>| {
            cache.clone().slice_dim(2, columns.clone()).select(0, indices.clone())
        };
        LayerCache { keys: take(&self.keys), values: take(&self.values) }
    }

    /// Stacks the parts so that each ends at the cursor.
    fn assemble(
        parts: Vec<(LayerCache, usize)>,
        rows: usize,
        cursor: usize,
        width: usize,
    ) -> LayerCache {
        let stack = |which: fn(&LayerCache) -> &Tensor<4>| {
            let [_, heads, _, head_dim] = which(&parts[0].0).dims();
            let device = which(&parts[0].0).device();
            let dtype = which(&parts[0].0).dtype();
            let mut whole = Tensor::<4>::zeros([rows, heads, width, head_dim], (&device, dtype));
            let mut row = 0;
            for (part, length) in &parts {
                let part = which(part).clone();
                let place =
                    [row..row + part.dims()[0], 0..heads, cursor - length..cursor, 0..head_dim];
                row = place[0].end;
                whole.inplace(|whole| whole.slice_assign(place, part));
            }
            whole
        };
        LayerCache { keys: stack(|part| &part.keys), values: stack(|part| &part.values) }
    }
}

fn positions(starts: &[usize], cursor: usize, device: &Device) -> Tensor<2, Int> {
    let values: Vec<i32> = starts.iter().map(|&start| cursor as i32 - start as i32).collect();
    Tensor::from_data(TensorData::new(values, [starts.len(), 1]), device)
}

/// What the next column may see of those before it; without a windowed one where the window is wider
/// than the cache.
fn mask(
    starts: &[usize],
    cursor: usize,
    width: usize,
    window: Option<usize>,
    device: &Device,
) -> Mask {
    let bias = |window: usize| -> Tensor<4> {
        let mut values = vec![MASKED; starts.len() * width];
        for (row, &start) in starts.iter().enumerate() {
            let first = start.max(cursor.saturating_sub(window)).min(cursor);
            values[row * width + first..row * width + cursor].fill(0.0);
        }
        Tensor::from_data(TensorData::new(values, [starts.len(), 1, 1, width]), device)
    };
    Mask { full: bias(width), windowed: window.filter(|&window| window < width).map(bias) }
}
