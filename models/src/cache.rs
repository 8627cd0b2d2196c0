//! The cache of decoding: keys and values in pages, and the states of recurrent layers.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_kernels::{
    Block, BlockTable, Compute, Heads, Moves, Norm, PAGE, Pages, RopeTable, SlotMapping,
    paged_attention,
};

use crate::{DecodeCache, DraftedCache, ReplayedCache, TokenBatch, recurrence::RecurrentState};

/// Keys and values of the rows that are being decoded, and the states of recurrent layers.
///
/// Keys and values are stored in pages, and a row is a list of pages (paged attention). That is why a row that joins or
/// leaves moves nothing, rows attend to their own tokens alone, and the completions of a group share the pages of their
/// prompt. A page is written only while a single row has it. A row whose last page is shared continues in a new page.
///
/// A prefill makes a cache for its batch ([`KvCache::new`]) and writes the keys and values of every layer
/// ([`KvCache::fill`]), while its tokens attend to the batch itself. To decode a token, [`KvCache::append_slots`] opens
/// a slot for each row, and [`KvCache::fill_and_attend`] writes to that slot in every layer and attends to all tokens
/// of the row.
#[derive(Debug)]
pub struct KvCache {
    pools: Vec<Pool>,
    table: BlockTable,
    /// One state for each recurrent layer, in their order.
    states: Vec<RecurrentState>,
    /// Slots of the tokens that are written now, by pool.
    slot_mapping: Vec<(usize, SlotMapping)>,
    /// How many slots are opened next for each row; empty if it is one for each.
    next: Vec<usize>,
    /// What each token of this pass attends to, if a row has several.
    attended: Option<BlockTable>,
    /// For each layer with keys and values of its own, how many key heads there are, and the width of a head.
    heads: Arc<[[usize; 2]]>,
    compute: Compute,
    device: Device,
    /// True if a captured graph of a step can be replayed.
    replayable: bool,
}

/// A pool of pages: pages of every layer that were allocated together.
#[derive(Clone, Debug)]
struct Pool {
    /// Pages of each layer. They are never written if they are shared with the cache that they came from.
    layers: Arc<Vec<Pages>>,
    owned: bool,
    /// How many rows have each page.
    rows: Vec<u32>,
}

impl Clone for KvCache {
    /// Copies the cache. The copy has the same pages and continues in new pages.
    fn clone(&self) -> Self {
        let shared = |pool: &Pool| Pool { owned: false, ..pool.clone() };
        KvCache {
            pools: self.pools.iter().map(shared).collect(),
            table: self.table.clone(),
            states: self.states.clone(),
            slot_mapping: Vec::new(),
            next: Vec::new(),
            attended: None,
            heads: self.heads.clone(),
            device: self.device.clone(),
            ..*self
        }
    }
}

impl KvCache {
    /// Makes a cache for the tokens of `prompts`, which are written next, in the format of `compute`. `heads` has an
    /// entry for each layer with keys and values: the number of its heads and the width of one.
    pub fn new(prompts: &TokenBatch, heads: &[[usize; 2]], compute: Compute) -> Self {
        let mut cache = KvCache {
            pools: Vec::new(),
            table: BlockTable::default(),
            states: Vec::new(),
            slot_mapping: Vec::new(),
            next: Vec::new(),
            attended: None,
            heads: heads.into(),
            compute,
            device: prompts.tokens.device(),
            replayable: true,
        };

        let pages: usize = prompts.segments().iter().map(|it| it.range.len().div_ceil(PAGE)).sum();
        cache.grow(pages);

        let mut page = 0;
        let mut mapping = SlotMapping::default();
        let mut rows = Vec::new();
        // Every prompt begins in a new page.
        for segment in prompts.segments() {
            mapping.tokens.extend(segment.range.clone());
            mapping.slots.extend(page * PAGE..page * PAGE + segment.range.len());
            let mut blocks = Vec::new();
            let mut remaining = segment.range.len();
            while remaining > 0 {
                blocks.push(Block { pool: 0, page, tokens: remaining.min(PAGE) });
                page += 1;
                remaining = remaining.saturating_sub(PAGE);
            }
            rows.push(blocks);
        }

        // So far each page belongs to the row of its prompt alone.
        cache.pools[0].rows.fill(1);
        cache.table = BlockTable::new(rows);
        cache.slot_mapping = vec![(0, mapping)];
        cache
    }

