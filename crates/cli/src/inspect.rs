//! Inspects a model folder without reading its weights.
//!
//! A folder may come from anywhere, and any part of it may be broken. The inspection names each part that can't be
//! read, and still shows the rest.

mod show;
mod unusual;

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
};

use firebrick::model::{Folders, check_vocabulary};
use firebrick_core::without_bom;
use firebrick_data::{ChatTemplate, Tokenizer, TokenizerFacts};
use firebrick_gguf::{file_within, is_gguf};
use firebrick_models::{
    CheckpointError, DecoderConfig, Inventory, KvSharing, QkNorm, adapter_lora, check_adapter,
    inventory, is_adapter, load_config, unread_tensors,
};
use serde_json::{Map, Value, json};

/// Contents of a model folder.
pub struct Inspection {
    /// Path of the folder, as given.
    pub folder: String,
    /// True if the folder is a GGUF file.
    pub gguf: bool,
    /// Fields of `config.json`, unchanged; empty if the file is missing or can't be read.
    pub fields: Map<String, Value>,
    /// Model that `config.json` describes, if it can be trained.
    pub config: Option<DecoderConfig>,
    /// Tensors in the files.
    pub inventory: Option<Inventory>,
    /// Facts about the tokenizer, if it can be read.
    pub tokenizer: Option<TokenizerFacts>,
    /// Source of the chat template, and the variables that the template takes.
    pub template: Option<(String, Vec<String>)>,
    /// Fields of `generation_config.json`; `None` if the file is missing or can't be read.
    pub generation: Option<Map<String, Value>>,
    /// Fields of `adapter_config.json`, if the folder holds an adapter.
    pub adapter: Option<Map<String, Value>>,
    /// Step of the run, if the folder is a checkpoint of one.
    pub step: Option<u64>,
    /// Reasons why the folder can't be used; empty if it can.
    pub faults: Vec<String>,
    /// Everything else that deserves attention.
    pub unusual: Vec<String>,
}

impl Inspection {
    /// Reads `folder`, but only the names, types and shapes of its weights.
    pub fn read(folder: &Path) -> Self {
        let mut broken = Vec::new();
        let fields = read(folder, "config.json", &mut broken);
        let generation = read(folder, "generation_config.json", &mut broken);
        let adapter = read(folder, "adapter_config.json", &mut broken);

        // Without this file a run can't be resumed, but the model can be used.
        let mut state_problems = Vec::new();
        let state = read(folder, "trainer/state.json", &mut state_problems);

        // An adapter consists of other files, so it is not an error if the files of a model are missing.
        let is_adapter_only = is_adapter(folder);
        let mut or_say = |problem: String| {
            // The tokenizer's reader reads config.json as well, and would report its errors again.
            let of_config = format!("{}", folder.join("config.json").display());
            let repeats = |known: &String| {
                *known == problem
                    || known.starts_with(&of_config) && problem.starts_with(&of_config)
            };
            if !is_adapter_only && !broken.iter().any(repeats) {
                broken.push(problem);
            }
        };

        let config = load_config(folder).map_err(|error| or_say(error.to_string())).ok();
        let tensors = inventory(folder).map_err(|error| or_say(error.to_string())).ok();
        let tokenizer = Tokenizer::from_folder(folder).map_err(|error| or_say(error.to_string()));
        let template = ChatTemplate::from_folder(folder).map_err(|error| or_say(error.to_string()));

        // A tensor of the wrong shape shows that the weights may be of another model.
        let mut misshapen = false;
        let unread = match (&config, &tensors) {
            (Some(_), Some(_)) => unread_tensors(folder).map_err(|error| {
                misshapen = matches!(error, CheckpointError::Shape { .. });
                or_say(error.to_string());
            }),
            _ => Err(()),
        };

        if is_adapter_only && let Err(error) = adapter_lora(folder) {
            broken.push(error.to_string());
        }

        let mut inspection = Inspection {
            folder: folder.display().to_string(),
            gguf: is_gguf(folder),
            fields: fields.unwrap_or_default(),
            config: config.map(|(config, _)| config),
            inventory: tensors,
            tokenizer: tokenizer.ok().map(|tokenizer| tokenizer.facts()),
            template: template
                .ok()
                .flatten()
                .map(|template| (template.place().to_owned(), template.variables())),
            generation,
            adapter,
            step: state.and_then(|state| state.get("step")?.as_u64()),
            faults: broken,
            unusual: Vec::new(),
        };

        // An error may also be in the combination of two parts, such as a tokenizer and weights of different models.
        inspection.faults.extend(unusual::foreign_tokenizer(&inspection));
        match &unread {
            Ok(unread) => {
                inspection.faults.extend(unusual::foreign_weights(&inspection, unread));
            }
            Err(()) if misshapen => {
                inspection.faults.extend(unusual::foreign_weights(&inspection, &[]));
            }
            Err(()) => {}
        }

        inspection.unusual =
            [state_problems, unusual::unusual(&inspection, &unread.unwrap_or_default())].concat();
        inspection
    }

