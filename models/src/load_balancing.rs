//! The load of each expert, and the load-balancing loss.

use std::sync::{Mutex, PoisonError};

use burn::tensor::Tensor;

/// Loads of the experts in all layers that have experts, over the tokens of some passes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loads {
    /// One for each layer with experts.
    pub(crate) layers: Vec<Load>,
}

/// Loads of one layer's experts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Load {
    tokens: u64,
    /// How many tokens were routed to each expert.
    chosen: Vec<u64>,
    /// Sum of the router probabilities of each expert, or of its shares of the scores.
    probs: Vec<f64>,
}

impl Loads {
    /// Computes the load-balancing loss (`load_balancing_loss_func` in `transformers`), the mean over layers of
    /// `N · Σ fᵢ · pᵢ`. `N` is the number of experts, `fᵢ` the fraction of all tokens that were routed to expert `i`,
    /// and `pᵢ` the mean router probability of expert `i` ([Fedus et al. 2021](https://arxiv.org/abs/2101.03961),
    /// equation 4). Where a router scores by sigmoids, `pᵢ` is the mean share of expert `i` in the sum of a token's
    /// scores ([DeepSeek-V3, 2024](https://arxiv.org/abs/2412.19437), equations 18 to 20). If all loads are equal, the
    /// loss is the number of experts that a token goes through. It is `N` at most, and 0 if nothing was counted.
    ///
    /// The gradient takes `fᵢ` as a constant, because a choice cannot be differentiated.
    pub fn load_balancing_loss(&self) -> f64 {
        self.mean(|load| {
            let products = load.frequencies().zip(&load.probs).map(|(f, prob)| f * prob);
            load.chosen.len() as f64 * products.sum::<f64>() / load.tokens as f64
        })
    }

    /// Divides the tokens of a layer's fullest expert by those of its mean expert, and returns the mean over
    /// layers. The ratio is 1 if all loads are equal; its largest value is the number of experts over the number
    /// that a token goes through.
    pub fn max_load(&self) -> f64 {
        self.mean(|load| {
            let sum: u64 = load.chosen.iter().sum();
            let largest = load.chosen.iter().max().copied().unwrap_or(0);
            largest as f64 * load.chosen.len() as f64 / sum as f64
        })
    }

    /// Adds a pass's loads for one layer. `index` is the layer's number among the layers with experts.
    pub(crate) fn add(&mut self, index: usize, load: Load) {
        match self.layers.get_mut(index) {
            Some(sum) => sum.add(&load),
            None => self.layers.push(load),
        }
    }

    /// Computes the gradient of [`Loads::load_balancing_loss`] with respect to a token's router probability of each
    /// expert, or to its share of the scores, for each layer with experts.
    pub(crate) fn load_balancing_gradients(&self) -> Vec<Vec<f32>> {
        let layers = self.layers.len() as f64;
        let of = |load: &Load| {
            let factor = load.chosen.len() as f64 / (layers * load.tokens.max(1) as f64);
            load.frequencies().map(|f| (f * factor) as f32).collect()
        };
        self.layers.iter().map(of).collect()
    }

    /// Computes the mean over layers. A layer that no token went through counts as 0.
    fn mean(&self, of: impl Fn(&Load) -> f64) -> f64 {
        let counted = self.layers.iter().filter(|load| load.tokens > 0);
        counted.map(of).sum::<f64>() / self.layers.len().max(1) as f64
    }
}

impl Load {
    /// Counts some tokens' choices, `[tokens · chosen]`, and router probabilities, `[tokens, experts]`. `token_mask`,
    /// `[tokens, 1]`, is 0 at padding, which is not counted.
    fn count(&mut self, choices: &[i64], probs: &Tensor<2>, token_mask: Option<&Tensor<2>>) {
        let [tokens, experts] = probs.dims();
        let mut chosen = vec![0; experts];

        let is_token: Vec<bool> = match token_mask {
            Some(mask) => mask.to_data().iter::<f32>().map(|it| it != 0.0).collect(),
            None => vec![true; tokens],
        };
        for (choices, _) in
            choices.chunks(choices.len() / tokens.max(1)).zip(&is_token).filter(|(_, is)| **is)
        {
            choices.iter().for_each(|&expert| chosen[expert as usize] += 1);
        }

        let probs = match token_mask {
            Some(mask) => probs.clone() * mask.clone(),
            None => probs.clone(),
        };
        let probs = probs.sum_dim(0).into_data().iter::<f64>().collect();
        let tokens = is_token.into_iter().filter(|is| *is).count() as u64;
        self.add(&Load { tokens, chosen, probs });
    }

    fn add(&mut self, other: &Load) {
        self.tokens += other.tokens;
        self.chosen.resize(other.chosen.len(), 0);
        self.probs.resize(other.probs.len(), 0.0);
        self.chosen.iter_mut().zip(&other.chosen).for_each(|(sum, more)| *sum += more);
        self.probs.iter_mut().zip(&other.probs).for_each(|(sum, more)| *sum += more);
    }

    fn frequencies(&self) -> impl Iterator<Item = f64> {
        // A layer has 0 tokens only if no pass went through it, and then its counts are 0 as well.
        self.chosen.iter().map(|&chosen| chosen as f64 / self.tokens.max(1) as f64)
    }
}

/// A layer's loads while a pass goes through it.
#[derive(Debug, Default)]
pub(crate) struct Counter(Mutex<Load>);

impl Counter {
    pub(crate) fn count(&self, choices: &[i64], probs: &Tensor<2>, token_mask: Option<&Tensor<2>>) {
        let mut load = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        load.count(choices, probs, token_mask);
    }

    /// Returns the loads so far, and resets them.
    pub(crate) fn take(&self) -> Load {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
