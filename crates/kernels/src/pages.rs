//! Keys and values in pages, and the attention of new tokens over them.

use std::ops::Range;

use burn::tensor::{
    DType, Device, FloatDType, IndexingUpdateOp, Int, Tensor, TensorData, activation,
};

#[cfg(feature = "gpu")]
use crate::cube::{block_table::Rows, is_gpu, pages as cube};
use crate::{
    MASKED,
    block::{Block, PAGE},
    compute::Compute,
    cpu,
    flex::{Numbers, numbers, tensor},
    heads::Heads,
    joined,
    norm::Norm,
    qkv_rope::RopeTable,
    switch::{Kernels, kernels},
};

/// Keys and values of one layer, in pages of [`PAGE`] tokens.
///
/// A [`BlockTable`] says where each token is. Several rows of it may hold the same page, so that the completions of a
/// group share their prompt.
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
    /// Keys and values, `[pages · PAGE, heads, width]` each, for the GPU implementation.
    #[cfg(feature = "gpu")]
    Gpu(Box<[Tensor<3>; 2]>),
}

/// Slots of the cache that tokens are written to.
#[derive(Clone, Debug, Default)]
pub struct SlotMapping {
    /// Indices of the written tokens among the given ones.
    pub tokens: Vec<usize>,
    /// Slot of each token: page · PAGE + offset in the page.
    pub slots: Vec<usize>,
    /// Both for a GPU, made at the first write.
    #[cfg(feature = "gpu")]
    moves: std::sync::OnceLock<Moves>,
}

impl SlotMapping {
    /// Maps these tokens to these slots.
    pub fn new(tokens: Vec<usize>, slots: Vec<usize>) -> Self {
        SlotMapping {
            tokens,
            slots,
            #[cfg(feature = "gpu")]
            moves: std::sync::OnceLock::new(),
        }
    }

    #[cfg(feature = "gpu")]
    fn moves(&self, device: &Device) -> &Moves {
        let pairs = || self.tokens.iter().zip(&self.slots).map(|(&token, &slot)| [token, slot]);
        self.moves.get_or_init(|| Moves::new(&pairs().collect::<Vec<_>>(), device))
    }
}

/// Copies of slots or pages, each from one to another.
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

/// Pages of each row, in the order of its tokens.
#[derive(Clone, Debug, Default)]
pub struct BlockTable {
    rows: Vec<Vec<Block>>,
    /// Two things for a device other than a CPU, made when they are first needed: the tokens' slots among the pages of
    /// all pools, and the numbers that are added to scores, by window.
    index: Option<Tensor<1, Int>>,
    biases: Vec<(Option<usize>, Tensor<4>)>,
    #[cfg(feature = "gpu")]
    on_gpu: Option<Rows>,
}

impl BlockTable {
    /// Makes a table of these rows.
    pub fn new(rows: Vec<Vec<Block>>) -> Self {
        BlockTable { rows, ..BlockTable::default() }
    }

    /// Returns the rows.
    pub fn rows(&self) -> &[Vec<Block>] {
        &self.rows
    }

    /// Returns the rows, to be changed.
    pub fn rows_mut(&mut self) -> &mut Vec<Vec<Block>> {
        *self = BlockTable::new(std::mem::take(&mut self.rows));
        &mut self.rows
    }

    /// Adds one token to each row, in its first page with room. Returns the positions of these tokens, `[rows]`. A GPU
    /// is sent the rows if they were [changed](BlockTable::rows_mut); otherwise it advances them itself.
    ///
    /// # Panics
    /// If a row has no page with room.
    pub fn step(&mut self, device: &Device) -> Tensor<1, Int> {
        // Both describe the rows as they were.
        self.index = None;
        self.biases = Vec::new();

        for row in &mut self.rows {
            let first =
                row.iter().rposition(|block| block.tokens == PAGE).map_or(0, |full| full + 1);
            row[first].tokens += 1;
        }

        #[cfg(feature = "gpu")]
        if is_gpu(device) {
            let rows = match self.on_gpu.take() {
                Some(rows) => rows.stepped(),
                None => Rows::new(&self.rows, device),
            };
            return self.on_gpu.insert(rows).newest();
        }

        let newest = (0..self.rows.len()).map(|row| self.length(row) - 1);
        ints(&newest.collect::<Vec<_>>(), device)
    }

    /// Returns how many more tokens each row can take with exactly the launches of the next token, so that recorded
    /// launches can be replayed, as far as the device's kernels are concerned. It is 0 if the device does not count
    /// tokens itself. The device is sent the rows.
    pub fn replayable_steps(&mut self, device: &Device) -> usize {
        #[cfg(feature = "gpu")]
        if is_gpu(device) {
            let rows = self.on_gpu.take().unwrap_or_else(|| Rows::new(&self.rows, device));
            return self.on_gpu.insert(rows).replayable_steps();
        }
        let _ = device;
        0
    }

