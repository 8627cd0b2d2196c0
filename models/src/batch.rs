use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::TokenId;

use crate::ops::{MASKED, Mask};

/// Token rows of different lengths, padded to one rectangle.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// `[rows, tokens]`; padding holds token 0.
    pub tokens: Tensor<2, Int>,
    /// `[rows, tokens]`: each token's position in its own row; 0 in padding.
    pub positions: Tensor<2, Int>,
    starts: Vec<usize>,
    lengths: Vec<usize>,
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
            lengths: rows.iter().map(|row| row.len()).collect(),
            padding,
        }
    }

    /// Which side the padding is on.
    pub fn padding(&self) -> Padding {
        self.padding
    }

    /// The first column of each row that is not padding.
    pub fn starts(&self) -> &[usize] {
        &self.starts
    }

    /// How many tokens each row has.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// `[rows, tokens]`: 1 at a row's tokens and 0 at its padding, which a recurrence must not go
    /// through.
    pub fn present(&self) -> Tensor<2> {
        let [rows, width] = self.tokens.dims();
        let mut present = vec![0f32; rows * width];
        for (row, (&start, &length)) in self.starts.iter().zip(&self.lengths).enumerate() {
            present[row * width + start..][..length].fill(1.0);
        }
        Tensor::from_data(TensorData::new(present, [rows, width]), &self.tokens.device())
    }

    /// The bias that an attention adds to its scores, where keys are the batch's own tokens: hides the future,
    /// left padding, and in layers with `window` what lies so many or more positions back. Right
    /// padding lies in the future of every real token.
    pub fn mask(&self, window: Option<usize>) -> Mask {
        let width = self.tokens.dims()[1];
        let window = window.filter(|&window| window < width);
        Mask { full: self.bias(width), windowed: window.map(|window| self.bias(window)) }
    }

    /// `[rows or 1, 1, tokens, tokens]`.
    fn bias(&self, window: usize) -> Tensor<4> {
        let width = self.tokens.dims()[1];
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
