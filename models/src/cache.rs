//! The cache of decoding: keys and values in pages, and the states of recurrent layers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_kernels::{
    Compute, Heads, Moves, Norm, PAGE, Pages, Rotary, Slots, Span, Table, attention_over_pages,
};

use crate::{DecodeCache, TokenBatch, delta::DeltaState};

/// Keys and values of the rows that are being decoded, and the states of recurrent layers.
///
/// Keys and values lie in pages, and a row is a list of pages. So a row that joins or leaves moves nothing, rows
/// attend to their own tokens alone, and the completions of a group share the pages of their prompt. A page is
/// written only while a single row has it. A row whose last page is shared goes on in a new page.
///
/// A prefill makes a cache of its batch ([`KvCache::new`]) and writes the keys and values of every layer
/// ([`KvCache::fill`]); its tokens attend to the batch's own. To decode a token, [`KvCache::next_places`] opens a
/// place for each row, and [`KvCache::attend`] writes to that place in every layer and attends to all tokens of
/// the row.
#[derive(Debug)]
pub struct KvCache {
    blocks: Vec<Block>,
    table: Table,
    /// One state for each recurrent layer, in their order.
    states: Vec<DeltaState>,
    /// The places of the tokens that are written now, by block.
    slots: Vec<(usize, Slots)>,
    layers: usize,
    /// The number of key heads, and the width of a head.
    heads: [usize; 2],
    compute: Compute,
    device: Device,
    /// True if a device can repeat a step by itself.
    repeats: bool,
}

/// Pages of every layer that were made together.
#[derive(Clone, Debug)]
struct Block {
    /// The pages of each layer. If they are shared with the cache that they came from, they are never written.
    layers: Arc<Vec<Pages>>,
    own: bool,
    /// The number of rows that have each page.
    rows: Vec<u32>,
}

impl Clone for KvCache {
    /// Makes a copy that has the same pages and goes on in pages of its own.
    fn clone(&self) -> Self {
        let shared = |block: &Block| Block { own: false, ..block.clone() };
        KvCache {
            blocks: self.blocks.iter().map(shared).collect(),
            table: self.table.clone(),
            states: self.states.clone(),
            slots: Vec::new(),
            device: self.device.clone(),
            ..*self
        }
    }
}

impl KvCache {
    /// Makes a cache for the tokens of `prompts`, which are written next, in the format of `compute`. Each of the
    /// `layers` has keys and values with `heads`: the number of heads and the width of one.
    pub fn new(prompts: &TokenBatch, layers: usize, heads: [usize; 2], compute: Compute) -> Self {
        let mut cache = KvCache {
            blocks: Vec::new(),
            table: Table::default(),
            states: Vec::new(),
            slots: Vec::new(),
            layers,
            heads,
            compute,
            device: prompts.tokens.device(),
            repeats: true,
        };
        let pages: usize = prompts.segments().iter().map(|it| it.places.len().div_ceil(PAGE)).sum();
        cache.grow(pages);
        let (mut page, mut slots) = (0, Slots::default());
        let mut rows = Vec::new();
        for segment in prompts.segments() {
            slots.tokens.extend(segment.places.clone());
            slots.places.extend(page * PAGE..page * PAGE + segment.places.len());
            let mut spans = Vec::new();
            let mut left = segment.places.len();
            while left > 0 {
                spans.push(Span { block: 0, page, tokens: left.min(PAGE) });
                (page, left) = (page + 1, left.saturating_sub(PAGE));
            }
            rows.push(spans);
        }
        cache.blocks[0].rows.fill(1);
        (cache.table, cache.slots) = (Table::new(rows), vec![(0, slots)]);
        cache
    }

    /// Marks that the host has a part in each step of the layers.
    pub(crate) fn with_host(mut self) -> Self {
        self.repeats = false;
        self
    }