    /// Adds the errors of an adapter next to its model. `folders` are those of both.
    pub fn add_base(&mut self, folders: &Folders) {
        let Some(adapter) = &folders.adapter else { return };
        let mut faults = Vec::new();
        match folders.sizes().and_then(|config| check_adapter(adapter, &config)) {
            Err(error) => faults.push(error.to_string()),
            Ok(left_out) => self.unusual.extend(unusual::left_out(&left_out)),
        }

        if folders.text == *adapter {
            match Tokenizer::from_folder(adapter) {
                Err(error) => faults.push(error.to_string()),
                Ok(tokenizer) => {
                    let fits = folders
                        .sizes()
                        .ok()
                        .and_then(|config| check_vocabulary(&tokenizer, &config, adapter).err());
                    faults.extend(fits.map(|error| error.to_string()));
                }
            }
            let template = ChatTemplate::from_folder(adapter).err();
            faults.extend(template.map(|error| error.to_string()));
        }

        // The weights of a model on the Hub are downloaded only when they are needed.
        if Path::new(&folders.base.name).exists() {
            faults.extend(Inspection::read(&folders.weights).faults);
        }

        for fault in faults {
            if !self.faults.contains(&fault) {
                self.faults.push(fault);
            }
        }
    }

    /// Names the version of transformers that wrote `config.json`, judged by the file's layout.
    pub fn layout(&self) -> &'static str {
        let has = |name: &str| self.fields.contains_key(name);
        match () {
            () if has("rope_parameters") || has("dtype") => "transformers 5",
            () if has("torch_dtype") || has("rope_theta") => "transformers 4",
            () => "transformers",
        }
    }

    /// Returns a text of `config.json`, such as `model_type`.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field)?.as_str()
    }

    /// Returns the class that `config.json` names.
    pub fn architecture(&self) -> Option<&str> {
        self.fields.get("architectures")?.get(0)?.as_str()
    }

    /// Returns the inspection as JSON for programs, with a list of all tensors if `tensors` is true.
    pub fn json(&self, tensors: bool) -> Value {
        let spelt = |tokens: &[(u32, String)]| -> Vec<Value> {
            tokens.iter().map(|(id, text)| json!({"id": id, "text": text})).collect()
        };
        json!({
            "folder": self.folder,
            "family": self.text("model_type"),
            "architecture": self.architecture(),
            "layout": self.layout(),
            "sizes": self.config.as_ref().map(|config| json!({
                "layers": config.layers,
                "hidden_size": config.hidden_size,
                "heads": config.heads,
                "kv_heads": config.kv_heads,
                "head_dim": config.head_dim,
                "global_heads": config.global_heads.map(|heads| json!({
                    "kv_heads": heads.kv_heads, "head_dim": heads.head_dim,
                    "values_are_keys": heads.values_are_keys,
                    "layers": config.kinds.iter().map(|kind| kind.global).collect::<Vec<_>>(),
                })),
                "intermediate_size": config.intermediate_size,
                "double_wide_mlp": config.double_wide_mlp,
                "per_layer_embeddings": config.per_layer.map(|sizes| json!({
                    "rows": sizes.vocab_size, "width": sizes.width,
                })),
                "reuses_kv": config.kinds.iter().map(|kind| kind.kv == KvSharing::Reuse)
                    .collect::<Vec<_>>(),
                "vocab_size": config.vocab_size,
                "context": config.max_position_embeddings,
                "rope_theta": config.rope.theta,
                "rope_scaling": config.rope.scaling_to_json(),
                "windows": config.kinds.iter().map(|kind| kind.window).collect::<Vec<_>>(),
                "experts": config.experts.map(|experts| json!({
                    "count": experts.count, "chosen": experts.chosen, "inner": experts.inner,
                    "shared": experts.shared.map(|shared| shared.inner), "biases": experts.biases,
                    "layers": config.kinds.iter().map(|kind| kind.sparse).collect::<Vec<_>>(),
                })),
                "recurrence": config.delta.map(|delta| json!({
                    "heads": delta.value_heads, "key_heads": delta.key_heads,
                    "state": delta.state(),
                    "layers": config.kinds.iter().map(|kind| kind.recurrent).collect::<Vec<_>>(),
                })),
                "convolution": config.convolution,
                "norm_epsilon": config.norm_epsilon,
                "logit_cap": config.logit_cap,
                "tied": config.tied,
                "qk_norm": config.qk_norm != QkNorm::None,
                "qkv_bias": config.biases.qkv,
                "sinks": config.sinks,
            })),
            "parameters": self.config.as_ref().map(|config| {
                let count = config.parameters();
                json!({
                    "total": count.total, "embedding": count.embedding, "active": count.active,
                })
            }),
            "weights": self.inventory.as_ref().map(|inventory| json!({
                "dtype": inventory.dtype().map(firebrick_models::WeightDtype::name),
                "bytes": inventory.bytes(),
                "files": self.files(),
                "count": inventory.tensors.len(),
                "tensors": tensors.then(|| inventory.tensors.iter().map(|tensor| json!({
                    "name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape,
                    "bytes": tensor.bytes,
                })).collect::<Vec<_>>()),
            })),
            "tokenizer": self.tokenizer.as_ref().map(|facts| json!({
                "tokens": facts.tokens,
                "rows": facts.rows,
                "bos": facts.bos.as_ref().map(|bos| spelt(std::slice::from_ref(bos))),
                "eos": spelt(std::slice::from_ref(&facts.eos)),
                "pad": spelt(std::slice::from_ref(&facts.pad)),
                "stop": spelt(&facts.stop),
                "around_text": spelt(&facts.around_text),
            })),
            "template": self.template.as_ref().map(|(source, variables)| json!({
                "file": source, "variables": variables,
            })),
            "generation_config": self.generation,
            "adapter": self.adapter,
            "step": self.step,
            "usable": self.faults.is_empty(),
            "faults": self.faults,
            "unusual": self.unusual,
        })
    }

    /// Returns the files that hold the weights, with the bytes of the tensors in each.
    pub fn files(&self) -> Vec<(String, u64)> {
        let mut files: Vec<(String, u64)> = Vec::new();
        for tensor in self.inventory.iter().flat_map(|inventory| &inventory.tensors) {
            let name = tensor.file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            match files.iter_mut().find(|(known, _)| *known == name) {
                Some((_, bytes)) => *bytes += tensor.bytes,
                None => files.push((name, tensor.bytes)),
            }
        }
        files.sort();
        files
    }
}

