//! Writes the inspection of a model folder as text for a person to read.

use std::fmt;

use firebrick::thousands;
use firebrick_models::{
    Biases, DecoderConfig, ExpertSizes, GlobalHeads, KvSharing, LayerKind, QkNorm, Rope, RopeKind,
    RopeScaling, RouterScores,
};
use serde_json::Value;

use firebrick_core::{counted, printable};

use super::Inspection;

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", printable(&self.folder))?;

        let family = self.text("model_type").unwrap_or("none");
        let architecture = self.architecture().unwrap_or("no architecture");
        if !self.fields.is_empty() {
            let layout = self.layout();
            line(f, "family", &format!("{family}, {architecture}; config.json of {layout}"))?;
        }

        self.sizes(f)?;
        self.weights(f)?;
        self.words(f)?;

        if let Some(adapter) = &self.adapter {
            let value =
                |name: &str| adapter.get(name).map_or_else(|| "unknown".into(), Value::to_string);
            line(
                f,
                "adapter",
                &format!(
                    "of {}; rank {}, alpha {}, on {}",
                    value("base_model_name_or_path"),
                    value("r"),
                    value("lora_alpha"),
                    value("target_modules")
                ),
            )?;
        }

        if let Some(step) = self.step {
            line(f, "run", &format!("a checkpoint of step {step}, which can be resumed"))?;
        }
        if !self.faults.is_empty() {
            lines(f, "unusable", &self.faults)?;
        }
        lines(f, "unusual", &self.unusual)
    }
}

/// Writes a line for each of `texts`, the first one with the name.
fn lines(f: &mut fmt::Formatter<'_>, name: &str, texts: &[String]) -> fmt::Result {
    let mut texts = texts.iter();
    line(f, name, texts.next().map_or("nothing", String::as_str))?;
    texts.try_for_each(|more| line(f, "", more))
}

/// Describes how the frequencies were changed for a longer context, or which are 0; `None` if nothing was changed.
fn scaling(rope: &Rope) -> Option<String> {
    let tokens = |context: usize| thousands(context as u64);
    Some(match &rope.scaling {
        RopeScaling::None => return None,
        RopeScaling::Linear { factor } => format!("frequencies divided by {factor}"),
        RopeScaling::Dynamic { factor, context } => {
            format!("base growing by {factor} for more than {} tokens", tokens(*context))
        }
        RopeScaling::Proportional { factor } => {
            let divided = if *factor == 1.0 {
                String::new()
            } else {
                format!(", frequencies divided by {factor}")
            };
            format!("{} of the pairs rotated{divided}", rope.share)
        }
        RopeScaling::Llama3(it) => format!(
            "low frequencies divided by {} for more than {} tokens",
            it.factor,
            tokens(it.original_max_position_embeddings)
        ),
        RopeScaling::Yarn(it) => format!(
            "low frequencies divided by {} (YaRN) for more than {} tokens",
            it.factor,
            tokens(it.original_max_position_embeddings)
        ),
        RopeScaling::LongRope(it) => format!(
            "frequencies divided one by one (LongRoPE), by other factors for more than {} tokens",
            tokens(it.original_max_position_embeddings)
        ),
    })
}

/// Describes a family's attention apart from its sizes: the biases, and normalised queries and keys.
fn features(config: &DecoderConfig) -> String {
    let Biases { qkv, output, mlp } = config.biases;
    let there = [(qkv, "q, k and v"), (output, "the output"), (mlp, "the MLP")];
    let biases: Vec<&str> =
        there.into_iter().filter(|(there, _)| *there).map(|(_, part)| part).collect();
    let biases = if biases.is_empty() {
        "without biases".into()
    } else {
        format!("with biases on {}", biases.join(", "))
    };
    let biases = if config.sinks { format!("{biases}, with sinks") } else { biases };

    match config.qk_norm {
        QkNorm::None => biases,
        QkNorm::Heads if config.value_norm => {
            format!("{biases}, queries, keys and values normalised")
        }
        QkNorm::Heads => format!("{biases}, queries and keys normalised"),
        QkNorm::Whole => format!("{biases}, queries and keys normalised over all heads"),
        QkNorm::Rotated => format!("{biases}, queries and keys normalised after rotation"),
    }
}

