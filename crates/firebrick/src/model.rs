//! Finds, measures and loads the policy: its folders, its size, and its weights.

use std::{
    path::{Path, PathBuf},
    sync::mpsc::Sender,
};

use burn::{
    module::Module,
    tensor::{Device, FloatDType},
};
use firebrick_core::Seed;
use firebrick_data::Tokenizer;
use firebrick_device::{Kind, Name};
use firebrick_models::{
    AdapterBase, CheckpointError, Compute, Decoder, DecoderConfig, Formats, FrozenFormat, Lora,
    Parameter, PolicyModel, Sizes, WeightDtype, adapter_config, adapter_lora, check_adapter,
    inventory, is_adapter, is_gguf, load_adapter, load_config, load_noting, parameters, random,
};

use crate::{
    device,
    error::Error,
    layout::{TRAINER, WEIGHTS},
    plan::{ChunkPlan, Memory},
    recipe::{self, BaseType, Recipe},
    source::{Need, Sources, model_name, recipe_of_run, run_of_checkpoint},
    thousands,
};

/// Where the parts of a model are.
#[derive(Clone, Debug, PartialEq)]
pub struct Folders {
    /// Configuration and weights: those of the model that is adapted, if there is an adapter.
    pub weights: PathBuf,
    /// A PEFT adapter.
    pub adapter: Option<PathBuf>,
    /// Tokenizer and chat template.
    pub text: PathBuf,
    /// Name of the model in an adapter's file: its name on the Hub, or else its absolute folder, so that the
    /// adapter can be moved.
    pub base: AdapterBase,
}

impl Folders {
    /// Finds the folders of the model in `folder`. If that is an adapter, its file says where its model is:
    /// next to the adapter, elsewhere on this machine, or on the Hub.
    ///
    /// # Errors
    /// When the adapter's model is not found.
    pub fn find(folder: &Path, sources: &Sources, need: Need) -> Result<Self, Error> {
        if !is_adapter(folder) {
            let base = absolute(folder);
            let folder = folder.to_owned();
            return Ok(Folders { weights: folder.clone(), adapter: None, text: folder, base });
        }

        let (_, base) = adapter_config(folder)?;
        let sibling = folder.join(&base.name);
        if sibling.is_dir() || is_gguf(&sibling) {
            let base = absolute(&sibling);
            return Ok(Folders::with_adapter(sibling, base, folder));
        }

        let nowhere = |error| match error {
            Error::NoModel { folder: base } => Error::NoBase { adapter: folder.to_owned(), base },
            other => other,
        };
        let name = Path::new(&base.name);
        let weights =
            sources.model_folder("base_model_name_or_path", name, base.revision.as_deref(), need);
        Ok(Folders::with_adapter(weights.map_err(nowhere)?, base, folder))
    }

    /// Finds the folders of the model that a checkpoint was trained from: the model that its run began with, or, outside
    /// of a run, the model under an adapter.
    ///
    /// # Errors
    /// When the run began with random weights, the folder belongs to no run, or the model is not found.
    pub fn before_training(checkpoint: &Path, sources: &Sources) -> Result<Self, Error> {
        let none = |why| Error::NoBaseModel { model: checkpoint.to_owned(), why };

        if let Some(run) = run_of_checkpoint(checkpoint) {
            let recipe = recipe_of_run(&run)?.recipe;
            let initial = Folders::of_recipe(&recipe, None, sources, Need::Model)?;
            return initial.ok_or_else(|| none("its run began with random weights"));
        }

        let folders = Folders::find(checkpoint, sources, Need::Model)?;
        if folders.adapter.is_none() {
            return Err(none("it is neither a checkpoint in a run's folder nor an adapter"));
        }
        Ok(Folders { adapter: None, text: folders.weights.clone(), ..folders })
    }

