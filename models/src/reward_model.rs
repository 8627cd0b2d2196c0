//! Models that give a text one score: `…ForSequenceClassification` of every family, with one label.

mod verifier;

use std::{collections::HashMap, path::Path};

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use firebrick_core::TokenId;

pub use self::verifier::{Conversation, ModelVerifier, Transform};
use crate::{
    CheckpointError, Compute, Decoder, DecoderConfig, Padding, PolicyModel, TokenBatch,
    checkpoint::{load_scorer, scorer_config},
};

/// A decoder with a head that gives its text one number.
#[derive(Debug)]
pub struct RewardModel {
    trunk: Decoder,
    score: Tensor<2>, // [hidden, 1]
    pad: Option<TokenId>,
    batch_tokens: usize,
    nonfinite: Vec<String>,
}

impl RewardModel {
    /// Reads the classifier in a Hugging Face folder: `config.json` and the weights, of which
    /// `score.weight`, `[1, hidden]`, is the head. `device` is one without autodiff.
    ///
    /// # Errors
    /// As for [`load`](crate::load), and when the model is a language model or has several labels.
    pub fn load(folder: &Path, device: &Device) -> Result<Self, CheckpointError> {
        let loaded = load_scorer(folder, device)?;
        let hidden = loaded.score.len();
        Ok(RewardModel {
            trunk: loaded.trunk,
            score: Tensor::from_data(TensorData::new(loaded.score, [hidden, 1]), device),
            pad: loaded.pad,
            batch_tokens: 4096,
            nonfinite: loaded.nonfinite,
        })
    }

    /// How many values the classifier in a folder has, from its `config.json` alone.
    ///
    /// # Errors
    /// As for [`RewardModel::load`], as far as that file goes.
    pub fn count(folder: &Path) -> Result<u64, CheckpointError> {
        let (config, _) = scorer_config(folder)?;
        Ok(config.parameters().total + config.hidden_size as u64)
    }

    /// The same model with matrices multiplied in another format.
    pub fn with_compute(mut self, compute: Compute) -> Self {
        self.trunk = self.trunk.with_compute(compute);
        self
    }

    /// The same model with at most so many tokens in a batch, padding included; a longer text is a
    /// batch of its own.
    pub fn with_batch_tokens(mut self, tokens: usize) -> Self {
        self.batch_tokens = tokens;
        self
    }

    /// The sizes of the decoder; `tied` is true, since no head over the vocabulary was read.
    pub fn config(&self) -> &DecoderConfig {
        self.trunk.config()
    }

    /// Tensors with a NaN or an infinity among their values.
    pub fn nonfinite(&self) -> &[String] {
        &self.nonfinite
    }

    /// The score of each text, in order: the head applied to the hidden state of its last token that
    /// is not padding, as transformers does. Of a text of padding alone the first token counts, and
    /// where the model has no padding token, the last.
    ///
    /// Texts are batched by length, which changes a score by no more than rounding. Equal texts have
    /// the same bits, so that a group of equal completions has no spread.
    ///
    /// # Panics
    /// When a text has no token or one that the model does not know, or the device fails.
    pub fn scores(&self, texts: &[&[TokenId]]) -> Vec<f32> {
        let read: Vec<&[TokenId]> = texts.iter().map(|text| self.until_padding(text)).collect();
        let mut distinct = read.clone();
        distinct.sort_unstable_by(|a, b| (b.len(), b).cmp(&(a.len(), a)));
        distinct.dedup();
        let mut scores: HashMap<&[TokenId], f32> = HashMap::with_capacity(distinct.len());
        let mut rest = distinct.as_slice();
        while let Some(longest) = rest.first() {
            let (batch, others) =
                rest.split_at((self.batch_tokens / longest.len()).clamp(1, rest.len()));
            scores.extend(batch.iter().copied().zip(self.score_batch(batch)));
            rest = others;
        }
        read.iter().map(|text| scores[text]).collect()
    }

    /// A text up to the token that it is scored at. What follows is in that token's future.
    fn until_padding<'t>(&self, text: &'t [TokenId]) -> &'t [TokenId] {
        match self.pad {
            None => text,
            Some(pad) => {
                let last = text.iter().rposition(|&token| token != pad).unwrap_or(0);
                &text[..=last]
            }
        }
    }

    fn score_batch(&self, rows: &[&[TokenId]]) -> Vec<f32> {
        let device = self.trunk.device();
        let hidden = self.trunk.hidden(&TokenBatch::new(rows, Padding::Right, &device));
        let [count, width, size] = hidden.dims();
        let last = rows.iter().enumerate().map(|(row, text)| (row * width + text.len() - 1) as i32);
        let last = TensorData::new(last.collect::<Vec<i32>>(), [count]);
        let last = Tensor::<1, Int>::from_data(last, &device);
        let pooled = hidden.reshape([count * width, size]).select(0, last).cast(DType::F32);
        let scores = pooled.matmul(self.score.clone());
        scores.into_data().iter::<f32>().collect()
    }
}
