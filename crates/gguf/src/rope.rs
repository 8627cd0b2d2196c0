//! Rotary embedding of a model, as the metadata and a few tensors state it.

use std::f64::consts::TAU;

use serde_json::{Map, Value, json};

use crate::{
    error::{GgufError, quoted},
    family::Family,
    file::Gguf,
    keys::{Keys, Shape},
    metadata::decimal,
};

/// Factor of queries and keys in addition to any scaling. Only Phi-3's scaling is computed with one.
pub(crate) const FACTOR: &str = "rope.scaling.attn_factor";

/// Ends of the range in which YaRN blends one scaling into the other, by their names in the file and in a folder, with
/// the values of a silent file.
pub(crate) const ENDS: [(&str, &str, f64); 2] = [
    ("rope.scaling.yarn_beta_fast", "beta_fast", 32.0),
    ("rope.scaling.yarn_beta_slow", "beta_slow", 1.0),
];

/// Length of the texts that a scaled model was trained with first.
pub(crate) const CONTEXT: &str = "rope.scaling.original_context_length";

/// How strongly the queries of Ministral 3 grow with their position.
pub(crate) const GROWTH: &str = "attention.temperature_scale";

/// Number that makes the factor of queries and keys smaller again, in the YaRN of Ministral 3.
pub(crate) const MULTIPLIER: &str = "rope.scaling.yarn_log_multiplier";

/// Divisors of frequencies.
pub(crate) const FREQUENCIES: &str = "rope_freqs.weight";

/// Divisor of the frequency of a pair that stands still, and the least one that is taken for it.
pub(crate) const STILL: f32 = 1e30;
const NEARLY_STILL: f32 = 1e20;

/// Share of the pairs that rotate in published models of Gemma 4.
const QUARTER: f64 = 0.25;

/// Divisors of frequencies for long texts, and for short ones.
pub(crate) const LONG: &str = "rope_factors_long.weight";
pub(crate) const SHORT: &str = "rope_factors_short.weight";

/// Llama 3.1's scaling. Short waves keep their frequency, long ones have it divided by the factor, and the others are
/// blended.
pub(crate) struct Llama3 {
    pub(crate) factor: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Length of the texts that the model was trained with first.
    pub(crate) context: f64,
}

impl Llama3 {
    /// Returns the divisor of the frequency of a pair that turns by one radian in `positions` positions.
    pub(crate) fn divisor(&self, positions: f64) -> f64 {
        let turns = self.context / (TAU * positions);
        let smooth = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        1.0 / ((1.0 - smooth) / self.factor + smooth)
    }
}

/// Reads the scaling that the metadata state. `None` if they state none.
pub(crate) fn scaling(keys: &Keys<'_>, family: Family) -> Result<Option<Value>, String> {
    // A factor without a type is linear, as in llama.cpp, where a factor of 0 means none and the second key is the
    // older one.
    let kind = keys.text("rope.scaling.type")?.unwrap_or("linear");
    let factor = keys.number("rope.scaling.factor")?.or(keys.number("rope.scale_linear")?);
    let factor = factor.filter(|factor| *factor != 0.0);

    let unscaled = |key: &str| match keys.number(key)?.filter(|actual| *actual != 1.0) {
        Some(actual) => Err(format!("{} is {actual}, expected 1", keys.key(key))),
        None => Ok(()),
    };
    if family != Family::Phi3 {
        unscaled(FACTOR)?;
    }

    match kind {
        "none" => Ok(None),
        // Its divisors are tensors, which are read elsewhere.
        "longrope" if family == Family::Phi3 => Ok(None),
        "linear" => {
            let factor = factor.filter(|factor| *factor != 1.0);
            Ok(factor.map(|factor| json!({ "rope_type": kind, "factor": factor })))
        }
        "yarn" if family != Family::Phi3 => {
            unscaled("rope.scaling.yarn_ext_factor")?;
            let context = keys.needed(CONTEXT)?;
            let factor = factor.ok_or_else(|| keys.missing("rope.scaling.factor"))?;

            let mut scaling = json!({
                "rope_type": kind,
                "factor": factor,
                "original_max_position_embeddings": context,
            });

            for (key, name, usual) in ENDS {
                if let Some(actual) = keys.number(key)?.filter(|actual| *actual != usual) {
                    scaling[name] = actual.into();
                }
            }
            // The converter writes the factor of queries and keys here, if config.json has one; 1 stands for the
            // factor that follows from the scaling.
            let usual = 0.1 * factor.ln() + 1.0;
            let actual = keys.number("rope.scaling.yarn_attn_factor")?;
            let actual = actual.filter(|actual| *actual != 1.0 && (actual - usual).abs() > 1e-5);
            if let Some(actual) = actual {
                scaling["attention_factor"] = actual.into();
            }
            if family == Family::GptOss {
                // ggml rounds the ends of the range to whole pairs in every model, and no key says otherwise. gpt-oss
                // was trained without, so its frequencies are those of its training here, and a little off there.
                scaling["truncate"] = false.into();
            }
            if family == Family::Ministral3 {
                let multiplier = keys.number(MULTIPLIER)?.filter(|actual| *actual != 0.0);
                if let Some(multiplier) = multiplier {
                    scaling["mscale"] = 1.0.into();
                    scaling["mscale_all_dim"] = multiplier.into();
                }
            }
            Ok(Some(scaling))
        }
        _ => Err(format!(
            "its rope.scaling.type is {}, expected none, linear or {}",
            quoted(kind),
            if family == Family::Phi3 { "longrope" } else { "yarn" }
        )),
    }
}