    /// Notes that the layers need the host in each step.
    pub(crate) fn with_host(mut self) -> Self {
        self.replayable = false;
        self
    }

    /// Opens a slot for the next token of each row, or as many as [`DraftedCache::plan_pass`] said. Returns the
    /// positions of these tokens, `[tokens, 1]`.
    pub fn append_slots(&mut self) -> Tensor<2, Int> {
        let count = self.table.rows().len();
        if self.dense() {
            // The device finds the slots itself, from the table and the number of tokens in each row.
            self.make_own();
            self.reserve(1);
            self.slot_mapping.clear();
            return self.table.step(&self.device).reshape([count, 1]);
        }

        let drafted = !self.next.is_empty();
        let mut counts = std::mem::take(&mut self.next);
        if !drafted {
            counts.resize(count, 1);
        }

        let tokens: usize = counts.iter().sum();
        let mut positions = vec![0; tokens];
        let mut attended = vec![Vec::new(); tokens];
        self.slot_mapping.clear();

        // First the first token of each row, then the second ones.
        for depth in 0..counts.iter().copied().max().unwrap_or(0) {
            let mut first = 0;
            let mut slots = Vec::new();
            for (row, &count) in counts.iter().enumerate() {
                if depth < count {
                    slots.push((row, first + depth));
                    positions[first + depth] = self.table.length(row) as i32;
                }
                first += count;
            }

            self.open_slots(&slots);
            if drafted {
                for &(row, token) in &slots {
                    attended[token].clone_from(&self.table.rows()[row]);
                }
            }
        }

        self.attended = drafted.then(|| BlockTable::new(attended));
        Tensor::from_data(TensorData::new(positions, [tokens, 1]), &self.device)
    }

    /// Opens a slot in each of these rows, which come with the index of the token that is to be written there.
    fn open_slots(&mut self, slots: &[(usize, usize)]) {
        // Shared pages and those of another cache are never written: such a row continues in a new page.
        let full = |block: Option<&Block>| {
            block.is_none_or(|block| {
                let pool = &self.pools[block.pool];
                block.tokens == PAGE || !pool.owned || pool.rows[block.page] > 1
            })
        };
        let full_rows: Vec<usize> = slots
            .iter()
            .map(|&(row, _)| row)
            .filter(|&row| full(self.table.rows()[row].last()))
            .collect();

        for (row, (pool, page)) in full_rows.iter().zip(self.take_pages(full_rows.len())) {
            self.table.rows_mut()[*row].push(Block { pool, page, tokens: 0 });
        }

        let mappings = &mut self.slot_mapping;
        let rows = self.table.rows_mut();
        for &(row, token) in slots {
            let block = rows[row].last_mut().expect("every row has a page with room");
            let index = mappings.iter().position(|(pool, _)| *pool == block.pool);
            let index = index.unwrap_or_else(|| {
                mappings.push((block.pool, SlotMapping::default()));
                mappings.len() - 1
            });
            mappings[index].1.tokens.push(token);
            mappings[index].1.slots.push(block.page * PAGE + block.tokens);
            block.tokens += 1;
        }
    }

    /// Writes keys and values of a layer, `[tokens, kv_heads, head_dim]`, for the prompts' batch or for the tokens
    /// whose slots are open.
    ///
    /// # Panics
    /// Panics if there is no such layer.
    pub fn fill(&mut self, layer: usize, keys: &Tensor<3>, values: &Tensor<3>) {
        if self.slot_mapping.is_empty() && self.dense() {
            let layers = Arc::make_mut(&mut self.pools[0].layers);
            return layers[layer].write_newest(&self.table, keys, values);
        }

        for (pool, mapping) in &self.slot_mapping {
            let layers = Arc::make_mut(&mut self.pools[*pool].layers);
            layers[layer].write(mapping, keys, values);
        }
    }

