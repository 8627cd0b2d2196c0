//! Adapters in PEFT's files: `adapter_config.json` and `adapter_model.safetensors`.

use std::{collections::BTreeSet, path::Path};

use burn::tensor::{Tensor, TensorData};
use serde_json::{Map, Value, json};

use super::{
    CheckpointError, WeightDtype,
    file::TensorFile,
    folder::{INDEX, SINGLE},
    json, layout, save,
};
use crate::{Adapter, ConfigError, Decoder, Lora, config::Fields, lora::ends_with, names};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// Tells whether `folder` holds an adapter instead of a whole model. A folder with both is a model: a merged model
/// may be kept beside its adapter.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file() && !folder.join(SINGLE).exists() && !folder.join(INDEX).exists()
}

/// The model that an adapter was made for, as the adapter's file names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterBase {
    /// A folder, or a name on the Hub.
    pub name: String,
    /// A branch, tag or commit of that name. `None` means `main`.
    pub revision: Option<String>,
}

impl From<&str> for AdapterBase {
    fn from(name: &str) -> Self {
        AdapterBase { name: name.to_owned(), revision: None }
    }
}

/// Reads the adapter of a folder, and the model that it was made for. The adapter's targets are left empty:
/// [`adapter_lora`] reads them.
///
/// # Errors
/// If `adapter_config.json` is missing or broken, or asks for more than is computed here.
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
        // PEFT changes the model's own weights in these ways, and again when it loads the adapter.
        return refuse(format!(
            "init_lora_weights = {init:?} changes the model's own weights, which is not implemented; \
             save it with PEFT's path_initial_model_for_weight_conversion"
        ));
    }
    let rank = fields.size("r").map_err(config)?;
    let lora = Lora {
        rank,
        alpha: fields.number("lora_alpha").map_err(config)?,
        // The tensors tell the targets, because the file's field may be a pattern.
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
                    came: list.to_string(),
                })
            })?,
        },
    };
    let patterns = lora.rank_pattern.iter().map(|(pattern, _)| pattern);
    for pattern in patterns.chain(lora.alpha_pattern.iter().map(|(pattern, _)| pattern)) {
        if let Err(error) = ends_with(pattern) {
            return refuse(format!("the pattern {pattern:?} is no regular expression: {error}"));
        }
    }
    let patterns = lora.rank_pattern.len().max(lora.alpha_pattern.len());
    if patterns > Lora::PATTERNS {
        return refuse(format!("it has {patterns} patterns, expected at most {}", Lora::PATTERNS));
    }
    let ranks = lora.rank_pattern.iter().map(|(pattern, rank)| (pattern.as_str(), *rank));
    let wrong = |(_, rank): &(&str, usize)| !(1..=Lora::RANK).contains(rank);
    if let Some((of, rank)) = ranks.chain([("r", lora.rank)]).find(wrong) {
        return refuse(format!("the rank of {of:?} is {rank}, expected 1 to {}", Lora::RANK));
    }
    let base = AdapterBase {
        name: fields.text("base_model_name_or_path").map_err(config)?.to_owned(),
        revision: fields.0.get("revision").and_then(Value::as_str).map(str::to_owned),
    };
    Ok((lora, base))
}

/// Reads an adapter like [`adapter_config`], with the projections that its tensors are for.
///
/// # Errors
/// If a file is missing or broken, or a tensor is of no projection.
pub fn adapter_lora(folder: &Path) -> Result<Lora, CheckpointError> {
    let (mut lora, _) = adapter_config(folder)?;
    lora.targets = targets(&TensorFile::open(&folder.join(TENSORS))?, &lora.modules_to_save)?;
    Ok(lora)
}

/// Puts the adapter of a PEFT folder beside the projections of `decoder`, whose own weights are frozen, except
/// matrices that the adapter holds whole.
///
/// # Errors
/// If a file is missing or broken, or a tensor has not the shape that the model gives it, or is for a part that
/// has no adapter here.
pub fn load_adapter(decoder: Decoder, folder: &Path) -> Result<Decoder, CheckpointError> {
    let (mut lora, _) = adapter_config(folder)?;
    let file = TensorFile::open(&folder.join(TENSORS))?;
    let refuse = |problem| CheckpointError::Adapter { path: file.path().to_owned(), problem };
    let mut unread: BTreeSet<String> = file.names().into_iter().collect();
    lora.targets = targets(&file, &lora.modules_to_save)?;
    lora.fits(decoder.config()).map_err(refuse)?;
    let mut decoder = decoder.adapted(&lora, |name, [inputs, outputs], device| {
        let (rank, scale) = (lora.rank(name), lora.scale(name));
        let mut matrix = |part: &str, shape: [usize; 2]| {
            let name = names::of_adapter_matrix(name, part);
            if !unread.remove(&name) {
                return Ok(None);
            }
            matrix(&file, &name, shape).map(Some)
        };
        let shapes = ([rank, inputs], [outputs, rank]);
        match (matrix("A", shapes.0)?, matrix("B", shapes.1)?) {
            (None, None) => Ok(None),
            (Some(a), Some(b)) => {
                let values = (layout::turned(a, shapes.0), layout::turned(b, shapes.1));
                Ok(Some(Adapter::new([inputs, rank, outputs], scale, values, device)))
            }
            _ => Err(refuse(format!("{name} has only one of lora_A and lora_B"))),
        }
    })?;
    let [vocabulary, hidden] = [decoder.config().vocab_size, decoder.config().hidden_size];
    for module in &lora.modules_to_save {
        let name = names::of_whole(module);
        if !unread.remove(&name) {
            return Err(refuse(format!(
                "{module} is in modules_to_save, and {name:?} is not there"
            )));
        }
        let values = matrix(&file, &name, [vocabulary, hidden])?;
        let own = decoder.whole_mut(module).expect("it fits");
        let values = TensorData::new(values, [vocabulary, hidden]);
        *own = own.clone().map(|old| {
            let new = Tensor::from_data(values, &old.device());
            new.set_require_grad(old.is_require_grad())
        });
    }
    match unread.first() {
        None => Ok(decoder),
        Some(name) => Err(refuse(format!(
            "the tensor {name:?} has no place in a model of {} layers: is it for another one?",
            decoder.config().layers
        ))),
    }
}