    /// Returns the position of each row's newest token, `[rows]`, if the device counts tokens itself and was sent the
    /// rows.
    pub fn counter(&self) -> Option<Tensor<1, Int>> {
        #[cfg(feature = "gpu")]
        return self.on_gpu.as_ref().map(Rows::newest);
        #[cfg(not(feature = "gpu"))]
        None
    }

    /// Advances each row by `tokens` tokens, or removes tokens if the number is negative. The device has counted them
    /// in `counter`.
    ///
    /// # Panics
    /// If a row has no room for them, or has fewer.
    pub fn advance(&mut self, counter: Tensor<1, Int>, tokens: isize) {
        #[cfg(feature = "gpu")]
        if let Some(rows) = self.on_gpu.take() {
            self.on_gpu = Some(rows.counted(counter, tokens));
        }
        #[cfg(not(feature = "gpu"))]
        let _ = counter;

        for row in &mut self.rows {
            let length: usize = row.iter().map(|block| block.tokens).sum();
            let mut left = length.checked_add_signed(tokens).expect("as many are there");

            for block in row {
                block.tokens = left.min(PAGE);
                left -= block.tokens;
            }
            assert!(left == 0, "a row has room for its tokens");
        }
    }

    /// Returns the number of tokens in a row.
    pub fn length(&self, row: usize) -> usize {
        self.rows[row].iter().map(|block| block.tokens).sum()
    }

    fn longest(&self) -> usize {
        (0..self.rows.len()).map(|row| self.length(row)).max().unwrap_or(0)
    }
}

impl Pages {
    /// Makes empty pages, with `heads` heads of this width, in the format of `compute`.
    pub fn new(pages: usize, heads: [usize; 2], compute: Compute, device: &Device) -> Pages {
        Pages::beside(pages, heads, heads[1], compute, device)
    }

    /// Makes empty pages for each layer of a cache, in the format of `compute`. `layers` lists how many heads a layer
    /// has, and how wide they are. Either the pages of all layers are [dense](Pages::dense), or none are: a cache has
    /// one block table, so heads that are too wide for a GPU's implementation in one layer decide for the others.
    pub fn of_layers(
        pages: usize,
        layers: &[[usize; 2]],
        compute: Compute,
        device: &Device,
    ) -> Vec<Pages> {
        let widest = layers.iter().map(|[_, width]| *width).max().unwrap_or(0);
        let of = |heads: &[usize; 2]| Pages::beside(pages, *heads, widest, compute, device);
        layers.iter().map(of).collect()
    }

