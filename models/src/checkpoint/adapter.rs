//! Adapters as PEFT keeps them: `adapter_config.json` and `adapter_model.safetensors`.

use std::{collections::BTreeSet, path::Path};

use serde_json::{Map, Value, json};

use super::{
    CheckpointError, WeightDtype,
    file::TensorFile,
    folder::{INDEX, SINGLE},
    json, layout, save,
};
use crate::{Adapter, Decoder, Lora, config::Fields, names};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// Whether `folder` holds an adapter instead of a whole model. One that has both, as a merged model may
/// that is kept beside its adapter, is a model.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file() && !folder.join(SINGLE).exists() && !folder.join(INDEX).exists()
}

/// The model that an adapter was made for, as its file says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdapterBase {
    /// A folder or a name on the Hub.
    pub name: String,
    /// A branch, tag or commit of that name; `main` if there is none.
    pub revision: Option<String>,
}

impl From<&str> for AdapterBase {
    fn from(name: &str) -> Self {
        AdapterBase { name: name.to_owned(), revision: None }
    }
}

/// The adapter of a folder, and the model that it was made for.
///
/// # Errors
/// When `adapter_config.json` is missing or broken, or asks for more than is computed here.
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
        // PEFT takes these out of the model's own weights, when it loads the adapter too.
        return refuse(format!(
            "init_lora_weights = {init:?} changes the model's own weights, which is not implemented; \
             save it with PEFT's path_initial_model_for_weight_conversion"
        ));
    }
    let rank = fields.size("r").map_err(config)?;
    if rank == 0 {
        return refuse("its rank r is 0, expected at least 1".into());
    }
    let lora = Lora {
        rank,
        alpha: fields.number("lora_alpha").map_err(config)?,
        // The tensors say which: this field may be a pattern.
        targets: Vec::new(),
        rslora: fields.flag_or("use_rslora", false).map_err(config)?,
    };
    let base = AdapterBase {
        name: fields.text("base_model_name_or_path").map_err(config)?.to_owned(),
        revision: fields.0.get("revision").and_then(Value::as_str).map(str::to_owned),
    };
    Ok((lora, base))
}

/// As [`adapter_config`], with the projections that the adapter's tensors are for.
///
/// # Errors
/// When a file is missing or broken, or a tensor is of no projection.
pub fn adapter_lora(folder: &Path) -> Result<Lora, CheckpointError> {
    let (mut lora, _) = adapter_config(folder)?;
    lora.targets = targets(&TensorFile::open(&folder.join(TENSORS))?)?;
    Ok(lora)
}

/// Puts the adapter of a PEFT folder beside the projections of `decoder`, whose own weights are frozen.
///
/// # Errors
/// When a file is missing or broken, a tensor is not of the shape that the model gives it, or is for
/// something that has no adapter here.
pub fn load_adapter(decoder: Decoder, folder: &Path) -> Result<Decoder, CheckpointError> {
    let (mut lora, _) = adapter_config(folder)?;
    let file = TensorFile::open(&folder.join(TENSORS))?;
    let refuse = |problem| CheckpointError::Adapter { path: file.path().to_owned(), problem };
    let mut unread: BTreeSet<String> = file.names().into_iter().collect();
    lora.targets = targets(&file)?;
    let (rank, scale) = (lora.rank, lora.scale());
    let decoder = decoder.adapted(lora, |name, [inputs, outputs], device| {
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
    match unread.first() {
        None => Ok(decoder),
        Some(name) => Err(refuse(format!(
            "the tensor {name:?} has no place in a model of {} layers: is it for another one?",
            decoder.config().layers
        ))),
    }
}

/// The projections that the tensors of an adapter are for.
fn targets(file: &TensorFile) -> Result<Vec<String>, CheckpointError> {
    let mut targets = BTreeSet::new();
    for name in file.names() {
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
/// When `decoder` has no adapter, a file cannot be written, or a parameter cannot be read.
pub fn save_adapter(
    decoder: &Decoder,
    base: &AdapterBase,
    folder: &Path,
) -> Result<(), CheckpointError> {
    let path = folder.join(CONFIG);
    let Some(lora) = decoder.lora() else {
        return Err(CheckpointError::Adapter { path, problem: "the model has no adapter".into() });
    };
    let alpha = match lora.alpha {
        whole if whole.fract() == 0.0 && whole.abs() < 1e15 => json!(whole as i64),
        alpha => json!(alpha),
    };
    let config = json!({
        "base_model_name_or_path": base.name,
        "bias": "none",
        "fan_in_fan_out": false,
        "inference_mode": true,
        "init_lora_weights": true,
        "lora_alpha": alpha,
        "lora_dropout": 0.0,
        "modules_to_save": null,
        "peft_type": "LORA",
        "r": lora.rank,
        "revision": base.revision,
        "target_modules": lora.targets,
        "task_type": "CAUSAL_LM",
        "use_dora": false,
        "use_rslora": lora.rslora,
    });
    save::write_json(&path, &config)?;
    save::write_adapter(decoder, &folder.join(TENSORS))
}

/// Fields that make the adapter another sum than `x·W + scale · x·A·B`.
const CHANGES_THE_SUM: [&str; 13] = [
    "alora_invocation_tokens",
    "alpha_pattern",
    "arrow_config",
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "modules_to_save",
    "rank_pattern",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
];

/// Ways to begin that leave the model's own weights as they are.
const LEAVES_THE_BASE: [&str; 4] = ["gaussian", "eva", "orthogonal", "lora_ga"];

/// Whether a field asks for something: most say `null`, `false` or nothing at all.
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
