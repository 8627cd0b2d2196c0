//! Keys and values in pages, and the attention of new tokens over them.

use std::ops::Range;

use burn::tensor::{
    DType, Device, FloatDType, IndexingUpdateOp, Int, Tensor, TensorData, activation,
};

#[cfg(feature = "gpu")]
use crate::cube::pages as cube;
use crate::{
    Compute, Kernels, MASKED, Norm, Rotary, cpu,
    flex::{Numbers, numbers, tensor},
    joined, kernels,
};

/// The number of tokens in a page.
pub const PAGE: usize = 32;

/// The keys and values of one layer, in pages of [`PAGE`] tokens.
///
/// A [`Table`] tells the place of each token. A page may be in several rows of it: so the completions of a group
/// share their prompt.
#[derive(Clone, Debug)]
pub struct Pages {
    heads: usize,
    width: usize,
    store: Store,
}

#[derive(Clone, Debug)]
enum Store {
    /// Keys, `[pages, heads, width, PAGE]`, and values, `[pages, heads, PAGE, width]`. So a vector holds the same
    /// number of sixteen keys, or sixteen numbers of a value.
    Cpu { keys: Vec<f32>, values: Vec<f32> },
    /// Keys and values, `[pages · PAGE, heads, width]` each.
    Tensors(Box<[Tensor<3>; 2]>),
    /// Keys and values, `[pages · PAGE, heads, width]` each, for the GPUs' body.
    #[cfg(feature = "gpu")]
    Gpu(Box<[Tensor<3>; 2]>),
}

/// The places of tokens that are written.
#[derive(Clone, Debug, Default)]
pub struct Slots {
    /// The numbers of the written tokens among the given ones.
    pub tokens: Vec<usize>,
    /// The place of each token among the pages: page · PAGE + place in the page.
    pub places: Vec<usize>,
    /// Both for a GPU, made at the first write.
    #[cfg(feature = "gpu")]
    moves: std::sync::OnceLock<Moves>,
}

impl Slots {
    /// Makes slots for these tokens at these places.
    pub fn new(tokens: Vec<usize>, places: Vec<usize>) -> Self {
        Slots {
            tokens,
            places,
            #[cfg(feature = "gpu")]
            moves: std::sync::OnceLock::new(),
        }
    }

    #[cfg(feature = "gpu")]
    fn moves(&self, device: &Device) -> &Moves {
        let pairs = || self.tokens.iter().zip(&self.places).map(|(&token, &place)| [token, place]);
        self.moves.get_or_init(|| Moves::new(&pairs().collect::<Vec<_>>(), device))
    }
}

/// Copies of places or pages, each from one to another.
#[derive(Clone, Debug)]
pub struct Moves {
    #[cfg_attr(not(feature = "gpu"), allow(dead_code, reason = "none but GPUs copy pages"))]
    sides: Tensor<1, Int>,
}

impl Moves {
    /// Makes moves from the first of each pair to the second.
    pub fn new(pairs: &[[usize; 2]], device: &Device) -> Self {
        let sides = [0, 1].map(|side| pairs.iter().map(move |pair| pair[side]));
        let sides: Vec<usize> = sides.into_iter().flatten().collect();
        Moves { sides: ints(&sides, device) }
    }
}

/// Neighbouring tokens of a row in one page, from the page's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The number of the block of pages.
    pub block: usize,
    /// The number of the page in its block.
    pub page: usize,
    /// The number of tokens; 0 if the row will only go on in this page.
    pub tokens: usize,
}

/// The places of each row's tokens, in their order.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Vec<Span>>,
    /// Two things for a device that is no CPU, made when they are first needed: the tokens' places among the pages
    /// of all blocks, and the numbers that are added to scores, by window.
    index: Option<Tensor<1, Int>>,
    biases: Vec<(Option<usize>, Tensor<4>)>,
    #[cfg(feature = "gpu")]
    on_gpu: Option<cube::Rows>,
}