/// Makes the rope of Ministral 3 from its scaling, with the growth of queries. They grow from the length of the texts
/// that the model was trained with first, as in llama.cpp, which is its whole context if the file does not state it.
pub(crate) fn growing(
    keys: &Keys<'_>,
    scaling: Option<Value>,
    config: &Map<String, Value>,
) -> Result<Value, String> {
    let mut rope = scaling.unwrap_or(json!({ "rope_type": "default" }));
    let context = keys.size(CONTEXT)?;
    rope["original_max_position_embeddings"] =
        context.map_or(config["max_position_embeddings"].clone(), Into::into);
    rope["rope_theta"] = config["rope_theta"].clone();
    rope["llama_4_scaling_beta"] = keys.number(GROWTH)?.unwrap_or(0.0).into();
    Ok(rope)
}

impl Gguf {
    /// Finds the scaling whose factors are tensors: Llama 3.1's or Phi-3's.
    pub(crate) fn scaling_in_tensors(
        &self,
        shape: &Shape,
        config: &Map<String, Value>,
    ) -> Result<Option<Value>, GgufError> {
        match shape.family {
            Family::Phi3 => self.long_rope(shape, config),
            _ => self.scaling_of_llama(shape, config),
        }
    }

    /// Makes the rope of those layers of Gemma 4 that see everything, from a divisor for each pair of a head. Those of
    /// the pairs that stand still are huge.
    pub(crate) fn proportional(
        &self,
        shape: &Shape,
        config: &Map<String, Value>,
    ) -> Result<Value, GgufError> {
        let Some(tensor) = self.tensors().get(FREQUENCIES) else {
            return Err(self.model(format!("it has no {FREQUENCIES}")));
        };
        let unlike = || {
            self.model(format!(
                "{FREQUENCIES} divides the frequencies of {} in an unknown way, expected one divisor for the first \
                 pairs of a head, and {STILL:e} for the others",
                shape.name
            ))
        };

        let mut divisors = Vec::new();
        if tensor.shape != [shape.head / 2] || !self.read(FREQUENCIES, &mut divisors)? {
            return Err(unlike());
        }

        let rotated = divisors.iter().take_while(|divisor| **divisor < NEARLY_STILL).count();
        let (rotating, others) = divisors.split_at(rotated);
        let factor = rotating.first().copied().unwrap_or(1.0);
        let is_other = |divisor: &f32| *divisor != factor;
        if rotating.iter().any(is_other) || others.iter().any(|divisor| *divisor < NEARLY_STILL) {
            return Err(unlike());
        }

        // Other shares may make as many pairs, but this one is the likeliest.
        let head = shape.head as f64;
        let is_quarter = (QUARTER * head) as usize / 2 == rotated;
        let share = if is_quarter { QUARTER } else { 2.0 * rotated as f64 / head };
        Ok(json!({
            "rope_type": "proportional",
            "rope_theta": config["rope_theta"],
            "partial_rotary_factor": share,
            "factor": decimal(factor),
        }))
    }