/// Describes the heads of layers that have others than most layers; `None` if there are no such layers.
fn global_heads(config: &DecoderConfig) -> Option<String> {
    let GlobalHeads { kv_heads, head_dim, values_are_keys } = config.global_heads?;
    let layers = config.kinds.iter().filter(|kind| kind.global).count();
    let layers = counted(layers as u64, "layer");
    let kv_heads = counted(kv_heads as u64, "key-value head");
    let values = if values_are_keys { ", whose values are their keys" } else { "" };
    Some(format!("in {layers} on {kv_heads}, {head_dim} wide{values}"))
}

/// Describes the layers that attend to keys and values of others; `None` if there are no such layers.
fn shared_kv(config: &DecoderConfig) -> Option<String> {
    let reuses = |kind: &&LayerKind| kind.kv == KvSharing::Reuse;
    let layers = config.kinds.iter().filter(reuses).count();
    let wide = if config.double_wide_mlp { ", and have MLPs twice as wide" } else { "" };
    let shared = format!("the last {layers} attend to keys and values of others{wide}");
    (layers > 0).then_some(shared)
}

impl Inspection {
    fn sizes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(config) = &self.config else { return Ok(()) };
        let dense = config.kinds.iter().any(|kind| !kind.sparse);
        let mlp = dense.then(|| format!(", MLP {}", config.intermediate_size));
        let layers = counted(config.layers as u64, "layer");
        let sizes = format!("{layers}, hidden {}", config.hidden_size);
        line(f, "sizes", &format!("{sizes}{}", mlp.unwrap_or_default()))?;

        if let Some(experts) = &config.experts {
            let layers = config.kinds.iter().filter(|kind| kind.sparse).count();
            let ExpertSizes { count, chosen, inner, shared, scores, biases, .. } = experts;
            let shared = shared
                .map_or(String::new(), |shared| format!(", and one of {} for all", shared.inner));
            let scores = match scores {
                RouterScores::Softmax => "",
                RouterScores::Sigmoid { .. } => ", scored by sigmoids",
            };
            let biases = if *biases { ", with biases" } else { "" };
            let each = format!(
                "{count} of width {inner}, {chosen} for each token{shared}{scores}{biases}"
            );
            line(f, "experts", &format!("{} with {each}", counted(layers as u64, "layer")))?;
        }

        if let Some(tokens) = config.convolution {
            let layers = config.kinds.iter().filter(|kind| kind.recurrent).count();
            let layers = counted(layers as u64, "layer");
            line(f, "recurrence", &format!("{layers}, a convolution over {tokens} tokens"))?;
        }

        if let Some(delta) = &config.delta {
            let layers = config.kinds.iter().filter(|kind| kind.recurrent).count();
            let layers = counted(layers as u64, "layer");
            let heads = counted(delta.value_heads as u64, "head");
            let key_heads = counted(delta.key_heads as u64, "key head");
            let state = thousands(delta.state() as u64);
            line(
                f,
                "recurrence",
                &format!(
                    "{layers}, {heads} on {key_heads}; each remembers {state} numbers of a text"
                ),
            )?;
        }

        line(
            f,
            "attention",
            &format!(
                "{} on {}, {} wide, {}",
                counted(config.heads as u64, "head"),
                counted(config.kv_heads as u64, "key-value head"),
                config.head_dim,
                features(config)
            ),
        )?;
        if let Some(heads) = global_heads(config) {
            line(f, "", &heads)?;
        }
        if let Some(shared) = shared_kv(config) {
            line(f, "", &shared)?;
        }
        if let Some(sizes) = config.per_layer {
            let table = thousands((sizes.vocab_size * config.per_layer_width()) as u64);
            let each = format!("{} wide, of a table with {table} numbers", sizes.width);
            line(f, "per layer", &format!("an embedding for each layer, {each}"))?;
        }