impl Table {
    /// Makes a table of these rows.
    pub fn new(rows: Vec<Vec<Span>>) -> Self {
        Table { rows, ..Table::default() }
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[Vec<Span>] {
        &self.rows
    }

    /// Returns the rows, to be changed.
    pub fn rows_mut(&mut self) -> &mut Vec<Vec<Span>> {
        *self = Table::new(std::mem::take(&mut self.rows));
        &mut self.rows
    }

    /// Adds one token to each row, in its first page with room. Returns the positions of these tokens, `[rows]`. A
    /// GPU is told of the rows if they were [changed](Table::rows_mut), and otherwise counts on by itself.
    ///
    /// # Panics
    /// If a row has no page with room.
    pub fn step(&mut self, device: &Device) -> Tensor<1, Int> {
        (self.index, self.biases) = (None, Vec::new());
        for row in &mut self.rows {
            let first = row.iter().rposition(|span| span.tokens == PAGE).map_or(0, |full| full + 1);
            row[first].tokens += 1;
        }
        #[cfg(feature = "gpu")]
        if cube::is_gpu(device) {
            let rows = match self.on_gpu.take() {
                Some(rows) => rows.stepped(),
                None => cube::Rows::new(&self.rows, device),
            };
            return self.on_gpu.insert(rows).newest();
        }
        let newest = (0..self.rows.len()).map(|row| self.length(row) - 1);
        ints(&newest.collect::<Vec<_>>(), device)
    }

    /// Returns how many more tokens each row can be given with the very launches of the next token, as far as the
    /// device's bodies go. It is 0 if the device does not count by itself. The device is told of the rows.
    pub fn alike(&mut self, device: &Device) -> usize {
        #[cfg(feature = "gpu")]
        if cube::is_gpu(device) {
            let rows = self.on_gpu.take().unwrap_or_else(|| cube::Rows::new(&self.rows, device));
            return self.on_gpu.insert(rows).alike();
        }
        let _ = device;
        0
    }

    /// Returns the place of each row's newest token, `[rows]`, if the device counts by itself and was told of the
    /// rows.
    pub fn counter(&self) -> Option<Tensor<1, Int>> {
        #[cfg(feature = "gpu")]
        return self.on_gpu.as_ref().map(cube::Rows::newest);
        #[cfg(not(feature = "gpu"))]
        None
    }

    /// Adds `tokens` tokens to each row, or takes them away if the number is negative. The device has counted them
    /// in `counter`.
    ///
    /// # Panics
    /// If a row has no room for them, or has fewer.
    pub fn count_on(&mut self, counter: Tensor<1, Int>, tokens: isize) {
        #[cfg(feature = "gpu")]
        if let Some(rows) = self.on_gpu.take() {
            self.on_gpu = Some(rows.counted(counter, tokens));
        }
        #[cfg(not(feature = "gpu"))]
        let _ = counter;
        for row in &mut self.rows {
            let length: usize = row.iter().map(|span| span.tokens).sum();
            let mut left = length.checked_add_signed(tokens).expect("as many are there");
            for span in row {
                span.tokens = left.min(PAGE);
                left -= span.tokens;
            }
            assert!(left == 0, "a row has room for its tokens");
        }
    }

    /// Returns the number of tokens in a row.
    pub fn length(&self, row: usize) -> usize {
        self.rows[row].iter().map(|span| span.tokens).sum()
    }

    fn longest(&self) -> usize {
        (0..self.rows.len()).map(|row| self.length(row)).max().unwrap_or(0)
    }
}

impl Pages {
    /// Makes empty pages, with so many heads of this width, in the format of `compute`.
    pub fn new(
        pages: usize,
        [heads, width]: [usize; 2],
        compute: Compute,
        device: &Device,
    ) -> Pages {
        let device = device.clone().inner();
        let fast =
            kernels() == Kernels::Fast && compute == Compute::F32 && device == Device::flex();
        let store = if fast {
            let empty = || vec![0.0; pages * PAGE * heads * width];
            Store::Cpu { keys: empty(), values: empty() }
        } else {
            let format: DType = compute.dtype().into();
            let empty = || Tensor::zeros([pages * PAGE, heads, width], (&device, format));
            Self::of_tensors([empty(), empty()], &device)
        };
        Pages { heads, width, store }
    }

    /// Tells whether all pages of a row must be full but the last ones, and all pages must be in one block. The
    /// device then knows by itself where a token is.
    pub fn dense(&self) -> bool {
        #[cfg(feature = "gpu")]
        if let Store::Gpu(_) = &self.store {
            return true;
        }
        false
    }

    /// Makes room for `pages` more pages, if these are dense.
    pub fn grow(&mut self, pages: usize) {
        #[cfg(feature = "gpu")]
        self.change(|store| store.map(|x| cube::grown(x, pages)));
        let _ = pages;
    }

    /// Copies pages of `from` into these, or these pages among themselves if there is no `from`. All must be
    /// dense.
    pub fn copy(&mut self, from: Option<&Pages>, moves: &Moves) {
        #[cfg(feature = "gpu")]
        {
            let from = from.and_then(|from| match &from.store {
                Store::Gpu(store) => Some(&**store),
                _ => None,
            });
            self.change(|store| cube::copy(store, from, &moves.sides));
        }
        let _ = (from, moves);
    }

