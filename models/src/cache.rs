use burn::tensor::{DType, Device, Int, Tensor, TensorData};

use firebrick_kernels::{Compute, MASKED, attention_over_pages};

use crate::{DecodeCache, TokenBatch};

/// Keys and values of the rows that are being decoded.
///
/// All rows write at the same column, the cursor; a row that began later starts at a later column.
/// So a decode step is one write in place for the whole batch, a new row can join at any time with
/// its prompt right before the cursor, and a finished row costs nothing once it is dropped
/// ([`DecodeCache::arrange`]).
///
/// A prefill makes one of its batch, writes the keys and values of every layer ([`KvCache::fill`]),
/// attending to the batch's own, and then moves the cursor past them ([`KvCache::advance`]). Decoding a
/// token opens a column ([`KvCache::next_column`]), writes to it in every layer and attends to all that is
/// there ([`KvCache::attend`]), and moves on by one.
///
/// Columns lie in pages. A full cache gets one more page, as wide as all of them before, and nothing is
/// copied: memory never holds a cache twice, and there are few pages.
#[derive(Clone, Debug)]
pub struct KvCache {
    layers: Vec<Vec<Page>>,
    masks: Vec<Mask>, // of the pages
    starts: Vec<usize>,
    cursor: usize,
    positions: Tensor<2, Int>, // [rows, 1]: of the next token
    window: Option<usize>,
}

/// The fewest columns that a cache grows by, unless fewer are needed: with more a row would attend to
/// emptiness, and with fewer there would be many pages.
const COLUMNS: usize = 64;

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
        let page = || {
            vec![Page::empty([rows, kv_heads, width, head_dim], compute.dtype().into(), &device)]
        };
        let starts = prompts.starts();
        KvCache {
            layers: (0..layers).map(|_| page()).collect(),
            cursor: 0,
            positions: positions(&starts, 0, &device),
            masks: vec![Mask::new(&starts, 0, 0..width, window, &device)],
            starts,
            window,
        }
    }

    /// Number of columns.
    pub fn width(&self) -> usize {
        self.masks.iter().map(|mask| mask.columns.len()).sum()
    }

    /// Opens the cursor's column to all rows, and closes the one that falls out of the window; gives
    /// the positions, `[rows, 1]`, of the tokens that are written there.
    ///
    /// # Panics
    /// When there is no room.
    pub fn next_column(&mut self) -> Tensor<2, Int> {
        assert!(self.room() > 0, "a full cache is arranged anew");
        let cursor = self.cursor;
        for mask in &mut self.masks {
            set(&mut mask.full, &mask.columns, cursor, 0.0);
            if let (Some(windowed), Some(window)) = (&mut mask.windowed, self.window) {
                set(windowed, &mask.columns, cursor, 0.0);
                if cursor >= window {
                    set(windowed, &mask.columns, cursor - window, MASKED);
                }
            }
        }
        self.positions.clone()
    }

    /// Writes keys and values of a layer, `[rows, kv_heads, tokens, head_dim]`, at the cursor, in place.
    ///
    /// # Panics
    /// When there is no such layer, or no room in the page that the cursor is in.
    pub fn fill(&mut self, layer: usize, keys: Tensor<4>, values: Tensor<4>) {
        let cursor = self.cursor;
        let page = self.masks.iter().position(|mask| mask.columns.contains(&cursor));
        let page = page.expect("a full cache is arranged anew");
        let column = cursor - self.masks[page].columns.start;
        self.layers[layer][page].write(column, keys, values);
    }

    /// Writes keys and values of a layer for the open column, `[rows, kv_heads, 1, head_dim]`, and gives what
    /// `query`, `[rows, heads, head_dim]`, finds in all columns, `[rows, heads · head_dim]`; in those of the
    /// cache's window where the layer has one.
    ///
    /// # Panics
    /// As [`KvCache::fill`].
    pub fn attend(
        &mut self,
        layer: usize,
        query: Tensor<3>,
        keys: Tensor<4>,
        values: Tensor<4>,
        windowed: bool,
    ) -> Tensor<2> {
        self.fill(layer, keys, values);
        let pages = self.layers[layer].iter().zip(&self.masks).filter(|(_, mask)| {
            // A page that no row has begun to write is not looked at.
            mask.columns.start <= self.cursor
        });
        let pages = pages.map(|(page, mask)| (&page.keys, &page.values, mask.of(windowed)));
        attention_over_pages(query, pages)
    }

    /// Moves the cursor past so many tokens, which every layer has written.
    pub fn advance(&mut self, tokens: usize) {
        self.cursor += tokens;
        self.positions.inplace(|positions| positions.add_scalar(tokens as i64));
    }

    /// The same rows with one more page, of at most `room` columns.
    fn grown(mut self, room: usize) -> KvCache {
        let (width, device) = (self.width(), self.positions.device());
        let more = room.min(width.max(COLUMNS));
        for pages in &mut self.layers {
            let [rows, heads, _, head_dim] = pages[0].keys.dims();
            let format = pages[0].keys.dtype();
            pages.push(Page::empty([rows, heads, more, head_dim], format, &device));
        }
        // All of them: what a prefill wrote was open to nobody before.
        let pages = self.masks.iter().map(|mask| mask.columns.clone());
        let masks = pages
            .chain(std::iter::once(width..width + more))
            .map(|columns| Mask::new(&self.starts, self.cursor, columns, self.window, &device));
        self.masks = masks.collect();
        self
    }
}