    /// Finds the folders of the recipe's model, or of its checkpoint `resume`. A new model has none.
    pub(crate) fn of_recipe(
        recipe: &Recipe,
        resume: Option<&Path>,
        sources: &Sources,
        need: Need,
    ) -> Result<Option<Self>, Error> {
        let model = &recipe.model;
        let hub_base = || {
            let name = model_name(model.path.as_deref()?)?;
            let in_name = Some(name.revision()).filter(|revision| *revision != "main");
            let revision = model.revision.as_deref().or(in_name).map(str::to_owned);
            Some(AdapterBase { name: name.repository().to_owned(), revision })
        };

        // The model that the run began with.
        let initial_folders = || -> Result<Option<Folders>, Error> {
            let Some(path) = &model.path else { return Ok(None) };
            let folder =
                sources.model_folder("model.path", path, model.revision.as_deref(), need)?;
            let mut folders = Folders::find(&folder, sources, need)?;
            if folders.adapter.is_none() {
                folders.base = hub_base().unwrap_or(folders.base);
            }
            Ok(Some(folders))
        };

        let Some(checkpoint) = resume else {
            let Some(initial_folders) = initial_folders()? else { return Ok(None) };
            return match (&initial_folders.adapter, &model.lora) {
                (Some(folder), Some(_)) => Err(Error::TwoAdapters { folder: folder.clone() }),
                (None, None) if model.base != BaseType::Auto => {
                    Err(Error::NoAdapter { folder: initial_folders.weights })
                }
                _ => Ok(Some(initial_folders)),
            };
        };

        // Folders are moved, so the recipe's path to the adapter's model is more recent than the adapter's own.
        if is_adapter(checkpoint)
            && let Some(initial_folders) = initial_folders()?
        {
            return Ok(Some(Folders::with_adapter(
                initial_folders.weights,
                initial_folders.base,
                checkpoint,
            )));
        }

        let mut folders = Folders::find(checkpoint, sources, need)?;
        folders.base = hub_base().unwrap_or(folders.base);
        folders.weights = trained_weights(&folders.weights);
        Ok(Some(folders))
    }

    fn with_adapter(weights: PathBuf, base: AdapterBase, adapter: &Path) -> Self {
        let own_text = adapter.join("tokenizer.json").is_file();
        let text = if own_text { adapter.to_owned() } else { weights.clone() };
        Folders { weights, adapter: Some(adapter.to_owned()), text, base }
    }

    /// Reads the model's sizes.
    ///
    /// # Errors
    /// When `config.json` is missing, broken, or of a model that cannot be read.
    pub fn sizes(&self) -> Result<DecoderConfig, CheckpointError> {
        Ok(load_config(&self.weights)?.0)
    }

    /// Reads the shape of the model's adapter, if it has one.
    ///
    /// # Errors
    /// When a file of the adapter is missing or broken.
    pub fn lora(&self) -> Result<Option<Lora>, CheckpointError> {
        self.adapter.as_deref().map(adapter_lora).transpose()
    }

    /// Loads the model, adapter included, and warns of weights that are not numbers. All weights but the adapter's are
    /// kept in the format of `base`.
    ///
    /// # Errors
    /// When a file is missing or damaged, or the parts do not belong together.
    pub fn load(
        &self,
        base: FrozenFormat,
        device: &Device,
        mut warn: impl FnMut(String),
    ) -> Result<Decoder, CheckpointError> {
        let loaded = load_noting(&self.weights, base, device)?;
        if let Some(first) = loaded.nonfinite.first() {
            warn(format!(
                "{}: {} of its tensors hold NaN or infinite values, such as \
                 {first}; the model's output will be meaningless",
                self.weights.display(),
                loaded.nonfinite.len(),
            ));
        }

        match &self.adapter {
            Some(adapter) => {
                let left_out = check_adapter(adapter, loaded.decoder.config())?;
                if let Some(first) = left_out.first() {
                    warn(format!(
                        "{}: {} of its tensors are left out, such as {first}: adapter_config.json does \
                         not select their modules, or they do nothing for text",
                        adapter.display(),
                        left_out.len(),
                    ));
                }

                load_adapter(loaded.decoder, adapter)
            }
            None => Ok(loaded.decoder),
        }
    }
}

