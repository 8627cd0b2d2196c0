//! Adapters in PEFT's files: `adapter_config.json` and `adapter_model.safetensors`.

mod config;
mod keys;

use std::{collections::BTreeMap, path::Path};

use burn::tensor::{Tensor, TensorData};

pub use self::config::adapter_config;
use self::keys::Keys;
use super::{
    CheckpointError, WeightDtype,
    file::TensorFile,
    folder::{INDEX, SINGLE},
    layout, save,
};
use crate::{Adapter, Decoder, DecoderConfig, Lora, names, selection::Rules};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// Tensors that PyTorch pickled, as older adapters have them.
const PICKLED: &str = "adapter_model.bin";

/// Tells whether `folder` holds an adapter instead of a model. A folder with both is a model, because a merged model
/// may be kept next to its adapter.
pub fn is_adapter(folder: &Path) -> bool {
    folder.join(CONFIG).is_file() && !folder.join(SINGLE).exists() && !folder.join(INDEX).exists()
}

/// Model that an adapter was made for, as the adapter's file names it.
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

/// Reads an adapter like [`adapter_config`], with the projections that its tensors are for.
///
/// # Errors
/// Fails if a file is missing or broken, or a tensor is of no projection.
pub fn adapter_lora(folder: &Path) -> Result<Lora, CheckpointError> {
    Ok(open(folder)?.0)
}

/// Checks by names and shapes alone that [`load_adapter`] can add the adapter of a folder to a model of these sizes.
/// Returns the tensors that it would leave out: those of modules that `adapter_config.json` does not select, which PEFT
/// does not read either, and those that do nothing for text.
///
/// # Errors
/// Fails like [`load_adapter`].
pub fn check_adapter(
    folder: &Path,
    config: &DecoderConfig,
) -> Result<Vec<String>, CheckpointError> {
    Ok(Planned::of(folder, config)?.left_out)
}

/// Adds the adapter of a PEFT folder to the projections of `decoder`, whose own weights are frozen, except matrices
/// that the adapter holds in full.
///
/// The adapter may have been made for a class with the text model alone, or for one that also sees pictures, in which
/// case only its part for the text model is read. As in PEFT, tensors of modules that `adapter_config.json` does not
/// select are left out ([`check_adapter`] lists them).
///
/// # Errors
/// Fails if a file is missing or broken, or if a tensor has another shape than the model asks for, or is for a part
/// that has no adapter here.
pub fn load_adapter(decoder: Decoder, folder: &Path) -> Result<Decoder, CheckpointError> {
    let config = decoder.config().clone();
    let planned = Planned::of(folder, &config)?;
    let file = &planned.file;

    let read = |key: &str, shape: [usize; 2]| -> Result<Vec<f32>, CheckpointError> {
        let dtype = dtype(file, key, shape)?;
        // The number of values comes from the model and not from the file.
        let info = file.info(key).expect("its shape was looked at");
        let mut values = Vec::with_capacity(shape[0] * shape[1]);
        file.read(info, dtype, &mut values)?;
        Ok(values)
    };

    let mut decoder = decoder.adapted(&planned.lora, |name, [inputs, outputs], device| {
        let Some(Pair { keys: [a, b], rank, scale }) = planned.pairs.get(name) else {
            return Ok(None);
        };
        // PEFT's matrices are the transposes of ours.
        let shapes = ([*rank, inputs], [outputs, *rank]);
        let mut values_of_b = read(b, shapes.1)?;
        layout::in_order(&config, b, &mut values_of_b);
        let values = (
            layout::transposed(read(a, shapes.0)?, shapes.0),
            layout::transposed(values_of_b, shapes.1),
        );
        let adapter = Adapter::new([inputs, *rank, outputs], *scale, values, device);
        Ok::<_, CheckpointError>(Some(adapter))
    })?;

    let shape = [decoder.config().vocab_size, decoder.config().hidden_size];
    for (module, key) in &planned.full_matrices {
        // Neither embedding nor head is transposed: both have a row for each token on both sides.
        let values = TensorData::new(read(key, shape)?, shape);
        let matrix = decoder.full_matrix_mut(module).expect("it fits");
        *matrix = matrix.clone().map(|old| {
            let new = Tensor::from_data(values, &old.device());
            new.set_require_grad(old.is_require_grad())
        });
    }

    Ok(decoder)
}

/// Writes the adapter of `decoder` as a PEFT folder for the model `base`, in f32. Its tensors are named as in the class
/// with which `transformers` opens the folder that the decoder was read from.
///
/// # Errors
/// Fails if `decoder` has no adapter or is a copy for sampling, if a file cannot be written, or if a parameter cannot
/// be read.
pub fn save_adapter(
    decoder: &Decoder,
    base: &AdapterBase,
    folder: &Path,
) -> Result<(), CheckpointError> {
    let path = folder.join(CONFIG);
    let Some(lora) = decoder.lora() else {
        return Err(CheckpointError::Adapter { path, problem: "the model has no adapter".into() });
    };

    if decoder.clone().projections_mut().any(|(_, projection)| projection.has_only_joined()) {
        let problem = "the model is a copy for sampling, which has no single adapters, expected the \
                       policy that it was made of";
        return Err(CheckpointError::Adapter { path, problem: problem.into() });
    }

    save::write_json(&path, &config::of_adapter(decoder, lora, base))?;
    save::write_adapter(decoder, &lora.modules_to_save, &folder.join(TENSORS))
}