    /// Runs [`KvCache::fill`], and lets each `query`, `[rows, heads, head_dim]`, attend to all tokens of its row, or
    /// to the last `window` of them. Returns `[rows, heads · head_dim]`.
    ///
    /// # Panics
    /// Panics like [`KvCache::fill`].
    pub fn fill_and_attend(
        &mut self,
        layer: usize,
        query: Tensor<3>,
        keys: &Tensor<3>,
        values: &Tensor<3>,
        window: Option<usize>,
    ) -> Tensor<2> {
        self.fill(layer, keys, values);
        self.attend(layer, query, window, None)
    }

    /// Returns the queries of the tokens whose slots are open, `[rows, heads, head_dim]`, if the device can make them
    /// from the `projected` numbers, `[rows, outputs]`, while it writes their keys and values.
    pub(crate) fn append(
        &mut self,
        layer: usize,
        projected: &Tensor<2>,
        heads: Heads,
        norms: Option<&(Norm, [Tensor<1>; 2])>,
        rotary: &RopeTable,
    ) -> Option<Tensor<3>> {
        if !self.slot_mapping.is_empty() || !self.dense() {
            return None;
        }

        let layers = Arc::make_mut(&mut self.pools[0].layers);
        layers[layer].append(&self.table, projected, heads, norms, rotary)
    }

    /// Runs [`KvCache::fill_and_attend`] over keys and values that are written already, and over the heads' sinks, if
    /// there are any.
    pub(crate) fn attend(
        &mut self,
        layer: usize,
        query: Tensor<3>,
        window: Option<usize>,
        sinks: Option<&Tensor<1>>,
    ) -> Tensor<2> {
        let pools: Vec<&Pages> = self.pools.iter().map(|pool| &pool.layers[layer]).collect();
        let table = self.attended.as_mut().unwrap_or(&mut self.table);
        paged_attention(query, &pools, table, window, sinks)
    }

    /// Returns the state of recurrent layer `index`, counted among the recurrent layers, which the layer then replaces
    /// with [`KvCache::set_state`].
    pub(crate) fn state(&self, index: usize) -> Option<RecurrentState> {
        self.states.get(index).cloned()
    }

    pub(crate) fn set_state(&mut self, index: usize, state: RecurrentState) {
        match self.states.get_mut(index) {
            Some(old) => *old = state,
            None => self.states.push(state),
        }
    }

    /// Takes `count` free pages, each for one row.
    fn take_pages(&mut self, count: usize) -> Vec<(usize, usize)> {
        let mut taken = Vec::with_capacity(count);
        while taken.len() < count {
            let free = self.pools.iter_mut().enumerate().filter(|(_, pool)| pool.owned);
            for (index, pool) in free {
                for (page, rows) in pool.rows.iter_mut().enumerate().filter(|(_, rows)| **rows == 0)
                {
                    if taken.len() < count {
                        *rows = 1;
                        taken.push((index, page));
                    }
                }
            }

            if taken.len() < count {
                // The pools grow by at least an eighth, so that long completions do not make a long list of pools.
                let owned = self.pools.iter().filter(|pool| pool.owned);
                let pages: usize = owned.map(|pool| pool.rows.len()).sum();
                self.grow((count - taken.len()).max(pages / 8));
            }
        }
        taken
    }

    /// Tells whether pages are laid out as some devices need them: in one pool, and full except for the last ones of a
    /// row.
    fn dense(&self) -> bool {
        let first = self.pools.first().and_then(|pool| pool.layers.first());
        first.is_some_and(Pages::dense)
    }

    /// Copies all pages into a pool that this cache owns, unless they are in one.
    fn make_own(&mut self) {
        if !self.pools[0].owned {
            let mut rows = std::mem::take(self.table.rows_mut());
            self.gather(&mut rows);
            self.set_rows(rows);
        }
    }

