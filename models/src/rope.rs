//! Rotary frequencies: how far the numbers of a head rotate from one position to the next, and how the frequencies are
//! changed for longer contexts.
//!
//! The formulas are those of `transformers`; each scaling names its source.

use std::f64::consts::TAU;

use firebrick_kernels::RopeFrequencies;
use serde_json::{Map, Value, json};

use crate::fields::{ConfigError, Fields, is_in_float32, not_implemented};

/// A rotary position embedding.
#[derive(Clone, Debug, PartialEq)]
pub struct Rope {
    /// Base of the frequencies: pair `i` of `n` rotates by `theta^(−i/n)` per position.
    pub theta: f64,
    /// Fraction of a head that is rotated, in (0, 1] (`partial_rotary_factor`): its beginning, or the first pairs of
    /// the whole head with [`RopeScaling::Proportional`].
    pub share: f64,
    /// Change of the frequencies for a longer context.
    pub scaling: RopeScaling,
}

/// A change of the frequencies of a [`Rope`] for a longer context.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum RopeScaling {
    /// Nothing is changed.
    #[default]
    None,
    /// All frequencies are divided.
    Linear {
        /// What they are divided by.
        factor: f64,
    },
    /// "Dynamic NTK": the base grows with the length of texts beyond a context.
    Dynamic {
        /// How strongly it grows.
        factor: f64,
        /// Up to this context, in tokens, nothing changes.
        context: usize,
    },
    /// The whole head is made of pairs, of which only a share rotates, at the frequencies that these pairs have if all
    /// rotate. So the numbers of a pair are half a head apart, whatever the share is. All frequencies are divided.
    Proportional {
        /// What they are divided by.
        factor: f64,
    },
    /// Llama 3.1.
    Llama3(Llama3),
    /// YaRN (Peng et al. 2023).
    Yarn(Yarn),
    /// LongRoPE (Ding et al. 2024).
    LongRope(LongRope),
}

/// Llama 3.1's scaling. Frequencies that rotate at most `low_freq_factor` times within the original context are divided
/// by `factor`, while those that rotate more than `high_freq_factor` times stay. In between, the change fades out
/// linearly with the number of turns.
#[derive(Clone, Debug, PartialEq)]
pub struct Llama3 {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// Number of turns within the original context up to which a frequency is low.
    pub low_freq_factor: f64,
    /// Number of turns within the original context from which a frequency is high; above `low_freq_factor`.
    pub high_freq_factor: f64,
    /// Context before scaling, in tokens.
    pub original_max_position_embeddings: usize,
}

/// YaRN (Peng et al. 2023): like [`Llama3`], but in a straight line over the pairs from low to high frequencies, and
/// with a factor for queries and keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Yarn {
    /// Divisor of the low frequencies.
    pub factor: f64,
    /// Number of turns within the original context from which a frequency is high.
    pub beta_fast: f64,
    /// Number of turns within the original context up to which a frequency is low.
    pub beta_slow: f64,
    /// True if the line begins and ends at whole pairs.
    pub truncate: bool,
    /// Factor of queries and keys.
    pub attention_factor: f64,
    /// Context before scaling, in tokens.
    pub original_max_position_embeddings: usize,
}

/// LongRoPE (Ding et al. 2024): each frequency has one divisor for texts within the original context, and another for
/// longer texts.
#[derive(Clone, Debug, PartialEq)]
pub struct LongRope {
    /// Divisors for texts within the original context.
    pub short_factor: Vec<f64>,
    /// Divisors for longer texts.
    pub long_factor: Vec<f64>,
    /// Factor of queries and keys.
    pub attention_factor: f64,
    /// Context before scaling, in tokens.
    pub original_max_position_embeddings: usize,
}

/// Largest angle of a rope, in radians (2²²). Kernels compute sine and cosine up to there.
const LARGEST: f64 = 4_194_304.0;

/// Types of layers that may have different ropes: those with full attention, and those with a sliding window.
const NESTED: [&str; 2] = ["full_attention", "sliding_attention"];

const ORIGINAL: &str = "original_max_position_embeddings";

const TRUNCATE: &str = "truncate";

