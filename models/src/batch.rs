//! Batches of tokens: padded rows, or texts packed one after the other.

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_core::TokenId;

use crate::{PackedMask, Segment};

/// Token rows of different lengths in one rectangle.
///
/// Ranges and indices of tokens count them row by row: `row · tokens + column` is the index of a token in the
/// flattened rectangle.
#[derive(Clone, Debug)]
pub struct TokenBatch {
    /// Token ids, `[rows, tokens]`; padding holds token 0.
    pub tokens: Tensor<2, Int>,
    /// Position of each token in its own text, `[rows, tokens]`; 0 in padding.
    pub positions: Tensor<2, Int>,
    ids: Vec<TokenId>,
    segments: Vec<Segment>,
    padding: Padding,
}

/// On which side rows are padded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// Rows end together. For prefill: afterwards all rows decode at the same column.
    Left,
    /// Rows begin together. For a forward pass of any model: the causal mask alone hides the padding.
    Right,
    /// On neither: all texts are packed one after the other in a single row. For a model that
    /// [packs](crate::PolicyModel::packs).
    None,
}

impl TokenBatch {
    /// Pads `rows`, each of at least one token, to the longest.
    ///
    /// # Panics
    /// Panics if there are no rows.
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

    /// Packs texts one after the other, without padding. A text with an index continues the earlier text at that
    /// index, its prefix, as if the tokens of both were one text. A prefix must not have a prefix itself.
    ///
    /// # Panics
    /// Panics if there are no texts, or a text continues a text that is missing or that itself continues another.
    pub fn packed(texts: &[(&[TokenId], Option<usize>)], device: &Device) -> Self {
        let mut segments: Vec<Segment> = Vec::with_capacity(texts.len());
        for (text, prefix) in texts {
            let start = segments.last().map_or(0, |previous| previous.range.end);
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
        let count = shape[0] * shape[1];
        let mut ids = vec![0; count];
        let mut positions = vec![0i32; count];

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

    /// Returns 1 at a row's tokens and 0 at its padding, which a recurrence must skip, `[rows, tokens]`.
    pub fn token_mask(&self) -> Tensor<2> {
        let shape = self.tokens.dims();
        let mut mask = vec![0f32; shape[0] * shape[1]];
        for segment in &self.segments {
            mask[segment.range.clone()].fill(1.0);
        }
        Tensor::from_data(TensorData::new(mask, shape), &self.tokens.device())
    }

    /// Returns the mask of the batch for an [`attention`](crate::attention()). It hides other texts, padding and later
    /// tokens from each token.
    pub fn mask(&self) -> PackedMask {
        let [rows, width] = self.tokens.dims();
        PackedMask::new(&self.segments, rows * width, &self.tokens.device().inner())
    }
}