    /// Makes empty pages for one layer of a cache whose widest heads have this width.
    fn beside(
        pages: usize,
        [heads, width]: [usize; 2],
        widest: usize,
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
            Self::of_tensors([empty(), empty()], widest, &device)
        };
        Pages { heads, width, store }
    }

    /// Tells whether all pages of a row must be full except the last ones, and all pages must be in one pool. The
    /// device then computes where a token is.
    pub fn dense(&self) -> bool {
        #[cfg(feature = "gpu")]
        if let Store::Gpu(_) = &self.store {
            return true;
        }
        false
    }

    /// Tells whether they are on the CPU, where the bits of a token's attention depend on nothing else in the pass.
    pub fn on_cpu(&self) -> bool {
        matches!(self.store, Store::Cpu { .. })
    }

    /// Makes room for `pages` more pages, if these are dense.
    pub fn grow(&mut self, pages: usize) {
        #[cfg(feature = "gpu")]
        self.change(|store| store.map(|x| cube::grown(x, pages)));
        let _ = pages;
    }

    /// Copies pages of `from` into these, or these pages among themselves if `from` is `None`. All must be dense.
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

    /// Does [`qkv_rope`](crate::qkv_rope()) for each row's newest token, writes its keys and values, and returns its
    /// query, all in one kernel. `None` unless pages are dense and the angles are on their device.
    pub fn append(
        &mut self,
        table: &BlockTable,
        projected: &Tensor<2>,
        heads: Heads,
        norms: Option<&(Norm, [Tensor<1>; 2])>,
        rotary: &RopeTable,
    ) -> Option<Tensor<3>> {
        #[cfg(feature = "gpu")]
        if let (Some(rows), Some(angles)) = (&table.on_gpu, rotary.pairs()) {
            let mut found = None;
            self.change(|store| {
                let (query, store) =
                    crate::cube::qkv_rope::into_pages(projected, heads, norms, angles, store, rows);
                found = Some(query);
                store
            });
            return found;
        }

        let _ = (table, projected, heads, norms, rotary);
        None
    }

    /// Writes keys and values of each row's newest token, `[rows, heads, width]`, if pages are dense.
    pub fn write_newest(&mut self, table: &BlockTable, keys: &Tensor<3>, values: &Tensor<3>) {
        #[cfg(feature = "gpu")]
        if let Some(rows) = &table.on_gpu {
            self.change(|store| cube::write_newest(store, rows, [keys, values]));
        }
        let _ = (table, keys, values);
    }

    #[cfg(feature = "gpu")]
    fn change(&mut self, change: impl FnOnce([Tensor<3>; 2]) -> [Tensor<3>; 2]) {
        // The store has to be moved out to be edited in place, and is replaced by a placeholder meanwhile.
        let nothing = Store::Cpu { keys: Vec::new(), values: Vec::new() };
        match std::mem::replace(&mut self.store, nothing) {
            Store::Gpu(store) => self.store = Store::Gpu(Box::new(change(*store))),
            other => self.store = other,
        }
    }

    /// Writes keys and values of tokens, `[tokens, heads, width]`.
    pub fn write(&mut self, mapping: &SlotMapping, keys: &Tensor<3>, values: &Tensor<3>) {
        let (heads, width) = (self.heads, self.width);

        match &mut self.store {
            Store::Cpu { keys: to_keys, values: to_values } => {
                let [keys, values] = [keys, values].map(of_cpu);
                for (&token, &slot) in mapping.tokens.iter().zip(&mapping.slots) {
                    let from = token * heads * width..(token + 1) * heads * width;
                    let to = (slot / PAGE, slot % PAGE);
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
                let moves = mapping.moves(&keys.device()).sides.clone();
                self.change(|store| cube::write(store, &moves, [keys, values]));
            }
            Store::Tensors(both) => {
                let device = both[0].device();
                let slots = ints(&mapping.slots, &device);
                // A write of all tokens in their order, as at the prompt, needs no selection.
                let all = mapping.tokens.iter().copied().eq(0..keys.dims()[0]);
                let tokens = (!all).then(|| ints(&mapping.tokens, &device));

                for (to, from) in both.iter_mut().zip([keys, values]) {
                    let from = from.clone().cast(to.dtype());
                    let from = match &tokens {
                        Some(tokens) => from.select(0, tokens.clone()),
                        None => from,
                    };

                    let assign = IndexingUpdateOp::Assign;
                    to.inplace(|to| to.select_assign(0, slots.clone(), from, assign));
                }
            }
        }
    }
}

/// Computes `softmax(q·kᵀ / sqrt(width)) · v` for the newest token of each row over all tokens of its row in
/// `table`, or over the last `window` of them. Several query heads may share a key head. Each head also attends to its
/// sink, if there are `sinks`, `[heads]`, as in [`AttentionOutput::with_sinks`](crate::AttentionOutput::with_sinks).
///
/// `query` is `[rows, heads, width]`; the result is `[rows, heads · width]`, f32. Matmuls are f32, as in
/// [`attention`](crate::attention()), whatever keys and values were rounded to.
///
/// # Panics
/// If the table names pages that the pools lack, or a row has no tokens.
pub fn paged_attention(
    query: Tensor<3>,
    pools: &[&Pages],
    table: &mut BlockTable,
    window: Option<usize>,
    sinks: Option<&Tensor<1>>,
) -> Tensor<2> {
    let [rows, heads, width] = query.dims();
    assert!(table.rows.iter().all(|row| !row.is_empty()), "a row has at least one token");

    #[cfg(feature = "gpu")]
    if let ([Pages { store: Store::Gpu(store), .. }], Some(on_gpu)) = (pools, &table.on_gpu) {
        return cube::attend(&query, store, on_gpu, window, sinks);
    }

    // One pool that is not on the CPU is enough for plain tensor code.
    let stores: Option<Vec<[&[f32]; 2]>> = pools
        .iter()
        .map(|pool| match &pool.store {
            Store::Cpu { keys, values } => Some([keys.as_slice(), values.as_slice()]),
            _ => None,
        })
        .collect();

    let Some(stores) = stores else { return plain(query, pools, table, window, sinks) };
    let query = of_cpu(&query);
    let sinks = sinks.map(of_cpu);

    let kv_heads = pools.first().map_or(1, |pool| pool.heads);
    let output = cpu::pages::attend(
        &query,
        &stores,
        &table.rows,
        Heads { query: heads, key: kv_heads, width },
        window.unwrap_or(usize::MAX),
        sinks.as_deref(),
    );

    tensor(output, [rows, heads * width])
}