fn absolute(folder: &Path) -> AdapterBase {
    // This fails only if the current directory is gone.
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder.display().to_string().as_str().into()
}

/// Returns the folder of a checkpoint's weights as they were trained, bit for bit.
pub fn trained_weights(folder: &Path) -> PathBuf {
    let rounded_from = folder.join(TRAINER).join(WEIGHTS);
    if rounded_from.is_dir() { rounded_from } else { folder.to_owned() }
}

/// A run's policy, and what its checkpoints say about it.
pub(crate) struct Policy {
    pub(crate) decoder: Decoder,
    /// Content of `config.json`.
    pub(crate) config: serde_json::Value,
    /// Name of the model in an adapter's file; empty for a new model.
    pub(crate) base: AdapterBase,
}

impl Policy {
    /// Reads or makes the policy to start or continue from, on `device`. Anything unusual about it is sent to
    /// `notes_tx`.
    pub(crate) fn read(
        recipe: &Recipe,
        folders: Option<&Folders>,
        tokenizer: &Tokenizer,
        seed: Seed,
        device: &Device,
        notes_tx: &Sender<String>,
    ) -> Result<Self, Error> {
        let compute = compute(recipe.model.dtype, recipe.device.name(), device)?;
        let read = || match (folders, &recipe.model.new) {
            (Some(folders), _) => {
                let adapted = recipe.model.lora.is_some() || folders.adapter.is_some();
                let base = base(recipe, adapted, compute);
                from_folders(recipe, folders, tokenizer, seed, (base, device), notes_tx)
            }
            (None, Some(new)) => {
                let config = new_model(new, tokenizer)?;
                let decoder = random(&config, seed.derive("weights", &[]), device)?;
                let config = config.to_json(Some(tokenizer.pad()), tokenizer.eos());
                Ok(Policy { decoder, config, base: AdapterBase::default() })
            }
            (None, None) => Err(Error::NoModel { folder: PathBuf::new() }),
        };

        let smaller = device::smaller_model();
        let policy = device::unsaved(recipe, device, "loading the model", smaller, read)?;

        if recipe.loss.router_aux_loss_coef != 0.0 && policy.decoder.config().experts.is_none() {
            return Err(Error::NoExperts);
        }

        Ok(Policy { decoder: sized(policy.decoder.with_compute(compute), recipe), ..policy })
    }
}

/// Gives a decoder the chunk sizes of the recipe's device, and the length of the recipe's texts.
pub(crate) fn sized(decoder: Decoder, recipe: &Recipe) -> Decoder {
    let name = recipe.device.name();
    let inner = decoder.config().intermediate_size;
    let chunk_sizes =
        ChunkPlan::for_device(name, Memory::of_device(name).bytes, inner).chunk_sizes();
    decoder.with_chunk_sizes(chunk_sizes).with_longest(recipe.longest_text())
}

/// Returns the format of a recipe's frozen weights. A model without adapters is trained, in f32.
pub(crate) fn base(recipe: &Recipe, adapted: bool, compute: Compute) -> FrozenFormat {
    if adapted { base_of(recipe.model.base, compute) } else { FrozenFormat::F32 }
}

/// Returns the format of weights that are not trained. If the recipe does not say, it is the matmul precision.
pub fn base_of(base: BaseType, compute: Compute) -> FrozenFormat {
    match base {
        BaseType::Float32 => FrozenFormat::F32,
        BaseType::Auto if compute == Compute::F32 => FrozenFormat::F32,
        BaseType::Auto | BaseType::Bfloat16 => FrozenFormat::Bf16,
        BaseType::Int8 => FrozenFormat::Int8,
        BaseType::Int4 => FrozenFormat::Int4,
    }
}