/// Size in bytes up to which a small JSON file is read. In memory the file may take ten times as much.
const MAX_BYTES: u64 = 16 << 20;

/// Reads the object in a JSON file. Errors of the file are added to `broken`.
fn read(folder: &Path, name: &str, broken: &mut Vec<String>) -> Option<Map<String, Value>> {
    let path = folder.join(name);
    if let Some(file) = file_within(&path) {
        // The readers of the model report the errors of a GGUF file.
        return serde_json::from_slice(&file.ok()??).ok();
    }

    // Its kind is checked before the file is opened, because opening a pipe waits for somebody to write into it.
    let metadata = fs::metadata(&path).ok()?;
    let object = if metadata.is_file() && metadata.len() <= MAX_BYTES {
        object(&path)
    } else {
        Err(format!("expected a file of at most {MAX_BYTES} bytes"))
    };

    match object {
        Ok(object) => Some(object),
        // Other readers need these two files, and report their errors.
        Err(_) if name == "config.json" || name == "generation_config.json" => None,
        Err(problem) => {
            broken.push(format!("{} can't be read: {problem}", path.display()));
            None
        }
    }
}

fn object(path: &Path) -> Result<Map<String, Value>, String> {
    let mut text = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    // A file may grow while it is read.
    file.take(MAX_BYTES).read_to_end(&mut text).map_err(|error| error.to_string())?;
    let json = without_bom(&text).map_err(|error| error.to_string())?;
    serde_json::from_slice(json).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_from_a_stranger_can_neither_command_the_terminal_nor_hold_the_program() {
        let folder = tempfile::tempdir().unwrap();
        let config = "{\"model_type\": \"\\u001b[2Jqwen2\", \"architectures\": [\"a\\nb\\u009b\"]}";
        fs::write(folder.path().join("config.json"), config).unwrap();

        #[cfg(unix)]
        {
            let pipe = folder.path().join("generation_config.json");
            assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
        }

        let state = File::create_new(folder.path().join("adapter_config.json")).unwrap();
        state.set_len(MAX_BYTES + 1).unwrap();

        let text = Inspection::read(folder.path()).to_string();
        assert!(text.contains("\\u001b[2Jqwen2, a\\nb\\u009b"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(text.contains("expected a file of at most 16777216 bytes"), "{text}");
    }
}
