//! The modules that the file of an adapter selects, as PEFT reads its fields.

use std::collections::HashSet;

use serde_json::Value;

use crate::{lora::Lora, names::TextPrefix, pattern::Pattern};

/// Rules that select an adapter's modules. The modules are named as in the text model alone, such as
/// `model.layers.0.self_attn.q_proj`.
pub(crate) struct Rules {
    text_prefix: TextPrefix,
    targets: Modules,
    excluded: Modules,
    layers: Option<HashSet<u64>>,
    before_layer: Vec<Pattern>,
    ranks: Vec<(Pattern, usize)>,
    alphas: Vec<(Pattern, f64)>,
    rank: usize,
    alpha: f64,
}

enum Modules {
    All,
    None,
    /// Those with one of these names, or with one of them after a dot at the end.
    Named(HashSet<String>),
    Matching(Pattern),
    /// Every projection, but not the head.
    Linear,
}

impl Rules {
    /// Reads the rules of an adapter, or says why they can't be read.
    pub(crate) fn of(lora: &Lora) -> Result<Self, String> {
        let fields = &lora.selection;
        let targets = match fields {
            None => Modules::Named(lora.targets.iter().cloned().collect()),
            Some(fields) => match Modules::of("target_modules", &fields.target_modules)? {
                // Without the field, the tensors of the file say which modules they are for.
                Modules::None => Modules::All,
                modules => modules,
            },
        };

        let fields = fields.clone().unwrap_or_default();
        let layers = layers(&fields.layers_to_transform)?;
        let before_layer = patterns(&fields.layers_pattern)?;

        if layers.is_some() && !matches!(targets, Modules::Named(_)) {
            let actual = &fields.target_modules;
            return Err(format!(
                "layers_to_transform needs a list of names as target_modules, as in PEFT, but target_modules is {actual}"
            ));
        }

        if layers.is_none() && !before_layer.is_empty() {
            return Err(
                "layers_pattern needs layers_to_transform, as in PEFT: name the layers, or \
                        remove layers_pattern"
                    .into(),
            );
        }

        Ok(Rules {
            text_prefix: fields.text_prefix,
            targets,
            excluded: Modules::of("exclude_modules", &fields.exclude_modules)?,
            layers,
            before_layer,
            ranks: compiled(&lora.rank_pattern)?,
            alphas: compiled(&lora.alpha_pattern)?,
            rank: lora.rank,
            alpha: lora.alpha,
        })
    }

    /// Tells whether PEFT adds an adapter to a projection.
    pub(crate) fn selects(&self, name: &str) -> Result<bool, String> {
        let name = self.text_prefix.name(name);

        if self.excluded.have(&name)? || !self.targets.have(&name)? {
            return Ok(false);
        }

        let Some(layers) = &self.layers else { return Ok(true) };

        // The patterns are tried in their order, and the first that finds a number decides.
        let mut layer = None;
        if self.before_layer.is_empty() {
            layer = first_number(&name);
        }
        for pattern in &self.before_layer {
            if layer.is_none() {
                layer = pattern.layer(&name)?;
            }
        }

        Ok(layer.is_some_and(|layer| layers.contains(&layer)))
    }

    /// Returns the rank of the adapter for a projection.
    pub(crate) fn rank(&self, name: &str) -> Result<usize, String> {
        Ok(first(&self.ranks, &self.text_prefix.name(name))?.unwrap_or(self.rank))
    }

    /// Returns the `alpha` of the adapter for a projection.
    pub(crate) fn alpha(&self, name: &str) -> Result<f64, String> {
        Ok(first(&self.alphas, &self.text_prefix.name(name))?.unwrap_or(self.alpha))
    }
}

impl Modules {
    fn of(field: &str, value: &Value) -> Result<Self, String> {
        match value {
            Value::Null => Ok(Modules::None),
            Value::String(pattern) if pattern.is_empty() => Ok(Modules::None),
            Value::String(all) if field == "target_modules" && all.to_lowercase() == LINEAR => {
                Ok(Modules::Linear)
            }
            Value::String(pattern) => Pattern::whole(pattern).map(Modules::Matching),
            Value::Array(list) if list.is_empty() => Ok(Modules::None),
            Value::Array(list) => {
                let names = list.iter().map(|name| name.as_str().map(str::to_owned));
                let names = names.collect::<Option<_>>().map(Modules::Named);
                names.ok_or_else(|| unlike(field, "a list of names or a pattern", value))
            }
            other => Err(unlike(field, "a list of names or a pattern", other)),
        }
    }

    fn have(&self, name: &str) -> Result<bool, String> {
        match self {
            Modules::All | Modules::Linear => Ok(true),
            Modules::None => Ok(false),
            Modules::Matching(pattern) => pattern.matches(name),
            Modules::Named(names) => {
                let mut ends = name.match_indices('.').map(|(dot, _)| &name[dot + 1..]);
                Ok(names.contains(name) || ends.any(|end| names.contains(end)))
            }
        }
    }
}

/// This value selects every linear map except the head.
const LINEAR: &str = "all-linear";

fn layers(value: &Value) -> Result<Option<HashSet<u64>>, String> {
    let numbers: Option<HashSet<u64>> = match value {
        Value::Null => return Ok(None),
        Value::Array(list) if list.is_empty() => return Ok(None),
        Value::Array(list) => list.iter().map(Value::as_u64).collect(),
        one => one.as_u64().map(|layer| HashSet::from([layer])),
    };
    let expected = "the number of a layer or a list of such numbers";
    numbers.map(Some).ok_or_else(|| unlike("layers_to_transform", expected, value))
}

fn patterns(value: &Value) -> Result<Vec<Pattern>, String> {
    let texts: Option<Vec<&str>> = match value {
        Value::Null => Some(Vec::new()),
        Value::String(one) if one.is_empty() => Some(Vec::new()),
        Value::String(one) => Some(vec![one]),
        Value::Array(list) => list.iter().map(Value::as_str).collect(),
        _ => None,
    };
    let texts =
        texts.ok_or_else(|| unlike("layers_pattern", "a name or a list of names", value))?;

    if texts.len() > Lora::PATTERNS {
        let limit = Lora::PATTERNS;
        return Err(format!("layers_pattern has {} names, expected at most {limit}", texts.len()));
    }

    texts.into_iter().map(Pattern::before_layer).collect()
}

fn compiled<T: Copy>(patterns: &[(String, T)]) -> Result<Vec<(Pattern, T)>, String> {
    patterns.iter().map(|(pattern, value)| Ok((Pattern::end(pattern)?, *value))).collect()
}

/// Returns the value of the first pattern that matches.
fn first<T: Copy>(patterns: &[(Pattern, T)], name: &str) -> Result<Option<T>, String> {
    for (pattern, value) in patterns {
        if pattern.matches(name)? {
            return Ok(Some(*value));
        }
    }
    Ok(None)
}

/// Returns the first number between dots in a name, which is the layer's, because the number of an expert is after it.
fn first_number(name: &str) -> Option<u64> {
    let parts: Vec<&str> = name.split('.').collect();
    let inside = parts.get(2..parts.len().checked_sub(1)?)?;
    inside.iter().find_map(|part| part.parse().ok())
}

fn unlike(field: &str, expected: &str, actual: &Value) -> String {
    let mut actual = actual.to_string();
    if actual.chars().count() > 80 {
        actual = actual.chars().take(80).chain(['…']).collect();
    }
    format!("{field} is {actual}, expected {expected}")
}
