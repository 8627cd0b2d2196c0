//! `adapter_config.json`, read and written.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde_json::{Map, Value, json};

use super::{AdapterBase, CONFIG};
use crate::{
    checkpoint::{CheckpointError, json, pictures::SEEING},
    config::DecoderConfig,
    decoder::Decoder,
    fields::{ConfigError, Fields},
    lora::{Lora, Selection},
    names::{self, TextPrefix},
    parameters,
    selection::Rules,
};

/// Reads the adapter of a folder, and the model that it was made for. The adapter's targets are left empty, because
/// [`adapter_lora`](crate::adapter_lora) reads them.
///
/// # Errors
/// Fails if `adapter_config.json` is missing or broken, or asks for more than is computed here.
pub fn adapter_config(folder: &Path) -> Result<(Lora, AdapterBase), CheckpointError> {
    let path = folder.join(CONFIG);
    let fields: Map<String, Value> = json::read(&path, json::CONFIG)?;
    let config = |source| CheckpointError::Config { path: path.clone(), source };
    let fields = Fields(&fields);
    let refuse = |problem| Err(CheckpointError::Adapter { path: path.clone(), problem });

    let kind = fields.text("peft_type").map_err(config)?;
    if kind != "LORA" {
        return refuse(format!("it is of type {kind}, expected LORA"));
    }

    if let Some(field) = CHANGES_THE_SUM.into_iter().find(|field| asks(fields.0.get(*field))) {
        let asked = &fields.0[field];
        return refuse(format!("{field} = {asked} is not implemented; expected plain LoRA"));
    }

    if let Some(Value::String(init)) = fields.0.get("init_lora_weights")
        && !LEAVES_THE_BASE.contains(&init.to_lowercase().as_str())
    {
        // In these ways PEFT changes the model's own weights, and again when it loads the adapter.
        return refuse(format!(
            "init_lora_weights = {init:?} changes the model's own weights, which is not implemented; \
             save it with PEFT's path_initial_model_for_weight_conversion"
        ));
    }

    let rank = fields.size("r").map_err(config)?;
    let field = |name: &str| fields.0.get(name).cloned().unwrap_or_default();
    let lora = Lora {
        rank,
        alpha: fields.number("lora_alpha").map_err(config)?,
        // The targets come from the tensors, because the file's field may be a pattern.
        targets: Vec::new(),
        rslora: fields.optional("use_rslora", Fields::flag).map_err(config)?.unwrap_or(false),
        rank_pattern: pattern(&fields, "rank_pattern", |it, name| it.size(name)).map_err(config)?,
        alpha_pattern: pattern(&fields, "alpha_pattern", |it, name| it.number(name))
            .map_err(config)?,
        modules_to_save: match fields.0.get("modules_to_save") {
            None | Some(Value::Null) => Vec::new(),
            Some(list) => names_of(list).ok_or_else(|| {
                config(ConfigError::Field {
                    field: "modules_to_save".into(),
                    expected: "a list of names",
                    actual: list.to_string(),
                })
            })?,
        },
        selection: Some(Selection {
            text_prefix: TextPrefix::default(),
            target_modules: field("target_modules"),
            exclude_modules: field("exclude_modules"),
            layers_to_transform: field("layers_to_transform"),
            layers_pattern: field("layers_pattern"),
        }),
    };

    let patterns = lora.rank_pattern.len().max(lora.alpha_pattern.len());
    if patterns > Lora::PATTERNS {
        return refuse(format!("it has {patterns} patterns, expected at most {}", Lora::PATTERNS));
    }

    let ranks = lora.rank_pattern.iter().map(|(pattern, rank)| (pattern.as_str(), *rank));
    let wrong = |(_, rank): &(&str, usize)| !(1..=Lora::RANK).contains(rank);
    if let Some((of, rank)) = ranks.chain([("r", lora.rank)]).find(wrong) {
        return refuse(format!("the rank of {of:?} is {rank}, expected 1 to {}", Lora::RANK));
    }

    // A norm silently turns what overflows into zeros. No adapter in use comes near this bound.
    let alphas = lora.alpha_pattern.iter().map(|(pattern, alpha)| (pattern.as_str(), *alpha));
    let too_large = |(_, alpha): &(&str, f64)| alpha.abs() > Lora::ALPHA;
    if let Some((of, alpha)) = alphas.chain([("lora_alpha", lora.alpha)]).find(too_large) {
        let limit = Lora::ALPHA;
        return refuse(format!(
            "the alpha of {of:?} is {alpha:e}, expected at most {limit:e} in size"
        ));
    }

    if let Err(problem) = Rules::of(&lora) {
        return refuse(problem);
    }

    let base = AdapterBase {
        name: fields.text("base_model_name_or_path").map_err(config)?.to_owned(),
        revision: fields.0.get("revision").and_then(Value::as_str).map(str::to_owned),
    };
    Ok((lora, base))
}

/// Makes the `adapter_config.json` of the adapter of `decoder`, for the class of its model `base`.
pub(super) fn of_adapter(decoder: &Decoder, lora: &Lora, base: &AdapterBase) -> Value {
    let lora = for_class(decoder, lora);
    let number = |value: f64| match value {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => json!(whole as i64),
        value => json!(value),
    };

    let saved = &lora.modules_to_save;
    let fields = lora.selection.unwrap_or_default();
    json!({
        "alpha_pattern": object(&lora.alpha_pattern, number),
        "base_model_name_or_path": base.name,
        "bias": "none",
        "exclude_modules": fields.exclude_modules,
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "layers_pattern": fields.layers_pattern,
        "layers_to_transform": fields.layers_to_transform,
        "lora_alpha": number(lora.alpha),
        "lora_dropout": 0.0,
        "modules_to_save": if saved.is_empty() { Value::Null } else { json!(saved) },
        "peft_type": "LORA",
        "r": lora.rank,
        "rank_pattern": object(&lora.rank_pattern, |rank| json!(rank)),
        "revision": base.revision,
        "target_modules": fields.target_modules,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": lora.rslora,
    })
}