    /// Reads LongRoPE: a divisor for each frequency, for short texts and for long ones.
    fn long_rope(
        &self,
        shape: &Shape,
        config: &Map<String, Value>,
    ) -> Result<Option<Value>, GgufError> {
        let invalid = |problem| self.model(problem);
        let keys = Keys::of(self.metadata()).map_err(invalid)?;
        let actual = keys.number(FACTOR).map_err(invalid)?.unwrap_or(1.0);
        let exists = |name: &str| self.tensors().contains_key(name);
        if exists(FREQUENCIES) {
            return Err(self.model("rope_freqs.weight has no meaning in phi3".into()));
        }

        match (exists(LONG), exists(SHORT)) {
            (false, false) if actual == 1.0 => return Ok(None),
            (false, false) => {
                let key = keys.key(FACTOR);
                return Err(invalid(format!("{key} is {actual}, and {LONG} is not there")));
            }
            (true, true) => {}
            _ => {
                return Err(self.model(format!(
                    "it has only one of {LONG} and {SHORT}, expected both or none"
                )));
            }
        }

        let context = keys.needed(CONTEXT).map_err(invalid)?;
        let rotated = keys.size("rope.dimension_count").map_err(invalid)?;
        let rotated = rotated.unwrap_or(shape.head);

        let divisors = |name: &str| -> Result<Vec<f64>, GgufError> {
            let actual = &self.tensors()[name].shape;
            if *actual != [rotated / 2] {
                let problem = format!(
                    "{name} has the shape {actual:?}, expected [{}], one for each pair that is rotated",
                    rotated / 2
                );
                return Err(invalid(problem));
            }

            let mut values = Vec::new();
            if !self.read(name, &mut values)? {
                return Err(invalid(format!("{name} has a NaN or an infinity, expected numbers")));
            }
            Ok(values.into_iter().map(decimal).collect())
        };

        let mut scaling = json!({
            "rope_type": "longrope",
            "long_factor": divisors(LONG)?,
            "short_factor": divisors(SHORT)?,
        });
        // Transformers computes this factor from the lengths unless the configuration gives one.
        let longest = config["max_position_embeddings"].as_f64().unwrap_or_default();
        let usual = match longest / context as f64 {
            factor if factor > 1.0 => (1.0 + factor.ln() / (context as f64).ln()).sqrt(),
            _ => 1.0,
        };

        if (actual - usual).abs() > 1e-5 {
            scaling["attention_factor"] = actual.into();
        }

        Ok(Some(scaling))
    }

    /// Finds Llama 3.1's scaling. The file holds only a factor for each frequency, so the scaling is recognised by
    /// these factors.
    fn scaling_of_llama(
        &self,
        shape: &Shape,
        config: &Map<String, Value>,
    ) -> Result<Option<Value>, GgufError> {
        let Some(tensor) = self.tensors().get(FREQUENCIES) else { return Ok(None) };
        let head = config["head_dim"].as_u64().unwrap_or_default();

        let unlike = || {
            self.model(format!(
                "{FREQUENCIES} scales the frequencies of {} in an unknown way, expected Llama 3.1's way",
                shape.name
            ))
        };
        if tensor.shape != [head as usize / 2] || config.contains_key("rope_scaling") {
            return Err(unlike());
        }

        let mut factors = Vec::new();
        if !self.read(FREQUENCIES, &mut factors)? {
            return Err(unlike());
        }
        // The last frequency has the longest wave, which is scaled by the full factor.
        let factor = f64::from(factors.last().copied().unwrap_or(1.0));

        let keys = Keys::of(self.metadata()).map_err(|problem| self.model(problem))?;
        let context = keys.number(CONTEXT);
        let context = context.map_err(|problem| self.model(problem))?.unwrap_or(8192.0);
        let scaling = Llama3 { factor, low: 1.0, high: 4.0, context };
        let theta = config["rope_theta"].as_f64().unwrap_or(10_000.0);

        for (index, &actual) in factors.iter().enumerate() {
            let expected = scaling.divisor(theta.powf(2.0 * index as f64 / head as f64));
            let is_close = (f64::from(actual) - expected).abs() <= 1e-4 * expected;
            if !is_close {
                return Err(unlike());
            }
        }

        Ok(Some(json!({
            "rope_type": "llama3",
            "factor": factor,
            "low_freq_factor": scaling.low,
            "high_freq_factor": scaling.high,
            "original_max_position_embeddings": context as u64,
        })))
    }
}
