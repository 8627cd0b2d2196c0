//! Unusual things about a model that a user should know before training it.

use firebrick::thousands;
use serde_json::Value;

use super::Inspection;

/// Context, in tokens, below which there is little room for reasoning.
const SHORT_CONTEXT: usize = 1024;

/// Keys of `generation_config.json` that change how `transformers` samples, each with the value that changes
/// nothing.
const SAMPLING: [(&str, f64); 7] = [
    ("temperature", 1.0),
    ("top_p", 1.0),
    ("top_k", 0.0),
    ("min_p", 0.0),
    ("typical_p", 1.0),
    ("repetition_penalty", 1.0),
    ("no_repeat_ngram_size", 0.0),
];

pub(super) fn unusual(inspection: &Inspection, unread: &[String]) -> Vec<String> {
    let mut unusual = Vec::new();
    weights(inspection, unread, &mut unusual);
    vocabulary(inspection, &mut unusual);
    generation(inspection, &mut unusual);

    if inspection.tokenizer.is_some() && inspection.template.is_none() {
        unusual.push("there is no chat template: prompts are passed on unchanged".into());
    }
    if let Some(config) = &inspection.config
        && config.max_position_embeddings < SHORT_CONTEXT
    {
        let context = config.max_position_embeddings;
        unusual.push(format!("the context is short: {context} tokens for prompt and completion"));
    }
    unusual
}

/// Reports the tensors of an adapter that are not read.
pub(super) fn left_out(names: &[String]) -> Option<String> {
    let first: Vec<&str> = names.iter().take(3).map(String::as_str).collect();
    let more = if names.len() > 3 { ", …" } else { "" };
    (!names.is_empty()).then(|| {
        format!(
            "{} of the adapter's tensors left out, because adapter_config.json does not select \
             their modules, or because they do nothing for text: {}{more}",
            names.len(),
            first.join(", ")
        )
    })
}

fn weights(inspection: &Inspection, unread: &[String], unusual: &mut Vec<String>) {
    let Some(inventory) = &inspection.inventory else { return };

    if !unread.is_empty() {
        let names: Vec<&str> = unread.iter().take(3).map(String::as_str).collect();
        let more = if unread.len() > 3 { ", …" } else { "" };
        unusual.push(format!(
            "tensors that are not part of the model ({} in all): {}{more}",
            unread.len(),
            names.join(", ")
        ));
    }

    // A GGUF file has tensors of several types by nature.
    if inspection.gguf {
        return;
    }

    if inventory.tensors.windows(2).any(|two| two[0].dtype != two[1].dtype) {
        unusual.push(format!("the tensors are of different types: {}", inventory.types()));
    }

    // transformers 5 calls the field dtype, while earlier versions call it torch_dtype.
    let stated = inspection.text("dtype").or(inspection.text("torch_dtype"));
    if let (Some(stated), Some(found)) = (stated, inventory.dtype())
        && stated != found.name()
    {
        unusual.push(format!("config.json says {stated}, but the weights are {}", found.name()));
    }
}

/// Reports weights that belong to another model: their number is not the one that follows from `config.json`. The
/// readers of the weights say which tensor has the wrong shape.
pub(super) fn foreign_weights(inspection: &Inspection, unread: &[String]) -> Option<String> {
    let described = inspection.config.as_ref()?.parameters().total;
    let read_tensors = inspection.inventory.as_ref()?.tensors.iter();
    let read_tensors = read_tensors.filter(|tensor| !unread.contains(&tensor.name));
    let actual: u64 = read_tensors.map(firebrick_models::TensorInfo::parameters).sum();

    (actual != described).then(|| {
        format!(
            "the sizes in config.json make {} parameters, but the files hold {}: they belong to \
             different models",
            thousands(described),
            thousands(actual)
        )
    })
}

/// Reports a tokenizer that needs more rows than the embedding has.
pub(super) fn foreign_tokenizer(inspection: &Inspection) -> Option<String> {
    let rows = inspection.config.as_ref()?.vocab_size as u64;
    let needed_rows = inspection.tokenizer.as_ref()?.rows as u64;

    (needed_rows > rows).then(|| {
        format!(
            "the tokenizer has ids up to {}, but the embedding has only {} rows: they belong to \
             different models",
            thousands(needed_rows - 1),
            thousands(rows)
        )
    })
}

fn vocabulary(inspection: &Inspection, unusual: &mut Vec<String>) {
    let Some(tokenizer) = &inspection.tokenizer else { return };

    let off = tokenizer.switched_off.iter();
    unusual.extend(off.map(|what| format!("the tokenizer asks for {what}: it is switched off")));

    let Some(config) = &inspection.config else { return };
    let rows = config.vocab_size as u64;
    let needed_rows = tokenizer.rows as u64;

    if rows > needed_rows {
        unusual.push(format!(
            "{} of {} rows of the embedding without a token; if sampled, such a row adds no text",
            thousands(rows - needed_rows),
            thousands(rows)
        ));
    }

    if tokenizer.tokens < tokenizer.rows {
        let holes = (tokenizer.rows - tokenizer.tokens) as u64;
        unusual.push(format!("ids below the largest one without a token: {}", thousands(holes)));
    }
}

fn generation(inspection: &Inspection, unusual: &mut Vec<String>) {
    let Some(generation) = &inspection.generation else {
        if inspection.adapter.is_none() {
            unusual.push(
                "there is no generation_config.json: stop tokens come from config.json and the \
                 tokenizer alone"
                    .into(),
            );
        }
        return;
    };

    let ids: Vec<u64> = match generation.get("eos_token_id") {
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_u64).collect(),
        Some(id) => id.as_u64().into_iter().collect(),
        None => Vec::new(),
    };

    if let Some(tokenizer) = &inspection.tokenizer {
        let (eos, text) = &tokenizer.eos;
        if !ids.is_empty() && !ids.contains(&u64::from(*eos)) {
            unusual.push(format!(
                "the tokenizer ends a text with {eos} ({text}), which is no end token in \
                 generation_config.json; a completion stops at the end tokens of both"
            ));
        }

        let unknown: Vec<String> = ids
            .iter()
            .filter(|&&id| tokenizer.stop.iter().all(|(stop, _)| u64::from(*stop) != id))
            .map(u64::to_string)
            .collect();
        if !unknown.is_empty() {
            unusual.push(format!(
                "generation_config.json stops at {}, which the tokenizer does not have",
                unknown.join(", ")
            ));
        }
    }

    let not_applied: Vec<String> = SAMPLING
        .iter()
        .filter_map(|&(name, neutral)| {
            let value = generation.get(name)?;
            (value.as_f64()? != neutral).then(|| format!("{name} {value}"))
        })
        .collect();

    if !not_applied.is_empty() {
        unusual.push(format!(
            "generation_config.json asks for {}, which is not applied: only the recipe and the \
             command line decide the sampling",
            not_applied.join(", ")
        ));
    }
}