    /// Opens a place for the next token of each row. Returns the positions of these tokens, `[rows, 1]`.
    pub fn next_places(&mut self) -> Tensor<2, Int> {
        let count = self.table.rows().len();
        if self.dense() {
            self.make_own();
            self.reserve(1);
            self.slots.clear();
            return self.table.step(&self.device).reshape([count, 1]);
        }
        let positions: Vec<i32> = (0..count).map(|row| self.table.length(row) as i32).collect();
        let full = |span: Option<&Span>| {
            span.is_none_or(|span| {
                let block = &self.blocks[span.block];
                span.tokens == PAGE || !block.own || block.rows[span.page] > 1
            })
        };
        let wanting: Vec<usize> =
            (0..count).filter(|&row| full(self.table.rows()[row].last())).collect();
        for (row, (block, page)) in wanting.iter().zip(self.take_pages(wanting.len())) {
            self.table.rows_mut()[*row].push(Span { block, page, tokens: 0 });
        }
        let mut slots: Vec<(usize, Slots)> = Vec::new();
        for (token, row) in self.table.rows_mut().iter_mut().enumerate() {
            let span = row.last_mut().expect("every row has a page with room");
            let index = slots.iter().position(|(block, _)| *block == span.block);
            let index = index.unwrap_or_else(|| {
                slots.push((span.block, Slots::default()));
                slots.len() - 1
            });
            slots[index].1.tokens.push(token);
            slots[index].1.places.push(span.page * PAGE + span.tokens);
            span.tokens += 1;
        }
        self.slots = slots;
        Tensor::from_data(TensorData::new(positions, [count, 1]), &self.device)
    }

    /// Writes keys and values of a layer, `[places, kv_heads, head_dim]`: those of the prompts' batch, or of the
    /// tokens whose places are open.
    ///
    /// # Panics
    /// If there is no such layer.
    pub fn fill(&mut self, layer: usize, keys: &Tensor<3>, values: &Tensor<3>) {
        if self.slots.is_empty() && self.dense() {
            let layers = Arc::make_mut(&mut self.blocks[0].layers);
            return layers[layer].write_newest(&self.table, keys, values);
        }
        for (block, slots) in &self.slots {
            let layers = Arc::make_mut(&mut self.blocks[*block].layers);
            layers[layer].write(slots, keys, values);
        }
    }

    /// Does [`KvCache::fill`], and lets each `query`, `[rows, heads, head_dim]`, attend to all tokens of its row,
    /// or to the last `window` of them. Returns `[rows, heads · head_dim]`.
    ///
    /// # Panics
    /// As [`KvCache::fill`].
    pub fn attend(
        &mut self,
        layer: usize,
        query: Tensor<3>,
        keys: &Tensor<3>,
        values: &Tensor<3>,
        window: Option<usize>,
    ) -> Tensor<2> {
        self.fill(layer, keys, values);
        self.look(layer, query, window)
    }

    /// Returns the queries of the tokens whose places are open, `[rows, heads, head_dim]`, if the device can make
    /// them from the `projected` numbers, `[rows, outputs]`, while it writes their keys and values.
    pub(crate) fn remember(
        &mut self,
        layer: usize,
        projected: &Tensor<2>,
        heads: Heads,
        norms: Option<&(Norm, [Tensor<1>; 2])>,
        rotary: &Rotary,
    ) -> Option<Tensor<3>> {
        if !self.slots.is_empty() || !self.dense() {
            return None;
        }
        let layers = Arc::make_mut(&mut self.blocks[0].layers);
        layers[layer].remember(&self.table, projected, heads, norms, rotary)
    }

    /// Does [`KvCache::attend`] over keys and values that are written already.
    pub(crate) fn look(
        &mut self,
        layer: usize,
        query: Tensor<3>,
        window: Option<usize>,
    ) -> Tensor<2> {
        let blocks: Vec<&Pages> = self.blocks.iter().map(|block| &block.layers[layer]).collect();
        attention_over_pages(query, &blocks, &mut self.table, window)
    }

    /// Returns the state of the recurrent layer at `place`, counted among the recurrent layers. The layer replaces
    /// it with [`KvCache::keep`].
    pub(crate) fn recall(&self, place: usize) -> Option<DeltaState> {
        self.states.get(place).cloned()
    }

    pub(crate) fn keep(&mut self, place: usize, state: DeltaState) {
        match self.states.get_mut(place) {
            Some(old) => *old = state,
            None => self.states.push(state),
        }
    }