impl Rope {
    /// Makes a rope whose frequencies are not changed.
    pub fn new(theta: f64) -> Self {
        Rope { theta, share: 1.0, scaling: RopeScaling::None }
    }

    /// Returns the number of pairs in a head that are rotated, some of them by nothing with
    /// [`RopeScaling::Proportional`]. If the share of a head is an odd number of elements, one more is rotated, as in
    /// transformers.
    pub fn pairs(&self, head_dim: usize) -> usize {
        match self.scaling {
            RopeScaling::Proportional { .. } => head_dim / 2,
            _ => self.numbers(head_dim).div_ceil(2),
        }
    }

    /// Returns the share of a head as a number of elements, which the frequencies depend on even if it is odd.
    fn numbers(&self, head_dim: usize) -> usize {
        (head_dim as f64 * self.share) as usize
    }

    /// Computes the frequencies for texts of up to `longest` tokens. With [`RopeScaling::Dynamic`] and
    /// [`RopeScaling::LongRope`] they depend on `longest`, and are the same for all texts of a model, while in
    /// `transformers` they depend on the longest text of a batch.
    pub(crate) fn frequencies(&self, head_dim: usize, longest: usize) -> RopeFrequencies {
        let (numbers, scale) = self.inverse_frequencies(head_dim, longest);
        RopeFrequencies::new(numbers.into_iter().map(|it| it as f32).collect()).scaled(scale as f32)
    }

    /// Computes how far each pair rotates per position, and the factor of the rotated numbers.
    fn inverse_frequencies(&self, head_dim: usize, longest: usize) -> (Vec<f64>, f64) {
        let pairs = self.pairs(head_dim);
        let half = self.numbers(head_dim) as f64 / 2.0;
        let power = |theta: f64, pair: usize| theta.powf(-(pair as f64) / half);
        let plain = |pair: usize| power(self.theta, pair);

        match &self.scaling {
            RopeScaling::None => ((0..pairs).map(plain).collect(), 1.0),
            RopeScaling::Linear { factor } => {
                ((0..pairs).map(|pair| plain(pair) / factor).collect(), 1.0)
            }
            RopeScaling::Dynamic { factor, context } => {
                // The exponent makes the slowest pair slower by exactly the number in brackets; the fastest stays.
                let times = longest.max(*context) as f64 / *context as f64;
                let exponent = half / (half - 1.0);
                let theta = self.theta * (factor * times - (factor - 1.0)).powf(exponent);
                ((0..pairs).map(|pair| power(theta, pair)).collect(), 1.0)
            }

            RopeScaling::Proportional { factor } => {
                let rotated = self.numbers(head_dim) / 2;
                let of = |pair: usize| {
                    let frequency = self.theta.powf(-2.0 * pair as f64 / head_dim as f64);
                    if pair < rotated { frequency / factor } else { 0.0 }
                };
                ((0..pairs).map(of).collect(), 1.0)
            }

            RopeScaling::Llama3(llama) => {
                ((0..pairs).map(|pair| llama.of(plain(pair))).collect(), 1.0)
            }

            RopeScaling::Yarn(yarn) => {
                let [low, high] = yarn.range(self.theta, pairs);
                let of = |pair: usize| {
                    let slow = ((pair as f64 - low) / (high - low)).clamp(0.0, 1.0);
                    plain(pair) * (slow / yarn.factor + 1.0 - slow)
                };
                ((0..pairs).map(of).collect(), yarn.attention_factor)
            }

            RopeScaling::LongRope(long) => {
                let beyond = longest > long.original_max_position_embeddings;
                let divisors = if beyond { &long.long_factor } else { &long.short_factor };
                let of = |(pair, divisor): (usize, &f64)| plain(pair) / divisor;
                (divisors.iter().enumerate().map(of).collect(), long.attention_factor)
            }
        }
    }

