//! How evenly routers spread tokens over experts, and the loss of uneven loads.

use std::sync::{Mutex, PoisonError};

use burn::tensor::Tensor;

/// The loads of experts, in all layers that have some, over the tokens of some passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// By layer with experts.
    pub(crate) layers: Vec<Load>,
}

/// The loads of one layer's experts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    tokens: u64,
    /// How many tokens went to each expert.
    chosen: Vec<u64>,
    /// What the router's shares of each expert sum to.
    shares: Vec<f64>,
}

impl Loads {
    /// The loss of uneven loads, the mean over layers of `N · Σ fᵢ · pᵢ`: `N` experts, `fᵢ` the tokens that went to expert
    /// `i` over all tokens, `pᵢ` the mean of its share ([Fedus et al. 2021](https://arxiv.org/abs/2101.03961), equation 4).
    /// Where all loads are equal it is the number of experts that a token goes through; it is `N` at most. 0 where nothing was
    /// counted.
    ///
    /// `fᵢ` is a constant to the gradient, as nothing about a choice can be differentiated.
    pub fn loss(&self) -> f64 {
        self.mean(|load| {
            let products = load.frequencies().zip(&load.shares).map(|(f, share)| f * share);
            load.chosen.len() as f64 * products.sum::<f64>() / load.tokens as f64
        })
    }

    /// The tokens of a layer's fullest expert over those of its mean one, in the mean over layers: from 1, where all loads
    /// are equal, to the number of experts over how many a token goes through.
    pub fn fullest(&self) -> f64 {
        self.mean(|load| {
            let sum: u64 = load.chosen.iter().sum();
            let most = load.chosen.iter().max().copied().unwrap_or(0);
            most as f64 * load.chosen.len() as f64 / sum as f64
        })
    }

    /// Adds a pass's loads of the layer that is `place`-th among those with experts.
    pub(crate) fn add(&mut self, place: usize, load: Load) {
        match self.layers.get_mut(place) {
            Some(sum) => sum.add(&load),
            None => self.layers.push(load),
        }
    }

    /// For each layer with experts the gradient of [`Loads::loss`] by a token's share of each.
    pub(crate) fn slopes(&self) -> Vec<Vec<f32>> {
        let layers = self.layers.len() as f64;
        let of = |load: &Load| {
            let factor = load.chosen.len() as f64 / (layers * load.tokens.max(1) as f64);
            load.frequencies().map(|f| (f * factor) as f32).collect()
        };
        self.layers.iter().map(of).collect()
    }

    /// In the mean over layers; those that no token went through count as 0.
    fn mean(&self, of: impl Fn(&Load) -> f64) -> f64 {
        let counted = self.layers.iter().filter(|load| load.tokens > 0);
        counted.map(of).sum::<f64>() / self.layers.len().max(1) as f64
    }
}

impl Load {
    /// Counts some tokens' choices, `[tokens · chosen]`, and shares, `[tokens, experts]`.
    fn count(&mut self, choices: &[i64], shares: &Tensor<2>) {
        let [tokens, experts] = shares.dims();
        let mut chosen = vec![0; experts];
        for &expert in choices {
            chosen[expert as usize] += 1;
        }
        let shares = shares.clone().sum_dim(0).into_data().iter::<f64>().collect();
        self.add(&Load { tokens: tokens as u64, chosen, shares });
    }

    fn add(&mut self, other: &Load) {
        self.tokens += other.tokens;
        self.chosen.resize(other.chosen.len(), 0);
        self.shares.resize(other.shares.len(), 0.0);
        self.chosen.iter_mut().zip(&other.chosen).for_each(|(sum, more)| *sum += more);
        self.shares.iter_mut().zip(&other.shares).for_each(|(sum, more)| *sum += more);
    }

    fn frequencies(&self) -> impl Iterator<Item = f64> {
        self.chosen.iter().map(|&chosen| chosen as f64 / self.tokens.max(1) as f64)
    }
}

/// A layer's loads while a pass goes through it.
#[derive(Debug, Default)]
pub(crate) struct Counter(Mutex<Load>);

impl Counter {
    pub(crate) fn count(&self, choices: &[i64], shares: &Tensor<2>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count(choices, shares);
    }

    /// The loads so far, which begin anew.
    pub(crate) fn take(&self) -> Load {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
