//! The names of the tensors in the file of an adapter.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{CheckpointError, file::TensorFile, pictures};
use crate::{
    Lora,
    names::{self, TextPrefix},
};

/// Tensors of a file by the modules that they are for, which are named as in the text model alone, whatever class the
/// adapter was made for.
#[derive(Debug, Default)]
pub(super) struct Keys {
    /// Names of the matrices `A` and `B` of each projection.
    pub(super) matrices: BTreeMap<String, [Option<String>; 2]>,
    /// Names of the matrices that were trained in full, by those of [`Lora::WHOLE`].
    pub(super) full_matrices: BTreeMap<&'static str, String>,
    /// Prefix of the text model in that class.
    pub(super) text_prefix: TextPrefix,
    /// Tensors that do nothing for text: they are of the part that sees, or are needed only by PEFT's training.
    pub(super) left_out: Vec<String>,
}

/// A matrix of an adapter, as its name describes it.
struct Matrix<'a> {
    module: &'a str,
    /// 0 for `A` and 1 for `B`.
    which: usize,
    /// Name of the adapter, which PEFT leaves out of its files.
    adapter: Option<&'a str>,
}

impl Keys {
    /// Sorts the tensors of a file.
    ///
    /// # Errors
    /// Fails if one is of no projection and of no matrix that may be trained in full, or if names contradict each
    /// other.
    pub(super) fn of(file: &TensorFile) -> Result<Self, CheckpointError> {
        let wrong = |problem| CheckpointError::Adapter { path: file.path().to_owned(), problem };
        let mut keys = Keys::default();
        let mut prefixes: BTreeMap<&str, TextPrefix> = BTreeMap::new();
        let mut adapters: BTreeSet<Option<String>> = BTreeSet::new();
        let names = file.names();

        for name in &names {
            let of = |problem: &str| wrong(format!("the tensor {name:?} {problem}"));
            let Some(inner) = name.strip_prefix(names::OF_PEFT) else {
                let prefix = names::OF_PEFT;
                return Err(of(&format!("does not begin with {prefix}, as all names of PEFT do")));
            };

            if pictures::sees_in_any_class(inner) || inner.contains(".lora_velora_") {
                keys.left_out.push(name.clone());
                continue;
            }

            let matrix = matrix(inner);
            let module = match &matrix {
                Some(matrix) => matrix.module,
                None => full_module(inner).ok_or_else(|| of(unknown(inner)))?,
            };

            if let Some(prefix) = pictures::text_prefix_of(module) {
                prefixes.insert(name, prefix);
            }
            // `text_name` expects the name of a tensor, with a suffix after the module.
            let text_module = pictures::text_name(&format!("{module}.weight"));
            let text_module = text_module.strip_suffix(".weight").unwrap_or(&text_module);

            let replaced = match matrix {
                Some(matrix) => {
                    if !is_projection(module) {
                        return Err(of("is of no projection"));
                    }
                    adapters.insert(matrix.adapter.map(str::to_owned));
                    let pair = keys.matrices.entry(text_module.to_owned()).or_default();
                    pair[matrix.which].replace(name.clone())
                }
                None => {
                    let known = Lora::WHOLE.into_iter().find(|known| text_module.ends_with(known));
                    let known = known.ok_or_else(|| of("is of no projection"))?;
                    keys.full_matrices.insert(known, name.clone())
                }
            };

            if let Some(other) = replaced {
                return Err(of(&format!("is of the same matrix as {other:?}")));
            }
        }

        // All names have to be those of one class, which is the class that the adapter was made for.
        let mut others = prefixes.iter();
        if let Some((first, prefix)) = others.next() {
            keys.text_prefix = *prefix;
            if let Some((name, _)) = others.find(|(_, other)| *other != prefix) {
                return Err(wrong(format!(
                    "the tensors {first:?} and {name:?} are named for two classes of models, expected one: is the \
                     file of two adapters?"
                )));
            }
        }

        let mut adapters = adapters.iter();
        if let (Some(one), Some(other)) = (adapters.next(), adapters.next()) {
            let shown = |name: &Option<String>| match name {
                Some(name) => format!("the adapter {name:?}"),
                None => "an adapter without a name".into(),
            };
            let one = shown(one);
            let other = shown(other);
            return Err(wrong(format!(
                "its tensors are of {one} and of {other}, expected one adapter: PEFT's save_pretrained writes each \
                 into a folder of its own"
            )));
        }

        Ok(keys)
    }

    /// Lists the last parts of the projections' names.
    pub(super) fn targets(&self) -> Vec<String> {
        let last = |name: &String| name.rsplit('.').next().unwrap_or(name).to_owned();
        self.matrices.keys().map(last).collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Splits the name of a matrix: `….q_proj.lora_A.weight`, or `….q_proj.lora_A.default.weight` as in the state of a
/// model with the adapter `default`, which some programs save as it is.
fn matrix(name: &str) -> Option<Matrix<'_>> {
    let split = |part: &str, which| {
        let (module, rest) = name.split_once(part)?;
        Some((module, which, rest.strip_suffix("weight")?))
    };

    let (module, which, adapter) = split(".lora_A.", 0).or_else(|| split(".lora_B.", 1))?;
    match adapter.strip_suffix('.') {
        None if adapter.is_empty() => Some(Matrix { module, which, adapter: None }),
        Some(name) if !name.is_empty() && !name.contains('.') => {
            Some(Matrix { module, which, adapter: Some(name) })
        }
        _ => None,
    }
}

/// Returns the module of a matrix that was trained in full: `….embed_tokens.weight`, or
/// `….embed_tokens.modules_to_save.default.weight` as in the state of a model.
fn full_module(name: &str) -> Option<&str> {
    let module = name.strip_suffix(".weight")?;
    let module = match module.split_once(".modules_to_save") {
        None => module,
        Some((module, adapter)) if adapter.is_empty() || adapter.starts_with('.') => module,
        Some(_) => return None,
    };

    let last = module.rsplit('.').next();
    last.filter(|last| Lora::WHOLE.contains(last)).map(|_| module)
}

fn is_projection(module: &str) -> bool {
    let last = module.rsplit('.').next().unwrap_or(module);
    Lora::PROJECTIONS.contains(&last) || Lora::OTHERS.contains(&last)
}

/// Explains why a name of neither kind is refused.
fn unknown(name: &str) -> &'static str {
    let has = |part: &str| name.contains(part);

    if has(".lora_embedding_") {
        "is an adapter of the embedding, which is not implemented; expected adapters of projections"
    } else if has(".lora_magnitude_vector") {
        "is a magnitude of DoRA, which is not implemented; expected plain LoRA"
    } else if has(".token_adapter.") || has(".trainable_tokens_") {
        "is of single tokens that were trained, which is not implemented; expected plain LoRA"
    } else if name.ends_with(".bias") {
        "is a bias that was trained next to the adapter, which is not implemented; expected bias = \"none\""
    } else if has(".lora_") {
        "is of no adapter that is implemented; expected lora_A and lora_B with the weights of each"
    } else {
        "is of no projection"
    }
}