    /// Does [`looks`](crate::looks) for each row's newest token, writes its keys and values, and returns its
    /// query, all in one kernel. `None` unless pages are dense and the angles are on their device.
    pub fn remember(
        &mut self,
        table: &Table,
        projected: &Tensor<2>,
        heads: crate::Heads,
        norms: Option<&(Norm, [Tensor<1>; 2])>,
        rotary: &Rotary,
    ) -> Option<Tensor<3>> {
        #[cfg(feature = "gpu")]
        if let (Some(rows), Some(angles)) = (&table.on_gpu, rotary.pairs()) {
            let mut found = None;
            self.change(|store| {
                let (query, store) =
                    crate::cube::looks::into_pages(projected, heads, norms, angles, store, rows);
                found = Some(query);
                store
            });
            return found;
        }
        let _ = (table, projected, heads, norms, rotary);
        None
    }

    /// Writes keys and values of each row's newest token, `[rows, heads, width]`, if pages are dense.
    pub fn write_newest(&mut self, table: &Table, keys: &Tensor<3>, values: &Tensor<3>) {
        #[cfg(feature = "gpu")]
        if let Some(rows) = &table.on_gpu {
            self.change(|store| cube::write_newest(store, rows, [keys, values]));
        }
        let _ = (table, keys, values);
    }

    #[cfg(feature = "gpu")]
    fn change(&mut self, change: impl FnOnce([Tensor<3>; 2]) -> [Tensor<3>; 2]) {
        let nothing = Store::Cpu { keys: Vec::new(), values: Vec::new() };
        match std::mem::replace(&mut self.store, nothing) {
            Store::Gpu(store) => self.store = Store::Gpu(Box::new(change(*store))),
            other => self.store = other,
        }
    }

    /// Writes keys and values of tokens, `[tokens, heads, width]`.
    pub fn write(&mut self, slots: &Slots, keys: &Tensor<3>, values: &Tensor<3>) {
        let (heads, width) = (self.heads, self.width);
        match &mut self.store {
            Store::Cpu { keys: to_keys, values: to_values } => {
                let [keys, values] = [keys, values].map(of_cpu);
                for (&token, &place) in slots.tokens.iter().zip(&slots.places) {
                    let from = token * heads * width..(token + 1) * heads * width;
                    let to = (place / PAGE, place % PAGE);
                    cpu::pages::write(
                        to_keys,
                        to_values,
                        to,
                        width,
                        &keys[from.clone()],
                        &values[from],
                    );
                }
            }
            #[cfg(feature = "gpu")]
            Store::Gpu(_) => {
                let moves = slots.moves(&keys.device()).sides.clone();
                self.change(|store| cube::write(store, &moves, [keys, values]));
            }
            Store::Tensors(both) => {
                let device = both[0].device();
                let places = ints(&slots.places, &device);
                let all = slots.tokens.iter().copied().eq(0..keys.dims()[0]);
                let tokens = (!all).then(|| ints(&slots.tokens, &device));
                for (to, from) in both.iter_mut().zip([keys, values]) {
                    let from = from.clone().cast(to.dtype());
                    let from = match &tokens {
                        Some(tokens) => from.select(0, tokens.clone()),
                        None => from,
                    };
                    let assign = IndexingUpdateOp::Assign;
                    to.inplace(|to| to.select_assign(0, places.clone(), from, assign));
                }
            }
        }
    }
}

/// Computes `softmax(q·kᵀ / sqrt(width)) · v` for the newest token of each row over all tokens of its row in
/// `table`, or over the last `window` of them. Several query heads may share a key head.
///
/// `query` is `[rows, heads, width]`; the result is `[rows, heads · width]`, f32. Products are f32, as in
/// [`attention`](crate::attention()), whatever keys and values were rounded to.
///
/// # Panics
/// If the table names pages that the blocks lack, or a row has no tokens.
pub fn attention_over_pages(
    query: Tensor<3>,
    blocks: &[&Pages],
    table: &mut Table,
    window: Option<usize>,
) -> Tensor<2> {
    let [rows, heads, width] = query.dims();
    assert!(table.rows.iter().all(|row| !row.is_empty()), "a row has at least one token");
    #[cfg(feature = "gpu")]
    if let ([Pages { store: Store::Gpu(store), .. }], Some(on_gpu)) = (blocks, &table.on_gpu) {
        return cube::attend(&query, store, on_gpu, window);
    }
    let stores: Option<Vec<[&[f32]; 2]>> = blocks
        .iter()
        .map(|block| match &block.store {
            Store::Cpu { keys, values } => Some([keys.as_slice(), values.as_slice()]),
            _ => None,
        })
        .collect();
    let Some(stores) = stores else { return plain(query, blocks, table, window) };
    let query = of_cpu(&query);
    let kv_heads = blocks.first().map_or(1, |block| block.heads);
    let output = cpu::pages::attend(
        &query,
        &stores,
        &table.rows,
        crate::Heads { query: heads, key: kv_heads, width },
        window.unwrap_or(usize::MAX),
    );
    tensor(output, [rows, heads * width])
}

pub(crate) fn plain(
    query: Tensor<3>,
    blocks: &[&Pages],
    table: &mut Table,
    window: Option<usize>,
) -> Tensor<2> {
    let [rows, heads, width] = query.dims();
    let device = query.device();
    let (longest, wide) = (table.longest(), FloatDType::F32);
    let index = table.index.take().unwrap_or_else(|| places(table, blocks, longest, &device));
    table.index = Some(index.clone());
    let bias = table.biases.iter().find(|(of, _)| *of == window).map(|(_, bias)| bias.clone());
    let bias = bias.unwrap_or_else(|| {
        let bias = bias_of(table, window, longest, &device);
        table.biases.push((window, bias.clone()));
        bias
    });
    let (keys, values): (Vec<_>, Vec<_>) =
        blocks.iter().map(|block| block.tensors(&device)).map(<(_, _)>::from).unzip();
    // Each is [rows, kv_heads, tokens, width].
    let [keys, values] = [keys, values].map(|parts| {
        let all = joined(parts, 0).select(0, index.clone()).cast(wide);
        let kv_heads = all.dims()[1];
        all.reshape([rows, longest, kv_heads, width]).swap_dims(1, 2)
    });
    let kv_heads = keys.dims()[1];
    let query = query.cast(wide).mul_scalar(1.0 / (width as f64).sqrt());
    let query = query.reshape([rows, kv_heads, heads / kv_heads, width]);
    let scores = query.matmul(keys.swap_dims(2, 3)) + bias;
    activation::softmax(scores, 3).matmul(values).reshape([rows, heads * width])
}

impl Pages {
    fn of_tensors(both: [Tensor<3>; 2], device: &Device) -> Store {
        #[cfg(feature = "gpu")]
        if cube::fit(device, both[0].dims()[2]) {
            return Store::Gpu(Box::new(both));
        }
        let _ = device;
        Store::Tensors(Box::new(both))
    }