impl DecodeCache for KvCache {
    fn rows(&self) -> usize {
        self.starts.len()
    }

    fn room(&self) -> usize {
        self.width() - self.cursor
    }

    /// Columns that no row uses any more are given up, unless the rows stay what they are.
    fn arrange(
        self,
        keep: &[usize],
        newcomers: Option<(&KvCache, &[usize])>,
        room: usize,
    ) -> KvCache {
        if newcomers.is_none() && keep.iter().copied().eq(0..self.rows()) && self.room() == 0 {
            return self.grown(room);
        }
        let device = self.positions.device();
        let first_used = keep.iter().map(|&row| self.starts[row]).min().unwrap_or(self.cursor);
        let kept_length = self.cursor - first_used;
        let new_length = newcomers.map_or(0, |(cache, _)| cache.cursor);
        let cursor = kept_length.max(new_length);
        let width = cursor + room.min(COLUMNS);

        let kept_starts =
            keep.iter().map(|&row| self.starts[row] - first_used + cursor - kept_length);
        let new_starts = newcomers.into_iter().flat_map(|(cache, join)| {
            join.iter().map(move |&row| cache.starts[row] + cursor - new_length)
        });
        let starts: Vec<usize> = kept_starts.chain(new_starts).collect();

        let all = Columns { masks: &self.masks, range: first_used..self.cursor };
        let others =
            newcomers.map(|(cache, _)| Columns { masks: &cache.masks, range: 0..new_length });
        let layers = self
            .layers
            .into_iter()
            .enumerate()
            .map(|(index, pages)| {
                let [_, heads, _, head_dim] = pages[0].keys.dims();
                let format = pages[0].keys.dtype();
                let shape = [starts.len(), heads, width, head_dim];
                let mut whole = Page::empty(shape, format, &device);
                let mut row = 0;
                if !keep.is_empty() {
                    whole.take(&pages, &all, keep, [row, cursor]);
                    row = keep.len();
                }
                if let (Some((cache, join)), Some(columns)) = (newcomers, &others) {
                    whole.take(&cache.layers[index], columns, join, [row, cursor]);
                }
                vec![whole]
            })
            .collect();
        KvCache {
            layers,
            cursor,
            positions: positions(&starts, cursor, &device),
            masks: vec![Mask::new(&starts, cursor, 0..width, self.window, &device)],
            starts,
            window: self.window,
        }
    }
}

/// One layer's keys and values of some columns, `[rows, kv_heads, columns, head_dim]`.
#[derive(Clone, Debug)]
struct Page {
    keys: Tensor<4>,
    values: Tensor<4>,
}