    /// Makes room for this many tokens in each row. If a row lacks room, every row gets pages for at least [`PAGE`]
    /// tokens, so that the page table is sent to the device at most once in [`PAGE`] tokens.
    fn reserve(&mut self, tokens: usize) {
        let room = |row: &Vec<Block>| row.iter().map(|block| PAGE - block.tokens).sum::<usize>();
        if self.table.rows().iter().all(|row| room(row) >= tokens) {
            return;
        }

        let lacks = |row| (tokens.max(PAGE).saturating_sub(room(row))).div_ceil(PAGE);
        let lacking = self.table.rows().iter().enumerate();
        let lacking: Vec<usize> =
            lacking.flat_map(|(index, row)| std::iter::repeat_n(index, lacks(row))).collect();

        for (row, (pool, page)) in lacking.iter().zip(self.take_pages(lacking.len())) {
            self.table.rows_mut()[*row].push(Block { pool, page, tokens: 0 });
        }
    }

    /// Makes these the rows of the cache, and counts their pages.
    fn set_rows(&mut self, rows: Vec<Vec<Block>>) {
        for block in rows.iter().flatten() {
            self.pools[block.pool].rows[block.page] += 1;
        }
        self.table = BlockTable::new(rows);
        self.slot_mapping = Vec::new();
        self.attended = None;
    }

    /// Copies pages of other pools into a pool that this cache owns, where no two rows share a last page that is not
    /// full.
    fn gather(&mut self, rows: &mut [Vec<Block>]) {
        let owned = usize::from(self.pools[0].owned);
        let mut first = BTreeSet::new();
        let mut copied = BTreeMap::new();

        // `from` lists the pages to copy, and `copies` says for each block which copy replaces its page, if any.
        let mut from = Vec::new();
        let copy_of = |block: &Block| {
            let page = (block.pool, block.page);
            let full = block.tokens == PAGE;
            if block.pool < owned && (full || first.insert(page)) {
                return None;
            }
            let new = from.len();
            let to = if full { *copied.entry(page).or_insert(new) } else { new };
            if to == new {
                from.push(page);
            }
            Some(to)
        };
        let copies: Vec<Option<usize>> = rows.iter().flatten().map(copy_of).collect();

        if owned == 0 {
            self.pools.insert(0, self.pool(from.len()));
        }

        // The pages that stay are counted before any is taken, or a copy would overwrite one of them.
        let blocks = || rows.iter().flatten().zip(&copies);
        for (block, _) in blocks().filter(|(_, copy)| copy.is_none()) {
            self.pools[0].rows[block.page] = 1;
        }

        let to = self.take_pages(from.len());
        for (block, copy) in rows.iter_mut().flatten().zip(&copies) {
            block.page = copy.map_or(block.page, |copy| to[copy].1);
            block.pool = 0;
        }

        // If the owned pool is new, it was inserted before the others, whose indices are now larger by one.
        let mut moves: BTreeMap<usize, Vec<[usize; 2]>> = BTreeMap::new();
        for (&(pool, page), &(_, to)) in from.iter().zip(&to) {
            moves.entry(pool + 1 - owned).or_default().push([page, to]);
        }

        for (pool, pairs) in moves {
            let moves = Moves::new(&pairs, &self.device);
            let others = (pool > 0).then(|| self.pools[pool].layers.clone());
            let layers = Arc::make_mut(&mut self.pools[0].layers);
            for (index, pages) in layers.iter_mut().enumerate() {
                pages.copy(others.as_ref().map(|others| &others[index]), &moves);
            }
        }

        self.pools.truncate(1);
        self.pools[0].rows.fill(0);
    }

    fn grow(&mut self, pages: usize) {
        if let Some(pool) = self.pools.first_mut().filter(|pool| pool.owned)
            && pool.layers.first().is_some_and(Pages::dense)
        {
            pool.rows.resize(pool.rows.len() + pages, 0);
            let layers = Arc::make_mut(&mut pool.layers);
            return layers.iter_mut().for_each(|layer| layer.grow(pages));
        }
        let pool = self.pool(pages);
        self.pools.push(pool);
    }

    fn pool(&self, pages: usize) -> Pool {
        let layers = Arc::new(Pages::of_layers(pages, &self.heads, self.compute, &self.device));
        Pool { layers, owned: true, rows: vec![0; pages] }
    }