    /// Checks that the numbers define frequencies, and angles small enough for every device's sine, in texts of up to
    /// `longest` tokens or 2²², whichever is less.
    pub(crate) fn check(&self, head_dim: usize, longest: usize) -> Result<(), ConfigError> {
        let sane = |x: f64| x.is_finite() && x > 0.0;
        let wrong = |problem: String| Err(ConfigError::Size(problem));
        let pairs = self.pairs(head_dim);
        if !sane(self.theta) || !sane(self.share) || self.share > 1.0 || 2 * pairs > head_dim {
            return wrong(format!(
                "rope_theta is {} and partial_rotary_factor {}; expected a positive number, and one above 0 and at most \
                 1",
                self.theta, self.share
            ));
        }

        let odd = !self.numbers(head_dim).is_multiple_of(2);
        if odd && matches!(self.scaling, RopeScaling::Yarn(_) | RopeScaling::LongRope(_)) {
            return wrong(format!(
                "partial_rotary_factor {} of a head of {head_dim} is an odd number of elements, {}; expected an even \
                 one, because the rope scaling has a factor for each pair",
                self.share,
                self.numbers(head_dim)
            ));
        }

        // Numbers that have to be positive, a context that must not be 0, and whether low and high are in order.
        let (numbers, contexts, ordered) = match &self.scaling {
            RopeScaling::None => (Vec::new(), 1, true),
            RopeScaling::Linear { factor } | RopeScaling::Proportional { factor } => {
                (vec![*factor], 1, true)
            }
            // A single pair rotates by 1 with any base, so there is nothing to change.
            RopeScaling::Dynamic { factor, context } => {
                (vec![*factor], *context, pairs > 1 && *factor >= 1.0)
            }
            RopeScaling::Llama3(it) => (
                vec![it.factor, it.low_freq_factor, it.high_freq_factor],
                it.original_max_position_embeddings,
                it.high_freq_factor > it.low_freq_factor,
            ),
            RopeScaling::Yarn(it) => (
                vec![it.factor, it.beta_fast, it.beta_slow, it.attention_factor],
                it.original_max_position_embeddings,
                it.beta_fast > it.beta_slow && self.theta > 1.0,
            ),

            RopeScaling::LongRope(it) => {
                for (name, factors) in
                    [("short_factor", &it.short_factor), ("long_factor", &it.long_factor)]
                {
                    let actual = factors.len();
                    if actual != pairs {
                        return wrong(format!(
                            "{name} has {actual} numbers; expected {pairs}, one for each pair of a head"
                        ));
                    }
                    if let Some(first) = factors.iter().find(|it| !sane(**it)) {
                        return wrong(format!("{name} has {first}; expected positive numbers"));
                    }
                }
                (vec![it.attention_factor], it.original_max_position_embeddings, true)
            }
        };

        if contexts == 0 || !ordered || !numbers.into_iter().all(sane) {
            return wrong(format!(
                "the rope scaling {:?} does not define frequencies: numbers have to be positive, those of high frequencies above \
                 those of low ones",
                self.scaling
            ));
        }

        // The angle is largest at the last token; a dynamic base and LongRoPE differ between short and long texts.
        let longest = longest.min(LARGEST as usize);
        let frequencies =
            [1, longest].map(|length| self.inverse_frequencies(head_dim, length).0).concat();
        let angle = frequencies.into_iter().fold(0.0, f64::max) * longest as f64;

        if angle > LARGEST {
            return wrong(format!(
                "rope_theta {} with the scaling {:?} rotates a head by {angle:.3e} at token {longest}; expected at \
                 most {LARGEST}",
                self.theta, self.scaling
            ));
        }
        Ok(())
    }

    /// Reads the rope of a `config.json`, in the layouts of transformers 4 and 5. If the file does not have them,
    /// `theta` is the base and `share` is the fraction of a head that is rotated.
    pub(crate) fn read(
        fields: &Fields,
        max_position_embeddings: usize,
        (theta, share): (f64, f64),
    ) -> Result<Self, ConfigError> {
        // If a file has both, transformers 5 takes the older one. An empty object counts as missing.
        let newer = object(fields, "rope_parameters")?;
        let parameters = object(fields, "rope_scaling")?.or(newer).unwrap_or_default();
        if let Some(kind) = NESTED.into_iter().find(|kind| parameters.contains_key(*kind)) {
            return Err(ConfigError::Size(format!(
                "rope_parameters has an entry {kind:?}; expected the parameters of one rope, since all layers of this \
                 family have the same"
            )));
        }

        let theta = fields.number_or("rope_theta", theta)?;
        let context =
            if fields.0.contains_key(ORIGINAL) { Some(fields.size(ORIGINAL)?) } else { None };
        let share = fields.number_or("partial_rotary_factor", share)?;
        Rope::of(&Fields(&parameters), max_position_embeddings, context, (theta, share))
    }