/// Columns of a cache, and the pages that they are in.
struct Columns<'a> {
    masks: &'a [Mask],
    range: std::ops::Range<usize>,
}

impl Page {
    fn empty(shape: [usize; 4], format: DType, device: &Device) -> Page {
        let empty = || Tensor::zeros(shape, (device, format));
        Page { keys: empty(), values: empty() }
    }

    fn write(&mut self, column: usize, keys: Tensor<4>, values: Tensor<4>) {
        let [rows, heads, tokens, head_dim] = keys.dims();
        let place = [0..rows, 0..heads, column..column + tokens, 0..head_dim];
        self.keys.inplace(|page| page.slice_assign(place.clone(), keys));
        self.values.inplace(|page| page.slice_assign(place, values));
    }

    /// Copies `columns` of some rows of `pages` to the rows from `row` on, so that they end before `cursor`.
    fn take(
        &mut self,
        pages: &[Page],
        columns: &Columns,
        rows: &[usize],
        [row, cursor]: [usize; 2],
    ) {
        let indices: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
        let data = TensorData::new(indices, [rows.len()]);
        let indices = Tensor::<1, Int>::from_data(data, &self.keys.device());
        for (page, mask) in pages.iter().zip(columns.masks) {
            let start = mask.columns.start.max(columns.range.start);
            let end = mask.columns.end.min(columns.range.end);
            if start >= end {
                continue;
            }
            let within = start - mask.columns.start..end - mask.columns.start;
            let first = cursor - (columns.range.end - start);
            for (own, other) in [(&mut self.keys, &page.keys), (&mut self.values, &page.values)] {
                let part = other.clone().slice_dim(2, within.clone()).select(0, indices.clone());
                let [_, heads, count, head_dim] = part.dims();
                let place = [row..row + rows.len(), 0..heads, first..first + count, 0..head_dim];
                own.inplace(|own| own.slice_assign(place, part));
            }
        }
    }
}

/// A page's bias, which is added to its attention scores: 0 where the next token sees a column, and a number of
/// which the softmax makes 0 where a row has not written it, or it is out of the window.
#[derive(Clone, Debug)]
struct Mask {
    columns: std::ops::Range<usize>,
    full: Tensor<4>, // [rows, 1, 1, columns]
    windowed: Option<Tensor<4>>,
}

impl Mask {
    /// The bias for the next column, `cursor`, over those before it.
    fn new(
        starts: &[usize],
        cursor: usize,
        columns: std::ops::Range<usize>,
        window: Option<usize>,
        device: &Device,
    ) -> Mask {
        let width = columns.len();
        let bias = |window: usize| -> Tensor<4> {
            let mut values = vec![MASKED; starts.len() * width];
            for (row, &start) in starts.iter().enumerate() {
                let first = start.max(cursor.saturating_sub(window)).max(columns.start);
                let end = cursor.min(columns.end);
                if first < end {
                    let at = row * width + first - columns.start;
                    values[at..at + end - first].fill(0.0);
                }
            }
            Tensor::from_data(TensorData::new(values, [starts.len(), 1, 1, width]), device)
        };
        Mask { full: bias(usize::MAX), windowed: window.map(bias), columns: columns.clone() }
    }

    fn of(&self, windowed: bool) -> Tensor<4> {
        self.windowed.as_ref().filter(|_| windowed).unwrap_or(&self.full).clone()
    }
}

/// Sets a column for all rows, if the page has it.
fn set(bias: &mut Tensor<4>, columns: &std::ops::Range<usize>, column: usize, value: f32) {
    if columns.contains(&column) {
        let (rows, at) = (bias.dims()[0], column - columns.start);
        let values = Tensor::full([rows, 1, 1, 1], value, &bias.device());
        bias.inplace(|bias| bias.slice_assign([0..rows, 0..1, 0..1, at..at + 1], values));
    }
}

fn positions(starts: &[usize], cursor: usize, device: &Device) -> Tensor<2, Int> {
    let values: Vec<i32> = starts.iter().map(|&start| cursor as i32 - start as i32).collect();
    Tensor::from_data(TensorData::new(values, [starts.len(), 1]), device)
}