/// Returns an adapter with the fields that select its modules in the class that opens the model's folder. The fields of
/// the file that the adapter was read from are kept if they still select the same modules there, with the same ranks;
/// otherwise each module is named.
fn for_class(decoder: &Decoder, lora: &Lora) -> Lora {
    let prefix = decoder.text_prefix();
    let adapted = adapted(decoder, lora);

    let mut fields = lora.selection.clone().unwrap_or_else(|| {
        // A name without an adapter is left out, because PEFT mistakes the names of an MLP for those of experts.
        let some = |target: &&String| {
            let end = format!(".{target}");
            adapted.keys().any(|name| name.ends_with(&end))
        };
        let targets: Vec<&String> = lora.targets.iter().filter(some).collect();
        Selection { target_modules: json!(targets), ..Selection::default() }
    });

    fields.text_prefix = prefix;
    // Names such as q_proj are also those of projections in the part that sees, which have no adapter.
    if prefix == TextPrefix::Within
        && fields.target_modules.is_array()
        && fields.exclude_modules.is_null()
    {
        fields.exclude_modules = SEEING.into();
    }

    let kept = Lora { selection: Some(fields), ..lora.clone() };
    if agrees(&kept, &adapted, decoder.config()) == Ok(true) {
        return kept;
    }

    let named = |name: &str| prefix.name(name).into_owned();
    let escaped = |name: &str| fancy_regex::escape(&named(name)).into_owned();
    let other_rank = adapted.iter().filter(|(_, (rank, _))| *rank != lora.rank);
    let other_alpha = adapted.iter().filter(|(_, (_, alpha))| *alpha != lora.alpha);
    Lora {
        rank_pattern: other_rank.map(|(name, (rank, _))| (escaped(name), *rank)).collect(),
        alpha_pattern: other_alpha.map(|(name, (_, alpha))| (escaped(name), *alpha)).collect(),
        selection: Some(Selection {
            text_prefix: prefix,
            target_modules: adapted.keys().map(|name| named(name)).collect(),
            ..Selection::default()
        }),
        ..lora.clone()
    }
}

/// Rank and `alpha` of each adapter, by its projection.
type Adapted = BTreeMap<String, (usize, f64)>;

/// Lists the adapters of `decoder`.
fn adapted(decoder: &Decoder, lora: &Lora) -> Adapted {
    // Rules that can't be read leave the adapter's own `alpha`.
    let rules = Rules::of(lora);
    let all = parameters(decoder).into_iter();
    let of_a = all
        .filter(|parameter| names::is_adapter(&parameter.path) && parameter.path.ends_with(".a"));

    let found = of_a.filter_map(|parameter| {
        let name = names::of_adapter(&parameter.path, decoder.config())?;
        let name = name.strip_prefix(names::OF_PEFT)?.strip_suffix(".lora_A.weight")?.to_owned();
        let alpha = rules.as_ref().ok().and_then(|rules| rules.alpha(&name).ok());
        Some((name, (parameter.shape[1], alpha.unwrap_or(lora.alpha))))
    });
    found.collect()
}

/// Tells whether the fields of `lora` make each projection's adapter the one in `adapted`.
fn agrees(lora: &Lora, adapted: &Adapted, config: &DecoderConfig) -> Result<bool, String> {
    let rules = Rules::of(lora)?;
    for (name, _) in names::adaptable(config) {
        let selected = if rules.selects(&name)? {
            Some((rules.rank(&name)?, rules.alpha(&name)?))
        } else {
            None
        };
        if selected.as_ref() != adapted.get(&name) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Reads a field with a value for each pattern, in the field's order.
fn pattern<T>(
    fields: &Fields,
    field: &str,
    read: impl Fn(&Fields, &str) -> Result<T, ConfigError>,
) -> Result<Vec<(String, T)>, ConfigError> {
    match fields.0.get(field) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Object(patterns)) => {
            let read = |pattern: &String| Ok((pattern.clone(), read(&Fields(patterns), pattern)?));
            patterns.keys().map(read).collect()
        }
        Some(other) => Err(ConfigError::Field {
            field: field.into(),
            expected: "an object with a number for each pattern",
            actual: other.to_string(),
        }),
    }
}

/// Undoes [`pattern`].
fn object<T: Copy>(patterns: &[(String, T)], number: impl Fn(T) -> Value) -> Value {
    patterns.iter().map(|(pattern, value)| (pattern.clone(), number(*value))).collect()
}

/// Reads a list of modules. Only the last part of a name counts, because PEFT accepts every ending of a module's name.
fn names_of(list: &Value) -> Option<Vec<String>> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_owned();
    let names: Option<BTreeSet<String>> =
        list.as_array()?.iter().map(|name| name.as_str().map(last)).collect();
    Some(names?.into_iter().collect())
}

/// Fields that make the adapter compute another sum than `x·W + scale · x·A·B`.
const CHANGES_THE_SUM: [&str; 12] = [
    "alora_invocation_tokens",
    "arrow_config",
    "fan_in_fan_out",
    "kasa_config",
    "layer_replication",
    "lora_bias",
    "monteclora_config",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
];

/// Initialisations that leave the model's own weights as they are.
const LEAVES_THE_BASE: [&str; 5] = ["gaussian", "eva", "orthogonal", "lora_ga", "mica"];

/// Tells whether a field asks for something, and is not missing, `null`, `false` or empty as most are.
fn asks(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}