/// Finds the projections that the tensors of an adapter are for. Matrices that the adapter holds whole do not
/// count.
fn targets(file: &TensorFile, whole: &[String]) -> Result<Vec<String>, CheckpointError> {
    let mut targets = BTreeSet::new();
    let whole: Vec<String> = whole.iter().map(|module| names::of_whole(module)).collect();
    for name in file.names().into_iter().filter(|name| !whole.contains(name)) {
        let target = Lora::PROJECTIONS
            .into_iter()
            .chain(Lora::OTHERS)
            .find(|target| name.contains(&format!(".{target}.lora_")))
            .ok_or_else(|| CheckpointError::Adapter {
                path: file.path().to_owned(),
                problem: format!("the tensor {name:?} is of no projection"),
            })?;
        targets.insert(target.to_owned());
    }
    Ok(targets.into_iter().collect())
}

/// Writes the adapter of `decoder` as a PEFT folder for the model `base`, in f32.
///
/// # Errors
/// If `decoder` has no adapter, a file cannot be written, or a parameter cannot be read.
pub fn save_adapter(
    decoder: &Decoder,
    base: &AdapterBase,
    folder: &Path,
) -> Result<(), CheckpointError> {
    let path = folder.join(CONFIG);
    let Some(lora) = decoder.lora() else {
        return Err(CheckpointError::Adapter { path, problem: "the model has no adapter".into() });
    };
    let number = |value: f64| match value {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => json!(whole as i64),
        value => json!(value),
    };
    let saved = &lora.modules_to_save;
    let config = json!({
        "alpha_pattern": object(&lora.alpha_pattern, number),
        "base_model_name_or_path": base.name,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": number(lora.alpha),
        "lora_dropout": 0.0,
        "modules_to_save": if saved.is_empty() { Value::Null } else { json!(saved) },
        "peft_type": "LORA",
        "r": lora.rank,
        "rank_pattern": object(&lora.rank_pattern, |rank| json!(rank)),
        "revision": base.revision,
        "target_modules": lora.targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": lora.rslora,
    });
    save::write_json(&path, &config)?;
    save::write_adapter(decoder, saved, &folder.join(TENSORS))
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
            came: other.to_string(),
        }),
    }
}

/// Undoes [`pattern`].
fn object<T: Copy>(patterns: &[(String, T)], number: impl Fn(T) -> Value) -> Value {
    patterns.iter().map(|(pattern, value)| (pattern.clone(), number(*value))).collect()
}

fn names_of(list: &Value) -> Option<Vec<String>> {
    list.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect()
}

/// The fields that make the adapter compute another sum than `x·W + scale · x·A·B`.
const CHANGES_THE_SUM: [&str; 10] = [
    "alora_invocation_tokens",
    "arrow_config",
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
];

/// Initialisations that leave the model's own weights as they are.
const LEAVES_THE_BASE: [&str; 4] = ["gaussian", "eva", "orthogonal", "lora_ga"];

/// Tells whether a field asks for something. Most fields say `null`, `false` or nothing at all.
fn asks(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(Value::Array(list)) => !list.is_empty(),
        Some(_) => true,
    }
}

fn matrix(file: &TensorFile, name: &str, shape: [usize; 2]) -> Result<Vec<f32>, CheckpointError> {
    let info = file.info(name).expect("the name is one of the file's");
    let dtype = WeightDtype::of(info.dtype).filter(|_| info.shape == shape);
    let dtype = dtype.ok_or_else(|| CheckpointError::Adapter {
        path: file.path().to_owned(),
        problem: format!(
            "the tensor {name:?} is {} {:?}, but the model and the rank make it F32, BF16 or F16 \
             {shape:?}",
            info.dtype, info.shape
        ),
    })?;
    let mut values = Vec::with_capacity(shape[0] * shape[1]);
    file.read(info, dtype, &mut values)?;
    Ok(values)
}
