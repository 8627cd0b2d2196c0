//! Queries, keys and values on the CPU: split, QK-norm and RoPE, forward and backward.

use super::{Out, norm, pieces, rows_of_a_task, simd, summed};
use crate::heads::Heads;

/// Angles of some tokens: cosines and sines, `[rows, pairs]` each, and the row of each token.
#[derive(Clone, Copy)]
pub(crate) struct Angles<'a> {
    pub(crate) cos: &'a [f32],
    pub(crate) sin: &'a [f32],
    pub(crate) pairs: usize,
    pub(crate) rows: &'a [u32],
}

/// Weights of a query head's norm and of a key head's, and the rule for both.
#[derive(Clone, Copy)]
pub(crate) struct HeadNorms<'a> {
    pub(crate) weights: [&'a [f32]; 2],
    pub(crate) rule: norm::Rule,
}

/// Splits `[tokens, (heads + 2 · kv_heads) · width]` into queries, keys and values.
pub(crate) fn apply(
    projected: &[f32],
    heads: Heads,
    norms: Option<HeadNorms<'_>>,
    angles: Angles<'_>,
) -> [Vec<f32>; 3] {
    let Heads { query, key, width } = heads;
    let all = (query + 2 * key) * width;
    let widths = [query * width, key * width, key * width];

    let (qkv, _) = pieces(angles.rows.len(), widths, rows_of_a_task(all), |tokens, outs| {
        simd!({
            let mut normed = vec![0.0; width];
            for token in tokens.clone() {
                let row = &projected[token * all..(token + 1) * all];
                let (rotated, values) = row.split_at((query + key) * width);

                for (index, head) in rotated.chunks_exact(width).enumerate() {
                    let which = usize::from(index >= query);
                    let head = match norms {
                        Some(HeadNorms { weights, rule: [epsilon, offset] }) => {
                            let scale = norm::scale(head, epsilon);
                            let both = head.iter().zip(weights[which]);
                            for (normed, (x, weight)) in normed.iter_mut().zip(both) {
                                *normed = x * scale * (weight + offset);
                            }
                            &normed
                        }
                        None => head,
                    };

                    angles.rotate(token, head, 1.0, &mut outs[which]);
                }

                outs[2].put(values.iter().copied());
            }
        });
    });
    qkv
}

/// Computes the gradient of the input of [`apply`], given those of queries, keys and values. Also returns the
/// gradients of the norms' weights, that of queries before that of keys. `norms` also holds their input.
pub(crate) fn backward(
    heads: Heads,
    norms: Option<(HeadNorms<'_>, &[f32])>,
    angles: Angles<'_>,
    [d_query, d_key, d_value]: [&[f32]; 3],
) -> (Vec<f32>, Vec<f32>) {
    let Heads { query, key, width } = heads;
    let all = (query + 2 * key) * width;

    let ([d_projected], d_weights) =
        pieces(angles.rows.len(), [all], rows_of_a_task(all), |tokens, [out]| {
            simd!({
                let mut d_weights = vec![0.0; if norms.is_some() { 2 * width } else { 0 }];
                let mut rotated = vec![0.0; width];
                let mut scaled = vec![0.0; width];

                for token in tokens.clone() {
                    let d_queries =
                        d_query[token * query * width..][..query * width].chunks_exact(width);
                    let d_keys = d_key[token * key * width..][..key * width].chunks_exact(width);

                    for (index, d_head) in d_queries.chain(d_keys).enumerate() {
                        let Some((HeadNorms { weights, rule }, projected)) = norms else {
                            angles.rotate(token, d_head, -1.0, out);
                            continue;
                        };
                        // The rotation was applied last, so it is undone first.
                        angles.rotate_into(token, d_head, -1.0, &mut rotated);

                        let which = usize::from(index >= query);
                        let x = &projected[token * all + index * width..][..width];
                        let d_weight = &mut d_weights[which * width..][..width];
                        out.put(norm::row_backward(
                            x,
                            weights[which],
                            rule,
                            &rotated,
                            d_weight,
                            &mut scaled,
                        ));
                    }

                    out.put(d_value[token * key * width..][..key * width].iter().copied());
                }

                d_weights
            })
        });

    (d_projected, summed(d_weights))
}

impl Angles<'_> {
    /// Rotates a head in halves, (x₁, x₂) → (x₁c − x₂s, x₂c + x₁s), or back if `sign` is −1. Numbers after those of the
    /// pairs are not changed.
    #[inline(always)]
    fn rotate(&self, token: usize, head: &[f32], sign: f32, out: &mut Out<'_>) {
        let (cos, sin) = self.of(token);
        let (first, rest) = head.split_at(self.pairs);
        let (second, rest) = rest.split_at(self.pairs);
        let both = || first.iter().zip(second).zip(cos.iter().zip(sin));
        out.put(both().map(|((x, y), (cos, sin))| x * cos - y * (sin * sign)));
        out.put(both().map(|((x, y), (cos, sin))| y * cos + x * (sin * sign)));
        if !rest.is_empty() {
            out.put(rest.iter().copied());
        }
    }

    #[inline(always)]
    fn rotate_into(&self, token: usize, head: &[f32], sign: f32, rotated: &mut [f32]) {
        let (cos, sin) = self.of(token);
        let half = self.pairs;
        for at in 0..half {
            let (x, y, cos, sin) = (head[at], head[half + at], cos[at], sin[at] * sign);
            rotated[at] = x * cos - y * sin;
            rotated[half + at] = y * cos + x * sin;
        }

        for (rotated, number) in rotated.iter_mut().zip(head).skip(2 * half) {
            *rotated = *number;
        }
    }

    #[inline(always)]
    fn of(&self, token: usize) -> (&[f32], &[f32]) {
        let first = self.rows[token] as usize * self.pairs;
        (&self.cos[first..first + self.pairs], &self.sin[first..first + self.pairs])
    }
}