    /// Takes `count` free pages, each for one row.
    fn take_pages(&mut self, count: usize) -> Vec<(usize, usize)> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let free = self.blocks.iter_mut().enumerate().filter(|(_, block)| block.own);
            for (index, block) in free {
                for (page, rows) in
                    block.rows.iter_mut().enumerate().filter(|(_, rows)| **rows == 0)
                {
                    if taken.len() < count {
                        *rows = 1;
                        taken.push((index, page));
                    }
                }
            }
            if taken.len() < count {
                // Blocks grow by an eighth at least, so that long completions make no long list of blocks.
                let own = self.blocks.iter().filter(|block| block.own);
                let pages: usize = own.map(|block| block.rows.len()).sum();
                self.grow((count - taken.len()).max(pages / 8));
            }
        }
        taken
    }

    /// Tells whether pages lie as some devices need them: in one block, with every page of a row full but the last
    /// ones.
    fn dense(&self) -> bool {
        let first = self.blocks.first().and_then(|block| block.layers.first());
        first.is_some_and(Pages::dense)
    }

    /// Moves all pages into a block of its own.
    fn make_own(&mut self) {
        if !self.blocks[0].own {
            let mut rows = std::mem::take(self.table.rows_mut());
            self.gather(&mut rows);
            self.hold(rows);
        }
    }

    /// Makes room for so many tokens in each row. If a row lacks room, every row gets pages for at least [`PAGE`]
    /// tokens, so that the device is told of new pages once in [`PAGE`] tokens at most.
    fn reserve(&mut self, tokens: usize) {
        let room = |row: &Vec<Span>| row.iter().map(|span| PAGE - span.tokens).sum::<usize>();
        if self.table.rows().iter().all(|row| room(row) >= tokens) {
            return;
        }
        let lacks = |row| (tokens.max(PAGE).saturating_sub(room(row))).div_ceil(PAGE);
        let lacking = self.table.rows().iter().enumerate();
        let lacking: Vec<usize> =
            lacking.flat_map(|(index, row)| std::iter::repeat_n(index, lacks(row))).collect();
        for (row, (block, page)) in lacking.iter().zip(self.take_pages(lacking.len())) {
            self.table.rows_mut()[*row].push(Span { block, page, tokens: 0 });
        }
    }

    /// Takes these rows, whose pages were not counted yet.
    fn hold(&mut self, rows: Vec<Vec<Span>>) {
        for span in rows.iter().flatten() {
            self.blocks[span.block].rows[span.page] += 1;
        }
        (self.table, self.slots) = (Table::new(rows), Vec::new());
    }

    /// Copies pages of other blocks into a block of this cache's own, and gives each row a last page of its own,
    /// unless that page is full.
    fn gather(&mut self, rows: &mut [Vec<Span>]) {
        let own = usize::from(self.blocks[0].own);
        let (mut first, mut copied) = (BTreeSet::new(), BTreeMap::new());
        // `from` has the pages to copy. `goes` has for each span the copy that it goes to.
        let mut from = Vec::new();
        let goes = |span: &Span| {
            let (page, full) = ((span.block, span.page), span.tokens == PAGE);
            if span.block < own && (full || first.insert(page)) {
                return None;
            }
            let new = from.len();
            let to = if full { *copied.entry(page).or_insert(new) } else { new };
            if to == new {
                from.push(page);
            }
            Some(to)
        };
        let goes: Vec<Option<usize>> = rows.iter().flatten().map(goes).collect();
        if own == 0 {
            self.blocks.insert(0, self.block(from.len()));
        }
        let spans = || rows.iter().flatten().zip(&goes);
        for (span, _) in spans().filter(|(_, goes)| goes.is_none()) {
            self.blocks[0].rows[span.page] = 1;
        }
        let to = self.take_pages(from.len());
        for (span, goes) in rows.iter_mut().flatten().zip(&goes) {
            span.page = goes.map_or(span.page, |goes| to[goes].1);
            span.block = 0;
        }
        let mut moves: BTreeMap<usize, Vec<[usize; 2]>> = BTreeMap::new();
        for (&(block, page), &(_, to)) in from.iter().zip(&to) {
            moves.entry(block + 1 - own).or_default().push([page, to]);
        }
        for (block, pairs) in moves {
            let moves = Moves::new(&pairs, &self.device);
            let others = (block > 0).then(|| self.blocks[block].layers.clone());
            let layers = Arc::make_mut(&mut self.blocks[0].layers);
            for (index, pages) in layers.iter_mut().enumerate() {
                pages.copy(others.as_ref().map(|others| &others[index]), &moves);
            }
        }
        self.blocks.truncate(1);
        self.blocks[0].rows.fill(0);
    }

    fn grow(&mut self, pages: usize) {
        if let Some(block) = self.blocks.first_mut().filter(|block| block.own)
            && block.layers.first().is_some_and(Pages::dense)
        {
            block.rows.resize(block.rows.len() + pages, 0);
            let layers = Arc::make_mut(&mut block.layers);
            return layers.iter_mut().for_each(|layer| layer.grow(pages));
        }
        let block = self.block(pages);
        self.blocks.push(block);
    }

    fn block(&self, pages: usize) -> Block {
        let layer = |_| Pages::new(pages, self.heads, self.compute, &self.device);
        let layers = Arc::new((0..self.layers).map(layer).collect());
        Block { layers, own: true, rows: vec![0; pages] }
    }

    /// Drops blocks in which no row has a page.
    fn tidy(&mut self) {
        let used: Vec<bool> =
            self.blocks.iter().map(|block| block.rows.iter().any(|&rows| rows > 0)).collect();
        let before = |index: usize| used[..index].iter().filter(|&&used| used).count();
        for span in self.table.rows_mut().iter_mut().flatten() {
            span.block = before(span.block);
        }
        let mut used = used.into_iter();
        self.blocks.retain(|_| used.next().unwrap_or(false));
    }
}