fn from_folders(
    recipe: &Recipe,
    folders: &Folders,
    tokenizer: &Tokenizer,
    seed: Seed,
    (base, device): (FrozenFormat, &Device),
    notes_tx: &Sender<String>,
) -> Result<Policy, Error> {
    let (sizes, config) = load_config(&folders.weights)?;
    check_vocabulary(tokenizer, &sizes, &folders.text)?;

    // If the receiver is gone, the notes are not needed.
    let decoder = folders.load(base, device, |note| drop(notes_tx.send(note)))?;

    let decoder = match &recipe.model.lora {
        Some(lora) if decoder.lora().is_none() => {
            let lora = adapters(lora);
            if let Err(problem) = lora.fits(decoder.config()) {
                return Err(Error::Adapters { problem });
            }
            let adapted = decoder.with_lora(lora, seed.derive("lora", &[]));
            if adapters_of(&adapted) == 0 {
                return Err(Error::NoTarget);
            }
            adapted
        }
        _ => decoder,
    };

    Ok(Policy { decoder, config, base: folders.base.clone() })
}

/// Checks that the model has a row for each token. More rows than tokens are usual (padding for speed); fewer
/// would index past the embedding.
///
/// # Errors
/// When there are fewer rows than tokens.
pub fn check_vocabulary(
    tokenizer: &Tokenizer,
    sizes: &DecoderConfig,
    folder: &Path,
) -> Result<(), Error> {
    let tokenizer = tokenizer.rows();
    let model = sizes.vocab_size;

    if tokenizer <= model {
        return Ok(());
    }
    Err(Error::Vocabulary { folder: folder.to_owned(), tokenizer, model })
}

/// Describes the size of a policy.
pub(crate) fn parameters_in_words<M: Module>(policy: &M) -> String {
    format!("{} parameters", thousands(policy.num_params() as u64))
}

/// Counts the values of a decoder's adapters.
fn adapters_of(policy: &Decoder) -> usize {
    values_of(policy, |parameter| parameter.path.contains(".adapters."))
}

fn values_of(policy: &Decoder, wanted: impl Fn(&Parameter) -> bool) -> usize {
    let all = parameters(policy);
    let sizes = all.iter().filter(|parameter| wanted(parameter));
    sizes.map(|parameter| parameter.shape.iter().product::<usize>()).sum()
}

/// Describes how large a decoder is, how much of it is trained, and its matmul precision.
pub(crate) fn size(policy: &Decoder) -> String {
    let adapters: usize = adapters_of(policy);
    let all = policy.config().parameters().total + adapters as u64;
    let mut text = format!("{} parameters", thousands(all));
    if let Some(lora) = policy.lora() {
        let trained = thousands(values_of(policy, |parameter| parameter.trained) as u64);
        text += &format!(", {trained} of them trained (adapters of rank {})", lora.rank);
    }
    if policy.compute() != Compute::F32 {
        text += &format!(", multiplied in {}", policy.compute());
    }
    text
}

/// Returns the matmul precision on that device.
///
/// # Errors
/// When the recipe asks for a precision that the device does not compute.
pub fn compute(
    requested: recipe::ComputeType,
    name: Name,
    device: &Device,
) -> Result<Compute, Error> {
    let computes = |format| device.supports_dtype(format);
    let has_bf16 = || computes(FloatDType::BF16);
    let missing = |dtype| Error::NoFormat { dtype, device: name };

    match requested {
        recipe::ComputeType::Float32 => Ok(Compute::F32),
        // A processor computes bfloat16 more slowly than f32.
        recipe::ComputeType::Auto if name.kind == Kind::Cpu || !has_bf16() => Ok(Compute::F32),
        recipe::ComputeType::Auto => Ok(Compute::Bf16),
        recipe::ComputeType::Bfloat16 if has_bf16() => Ok(Compute::Bf16),
        recipe::ComputeType::Bfloat16 => Err(missing(Compute::Bf16)),
        recipe::ComputeType::Float16 if computes(FloatDType::F16) => Ok(Compute::F16),
        recipe::ComputeType::Float16 => Err(missing(Compute::F16)),
    }
}

