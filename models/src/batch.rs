use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::TokenId;

use crate::ops::MASKED;

/// Token rows of different lengths, padded to one rectangle.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// `[rows, tokens]`; padding holds token 0.
    pub tokens: Tensor<2, Int>,
    /// `[rows, tokens]`: each token's position in its own row; 0 in padding.
    pub positions: Tensor<2, Int>,
    starts: Vec<usize>,
    padding: Padding,
}

/// Which side the padding is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Rows end together: for prefill, after which all rows decode at the same column.
    Left,
    /// Rows begin together: for training, where causality alone hides the padding.
    Right,
}

impl TokenBatch {
    /// Pads `rows`, each of at least one token, to the longest.
    ///
    /// # Panics
    /// When there are no rows: there is no batch of nothing.
    pub fn new(rows: &[&[TokenId]], padding: Padding, device: &Device) -> Self {
        let width = rows.iter().map(|row| row.len()).max().expect("a batch has at least one row");
        let start = |row: &&[TokenId]| match padding {
            Padding::Left => width - row.len(),
            Padding::Right => 0,
        };
        let mut tokens = vec![0i32; rows.len() * width];
        let mut positions = vec![0i32; rows.len() * width];
        for (index, row) in rows.iter().enumerate() {
            let at = index * width + start(row);
            for (offset, &token) in row.iter().enumerate() {
                tokens[at + offset] = token as i32;
                positions[at + offset] = offset as i32;
            }
        }
        let tensor =
            |values| Tensor::from_data(TensorData::new(values, [rows.len(), width]), device);
        TokenBatch {
            tokens: tensor(tokens),
            positions: tensor(positions),
            starts: rows.iter().map(start).collect(),
            padding,
        }
    }

    /// The first column of each row that is not padding.
    pub(crate) fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// Added to the attention scores, `[rows or 1, 1, tokens, tokens]`: hides the future, left padding,
    /// and what lies `window` or more positions back. Right padding lies in the future of every real
    /// token.
    pub(crate) fn bias(&self, window: Option<usize>) -> Tensor<4> {
        let width = self.tokens.dims()[1];
        let window = window.unwrap_or(width);
        let starts: &[usize] = match self.padding {
            Padding::Left => &self.starts,
            Padding::Right => &[0],
        };
        let mut bias = vec![MASKED; starts.len() * width * width];
        for (row, &start) in starts.iter().enumerate() {
            for query in start..width {
                let at = (row * width + query) * width;
                let first = start.max((query + 1).saturating_sub(window));
                bias[at + first..=at + query].fill(0.0);
            }
        }
        let data = TensorData::new(bias, [starts.len(), 1, width, width]);
        Tensor::from_data(data, &self.tokens.device())
    }
}