    /// Reads two ropes: that of layers with full attention, and that of layers with a sliding window. In the file,
    /// `rope_parameters` may be nested by the type of a layer; `theta` and `local` are the bases if it has none there.
    /// A `rope_scaling` is only for layers with full attention.
    pub(crate) fn read_both(
        fields: &Fields,
        max_position_embeddings: usize,
        [theta, local]: [f64; 2],
    ) -> Result<[Self; 2], ConfigError> {
        let nested = object(fields, "rope_parameters")?.unwrap_or_default();
        let of = |kind: &str| {
            let mut own = object(&Fields(&nested), kind)?.unwrap_or_default();
            // transformers looks for this field next to the ropes.
            own.remove(TRUNCATE);
            own.extend(nested.get(TRUNCATE).map(|truncate| (TRUNCATE.into(), truncate.clone())));
            Ok::<_, ConfigError>(own)
        };

        let mut full = of(NESTED[0])?;
        let windowed = of(NESTED[1])?;

        if let Some(older) = object(fields, "rope_scaling")? {
            let missing = fields.0.get("rope_parameters").is_none_or(Value::is_null);
            if !missing && !nested.get(NESTED[0]).is_some_and(Value::is_object) {
                return Err(ConfigError::Size(format!(
                    "rope_scaling changes the rope of {:?}, which rope_parameters does not have; expected only one of \
                     the two fields",
                    NESTED[0]
                )));
            }
            if older.contains_key("type") && !older.contains_key("rope_type") {
                // transformers would leave the frequencies as they are.
                return Err(ConfigError::Field {
                    field: "rope_type".into(),
                    expected: "there, since transformers ignores \"type\" in rope_scaling of this family",
                    actual: "missing".into(),
                });
            }
            full.extend(older.into_iter().filter(|(key, _)| key != TRUNCATE));
        }

        let read = |parameters, theta| {
            let rope = Rope::of(&Fields(&parameters), max_position_embeddings, None, (theta, 1.0))?;
            if rope.share == 1.0 && fields.number_or("partial_rotary_factor", 1.0)? == 1.0 {
                Ok(rope)
            } else {
                Err(not_implemented("partial_rotary_factor"))
            }
        };
        Ok([read(full, theta)?, read(windowed, local)?])
    }

    /// Reads the two ropes of [`Rope::read_both`] in a family without older layouts. The ropes are `defaults` if the
    /// file has no `rope_parameters`; if it has, both have to be there, each with its base.
    pub(crate) fn read_nested(
        fields: &Fields,
        max_position_embeddings: usize,
        defaults: [Self; 2],
    ) -> Result<[Self; 2], ConfigError> {
        // It would replace both ropes, even as a null.
        if fields.0.contains_key("rope_scaling") {
            return Err(not_implemented("rope_scaling"));
        }
        if fields.0.get("rope_parameters").is_none_or(Value::is_null) {
            return Ok(defaults);
        }

        let nested = object(fields, "rope_parameters")?.unwrap_or_default();
        let read = |kind: &str| {
            let own = object(&Fields(&nested), kind)?.ok_or_else(|| ConfigError::Field {
                field: "rope_parameters".into(),
                expected: "an object with full_attention and sliding_attention",
                actual: Value::Object(nested.clone()).to_string(),
            })?;
            let own = Fields(&own);
            let default = (own.number("rope_theta")?, 1.0);
            let rope = Rope::of(&own, max_position_embeddings, None, default)?;

            let of_pairs = matches!(rope.scaling, RopeScaling::Proportional { .. });
            if rope.share == 1.0 || of_pairs {
                Ok(rope)
            } else {
                Err(not_implemented("partial_rotary_factor"))
            }
        };
        Ok([read(NESTED[0])?, read(NESTED[1])?])
    }