    /// Drops pools in which no row has a page.
    fn drop_unused(&mut self) {
        let used: Vec<bool> =
            self.pools.iter().map(|pool| pool.rows.iter().any(|&rows| rows > 0)).collect();

        let new_index = |index: usize| used[..index].iter().filter(|&&used| used).count();
        for block in self.table.rows_mut().iter_mut().flatten() {
            block.pool = new_index(block.pool);
        }

        let mut used = used.into_iter();
        self.pools.retain(|_| used.next().unwrap_or(false));
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

    fn arrange(
        mut self,
        keep: &[usize],
        newcomers: Option<(&KvCache, &[usize])>,
        _room: usize,
    ) -> KvCache {
        let states = std::mem::take(&mut self.states).into_iter().enumerate();
        self.states = states
            .map(|(index, state)| {
                let joining = newcomers.map(|(cache, join)| (&cache.states[index], join));
                state.arrange(keep, joining)
            })
            .collect();

        let old = std::mem::take(self.table.rows_mut());
        let mut rows: Vec<Vec<Block>> = keep.iter().map(|&row| old[row].clone()).collect();
        if let Some((cache, join)) = newcomers {
            // A pool that was added from that cache with earlier rows is there already.
            let pool_indices: Vec<usize> = cache
                .pools
                .iter()
                .map(|pool| {
                    let same = |known: &Pool| Arc::ptr_eq(&known.layers, &pool.layers);
                    self.pools.iter().position(same).unwrap_or_else(|| {
                        let rows = vec![0; pool.rows.len()];
                        let layers = pool.layers.clone();
                        self.pools.push(Pool { layers, owned: false, rows });
                        self.pools.len() - 1
                    })
                })
                .collect();
            rows.extend(join.iter().map(|&row| {
                let blocks = cache.table.rows()[row].iter();
                blocks.map(|block| Block { pool: pool_indices[block.pool], ..*block }).collect()
            }));
        }

        for pool in &mut self.pools {
            pool.rows.fill(0);
        }

        if self.dense() {
            // Pages that were reserved and have no token yet are released.
            rows.iter_mut().for_each(|row| row.retain(|block| block.tokens > 0));
            self.gather(&mut rows);
        }

        self.set_rows(rows);
        self.drop_unused();
        self
    }

    fn replayed(&mut self) -> Option<&mut dyn ReplayedCache> {
        Some(self)
    }

    /// Returns the cache unless a layer is recurrent, or its pages are not those of the CPU.
    fn drafted(&mut self) -> Option<&mut dyn DraftedCache> {
        let mut pages = self.pools.iter().flat_map(|pool| pool.layers.first());
        (self.states.is_empty() && pages.all(Pages::on_cpu))
            .then_some(self as &mut dyn DraftedCache)
    }
}

impl DraftedCache for KvCache {
    fn plan_pass(&mut self, tokens: &[usize]) {
        assert_eq!(tokens.len(), self.table.rows().len(), "a number for each row");
        self.next = tokens.to_vec();
    }

    fn take_back(&mut self, tokens: &[usize]) {
        assert_eq!(tokens.len(), self.table.rows().len(), "a number for each row");
        self.attended = None;
        for (row, &tokens) in self.table.rows_mut().iter_mut().zip(tokens) {
            let mut left = tokens;
            while left > 0 {
                let block = row.last_mut().expect("a row has more tokens than are taken back");
                let taken = left.min(block.tokens);
                block.tokens -= taken;
                left -= taken;

                if block.tokens == 0 {
                    self.pools[block.pool].rows[block.page] -= 1;
                    row.pop();
                }
            }
        }
    }
}

impl ReplayedCache for KvCache {
    fn make_ready(&mut self, tokens: usize) -> usize {
        if !self.dense() || !self.replayable {
            return 0;
        }
        self.make_own();

        let tokens = tokens.min(self.table.replayable_steps(&self.device));
        self.reserve(tokens);
        // This sends the reserved pages to the device.
        tokens.min(self.table.replayable_steps(&self.device))
    }

    fn counter(&self) -> Option<Tensor<1, Int>> {
        self.table.counter()
    }

    fn advance(&mut self, counter: Tensor<1, Int>, tokens: isize) {
        self.table.advance(counter, tokens);
    }
}
