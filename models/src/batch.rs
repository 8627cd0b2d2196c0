//! Batches of tokens: padded rows, or texts packed one behind the other.

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::TokenId;

use crate::{PackedMask, Segment};

/// Token rows of different lengths in one rectangle.
///
/// A range or an index of tokens counts them row by row: `row · tokens + column` is the index of a token in the
/// flattened rectangle.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// The tokens, `[rows, tokens]`; padding holds token 0.
    pub tokens: Tensor<2, Int>,
    /// The position of each token in its own text, `[rows, tokens]`; 0 in padding.
    pub positions: Tensor<2, Int>,
    ids: Vec<TokenId>,
    segments: Vec<Segment>,
    padding: Padding,
}

/// The side of the padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Rows end together. This is for prefill: afterwards all rows decode at the same column.
    Left,
    /// Rows begin together. This is for a forward pass of any model: causality alone hides the padding.
    Right,
    /// There is no padding: all texts lie one behind the other in a single row. This is for a model that
    /// [packs](crate::PolicyModel::packs).
    None,
}

impl TokenBatch {
    /// Pads `rows`, each of at least one token, to the longest.
    ///
    /// # Panics
    /// If there are no rows.
    pub fn new(rows: &[&[TokenId]], padding: Padding, device: &Device) -> Self {
        if padding == Padding::None {
            let rows: Vec<_> = rows.iter().map(|row| (*row, None)).collect();
            return TokenBatch::packed(&rows, device);
        }
        let width = rows.iter().map(|row| row.len()).max().expect("a batch has at least one row");
        let segments = rows.iter().enumerate().map(|(index, row)| {
            let start = match padding {
                Padding::Left => (index + 1) * width - row.len(),
                _ => index * width,
            };
            Segment { range: start..start + row.len(), prefix: None }
        });
        TokenBatch::of(rows, segments.collect(), [rows.len(), width], padding, device)
    }

    /// Packs texts one behind the other, without padding. A text with a number continues the earlier text of that
    /// number, its prefix, as if the tokens of both were one text. A prefix must not have a prefix itself.
    ///
    /// # Panics
    /// If there are no texts, or a text continues a text that is missing or that itself continues another.
    pub fn packed(texts: &[(&[TokenId], Option<usize>)], device: &Device) -> Self {
        let mut segments: Vec<Segment> = Vec::with_capacity(texts.len());
        for (text, prefix) in texts {
            let start = segments.last().map_or(0, |before| before.range.end);
            assert!(
                prefix
                    .is_none_or(|first| segments.get(first).is_some_and(|it| it.prefix.is_none())),
                "the prefix of a text is an earlier text that has no prefix"
            );
            segments.push(Segment { range: start..start + text.len(), prefix: *prefix });
        }
        let width = segments.last().expect("a batch has at least one text").range.end;
        let rows: Vec<&[TokenId]> = texts.iter().map(|(text, _)| *text).collect();
        TokenBatch::of(&rows, segments, [1, width], Padding::None, device)
    }

    fn of(
        texts: &[&[TokenId]],
        segments: Vec<Segment>,
        shape: [usize; 2],
        padding: Padding,
        device: &Device,
    ) -> Self {
        let all = shape[0] * shape[1];
        let (mut ids, mut positions) = (vec![0; all], vec![0i32; all]);
        for (text, segment) in texts.iter().zip(&segments) {
            let first = segment.prefix.map_or(0, |prefix| segments[prefix].range.len());
            let range = segment.range.clone();
            for (offset, (index, &token)) in range.zip(*text).enumerate() {
                ids[index] = token;
                positions[index] = (first + offset) as i32;
            }
        }
        let tensor = |values| Tensor::from_data(TensorData::new(values, shape), device);
        let tokens = tensor(ids.iter().map(|&token| token as i32).collect());
        TokenBatch { tokens, positions: tensor(positions), ids, segments, padding }
    }

    /// Returns all tokens, row by row; 0 in padding.
    pub fn ids(&self) -> &[TokenId] {
        &self.ids
    }

    /// Returns the side of the padding.
    pub fn padding(&self) -> Padding {
        self.padding
    }

    /// Returns the ranges of the texts, in the order in which the texts were given.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Returns the first column of each text.
    pub fn starts(&self) -> Vec<usize> {
        let width = self.tokens.dims()[1];
        self.segments.iter().map(|segment| segment.range.start % width).collect()
    }

    /// Returns the number of tokens of each text.
    pub fn lengths(&self) -> Vec<usize> {
        self.segments.iter().map(|segment| segment.range.len()).collect()
    }

    /// Marks the tokens, `[rows, tokens]`: 1 at a row's tokens and 0 at its padding, which a recurrence must not
    /// go through.
    pub fn present(&self) -> Tensor<2> {
        let shape = self.tokens.dims();
        let mut present = vec![0f32; shape[0] * shape[1]];
        for segment in &self.segments {
            present[segment.range.clone()].fill(1.0);
        }
        Tensor::from_data(TensorData::new(present, shape), &self.tokens.device())
    }

    /// Returns the mask of the batch for an [`attention`](crate::attention()): what each token sees. A token sees
    /// nothing of other texts, of padding or of the future.
    pub fn mask(&self) -> PackedMask {
        let [rows, width] = self.tokens.dims();
        PackedMask::new(&self.segments, rows * width, &self.tokens.device().inner())
    }
}