    /// Reads the rope that `parameters` describe. A `context` that is given takes precedence over theirs.
    fn of(
        parameters: &Fields,
        max_position_embeddings: usize,
        context: Option<usize>,
        (theta, share): (f64, f64),
    ) -> Result<Self, ConfigError> {
        let theta = parameters.number_or("rope_theta", theta)?;
        let share = parameters.number_or("partial_rotary_factor", share)?;
        let context = match context {
            Some(found) => found,
            None => parameters.size_or(ORIGINAL, max_position_embeddings)?,
        };

        let factor = || match parameters.optional("factor", Fields::number)? {
            Some(factor) => Ok(factor),
            None => Ok(max_position_embeddings as f64 / context as f64),
        };

        let kind = parameters.0.get("rope_type").or(parameters.0.get("type"));
        let scaling = match kind.map(Value::as_str) {
            None | Some(Some("default")) => RopeScaling::None,
            Some(Some("linear")) => RopeScaling::Linear { factor: parameters.number("factor")? },
            Some(Some("dynamic")) => RopeScaling::Dynamic {
                factor: parameters.number("factor")?,
                context: max_position_embeddings,
            },
            Some(Some("proportional")) => {
                RopeScaling::Proportional { factor: parameters.number_or("factor", 1.0)? }
            }
            Some(Some("llama3")) => RopeScaling::Llama3(Llama3 {
                factor: parameters.number("factor")?,
                low_freq_factor: parameters.number("low_freq_factor")?,
                high_freq_factor: parameters.number("high_freq_factor")?,
                original_max_position_embeddings: context,
            }),

            Some(Some("yarn")) => {
                // The field may be null, but it has to be there.
                let factor = if parameters.0.contains_key("factor") {
                    factor()?
                } else {
                    parameters.number("factor")?
                };
                RopeScaling::Yarn(Yarn {
                    factor,
                    beta_fast: nonzero_or(parameters, "beta_fast", 32.0)?,
                    beta_slow: nonzero_or(parameters, "beta_slow", 1.0)?,
                    truncate: match parameters.0.get(TRUNCATE) {
                        Some(Value::Null) => false,
                        _ => parameters.flag_or(TRUNCATE, true)?,
                    },
                    attention_factor: Yarn::attention_factor(parameters, factor)?,
                    original_max_position_embeddings: context,
                })
            }
            Some(Some("longrope")) => RopeScaling::LongRope(LongRope {
                short_factor: numbers(parameters, "short_factor")?,
                long_factor: numbers(parameters, "long_factor")?,
                attention_factor: LongRope::attention_factor(parameters, factor()?, context)?,
                original_max_position_embeddings: context,
            }),

            Some(_) => {
                let kind = kind.unwrap_or(&Value::Null);
                return Err(not_implemented(&format!("the rope scaling of type {kind}")));
            }
        };

        Ok(Rope { theta, share, scaling })
    }

    /// Makes the `rope_scaling` of a `config.json`, which transformers 4 and 5 read. Returns `None` if nothing is
    /// scaled.
    pub fn scaling_to_json(&self) -> Option<Value> {
        Some(match &self.scaling {
            RopeScaling::None => return None,
            RopeScaling::Linear { factor } => json!({"rope_type": "linear", "factor": factor}),
            RopeScaling::Dynamic { factor, .. } => {
                json!({"rope_type": "dynamic", "factor": factor})
            }
            RopeScaling::Proportional { factor } => json!({
                "factor": factor,
                "partial_rotary_factor": self.share,
                "rope_type": "proportional",
            }),
            RopeScaling::Llama3(it) => json!({
                "factor": it.factor,
                "high_freq_factor": it.high_freq_factor,
                "low_freq_factor": it.low_freq_factor,
                "original_max_position_embeddings": it.original_max_position_embeddings,
                "rope_type": "llama3",
            }),
            RopeScaling::Yarn(it) => json!({
                "attention_factor": it.attention_factor,
                "beta_fast": it.beta_fast,
                "beta_slow": it.beta_slow,
                "factor": it.factor,
                "original_max_position_embeddings": it.original_max_position_embeddings,
                "rope_type": "yarn",
                "truncate": it.truncate,
            }),
            RopeScaling::LongRope(it) => json!({
                "attention_factor": it.attention_factor,
                "long_factor": it.long_factor,
                "original_max_position_embeddings": it.original_max_position_embeddings,
                "rope_type": "longrope",
                "short_factor": it.short_factor,
            }),
        })
    }
}