impl DecodeCache for KvCache {
    fn rows(&self) -> usize {
        self.table.rows().len()
    }

    /// Returns `usize::MAX`, because pages are added as they are needed.
    fn room(&self) -> usize {
        usize::MAX
    }

    fn make_ready(&mut self, tokens: usize) -> usize {
        if !self.dense() || !self.repeats {
            return 0;
        }
        self.make_own();
        let tokens = tokens.min(self.table.alike(&self.device));
        self.reserve(tokens);
        // The device is told of the reserved pages here.
        tokens.min(self.table.alike(&self.device))
    }

    fn counter(&self) -> Option<Tensor<1, Int>> {
        self.table.counter()
    }

    fn count_on(&mut self, counter: Tensor<1, Int>, tokens: isize) {
        self.table.count_on(counter, tokens);
    }

    fn arrange(
        mut self,
        keep: &[usize],
        newcomers: Option<(&KvCache, &[usize])>,
        _room: usize,
    ) -> KvCache {
        let states = std::mem::take(&mut self.states).into_iter().enumerate();
        self.states = states
            .map(|(place, state)| {
                let joining = newcomers.map(|(cache, join)| (&cache.states[place], join));
                state.arrange(keep, joining)
            })
            .collect();
        let old = std::mem::take(self.table.rows_mut());
        let mut rows: Vec<Vec<Span>> = keep.iter().map(|&row| old[row].clone()).collect();
        if let Some((cache, join)) = newcomers {
            // A block that came from that cache with earlier rows is not taken twice.
            let held: Vec<usize> = cache
                .blocks
                .iter()
                .map(|block| {
                    let same = |own: &Block| Arc::ptr_eq(&own.layers, &block.layers);
                    self.blocks.iter().position(same).unwrap_or_else(|| {
                        let rows = vec![0; block.rows.len()];
                        let layers = block.layers.clone();
                        self.blocks.push(Block { layers, own: false, rows });
                        self.blocks.len() - 1
                    })
                })
                .collect();
            rows.extend(join.iter().map(|&row| {
                let spans = cache.table.rows()[row].iter();
                spans.map(|span| Span { block: held[span.block], ..*span }).collect()
            }));
        }
        for block in &mut self.blocks {
            block.rows.fill(0);
        }
        if self.dense() {
            rows.iter_mut().for_each(|row| row.retain(|span| span.tokens > 0));
            self.gather(&mut rows);
        }
        self.hold(rows);
        self.tidy();
        self
    }
}
