//! Gemma 4, the text models without experts. Around their sublayers they look like Gemma 3, although norms multiply by
//! their weights alone. Layers that see everything have wider heads, whose values may be the keys, and rotate a quarter
//! of their pairs. Values are normalised, scores are not divided, and a number scales the output of each layer.
//!
//! In the small models, E2B and E4B, each layer adds an embedding of its own, and the last layers, whose MLPs may be
//! twice as wide, attend to keys and values of earlier ones.

use std::collections::BTreeMap;

use firebrick_core::config::Family;
use firebrick_kernels::Activation;
use serde_json::{Map, Value, json};

use crate::{
    config::{
        Biases, DecoderConfig, GlobalHeads, KvSharing, LayerNorms, PerLayerSizes, QkNorm, RopeKind,
    },
    fields::{ConfigError, Fields, not_implemented},
    layer_types,
    layout::{self, Defaults, HEAD_DIM, KV_HEADS},
    rope::{Rope, RopeScaling},
};

/// Field with the sizes that some layers have for themselves, as transformers writes them.
const BY_LAYER: &str = "per_layer_config";

/// Field with the width of a layer's own embedding, or 0.
const PER_LAYER: &str = "hidden_size_per_layer_input";

/// Field with the number of rows of the table of these embeddings.
const PER_LAYER_ROWS: &str = "vocab_size_per_layer_input";

/// Field with the number of layers without keys and values.
const SHARED: &str = "num_kv_shared_layers";

const DOUBLE_WIDE: &str = "use_double_wide_mlp";

const WINDOW: Option<usize> = Some(512);

/// Returns the ropes of layers that see everything and of layers with a window.
fn ropes() -> [Rope; 2] {
    let scaling = RopeScaling::Proportional { factor: 1.0 };
    [Rope { theta: 1_000_000.0, share: 0.25, scaling }, Rope::new(10_000.0)]
}

/// Sets the parts in which the family differs from Llama. As in the published models, the global heads of a new model
/// are twice as wide as the others.
pub(crate) fn shape(config: &mut DecoderConfig) {
    config.embedding_scale = (config.hidden_size as f64).sqrt();
    config.activation = Activation::GeluTanh;
    config.norms = LayerNorms::Both;
    config.qk_norm = QkNorm::Heads;
    config.value_norm = true;
    config.layer_scale = true;
    // Attention divides by √head_dim, and the family by nothing.
    config.query_scale = (config.head_dim as f64).sqrt();
    let [rope, local] = ropes();
    config.rope = rope;
    config.local_rope = Some(local);
    config.global_heads = Some(GlobalHeads {
        kv_heads: config.kv_heads,
        head_dim: config.head_dim.saturating_mul(2),
        values_are_keys: true,
    });

    let layers = config.layers;
    slide(config, WINDOW, |layer| slides(layer, layers));
}

/// Tells whether a layer slides if the file does not say it. The last one never does.
fn slides(layer: usize, layers: usize) -> bool {
    !(layer + 1).is_multiple_of(6) && layer + 1 != layers
}

/// Sets a window in the layers that `sliding` selects, and global heads in the others.
fn slide(config: &mut DecoderConfig, window: Option<usize>, sliding: impl Fn(usize) -> bool) {
    layer_types::slide(config, window, sliding);
    for kind in &mut config.kinds {
        kind.global = kind.rope == RopeKind::Rope;
    }
}

pub(crate) fn read(fields: &Fields) -> Result<DecoderConfig, ConfigError> {
    let defaults = Defaults {
        vocab_size: Some(262_144),
        heads: Some(8),
        kv_heads: Some(4),
        head_dim: Some(256),
        max_position_embeddings: 131_072,
        tied: true,
        nulls: &[],
        ..Defaults::LLAMA
    };
    // All families but this one refuse the field.
    let mut others = fields.0.clone();
    others.remove(BY_LAYER);
    let mut config = layout::read(&Fields(&others), Family::Gemma4, shape, defaults)?;
    layout::activation_in(fields, "hidden_activation", &["gelu_pytorch_tanh"])?;
    refuse_other_models(fields)?;

    let bias = fields.flag_or("attention_bias", false)?;
    config.biases = Biases { qkv: bias, output: bias, mlp: false };
    config.logit_cap = fields.optional("final_logit_softcapping", Fields::number)?;

    let layers = config.layers;
    let mut sliding = layer_types::sliding(fields, &config, |layer| slides(layer, layers))?;
    // Whatever the list says of the last layer, the class gives it full attention.
    if let Some(last) = sliding.last_mut() {
        *last = false;
    }
    let window = layer_types::window_of(fields, WINDOW, &sliding)?;
    slide(&mut config, window, |layer| sliding[layer]);
    config.global_heads = Some(global_heads(fields, &config, &sliding)?);

    config.per_layer = match fields.size_or(PER_LAYER, 256)? {
        0 => None,
        width => {
            Some(PerLayerSizes { vocab_size: fields.size_or(PER_LAYER_ROWS, 262_144)?, width })
        }
    };
    config.share_kv(fields.size_or(SHARED, 0)?);
    config.double_wide_mlp = fields.flag_or(DOUBLE_WIDE, false)?;

    let [rope, local] = Rope::read_nested(fields, config.max_position_embeddings, ropes())?;
    config.rope = rope;
    config.local_rope = Some(local);
    Ok(config)
}