    /// Returns keys and values, `[pages · PAGE, heads, width]`.
    fn tensors(&self, device: &Device) -> [Tensor<3>; 2] {
        let (heads, width) = (self.heads, self.width);
        let (keys, values) = match &self.store {
            Store::Tensors(both) => return (**both).clone(),
            #[cfg(feature = "gpu")]
            Store::Gpu(both) => return (**both).clone(),
            Store::Cpu { keys, values } => (keys, values),
        };
        let wide = |numbers: &Vec<f32>, inner: [usize; 2]| {
            let shape = [self.places() / PAGE, heads, inner[0], inner[1]];
            Tensor::<4>::from_data(TensorData::new(numbers.clone(), shape), device)
        };
        let keys = wide(keys, [width, PAGE]).permute([0, 3, 1, 2]);
        let values = wide(values, [PAGE, width]).permute([0, 2, 1, 3]);
        [keys, values].map(|x| x.reshape([self.places(), heads, width]))
    }

    fn places(&self) -> usize {
        match &self.store {
            Store::Cpu { keys, .. } => keys.len() / (self.heads * self.width),
            Store::Tensors(both) => both[0].dims()[0],
            #[cfg(feature = "gpu")]
            Store::Gpu(both) => both[0].dims()[0],
        }
    }
}

/// Lists the places of each row's tokens among those of all blocks, one behind the other. A shorter row is filled
/// up with some place.
fn places(table: &Table, blocks: &[&Pages], longest: usize, device: &Device) -> Tensor<1, Int> {
    let starts: Vec<usize> = blocks
        .iter()
        .scan(0, |start, block| Some(std::mem::replace(start, *start + block.places())))
        .collect();
    let mut all = Vec::with_capacity(table.rows.len() * longest);
    for row in &table.rows {
        let before = all.len();
        for span in row {
            let first = starts[span.block] + span.page * PAGE;
            all.extend(first..first + span.tokens);
        }
        all.resize(before + longest, 0);
    }
    ints(&all, device)
}

/// Makes the numbers to add to scores, `[rows, 1, 1, tokens]`: 0 if the row has a token there that is seen, and
/// else a number that the softmax turns into 0.
fn bias_of(table: &Table, window: Option<usize>, longest: usize, device: &Device) -> Tensor<4> {
    let mut bias = vec![MASKED; table.rows.len() * longest];
    for (row, bias) in bias.chunks_exact_mut(longest).enumerate() {
        let length = table.length(row);
        let seen: Range<usize> = length.saturating_sub(window.unwrap_or(length))..length;
        bias[seen].fill(0.0);
    }
    Tensor::from_data(TensorData::new(bias, [table.rows.len(), 1, 1, longest]), device)
}

/// Returns the numbers of a tensor that goes with pages of the CPU.
fn of_cpu(x: &Tensor<3>) -> Numbers {
    let plain = if x.is_autodiff() { x.clone().inner() } else { x.clone() };
    numbers(&plain.cast(DType::F32)).expect("pages and tokens are on one device")
}

fn ints(values: &[usize], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