/// Tensors of an adapter, matched to a model's projections and checked.
struct Planned {
    lora: Lora,
    file: TensorFile,
    /// Adapters by their projections.
    pairs: BTreeMap<String, Pair>,
    /// Names of the matrices that are held in full, by their modules.
    full_matrices: Vec<(String, String)>,
    left_out: Vec<String>,
}

/// Tensors `A` and `B` of an adapter.
struct Pair {
    keys: [String; 2],
    rank: usize,
    scale: f64,
}

impl Planned {
    fn of(folder: &Path, config: &DecoderConfig) -> Result<Self, CheckpointError> {
        let (lora, file, mut keys) = open(folder)?;

        let of_tensors =
            |problem| CheckpointError::Adapter { path: file.path().to_owned(), problem };
        let of_config = |problem| CheckpointError::Adapter { path: folder.join(CONFIG), problem };
        lora.fits(config).map_err(of_tensors)?;

        let mut full_matrices = Vec::new();
        for module in &lora.modules_to_save {
            let key = keys.full_matrices.remove(module.as_str()).ok_or_else(|| {
                let name = names::of_full_matrix(module);
                of_tensors(format!("{module} is in modules_to_save, and {name:?} is not there"))
            })?;
            dtype(&file, &key, [config.vocab_size, config.hidden_size])?;
            full_matrices.push((module.clone(), key));
        }

        if let Some((module, name)) = keys.full_matrices.first_key_value() {
            return Err(of_tensors(format!(
                "the tensor {name:?} is a matrix that was trained in full, expected {module} in modules_to_save"
            )));
        }

        let rules = Rules::of(&lora).map_err(of_config)?;
        let mut pairs = BTreeMap::new();
        for (name, [inputs, outputs]) in names::adaptable(config) {
            let Some(pair) = keys.matrices.remove(&name) else { continue };
            if !rules.selects(&name).map_err(of_config)? {
                keys.left_out.extend(pair.into_iter().flatten());
                continue;
            }
            let [Some(a), Some(b)] = pair else {
                return Err(of_tensors(format!("{name} has only one of lora_A and lora_B")));
            };

            let rank = rules.rank(&name).map_err(of_config)?;
            let scale = lora.scale_of(rank, rules.alpha(&name).map_err(of_config)?);
            dtype(&file, &a, [rank, inputs])?;
            dtype(&file, &b, [outputs, rank])?;
            pairs.insert(name, Pair { keys: [a, b], rank, scale });
        }

        let layers = config.layers;
        if let Some(name) = keys.matrices.values().flatten().flatten().next() {
            return Err(of_tensors(format!(
                "the tensor {name:?} does not belong to a model with num_hidden_layers = {layers}: is it for another model?"
            )));
        }
        if pairs.is_empty() && full_matrices.is_empty() {
            return Err(of_config(
                "it selects none of the tensors next to it, so the adapter does nothing: is target_modules, \
                 exclude_modules or layers_to_transform that of another adapter?"
                    .into(),
            ));
        }

        Ok(Planned { lora, file, pairs, full_matrices, left_out: keys.left_out })
    }
}

/// Reads the files of an adapter without its values.
fn open(folder: &Path) -> Result<(Lora, TensorFile, Keys), CheckpointError> {
    let (mut lora, _) = adapter_config(folder)?;
    lora.check_modules()
        .map_err(|problem| CheckpointError::Adapter { path: folder.join(CONFIG), problem })?;

    let path = folder.join(TENSORS);
    let pickled = folder.join(PICKLED);
    if !path.exists() && pickled.exists() {
        let problem = "it is pickled, and is not read, because unpickling a file runs the code in \
                       it: open the adapter with PEFT and write it with save_pretrained";
        return Err(CheckpointError::Adapter { path: pickled, problem: problem.into() });
    }

    let file = TensorFile::open(&path)?;
    let keys = Keys::of(&file)?;
    lora.targets = keys.targets();
    if let Some(selection) = &mut lora.selection {
        selection.text_prefix = keys.text_prefix;
    }

    Ok((lora, file, keys))
}

/// Returns the format of a tensor, if it is one of weights and the tensor has this shape.
fn dtype(file: &TensorFile, name: &str, shape: [usize; 2]) -> Result<WeightDtype, CheckpointError> {
    let info = file.info(name).expect("the name is one of the file's");
    let dtype = WeightDtype::of(info.dtype).filter(|_| info.shape == shape);
    dtype.ok_or_else(|| CheckpointError::Adapter {
        path: file.path().to_owned(),
        problem: format!(
            "the tensor {name:?} is {} {:?}, but the model and the rank make it F32, BF16 or F16 \
             {shape:?}",
            info.dtype, info.shape
        ),
    })
}