/// Refuses what the class computes for another model of the family, that with experts.
fn refuse_other_models(fields: &Fields) -> Result<(), ConfigError> {
    const EXPERTS: &str = "enable_moe_block";
    if fields.flag_or(EXPERTS, false)? {
        return Err(not_implemented(EXPERTS));
    }

    // With "vision", tokens of a picture attend to later ones of it, and a text has none.
    let both_ways = fields.0.get("use_bidirectional_attention");
    if both_ways.is_some_and(|it| !it.is_null() && it != "vision") {
        return Err(not_implemented("use_bidirectional_attention"));
    }
    Ok(())
}

/// Reads the heads of layers that see everything. Published files have fields for them, while transformers 5 writes
/// what differs in each layer.
fn global_heads(
    fields: &Fields,
    config: &DecoderConfig,
    sliding: &[bool],
) -> Result<GlobalHeads, ConfigError> {
    let values_are_keys = fields.flag_or("attention_k_eq_v", false)?;
    let [kv_heads, head_dim] = match fields.0.get(BY_LAYER) {
        Some(by_layer) => heads_by_layer(by_layer, config, sliding)?,
        None => {
            // The class looks at this field only if values are keys.
            let own = fields.optional("num_global_key_value_heads", Fields::size)?;
            let kv_heads = own.filter(|_| values_are_keys).unwrap_or(config.kv_heads);
            [kv_heads, fields.size_or("global_head_dim", 512)?]
        }
    };
    Ok(GlobalHeads { kv_heads, head_dim, values_are_keys })
}

/// Returns the number of key heads and the width of a head that all layers without a window have. What `by_layer` does
/// not say of a layer is as in the other layers.
fn heads_by_layer(
    by_layer: &Value,
    config: &DecoderConfig,
    sliding: &[bool],
) -> Result<[usize; 2], ConfigError> {
    let unknown =
        || not_implemented(&format!("{BY_LAYER} with other sizes than those of global heads"));
    let none = Map::new();
    let by_layer = match by_layer {
        Value::Null => &none,
        other => other.as_object().ok_or_else(unknown)?,
    };

    // Numbers of layers may begin with zeros.
    let mut own: BTreeMap<usize, &Map<String, Value>> = BTreeMap::new();
    for (layer, sizes) in by_layer {
        let layer = layer.parse::<usize>().ok().filter(|layer| sliding.get(*layer) == Some(&false));
        let (layer, sizes) = layer.zip(sizes.as_object()).ok_or_else(unknown)?;
        if sizes.keys().any(|size| size != HEAD_DIM && size != KV_HEADS) {
            return Err(unknown());
        }
        own.insert(layer, sizes);
    }

    let mut all = Vec::new();
    for (layer, _) in sliding.iter().enumerate().filter(|(_, sliding)| !**sliding) {
        let sizes = Fields(own.get(&layer).copied().unwrap_or(&none));
        all.push([
            sizes.size_or(KV_HEADS, config.kv_heads)?,
            sizes.size_or(HEAD_DIM, config.head_dim)?,
        ]);
    }
    match all.first() {
        Some(first) if all.iter().all(|heads| heads == first) => Ok(*first),
        _ => Err(unknown()),
    }
}

