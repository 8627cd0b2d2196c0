use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_kernels::{
    Compute, Heads, Moves, Norm, PAGE, Pages, Rotary, Slots, Span, Table, attention_over_pages,
};

use crate::{DecodeCache, TokenBatch, delta::DeltaState};

/// Keys and values of the rows that are being decoded, and the states of those layers that have a recurrence.
///
/// They lie in pages, and a row is a list of pages: so a row that joins or leaves moves nothing, rows attend to their own
/// tokens alone, and the completions of a group share the pages of their prompt. A page is written while one row has it;
/// a row whose last page is another's as well goes on in a new one.
///
/// A prefill makes a cache of its batch ([`KvCache::new`]) and writes the keys and values of every layer
/// ([`KvCache::fill`]), attending to the batch's own. Decoding a token opens a place for each row
/// ([`KvCache::next_places`]), writes to it in every layer and attends to all that the row has
/// ([`KvCache::attend`]).
#[derive(Debug)]
pub struct KvCache {
    blocks: Vec<Block>,
    table: Table,
    /// One for each recurrent layer, in their order.
    states: Vec<DeltaState>,
    /// Where the tokens go that are written now, by block.
    slots: Vec<(usize, Slots)>,
    layers: usize,
    /// Heads of keys, and the numbers of one.
    heads: [usize; 2],
    compute: Compute,
    device: Device,
    /// A device can repeat a step by itself.
    repeats: bool,
}

/// Pages that were made together, of every layer.
#[derive(Clone, Debug)]
struct Block {
    /// Shared with the cache that they came from, and then never written.
    layers: Arc<Vec<Pages>>,
    own: bool,
    /// How many rows have each page.
    rows: Vec<u32>,
}

impl Clone for KvCache {
    /// The copy has the same pages, and goes on in pages of its own.
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
    /// A cache for the tokens of `prompts`, which are written next, in the format of `compute`: for each layer keys and values
    /// of so many heads and numbers per head.
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

    /// The same for layers of which the host has a part in each step.
    pub(crate) fn with_host(mut self) -> Self {
        self.repeats = false;
        self
    }

    /// Opens a place for the next token of each row; gives their positions, `[rows, 1]`.
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

    /// Writes keys and values of a layer, `[places, kv_heads, head_dim]`: those of the prompts' batch, or of the tokens whose
    /// places are open.
    ///
    /// # Panics
    /// When there is no such layer.
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

    /// [`KvCache::fill`], and what `query`, `[rows, heads, head_dim]`, finds in all tokens of its row, or in the last `window`
    /// of them, `[rows, heads · head_dim]`.
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

    /// Queries of the tokens whose places are open, `[rows, heads, head_dim]`, if the device makes them of what is `projected`,
    /// `[rows, outputs]`, while it writes the keys and values beside them.
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

    /// [`KvCache::attend`] over what was written before.
    pub(crate) fn look(
        &mut self,
        layer: usize,
        query: Tensor<3>,
        window: Option<usize>,
    ) -> Tensor<2> {
        let blocks: Vec<&Pages> = self.blocks.iter().map(|block| &block.layers[layer]).collect();
        attention_over_pages(query, &blocks, &mut self.table, window)
    }

    /// The state of the recurrent layer at `place`, counted among those, which the layer replaces ([`KvCache::keep`]).
    pub(crate) fn recall(&self, place: usize) -> Option<DeltaState> {
        self.states.get(place).cloned()
    }

    pub(crate) fn keep(&mut self, place: usize, state: DeltaState) {
        match self.states.get_mut(place) {
            Some(old) => *old = state,
            None => self.states.push(state),
        }
    }

    /// Pages that no row has, for one row each.
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
                // An eighth more than there are, so that long completions make no long list of blocks.
                let own = self.blocks.iter().filter(|block| block.own);
                let pages: usize = own.map(|block| block.rows.len()).sum();
                self.grow((count - taken.len()).max(pages / 8));
            }
        }
        taken
    }

    /// Whether pages lie as the device asks for it: in one block, each row's full but the last ones.
    fn dense(&self) -> bool {
        let first = self.blocks.first().and_then(|block| block.layers.first());
        first.is_some_and(Pages::dense)
    }

    /// Has all pages in a block of its own.
    fn make_own(&mut self) {
        if !self.blocks[0].own {
            let mut rows = std::mem::take(self.table.rows_mut());
            self.gather(&mut rows);
            self.hold(rows);
        }
    }

    /// Where a row has no room for so many tokens, each row gets pages for them, and for a page's tokens at least: so the
    /// device is told of pages once in [`PAGE`] tokens, at most.
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

    /// Has these rows, of whose pages none was counted yet.
    fn hold(&mut self, rows: Vec<Vec<Span>>) {
        for span in rows.iter().flatten() {
            self.blocks[span.block].rows[span.page] += 1;
        }
        (self.table, self.slots) = (Table::new(rows), Vec::new());
    }

    /// Copies pages of other blocks into one of this cache's own, and gives each row a last page of its own, unless that is
    /// full.
    fn gather(&mut self, rows: &mut [Vec<Span>]) {
        let own = usize::from(self.blocks[0].own);
        let (mut first, mut copied) = (BTreeSet::new(), BTreeMap::new());
        // Pages that are copied, and for each span which of them it goes to.
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

    /// Gives up blocks of which no row has a page.
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

    /// Pages are added as they are needed.
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
        // What was reserved, it is told.
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
            // Blocks that came with others of that cache before are not taken twice.
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
