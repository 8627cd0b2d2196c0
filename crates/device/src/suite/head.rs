//! Cases of the suite: the head of a model with 151,936 tokens, checked on the host.

use burn::tensor::{Device, Int, Tensor, TensorData};
use firebrick_kernels::{LmHead, TokenLogProbs, head_backward, head_logprobs_saving};

use super::{
    Array, Case, compares,
    noise::{Noise, on_all_cores, spread},
    operations::compute,
    tensors::values,
};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    let [narrow, wide] = [
        ("head/vocabulary", narrow as super::Compute, false),
        ("head/vocabulary_wide", wide, true),
    ]
    .map(|(name, compute, large)| {
        Case::in_every_format(name, Tolerance::ROUNDED, compute).map(|case| Case { large, ..case })
    });
    narrow.into_iter().chain(wide).collect()
}

/// Vocabulary of Qwen2.5 and Qwen3.
const VOCABULARY: usize = 151_936;

/// Computes log-probabilities of 17 tokens with a head narrow enough for a processor.
fn narrow(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    judged(17, 32, device, precision)
}

/// Computes log-probabilities of 17 and 64 tokens with the head of 0.5B.
fn wide(device: &Device, precision: Precision) -> Result<Vec<Array>, Failure> {
    let mut arrays = judged(17, 896, device, precision)?;
    arrays.extend(judged(64, 896, device, precision)?);
    Ok(arrays)
}

/// Computes log-probabilities, entropies and gradients: over the entire vocabulary in one pass with logits that are
/// kept, and in blocks. The host computes them in f64 for every eighth token. The others have no gradient, so that the
/// host knows the head's gradient too.
fn judged(
    tokens: usize,
    width: usize,
    device: &Device,
    precision: Precision,
) -> Result<Vec<Array>, Failure> {
    let known = Reference::new(tokens, width, precision);
    let format = compute(precision).dtype();

    let matrix = |numbers: &[f32], rows: usize| {
        Tensor::<2>::from_data(TensorData::new(numbers.to_vec(), [rows, width]), device)
    };
    let hidden = matrix(&known.hidden, tokens).cast(format);
    let head = matrix(&known.head, VOCABULARY);

    let labels: Vec<i32> = known.labels.iter().map(|&label| label as i32).collect();
    let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [tokens]), device);

    let mut arrays = Vec::new();
    for (blocks, logits) in [(false, [1 << 28, 1 << 28]), (true, [1 << 20, 0])] {
        let name = if blocks { "in blocks" } else { "at once" };
        let mut add = |what: &str, values: Vec<f32>, expected: Vec<f32>| {
            let name = format!("{what}, {tokens}×{width} {name}");
            arrays.push(Array::with_expected(name, values, expected));
        };

        let lm_head = LmHead::from(head.clone());
        let token_logprobs =
            head_logprobs_saving(&hidden, &lm_head, &labels, known.temperature, logits);
        let of_tokens = |all: Vec<f32>| known.tokens.iter().map(|&token| all[token]).collect();
        let TokenLogProbs { logprobs, entropy, .. } = &token_logprobs;
        add("log-probs", of_tokens(values(logprobs.clone())?), known.judgements(|it| it.logprob));
        add("entropy", of_tokens(values(entropy.clone())?), known.judgements(|it| it.entropy));

        let [d_logprobs, d_entropy] = known.gradients(blocks);
        let column = |numbers: &[f32]| Tensor::<1>::from_floats(numbers, device);
        let (d_hidden, d_head) = head_backward(
            &hidden,
            &head,
            &labels,
            known.temperature,
            logits[0],
            token_logprobs,
            &column(&d_logprobs),
            blocks.then(|| column(&d_entropy)).as_ref(),
            blocks.then(|| head.zeros_like()),
        );

        let d_hidden = values(d_hidden)?;
        if !compares() {
            continue;
        }

        // What the host expects of the gradients.
        let d_logits = known.d_logits(&d_logprobs, &d_entropy);
        for (at, &token) in known.tokens.iter().enumerate() {
            // Each is a separate array, because gradients of the entropy alone are a hundred times smaller.
            let row = d_hidden[token * width..(token + 1) * width].to_vec();
            add(&format!("∂hidden of token {token}"), row, known.d_hidden(&d_logits[at]));
        }

        if let Some(d_head) = d_head {
            let d_head = values(d_head)?;
            for (what, positions) in known.positions() {
                let found = positions.iter().map(|&[row, column]| d_head[row * width + column]);
                add(&format!("∂head {what}"), found.collect(), known.d_head(&d_logits, &positions));
            }
        }
    }
    Ok(arrays)
}

/// Inputs, and the host's results.
struct Reference {
    width: usize,
    hidden: Vec<f32>,
    head: Vec<f32>,
    labels: Vec<usize>,
    temperature: f64,
    /// Tokens that the host computes.
    tokens: Vec<usize>,
    /// Their distributions, if results are compared.
    of_tokens: Vec<TokenDistribution>,
}

/// Distribution over the vocabulary for a token.
struct TokenDistribution {
    /// Logarithms of all probabilities.
    logs: Vec<f64>,
    logprob: f64,
    entropy: f64,
}

