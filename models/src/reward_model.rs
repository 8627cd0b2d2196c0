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

/// A decoder with a head that scores a text by one number.
#[derive(Debug)]
pub struct RewardModel {
    trunk: Decoder,
    score: Tensor<2>, // [hidden, 1]
    pad: Option<TokenId>,
    batch_tokens: usize,
    nonfinite: Vec<String>,
}

impl RewardModel {
    /// Reads the classifier in a Hugging Face folder: `config.json` and the weights. The head is `score.weight`,
    /// `[1, hidden]`. `device` must be without autodiff.
    ///
    /// # Errors
    /// Fails like [`load`](crate::load), and if the model is a language model or has several labels.
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

    /// Counts the values of the classifier in a folder, from its `config.json` alone.
    ///
    /// # Errors
    /// Fails like [`RewardModel::load`], as far as they concern that file.
    pub fn count(folder: &Path) -> Result<u64, CheckpointError> {
        let (config, _) = scorer_config(folder)?;
        Ok(config.parameters().total + config.hidden_size as u64)
    }

    /// Sets the matmul precision.
    pub fn with_compute(mut self, compute: Compute) -> Self {
        self.trunk = self.trunk.with_compute(compute);
        self
    }

    /// Sets the maximum number of tokens in a batch, padding included. A longer text is a batch by itself.
    pub fn with_batch_tokens(mut self, tokens: usize) -> Self {
        self.batch_tokens = tokens;
        self
    }

    /// Returns the sizes of the decoder. `tied` is true, since no head over the vocabulary was read.
    pub fn config(&self) -> &DecoderConfig {
        self.trunk.config()
    }

    /// Returns the names of the tensors that have a NaN or an infinity among their values.
    pub fn nonfinite(&self) -> &[String] {
        &self.nonfinite
    }

    /// Scores each text, in order. The head is applied to the hidden state of the last token that is not padding, as
    /// in transformers. In a text of padding alone it is the first token; if the model has no padding token, always the
    /// last.
    ///
    /// Texts are batched by length, which changes a score by no more than rounding. Equal texts get the same bits,
    /// so that a group of equal completions has no spread.
    ///
    /// # Panics
    /// Panics if a text has no token or one that the model does not know, or if the device fails.
    pub fn scores(&self, texts: &[&[TokenId]]) -> Vec<f32> {
        let texts: Vec<&[TokenId]> = texts.iter().map(|text| self.until_padding(text)).collect();

        // Longest first: a batch is as wide as its first text, and equal texts are neighbours, as `dedup` needs.
        let mut distinct = texts.clone();
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

        texts.iter().map(|text| scores[text]).collect()
    }

    /// Cuts a text after the token that it is scored at, which does not see later ones.
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

        let last_token = |(row, text): (usize, &&[TokenId])| (row * width + text.len() - 1) as i32;
        let last_tokens: Vec<i32> = rows.iter().enumerate().map(last_token).collect();
        let last_tokens = TensorData::new(last_tokens, [count]);
        let last_tokens = Tensor::<1, Int>::from_data(last_tokens, &device);

        let pooled = hidden.reshape([count * width, size]).select(0, last_tokens).cast(DType::F32);
        let scores = pooled.matmul(self.score.clone());
        scores.into_data().iter::<f32>().collect()
    }
}