        // Some families mix layers with a window and layers that see everything.
        let windows = config.kinds.iter().filter_map(|kind| kind.window);
        let window = windows.clone().next().map(|window| {
            let layers = windows.count();
            let see = if layers == 1 { "layer sees" } else { "layers see" };
            format!(", {layers} {see} only the last {window}")
        });

        let local = config.local_rope.as_ref();
        let local = local.map(|rope| format!(", {} in the layers with a window", rope.theta));
        let unrotated = config.kinds.iter().filter(|kind| kind.rope == RopeKind::None).count();
        let unrotated = (unrotated > 0).then(|| format!(", {unrotated} layers without rotation"));
        let scaling = scaling(&config.rope).map(|scaling| format!(", {scaling}"));

        line(
            f,
            "context",
            &format!(
                "{} tokens{}; rope theta {}{}{}{}",
                thousands(config.max_position_embeddings as u64),
                window.unwrap_or_default(),
                config.rope.theta,
                local.unwrap_or_default(),
                scaling.unwrap_or_default(),
                unrotated.unwrap_or_default()
            ),
        )?;

        let head = if config.tied { "the embedding" } else { "a matrix of its own" };
        let cap = config.logit_cap.map(|cap| format!(", logits are capped at {cap}"));
        line(
            f,
            "vocabulary",
            &format!(
                "{} rows; the head is {head}{}",
                thousands(config.vocab_size as u64),
                cap.unwrap_or_default()
            ),
        )?;
        line(f, "norm", &format!("epsilon {:e}", config.norm_epsilon))?;

        let count = config.parameters();
        let active = (count.active != count.total)
            .then(|| format!("; a token goes through {}", thousands(count.active)));
        line(
            f,
            "parameters",
            &format!(
                "{}: {} of the embedding{}, {} without{}",
                thousands(count.total),
                thousands(count.embedding),
                if config.tied { "" } else { " and the head" },
                thousands(count.total - count.embedding),
                active.unwrap_or_default()
            ),
        )
    }

    fn weights(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(inventory) = &self.inventory else { return Ok(()) };
        let dtype = match inventory.dtype() {
            _ if self.gguf || inventory.has_scales() => inventory.types(),
            None => "no weights".to_owned(),
            Some(dtype) => dtype.name().to_owned(),
        };

        line(
            f,
            "weights",
            &format!(
                "{} tensors, {dtype}, {} bytes",
                inventory.tensors.len(),
                thousands(inventory.bytes())
            ),
        )?;

        for (file, bytes) in self.files() {
            line(f, "", &format!("{file}: {} bytes", thousands(bytes)))?;
        }
        Ok(())
    }

    fn words(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(facts) = &self.tokenizer {
            let spelt = |tokens: &[(u32, String)]| {
                let tokens: Vec<String> =
                    tokens.iter().map(|(id, text)| format!("{id} {text:?}")).collect();
                tokens.join(", ")
            };

            line(f, "tokenizer", &format!("{} tokens", thousands(facts.tokens as u64)))?;
            line(f, "stops at", &spelt(&facts.stop))?;
            let bos =
                facts.bos.as_ref().map_or("none".into(), |bos| spelt(std::slice::from_ref(bos)));
            line(f, "bos, pad", &format!("{bos}; {}", spelt(std::slice::from_ref(&facts.pad))))?;

            let around = match facts.around_text.as_slice() {
                [] => "nothing".into(),
                around => spelt(around),
            };
            line(f, "adds to text", &around)?;
        }

        if let Some((source, variables)) = &self.template {
            line(f, "template", source)?;
            if !variables.is_empty() {
                line(f, "", &format!("takes {}", variables.join(", ")))?;
            }
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {name:<13} {}", printable(text))
}