pub(crate) fn write(config: &DecoderConfig) -> Value {
    let rope = |rope: &Rope| {
        let mut fields = rope.scaling_to_json().unwrap_or(json!({ "rope_type": "default" }));
        fields["rope_theta"] = rope.theta.into();
        fields
    };
    let own = GlobalHeads {
        kv_heads: config.kv_heads,
        head_dim: config.head_dim,
        values_are_keys: false,
    };
    let global = config.global_heads.unwrap_or(own);
    let shared = config.kinds.iter().filter(|kind| kind.kv == KvSharing::Reuse).count();
    let rows = config.per_layer.map_or(config.vocab_size, |sizes| sizes.vocab_size);

    let mut fields = json!({
        "attention_bias": config.biases.qkv,
        "attention_k_eq_v": global.values_are_keys,
        "enable_moe_block": false,
        "final_logit_softcapping": config.logit_cap,
        "global_head_dim": global.head_dim,
        "hidden_act": null,
        "hidden_activation": "gelu_pytorch_tanh",
        PER_LAYER: config.per_layer.map_or(0, |sizes| sizes.width),
        "layer_types": layer_types::to_json(config),
        "num_global_key_value_heads": global.kv_heads,
        SHARED: shared,
        "rope_parameters": {
            "full_attention": rope(&config.rope),
            "sliding_attention": rope(config.local_rope.as_ref().unwrap_or(&config.rope)),
        },
        "sliding_window": config.window().or(WINDOW),
        DOUBLE_WIDE: config.double_wide_mlp,
        PER_LAYER_ROWS: rows,
    });

    // The class would not look at num_global_key_value_heads.
    if !global.values_are_keys && global.kv_heads != config.kv_heads {
        let own = json!({ HEAD_DIM: global.head_dim, KV_HEADS: global.kv_heads });
        let layers = config.kinds.iter().enumerate().filter(|(_, kind)| kind.global);
        let by_layer: Map<String, Value> =
            layers.map(|(layer, _)| (layer.to_string(), own.clone())).collect();
        fields[BY_LAYER] = by_layer.into();
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a model of four layers, of which the second and the last see everything.
    fn read(own: Value) -> Result<DecoderConfig, String> {
        let types = ["sliding_attention", "full_attention"].repeat(2);
        let mut fields = json!({
            "model_type": "gemma4_text",
            "attention_k_eq_v": true,
            "head_dim": 8,
            "hidden_size": 32,
            "hidden_size_per_layer_input": 0,
            "intermediate_size": 8,
            "layer_types": types,
            "num_attention_heads": 4,
            "num_hidden_layers": 4,
            "num_key_value_heads": 2,
            "vocab_size": 9,
        });
        let fields = fields.as_object_mut().unwrap();
        fields.extend(own.as_object().unwrap().clone());
        fields.retain(|_, value| *value != "absent");
        DecoderConfig::from_json(fields).map_err(|error| error.to_string())
    }

    fn heads(own: Value) -> [usize; 2] {
        let global = read(own).unwrap().global_heads.unwrap();
        [global.kv_heads, global.head_dim]
    }

    fn refused(own: Value, words: &str) {
        let error = read(own.clone()).expect_err(&own.to_string());
        assert!(error.contains(words), "{own}: {words:?} is not in: {error}");
    }

    #[test]
    fn sizes_of_global_heads_are_read_as_published_and_as_saved() {
        assert_eq!(heads(json!({})), [2, 512]);
        let published = json!({ "global_head_dim": 16, "num_global_key_value_heads": 1 });
        assert_eq!(heads(published), [1, 16]);
        let separate = json!({ "num_global_key_value_heads": 1, "attention_k_eq_v": false });
        assert_eq!(heads(separate), [2, 512]);

        // What is as in the other layers is left out.
        let own = json!({ HEAD_DIM: 16, KV_HEADS: 1 });
        assert_eq!(heads(json!({ BY_LAYER: { "01": own, "03": own } })), [1, 16]);
        let wide = json!({ HEAD_DIM: 16 });
        assert_eq!(heads(json!({ BY_LAYER: { "1": wide, "3": wide } })), [2, 16]);
        assert_eq!(heads(json!({ BY_LAYER: {} })), [2, 8]);

        let words = "per_layer_config with other sizes";
        for other in [
            json!({ "1": own, "3": wide }),
            json!({ "1": own }),
            json!({ "0": own }),
            json!({ "1": { "sliding_window": 8 }, "3": { "sliding_window": 8 } }),
        ] {
            refused(json!({ BY_LAYER: other }), words);
        }
    }

    /// Expects the sizes of the published model of 31 billion parameters to be no larger than is allowed.
    #[test]
    fn the_largest_model_is_small_enough() {
        let sizes = json!({
            "global_head_dim": 512,
            "head_dim": 256,
            "hidden_size": 5376,
            "intermediate_size": 21_504,
            "layer_types": "absent",
            "num_attention_heads": 32,
            "num_global_key_value_heads": 4,
            "num_hidden_layers": 60,
            "num_key_value_heads": 16,
            "vocab_size": 262_144,
        });
        let count = read(sizes).unwrap().parameters().total;
        assert!((30_600_000_000..30_800_000_000).contains(&count), "{count}");
    }

    #[test]
    fn the_last_layer_sees_everything() {
        let config = read(json!({ "layer_types": vec!["sliding_attention"; 4] })).unwrap();
        let windows: Vec<_> = config.kinds.iter().map(|kind| kind.window).collect();
        assert_eq!(windows, [Some(512), Some(512), Some(512), None]);
        assert!(config.kinds[3].global && !config.kinds[2].global);
    }

    #[test]
    fn models_with_other_parts_are_refused() {
        refused(json!({ "enable_moe_block": true }), "enable_moe_block");
        refused(json!({ "use_bidirectional_attention": "all" }), "use_bidirectional_attention");
        read(json!({ "use_bidirectional_attention": "vision" })).unwrap();
    }

    /// Expects the sizes of the published small models to make about as many parameters as they have.
    #[test]
    fn small_models_have_embeddings_per_layer_and_share_keys() {
        let small = |own: Value| {
            let mut sizes = json!({
                "attention_k_eq_v": false,
                "global_head_dim": 512,
                "head_dim": 256,
                "hidden_size_per_layer_input": "absent",
                "num_attention_heads": 8,
                "vocab_size": 262_144,
            });
            sizes.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            read(sizes).unwrap()
        };
        let types = |layers: usize, every: usize| -> Vec<&str> {
            let full = |layer: usize| (layer + 1).is_multiple_of(every);
            let kind = |layer| if full(layer) { "full_attention" } else { "sliding_attention" };
            (0..layers).map(kind).collect()
        };

        let e2b = small(json!({
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "layer_types": types(35, 5),
            "num_hidden_layers": 35,
            "num_key_value_heads": 1,
            "num_kv_shared_layers": 20,
            "use_double_wide_mlp": true,
        }));
        assert_eq!(e2b.per_layer, Some(PerLayerSizes { vocab_size: 262_144, width: 256 }));
        let count = e2b.parameters();
        assert!((4_600_000_000..4_700_000_000).contains(&count.total), "{count:?}");
        assert!((2_200_000_000..2_350_000_000).contains(&count.active), "{count:?}");

        let with = |wanted: KvSharing| -> Vec<usize> {
            let kinds = e2b.kinds.iter().enumerate();
            kinds.filter(|(_, kind)| kind.kv == wanted).map(|(layer, _)| layer).collect()
        };
        assert_eq!(with(KvSharing::Store), [13, 14]);
        assert_eq!(with(KvSharing::Reuse), (15..35).collect::<Vec<_>>());
        let widths = [14, 15].map(|layer| e2b.mlp_width(e2b.kinds[layer]));
        assert_eq!(widths, [6144, 2 * 6144]);

        let indices = e2b.cache_indices();
        assert_eq!(indices[..15], (0..15).collect::<Vec<_>>());
        assert_eq!(indices[15..20], [13, 13, 13, 13, 14]);
    }

    #[test]
    fn sharing_that_cannot_be_is_refused() {
        let types = |list: [&str; 4]| {
            let list = list.map(|it| format!("{it}_attention"));
            json!({ "layer_types": list, "num_kv_shared_layers": 2 })
        };
        read(types(["sliding", "full", "sliding", "full"])).unwrap();
        let words = "has no keys and values, and neither has an earlier layer";
        refused(types(["sliding", "sliding", "sliding", "full"]), words);
        refused(json!({ "num_kv_shared_layers": 4 }), words);
        refused(json!({ "num_kv_shared_layers": 400 }), words);

        let rows = json!({ "hidden_size_per_layer_input": 4, "vocab_size_per_layer_input": 8 });
        refused(rows, "vocab_size_per_layer_input is 8; expected vocab_size, 9, or more");
        let wide = json!({ "hidden_size_per_layer_input": 1 << 20 });
        refused(wide, "hidden_size_per_layer_input is 1048576; expected 1 to 65536");
    }

    #[test]
    fn both_ropes_have_to_say_their_base() {
        let ropes = |full: Value, sliding: Value| {
            let both = json!({ "full_attention": full, "sliding_attention": sliding });
            json!({ "rope_parameters": both })
        };
        let plain = json!({ "rope_type": "default", "rope_theta": 5.0 });
        let share = json!({
            "rope_type": "proportional",
            "rope_theta": 7.0,
            "partial_rotary_factor": 0.5,
        });

        let config = read(ropes(share.clone(), plain.clone())).unwrap();
        let scaling = RopeScaling::Proportional { factor: 1.0 };
        assert_eq!(config.rope, Rope { theta: 7.0, share: 0.5, scaling });
        assert_eq!(config.local_rope, Some(Rope::new(5.0)));

        let mut partly = plain.clone();
        partly["partial_rotary_factor"] = 0.5.into();
        refused(ropes(share.clone(), partly), "partial_rotary_factor is not implemented");
        refused(ropes(share.clone(), json!({})), "\"rope_parameters\" should be an object with");
        refused(ropes(json!({ "rope_type": "default" }), plain), "\"rope_theta\" should be");
        refused(json!({ "rope_scaling": share }), "rope_scaling is not implemented");
    }
}