pub(crate) fn plain(
    query: Tensor<3>,
    pools: &[&Pages],
    table: &mut BlockTable,
    window: Option<usize>,
    sinks: Option<&Tensor<1>>,
) -> Tensor<2> {
    let [rows, heads, width] = query.dims();

    let device = query.device();
    let longest = table.longest();
    let wide = FloatDType::F32;

    // The same for every layer of a step, so the first layer keeps both for the others.
    let index = table.index.take().unwrap_or_else(|| slots(table, pools, longest, &device));
    table.index = Some(index.clone());

    let bias = table.biases.iter().find(|(of, _)| *of == window).map(|(_, bias)| bias.clone());
    let bias = bias.unwrap_or_else(|| {
        let bias = bias_of(table, window, longest, &device);
        table.biases.push((window, bias.clone()));
        bias
    });

    let (keys, values): (Vec<_>, Vec<_>) =
        pools.iter().map(|pool| pool.tensors(&device)).map(<(_, _)>::from).unzip();
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
    let weights = match sinks {
        Some(sinks) => {
            let group = heads / kv_heads;
            let sinks = sinks.clone().reshape([1, kv_heads, group, 1]).repeat_dim(0, rows);
            activation::softmax(Tensor::cat(vec![scores, sinks], 3), 3).narrow(3, 0, longest)
        }
        None => activation::softmax(scores, 3),
    };
    weights.matmul(values).reshape([rows, heads * width])
}

impl Pages {
    fn of_tensors(both: [Tensor<3>; 2], widest: usize, device: &Device) -> Store {
        #[cfg(feature = "gpu")]
        if cube::fit(device, widest) {
            return Store::Gpu(Box::new(both));
        }
        let _ = (widest, device);
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
            let shape = [self.slots() / PAGE, heads, inner[0], inner[1]];
            Tensor::<4>::from_data(TensorData::new(numbers.clone(), shape), device)
        };

        // Keys are stored by number in a page, values by token: both are returned by token.
        let keys = wide(keys, [width, PAGE]).permute([0, 3, 1, 2]);
        let values = wide(values, [PAGE, width]).permute([0, 2, 1, 3]);
        [keys, values].map(|x| x.reshape([self.slots(), heads, width]))
    }

    fn slots(&self) -> usize {
        match &self.store {
            Store::Cpu { keys, .. } => keys.len() / (self.heads * self.width),
            Store::Tensors(both) => both[0].dims()[0],
            #[cfg(feature = "gpu")]
            Store::Gpu(both) => both[0].dims()[0],
        }
    }
}

/// Lists the slots of each row's tokens in the concatenated pools. A shorter row is padded with an arbitrary slot.
fn slots(table: &BlockTable, pools: &[&Pages], longest: usize, device: &Device) -> Tensor<1, Int> {
    let starts: Vec<usize> = pools
        .iter()
        .scan(0, |start, pool| Some(std::mem::replace(start, *start + pool.slots())))
        .collect();

    let mut all = Vec::with_capacity(table.rows.len() * longest);
    for row in &table.rows {
        let before = all.len();
        for block in row {
            let first = starts[block.pool] + block.page * PAGE;
            all.extend(first..first + block.tokens);
        }
        all.resize(before + longest, 0);
    }
    ints(&all, device)
}

/// Makes the numbers to add to scores, `[rows, 1, 1, tokens]`: 0 where the row has a token that is attended to, and
/// elsewhere a number that the softmax turns into 0.
fn bias_of(
    table: &BlockTable,
    window: Option<usize>,
    longest: usize,
    device: &Device,
) -> Tensor<4> {
    let mut bias = vec![MASKED; table.rows.len() * longest];
    for (row, bias) in bias.chunks_exact_mut(longest).enumerate() {
        let length = table.length(row);
        let seen: Range<usize> = length.saturating_sub(window.unwrap_or(length))..length;
        bias[seen].fill(0.0);
    }
    Tensor::from_data(TensorData::new(bias, [table.rows.len(), 1, 1, longest]), device)
}

/// Returns the numbers of a tensor that belongs to pages on the CPU.
fn of_cpu<const D: usize>(x: &Tensor<D>) -> Numbers {
    let plain = if x.is_autodiff() { x.clone().inner() } else { x.clone() };
    numbers(&plain.cast(DType::F32)).expect("pages and tokens are on one device")
}

fn ints(values: &[usize], device: &Device) -> Tensor<1, Int> {
    let values: Vec<i32> = values.iter().map(|&value| value as i32).collect();
    let count = values.len();
    Tensor::from_data(TensorData::new(values, [count]), device)
}
