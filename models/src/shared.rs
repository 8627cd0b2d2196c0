//! What a layer of a pass leaves for later ones besides the residual stream: its keys and values, and the embeddings per
//! layer; and the gradients of these, which the backward pass brings back.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use burn::tensor::Tensor;

use crate::config::{KvSharing, LayerKind};

/// What layers of a pass share. A forward pass fills it from the first layer to the last. The backward pass goes from
/// the last layer to the first, so whoever left something finds the gradients of all that used it.
///
/// It stays until the end of the pass, although layers are recomputed: in Gemma 4 E2B the keys and values of the two
/// layers that store them are as wide together as the input of one layer.
#[derive(Debug, Default)]
pub(crate) struct SharedStates(Mutex<States>);

#[derive(Debug, Default)]
struct States {
    /// Keys and values that later layers reuse, `[tokens, heads, head_dim]`: first those of layers that see everything,
    /// then those of layers with a window.
    keys_values: [Option<[Tensor<3>; 2]>; 2],
    /// Sums of the gradients of both.
    d_keys_values: [Option<[Tensor<3>; 2]>; 2],
    /// Embeddings of all layers side by side, `[tokens, layers · width]`.
    per_layer: Option<Tensor<2>>,
    /// Gradient of each layer's embedding, `[tokens, width]`.
    d_per_layer: BTreeMap<usize, Tensor<2>>,
}

impl SharedStates {
    /// Returns the keys and values that a layer attends to: its `own`, which it may leave for later layers, or those of
    /// an earlier layer, if it has none.
    pub(crate) fn attended(&self, kind: LayerKind, own: [Tensor<3>; 2]) -> [Tensor<3>; 2] {
        let mut states = self.lock();
        let stored = &mut states.keys_values[kind.reach()];
        match kind.kv {
            KvSharing::Own => own,
            KvSharing::Store => stored.insert(own).clone(),
            KvSharing::Reuse => stored.clone().expect("layers run from the first to the last"),
        }
    }

    /// Computes the gradient of a layer's own keys and values, given that of those that it attends to. Later layers
    /// that attend to them have had their turn.
    pub(crate) fn attended_backward(&self, kind: LayerKind, d: [Tensor<3>; 2]) -> [Tensor<3>; 2] {
        let mut states = self.lock();
        let sum = &mut states.d_keys_values[kind.reach()];
        match kind.kv {
            KvSharing::Own => d,
            KvSharing::Store => added(sum.take(), d),
            KvSharing::Reuse => {
                let own = d.each_ref().map(Tensor::zeros_like);
                *sum = Some(added(sum.take(), d));
                own
            }
        }
    }

    /// Leaves the embeddings of all layers.
    pub(crate) fn set_per_layer(&self, embeddings: Tensor<2>) {
        self.lock().per_layer = Some(embeddings);
    }

    /// Returns the embeddings of a layer, `[tokens, width]`.
    pub(crate) fn per_layer(&self, layer: usize, width: usize) -> Tensor<2> {
        let all = self.lock().per_layer.clone();
        all.expect("the first layer has left them").narrow(1, layer * width, width)
    }

    /// Adds the gradient of a layer's embeddings.
    pub(crate) fn add_per_layer(&self, layer: usize, d: Tensor<2>) {
        self.lock().d_per_layer.insert(layer, d);
    }

    /// Takes the gradient of the embeddings of all layers.
    pub(crate) fn take_per_layer(&self) -> Tensor<2> {
        let by_layer = std::mem::take(&mut self.lock().d_per_layer);
        Tensor::cat(by_layer.into_values().collect(), 1)
    }

    fn lock(&self) -> MutexGuard<'_, States> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn added(sum: Option<[Tensor<3>; 2]>, [d_key, d_value]: [Tensor<3>; 2]) -> [Tensor<3>; 2] {
    match sum {
        Some([key, value]) => [key + d_key, value + d_value],
        None => [d_key, d_value],
    }
}