impl Reference {
    fn new(tokens: usize, width: usize, precision: Precision) -> Self {
        let hidden = Noise::of(precision, 1).numbers(tokens * width);
        let head = Noise::of(precision, 2).numbers_of_large(VOCABULARY * width);
        // The first label is the last of the vocabulary, and the second is the first.
        let labels =
            (0..tokens).map(|token| (VOCABULARY - 1 + token * 75_969) % VOCABULARY).collect();

        // A logit is a sum of random signs, whose spread is a third of the root of the width. So over the temperature
        // it is about 2.7, and the likeliest token has a hundredth of all probability or more.
        let temperature = f64::from((width as f32).sqrt() / 8.0);

        // The last token is always computed, because edges show faults first.
        let mut chosen_tokens: Vec<usize> = (0..tokens).step_by(8).collect();
        if chosen_tokens.last() != Some(&(tokens - 1)) {
            chosen_tokens.push(tokens - 1);
        }

        let mut known = Reference {
            width,
            hidden,
            head,
            labels,
            temperature,
            tokens: chosen_tokens,
            of_tokens: Vec::new(),
        };
        if compares() {
            known.of_tokens = known.tokens.iter().map(|&token| known.judge(token)).collect();
        }
        known
    }

    fn judge(&self, token: usize) -> TokenDistribution {
        let hidden = &self.hidden[token * self.width..(token + 1) * self.width];
        let mut logs = on_all_cores(VOCABULARY, |part| {
            let rows = self.head.chunks_exact(self.width).skip(part.start).take(part.len());
            let dot = |row: &[f32]| -> f64 {
                row.iter().zip(hidden).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
            };
            rows.map(|row| dot(row) / self.temperature).collect()
        });

        // Logits become logarithms of probabilities.
        let largest = logs.iter().copied().fold(f64::MIN, f64::max);
        let all: f64 = logs.iter().map(|logit| (logit - largest).exp()).sum();
        logs.iter_mut().for_each(|logit| *logit -= largest + all.ln());

        let entropy = -logs.iter().map(|log| log.exp() * log).sum::<f64>();
        TokenDistribution { logprob: logs[self.labels[token]], entropy, logs }
    }

    fn judgements(&self, of: impl Fn(&TokenDistribution) -> f64) -> Vec<f32> {
        self.of_tokens.iter().map(|judgement| of(judgement) as f32).collect()
    }

    /// Makes gradients of the log-probabilities and of the entropies. They are as large as a loss scale makes them,
    /// because f16 has no number below 6e-8. With `entropy`, every other token has a gradient of its entropy alone:
    /// none of its entries is as large as that of a label.
    fn gradients(&self, entropy: bool) -> [Vec<f32>; 2] {
        const SCALE: f32 = 1024.0;
        let mut gradients = [vec![0.0; self.labels.len()], vec![0.0; self.labels.len()]];
        for (at, &token) in self.tokens.iter().enumerate() {
            let [of_logprob, of_entropy] = [3, 4].map(|salt| SCALE * Noise::new(salt).at(at));
            if !entropy || at % 2 == 0 {
                gradients[0][token] = of_logprob;
            }
            if entropy {
                gradients[1][token] = of_entropy;
            }
        }

        gradients
    }

    /// Computes the gradients of the logits: a row for each token that the host computes.
    fn d_logits(&self, d_logprobs: &[f32], d_entropy: &[f32]) -> Vec<Vec<f64>> {
        let of_token = |(&token, judgement): (&usize, &TokenDistribution)| {
            let [d_logprob, d_entropy] =
                [d_logprobs, d_entropy].map(|all| f64::from(all[token]) / self.temperature);
            // ∂H / ∂z = −p · (log p + H), and ∂ log p_y / ∂z = 1[y] − p for the label y.
            let d = |log: &f64| -log.exp() * (d_logprob + d_entropy * (log + judgement.entropy));

            let mut d: Vec<f64> = judgement.logs.iter().map(d).collect();
            d[self.labels[token]] += d_logprob;
            d
        };
        self.tokens.iter().zip(&self.of_tokens).map(of_token).collect()
    }

    /// Computes the gradient of a token's hidden state.
    fn d_hidden(&self, d_logits: &[f64]) -> Vec<f32> {
        let width = self.width;
        on_all_cores(width, |part| {
            let mut sums = vec![0.0; part.len()];
            for (row, d) in self.head.chunks_exact(width).zip(d_logits) {
                for (sum, &number) in sums.iter_mut().zip(&row[part.clone()]) {
                    *sum += d * f64::from(number);
                }
            }
            sums.into_iter().map(|sum| sum as f32).collect()
        })
    }

    /// Chooses entries of the head's gradient: rows of labels, and rows anywhere.
    fn positions(&self) -> [(&'static str, Vec<[usize; 2]>); 2] {
        let of_labels = self.tokens.iter().flat_map(|&token| {
            let label = self.labels[token];
            (0..self.width).step_by(7).map(move |column| [label, column])
        });
        let others = spread(4096, [VOCABULARY, self.width]);
        let others = others.filter(|[row, _]| !self.labels.contains(row));
        [("of labels", of_labels.collect()), ("of others", others.collect())]
    }

    fn d_head(&self, d_logits: &[Vec<f64>], positions: &[[usize; 2]]) -> Vec<f32> {
        let entry = |&[row, column]: &[usize; 2]| {
            let of_token = |(&token, d): (&usize, &Vec<f64>)| {
                d[row] * f64::from(self.hidden[token * self.width + column])
            };
            self.tokens.iter().zip(d_logits).map(of_token).sum::<f64>() as f32
        };
        positions.iter().map(entry).collect()
    }
}
