use burn::tensor::{FloatDType, Tensor, activation};

/// `softmax(q·kᵀ / sqrt(head_dim) + bias) · v` for the newest token of each row over the pages of a cache,
/// where several query heads share a key head.
///
/// `query` is `[rows, heads, head_dim]`; of a page keys and values are `[rows, kv_heads, keys, head_dim]` and the
/// bias `[rows, 1, 1, keys]`; the result is `[rows, heads · head_dim]`. Products are f32, as in
/// [`attention`](crate::attention()), whatever the cache was rounded to.
pub fn attention_over_pages<'a>(
    query: Tensor<3>,
    pages: impl Iterator<Item = (&'a Tensor<4>, &'a Tensor<4>, Tensor<4>)>,
) -> Tensor<2> {
    let [rows, heads, head_dim] = query.dims();
    let wide = FloatDType::F32;
    let query = query.cast(wide).mul_scalar(1.0 / (head_dim as f64).sqrt());
    let scored: Vec<(Tensor<4>, &Tensor<4>)> = pages
        .map(|(key, value, bias)| {
            let kv_heads = key.dims()[1];
            let query = query.clone().reshape([rows, kv_heads, heads / kv_heads, head_dim]);
            (query.matmul(key.clone().cast(wide).swap_dims(2, 3)) + bias, value)
        })
        .collect();
    let output = match scored.as_slice() {
        [(scores, value)] => {
            activation::softmax(scores.clone(), 3).matmul((*value).clone().cast(wide))
        }
        pages => {
            let scores = pages.iter().map(|(scores, _)| scores.clone()).collect();
            let weights = activation::softmax(Tensor::cat(scores, 3), 3);
            let mut first = 0;
            let parts = pages.iter().map(|(scores, value)| {
                let keys = scores.dims()[3];
                let part = weights.clone().narrow(3, first, keys);
                first += keys;
                part.matmul((*value).clone().cast(wide))
            });
            parts.reduce(|sum, part| sum + part).expect("a cache has pages")
        }
    };
    output.reshape([rows, heads * head_dim])
}