/// Returns the number format of each tensor in checkpoints.
pub(crate) fn checkpoint_formats(
    recipe: &Recipe,
    resume: Option<&Path>,
    folders: Option<&Folders>,
) -> Result<Formats, Error> {
    // An adapter is small, and is written as it is trained.
    if recipe.model.lora.is_some() || folders.is_some_and(|folders| folders.adapter.is_some()) {
        return Ok(Formats::all(WeightDtype::F32));
    }
    // In a checkpoint, each tensor has the format that it had in the model that the run began with.
    let origin = resume.or(folders.map(|folders| folders.weights.as_path()));
    Ok(match (recipe.checkpoint.dtype, origin) {
        (recipe::CheckpointDtype::Auto, Some(folder)) => inventory(folder)?.formats(),
        (recipe::CheckpointDtype::Auto, None) | (recipe::CheckpointDtype::Float32, _) => {
            Formats::all(WeightDtype::F32)
        }
        (recipe::CheckpointDtype::Bfloat16, _) => Formats::all(WeightDtype::BF16),
        (recipe::CheckpointDtype::Float16, _) => Formats::all(WeightDtype::F16),
    })
}

/// Returns the sizes of a new model, whose vocabulary is at least the tokenizer's.
pub(crate) fn new_model(
    new: &recipe::NewModel,
    tokenizer: &Tokenizer,
) -> Result<DecoderConfig, Error> {
    let sizes = Sizes {
        vocab_size: new.vocab_size.unwrap_or(tokenizer.rows()),
        hidden_size: new.hidden_size,
        layers: new.layers,
        heads: new.heads,
        kv_heads: new.kv_heads,
        head_dim: new.hidden_size / new.heads,
        intermediate_size: new.intermediate_size,
        max_position_embeddings: new.max_position_embeddings,
        rope_theta: new.rope_theta,
        tied: new.tied,
    };

    let tokenizer = tokenizer.rows();
    let vocab_size = sizes.vocab_size;
    if vocab_size < tokenizer {
        return Err(Error::NewVocabulary { tokenizer, vocab_size });
    }

    let config = DecoderConfig::new(new.family, sizes);
    config.check().map_err(CheckpointError::NewModel)?;
    Ok(config)
}

/// Returns the adapters that a recipe asks for.
pub fn adapters(lora: &recipe::Lora) -> Lora {
    let name = |target: &recipe::LoraTarget| match target {
        recipe::LoraTarget::QProj => "q_proj",
        recipe::LoraTarget::KProj => "k_proj",
        recipe::LoraTarget::VProj => "v_proj",
        recipe::LoraTarget::OProj => "o_proj",
        recipe::LoraTarget::GateProj => "gate_proj",
        recipe::LoraTarget::UpProj => "up_proj",
        recipe::LoraTarget::DownProj => "down_proj",
    };

    // Sorted, so that another order in the recipe gives the same adapter.
    let mut targets: Vec<String> = lora.targets.iter().map(|it| name(it).to_owned()).collect();
    targets.sort();
    targets.dedup();

    let alpha = lora.alpha.unwrap_or(2.0 * lora.rank as f64);

    let whole = |module: &recipe::WholeModule| match module {
        recipe::WholeModule::EmbedTokens => "embed_tokens",
        recipe::WholeModule::LmHead => "lm_head",
    };
    let mut modules_to_save: Vec<String> =
        lora.modules_to_save.iter().map(|it| whole(it).to_owned()).collect();
    modules_to_save.sort();
    modules_to_save.dedup();

    let rank = lora.rank;
    let rslora = lora.rslora;
    Lora { rank, alpha, targets, rslora, modules_to_save, ..Lora::default() }
}