impl Llama3 {
    fn of(&self, frequency: f64) -> f64 {
        // Full turns that the pair makes within the original context.
        let turns = self.original_max_position_embeddings as f64 * frequency / TAU;
        let low = self.low_freq_factor;
        let high = self.high_freq_factor;
        let kept = ((turns - low) / (high - low)).clamp(0.0, 1.0);
        frequency * (kept + (1.0 - kept) / self.factor)
    }
}

impl Yarn {
    /// Returns the pairs at which high frequencies end and low ones begin, of `pairs` pairs with this base.
    fn range(&self, theta: f64, pairs: usize) -> [f64; 2] {
        let context = self.original_max_position_embeddings as f64;
        let pair = |turns: f64| pairs as f64 * (context / (turns * TAU)).ln() / theta.ln();
        let mut low = pair(self.beta_fast);
        let mut high = pair(self.beta_slow);
        if self.truncate {
            low = low.floor();
            high = high.ceil();
        }

        let low = low.max(0.0);
        let high = high.min(2.0 * pairs as f64 - 1.0);
        // As in transformers, so that no line has length 0.
        [low, if low == high { high + 0.001 } else { high }]
    }

    fn attention_factor(parameters: &Fields, factor: f64) -> Result<f64, ConfigError> {
        if let Some(given) = parameters.optional("attention_factor", Fields::number)? {
            return Ok(given);
        }
        // Attention grows sharper with the length: 0.1 ln(factor) + 1, as in the YaRN paper.
        let grown = |by: f64| if factor <= 1.0 { 1.0 } else { 0.1 * by * factor.ln() + 1.0 };
        let scales = ["mscale", "mscale_all_dim"].map(|field| nonzero_or(parameters, field, 0.0));
        Ok(match scales {
            [Err(error), _] | [_, Err(error)] => return Err(error),
            [Ok(one), Ok(all)] if one != 0.0 && all != 0.0 => grown(one) / grown(all),
            _ => grown(1.0),
        })
    }
}

impl LongRope {
    fn attention_factor(
        parameters: &Fields,
        factor: f64,
        context: usize,
    ) -> Result<f64, ConfigError> {
        if let Some(given) = parameters.optional("attention_factor", Fields::number)? {
            return Ok(given);
        }

        Ok(if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (context as f64).ln()).sqrt() })
    }
}

/// Reads an object; `None` if it is missing or empty.
fn object(fields: &Fields, field: &str) -> Result<Option<Map<String, Value>>, ConfigError> {
    match fields.0.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(found)) => Ok(Some(found.clone()).filter(|found| !found.is_empty())),
        Some(other) => Err(ConfigError::Field {
            field: field.into(),
            expected: "an object",
            actual: other.to_string(),
        }),
    }
}

/// Reads a number. A 0 and a null count as missing.
fn nonzero_or(fields: &Fields, field: &str, default: f64) -> Result<f64, ConfigError> {
    let number = fields.optional(field, Fields::number)?;
    Ok(number.filter(|number| *number != 0.0).unwrap_or(default))
}

fn numbers(fields: &Fields, field: &str) -> Result<Vec<f64>, ConfigError> {
    let list = fields.0.get(field);
    let number = |value: &Value| value.as_f64().filter(|number| is_in_float32(*number));
    let numbers = list.and_then(Value::as_array).map(|list| list.iter().map(number));
    numbers.and_then(Iterator::collect).ok_or_else(|| ConfigError::Field {
        field: field.into(),
        expected: "a list of numbers that float32 can hold",
        actual: list.map_or("missing".into(), Value::to_string),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn angles_without_a_sine_are_refused() {
        let of = |factor: f64, longest: usize| {
            let rope = Rope { scaling: RopeScaling::Linear { factor }, ..Rope::new(10_000.0) };
            rope.check(16, longest).err().map(|error| error.to_string())
        };

        assert_eq!(of(1.0, usize::MAX), None);
        assert_eq!(of(0.01, 32_768), None);
        let refused = of(0.001, 32_768).unwrap();
        assert!(refused.contains("3.277e7") && refused.contains("at most 4194304"), "{refused}");
    }

    /// Expects the numbers of transformers 5.23: `inv_freq` of Qwen3.5 with heads of 16, of which 7 or 3 are rotated.
    #[test]
    fn an_odd_number_of_rotated_numbers_counts_in_the_frequencies() {
        let linear = RopeScaling::Linear { factor: 2.0 };

        let llama = RopeScaling::Llama3(Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_max_position_embeddings: 64,
        });

        for (share, scaling, expected) in [
            (0.45, RopeScaling::None, vec![1.0, 0.07196856, 5.179473e-3, 3.727593e-4]),
            (0.45, linear.clone(), vec![0.5, 0.03598428, 2.589737e-3, 1.863797e-4]),
            (0.45, llama, vec![1.0, 8.996069e-3, 6.474341e-4, 4.659492e-5]),
            (0.2, linear, vec![0.5, 1.077217e-3]),
        ] {
            let rope = Rope { share, scaling, ..Rope::new(10_000.0) };
            rope.check(16, 128).unwrap();
            let (actual, _) = rope.inverse_frequencies(16, 1);
            assert_eq!(actual.len(), expected.len());
            for (actual, expected) in actual.into_iter().zip(expected) {
                assert!((actual - expected).abs() < 1e-6 * expected, "{actual} for {expected}");
            }
        }

        let yarn = Yarn {
            factor: 4.0,
            beta_fast: 32.0,
            beta_slow: 1.0,
            truncate: true,
            attention_factor: 1.0,
            original_max_position_embeddings: 32,
        };
        let rope = Rope { share: 0.45, scaling: RopeScaling::Yarn(yarn), ..Rope::new(10_000.0) };

        let refused = rope.check(16, 128).unwrap_err().to_string();
        assert!(refused.contains("partial_rotary_factor 0.45 of a head of 16"), "{refused}");
        assert!(refused.contains("an odd number of elements, 7"), "{refused}");
    }

    /// Expects the numbers of transformers 5.23: `ROPE_INIT_FUNCTIONS["proportional"]` for heads of 16.
    #[test]
    fn a_share_of_the_pairs_rotates_as_if_all_did() {
        let all = vec![1.0, 0.3162278, 0.1, 0.03162278, 0.01, 3.162278e-3, 1e-3, 3.162278e-4];
        for (share, factor, rotated) in [
            (0.25, 1.0, vec![1.0, 0.3162278]),
            (0.45, 4.0, vec![0.25, 0.07905694, 0.025]),
            (1.0, 1.0, all),
        ] {
            let scaling = RopeScaling::Proportional { factor };
            let rope = Rope { share, scaling, ..Rope::new(10_000.0) };
            rope.check(16, 128).unwrap();

            let (actual, scale) = rope.inverse_frequencies(16, 1);
            assert_eq!((actual.len(), scale), (8, 1.0));
            let still = std::iter::repeat(0.0);
            for (actual, expected) in actual.into_iter().zip(rotated.into_iter().chain(still)) {
                assert!((actual - expected).abs() <= 1e-6 * expected, "{actual} for {expected}");
            }
        }
    }

    /// Expects the numbers of transformers 5.23: `ROPE_INIT_FUNCTIONS["dynamic"]` for 20 and for 96 tokens.
    #[test]
    fn a_base_grows_with_texts_beyond_the_context() {
        let scaling = RopeScaling::Dynamic { factor: 3.0, context: 32 };
        let rope = Rope { scaling, ..Rope::new(10_000.0) };

        let within = [1.0, 0.3162278, 0.1, 0.03162278, 0.01, 3.162278e-3, 1e-3, 3.162278e-4];
        let beyond = [
            1.0,
            0.2394814,
            0.05735132,
            0.01373457,
            3.289174e-3,
            7.876959e-4,
            1.886385e-4,
            4.517539e-5,
        ];

        for (longest, expected) in [(20, within), (96, beyond)] {
            let (actual, scale) = rope.inverse_frequencies(16, longest);
            assert_eq!((actual.len(), scale), (expected.len(), 1.0));
            for (actual, expected) in actual.into_iter().zip(expected) {
                assert!((actual - expected).abs() < 1e-6 * expected, "{actual} for {expected}");
            }
        }
    }
}
