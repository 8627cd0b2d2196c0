//! Parts that the `config.json` files of all families share. There are two layouts: transformers 4 has `rope_theta`,
//! `rope_scaling` and `torch_dtype` next to the sizes, while transformers 5 has `rope_parameters`, `dtype` and
//! `layer_types`.

use firebrick_core::config::Family;
use serde_json::{Value, json};

use crate::{
    config::{DecoderConfig, Sizes},
    fields::{ConfigError, Fields, not_implemented},
    layer_types,
    rope::Rope,
};

/// What a family's class in transformers assumes if `config.json` does not say it.
pub(crate) struct Defaults {
    pub(crate) vocab_size: Option<usize>,
    pub(crate) heads: Option<usize>,
    pub(crate) kv_heads: Option<usize>,
    pub(crate) head_dim: Option<usize>,
    pub(crate) max_position_embeddings: usize,
    pub(crate) tied: bool,
    pub(crate) rope_theta: f64,
    pub(crate) norm_epsilon: f64,
    /// Share of a head that is rotated.
    pub(crate) rotary_share: f64,
    /// True if the family can rotate a part of a head.
    pub(crate) partial_rotary: bool,
    /// Fields that may be null: of [`KV_HEADS`] and [`HEAD_DIM`]. A null then means that every query head has its own
    /// key head, or that the heads share the width of the residual stream, whatever the family assumes if the file is
    /// silent.
    pub(crate) nulls: &'static [&'static str],
}

/// Field with the number of key heads.
pub(crate) const KV_HEADS: &str = "num_key_value_heads";

/// Field with the width of a head.
pub(crate) const HEAD_DIM: &str = "head_dim";

impl Defaults {
    /// Llama's defaults.
    pub(crate) const LLAMA: Defaults = Defaults {
        vocab_size: None,
        heads: None,
        kv_heads: None,
        head_dim: None,
        max_position_embeddings: 2048,
        tied: false,
        rope_theta: 10_000.0,
        norm_epsilon: 1e-6,
        rotary_share: 1.0,
        partial_rotary: false,
        nulls: &[KV_HEADS, HEAD_DIM],
    };
}

/// Reads the sizes, the frequencies and the norm's epsilon of a model of `family`. `shape` sets what the family computes
/// differently from Llama.
pub(crate) fn read(
    fields: &Fields,
    family: Family,
    shape: fn(&mut DecoderConfig),
    defaults: Defaults,
) -> Result<DecoderConfig, ConfigError> {
    let value = |name: &str| fields.0.get(name).filter(|value| !value.is_null());
    quantised(value("quantization_config"))?;
    // Some layers have sizes of their own.
    if value("per_layer_config").is_some_and(|sizes| *sizes != json!({})) {
        return Err(not_implemented("per_layer_config"));
    }

    let max_position_embeddings =
        fields.size_or("max_position_embeddings", defaults.max_position_embeddings)?;
    let default_rope = (defaults.rope_theta, defaults.rotary_share);
    let rope = match family {
        // The layers of these families have two ropes, which the families read themselves.
        Family::Gemma3 | Family::Gemma4 | Family::Olmo3 => Rope::new(defaults.rope_theta),
        _ => Rope::read(fields, max_position_embeddings, default_rope)?,
    };
    if rope.share != 1.0 && !defaults.partial_rotary {
        return Err(not_implemented("partial_rotary_factor"));
    }

    let sizes = sizes(fields, &defaults, max_position_embeddings, rope.theta)?;
    layer_types::listed(fields, family, sizes.layers)?;
    let mut config = DecoderConfig::llama_like(family, sizes);
    shape(&mut config);
    config.rope = rope;
    config.norm_epsilon = fields.number_or("rms_norm_eps", defaults.norm_epsilon)?;
    Ok(config)
}

/// Refuses weights that were quantised in a way that is not read here. Those that are read say by their types what they
/// are.
fn quantised(config: Option<&Value>) -> Result<(), ConfigError> {
    let Some(config) = config else { return Ok(()) };
    let method = config.get("quant_method").and_then(Value::as_str);
    let block = config.get("weight_block_size").filter(|block| !block.is_null());
    let read = match method {
        Some("mxfp4") => true,
        Some("fp8") => block.is_none_or(|block| *block == json!([128, 128])),
        _ => false,
    };
    if read {
        return Ok(());
    }

    let blocks = block.map_or(String::new(), |block| format!(" in blocks of {block}"));
    Err(ConfigError::Size(format!(
        "quantization_config says that the weights are quantised by {:?}{blocks}; expected mxfp4, or fp8 in blocks of \
         [128,128]: use a checkpoint of the model in bfloat16, or a GGUF file",
        method.unwrap_or("an unknown method")
    )))
}

fn sizes(
    fields: &Fields,
    defaults: &Defaults,
    max_position_embeddings: usize,
    rope_theta: f64,
) -> Result<Sizes, ConfigError> {
    let or = |name: &str, default: Option<usize>| match default {
        Some(default) => fields.size_or(name, default),
        None => fields.size(name),
    };

    let layers = fields.size("num_hidden_layers")?;
    if layers > 1 << 16 {
        return Err(ConfigError::Size(format!(
            "num_hidden_layers is {layers}; expected 1 to 65536"
        )));
    }

    let heads = or("num_attention_heads", defaults.heads)?;
    let hidden_size = fields.size("hidden_size")?;
    let shared = hidden_size / heads.max(1);

    let or_null = |name: &str, null: usize, default: usize| match fields.0.get(name) {
        Some(Value::Null) if defaults.nulls.contains(&name) => Ok(null),
        _ => fields.size_or(name, default),
    };

    Ok(Sizes {
        vocab_size: or("vocab_size", defaults.vocab_size)?,
        hidden_size,
        layers,
        heads,
        kv_heads: or_null(KV_HEADS, heads, defaults.kv_heads.unwrap_or(heads))?,
        head_dim: or_null(HEAD_DIM, shared, defaults.head_dim.unwrap_or(shared))?,
        intermediate_size: fields.size("intermediate_size")?,
        max_position_embeddings,
        rope_theta,
        tied: fields.flag_or("tie_word_embeddings", defaults.tied)?,
    })
}

/// Refuses any activation that is not in `known`. Most families read `hidden_act`.
pub(crate) fn activation(fields: &Fields, known: &[&str]) -> Result<(), ConfigError> {
    activation_in(fields, "hidden_act", known)
}

/// Refuses any activation that is not in `known`, in a family that reads the field `name`. The other one of the two
/// fields is checked too, because the weights may have been made with either.
pub(crate) fn activation_in(
    fields: &Fields,
    name: &str,
    known: &[&str],
) -> Result<(), ConfigError> {
    for field in ["hidden_act", "hidden_activation"] {
        let is_given = match fields.0.get(field) {
            // A null in the field that the family reads is an error of its type, which `text` reports.
            Some(Value::Null) => field == name,
            value => value.is_some(),
        };
        if is_given && !known.contains(&fields.text(field)?) {
            return Err(not_implemented(&format!("{field} = {:?}", fields.text(field)?)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{family::needed, rope::RopeScaling};

    fn config(family: Family, own: Value) -> DecoderConfig {
        read(family, own).unwrap()
    }

    fn read(family: Family, own: Value) -> Result<DecoderConfig, ConfigError> {
        let mut fields = json!({
            "model_type": family.model_type(),
            "hidden_size": 32,
            "intermediate_size": 8,
            "num_attention_heads": 16,
            "num_hidden_layers": 2,
            "vocab_size": 9,
        });

        let fields = fields.as_object_mut().unwrap();
        for more in [needed(family, 2), own] {
            fields.extend(more.as_object().unwrap().clone());
        }
        DecoderConfig::from_json(fields)
    }

    #[test]
    fn the_older_rope_field_counts_unless_it_is_empty() {
        let scaled = json!({"type": "llama3", "factor": 2, "low_freq_factor": 1,
            "high_freq_factor": 4, "original_max_position_embeddings": 16});
        let newer = json!({"rope_type": "default", "rope_theta": 7.0});
        let rope = |older: &Value| {
            let both = json!({"rope_scaling": older, "rope_parameters": newer, "rope_theta": 5.0});
            config(Family::Llama, both).rope
        };

        let older = rope(&scaled);
        assert_eq!(older.theta, 5.0);
        assert!(matches!(older.scaling, RopeScaling::Llama3(scaling) if scaling.factor == 2.0));

        for empty in [json!({}), Value::Null] {
            assert_eq!(rope(&empty), Rope::new(7.0));
        }
    }

    #[test]
    fn quantised_weights_are_refused_by_name() {
        let refused = |quantised: Value| {
            let own = json!({"quantization_config": quantised, KV_HEADS: 4});
            read(Family::Qwen2, own).err().map(|error| error.to_string())
        };
        for (quantised, words) in [
            (json!({"quant_method": "gptq", "bits": 4}), "by \"gptq\"; expected mxfp4, or fp8"),
            (json!({"load_in_4bit": true}), "by \"an unknown method\""),
            (json!({"quant_method": "fp8", "weight_block_size": [64, 64]}), "in blocks of [64,64]"),
        ] {
            let error = refused(quantised).unwrap();
            assert!(error.contains(words), "{error}");
        }

        for quantised in [
            Value::Null,
            json!({"quant_method": "mxfp4"}),
            json!({"quant_method": "fp8", "weight_block_size": [128, 128]}),
            json!({"quant_method": "fp8", "weight_block_size": null}),
        ] {
            assert_eq!(refused(quantised), None);
        }
    }

    #[test]
    fn a_null_and_a_missing_number_of_key_heads_are_two_things() {
        for (family, silent) in [(Family::Qwen2, 32), (Family::SmolLm3, 4), (Family::Llama, 16)] {
            let given = json!({"num_attention_heads": 32, "hidden_size": 64});
            let silent = if family == Family::Llama { 32 } else { silent };
            assert_eq!(config(family, given.clone()).kv_heads, silent);
            let mut null = given;
            null["num_key_value_heads"] = Value::Null;
            assert_eq!(config(family, null).kv_heads, 32);
        }
    }

    /// Expects an error for a model that transformers 5.23 refuses, or fails to run.
    fn refused(family: Family, own: Value, words: &str) {
        let error = read(family, own.clone()).expect_err(&own.to_string()).to_string();
        assert!(error.contains(words), "{own}: {words:?} is not in: {error}");
    }

    #[test]
    fn a_null_is_no_default() {
        for family in
            [Family::Mistral, Family::Qwen3Moe, Family::Qwen35, Family::Gemma, Family::Gemma3]
        {
            refused(family, json!({KV_HEADS: null}), "\"num_key_value_heads\" should be a whole");
        }

        for family in Family::ALL {
            let null = json!({HEAD_DIM: null, KV_HEADS: 4});
            match family {
                Family::Llama
                | Family::Mistral
                | Family::Mixtral
                | Family::SeedOss
                | Family::Arcee
                | Family::Ernie45 => assert_eq!(config(family, null).head_dim, 2),
                _ => refused(family, null, "\"head_dim\" should be a whole number, but is null"),
            }
            // Gemma 4 has no such field.
            if family != Family::Gemma4 {
                refused(family, json!({"rope_theta": null}), "\"rope_theta\" should be a number");
            }
            let epsilon = if family == Family::Lfm2 { "norm_eps" } else { "rms_norm_eps" };
            let words = format!("{epsilon:?} should be a number");
            refused(family, json!({epsilon: null}), &words);
            refused(family, json!({"tie_word_embeddings": null}), "but is null");
        }

        for family in [Family::Qwen3, Family::Llama, Family::Olmo2, Family::SmolLm3] {
            refused(family, json!({"attention_bias": null}), "\"attention_bias\" should be true");
        }
        // A number beyond float32 would be 0 or infinite where it is used, and the model would still write text.
        for (epsilon, words) in [
            (1e300, "should be a number that float32 can hold"),
            (1e-50, "should be a number that float32 can hold"),
            (
                1e20,
                "rms_norm_eps is 100000000000000000000; expected a number above 0 and at most 1",
            ),
        ] {
            refused(Family::Llama, json!({"rms_norm_eps": epsilon}), words);
        }

        refused(
            Family::Qwen3,
            json!({"rope_theta": 1e39}),
            "should be a number that float32 can hold",
        );
        refused(Family::Gemma3, json!({"query_pre_attn_scalar": 24.5}), "should be a whole number");
        refused(Family::Llama, json!({"hidden_act": null}), "\"hidden_act\" should be a text");
        refused(
            Family::Gemma3,
            json!({"hidden_activation": null}),
            "should be a text, but is null",
        );

        let other = json!({"hidden_act": null, "hidden_activation": "gelu_pytorch_tanh"});
        config(Family::Gemma3, other);
    }

    #[test]
    fn sizes_that_some_layers_have_for_themselves_are_refused() {
        for family in Family::ALL {
            // Gemma 4 has some, which are tested with it.
            if family != Family::Gemma4 {
                let own = json!({"per_layer_config": {"1": {"num_key_value_heads": 2}}});
                refused(family, own, "per_layer_config is not implemented");
            }
            config(family, json!({"per_layer_config": {}, KV_HEADS: 4}));
        }
    }

    #[test]
    fn heads_share_the_residual_stream_in_the_families_that_ask_for_it() {
        let own = json!({"num_attention_heads": 3, KV_HEADS: 3, HEAD_DIM: 16});
        for family in [Family::Llama, Family::Gemma3] {
            refused(family, own.clone(), "hidden_size is 32, which 3 attention heads cannot share");
        }
        for family in [Family::Qwen2, Family::Mistral, Family::Olmo3, Family::Gemma] {
            assert_eq!(config(family, own.clone()).head_dim, 16);
        }
        let own = json!({"num_attention_heads": 4, KV_HEADS: 3});
        refused(Family::Qwen2, own, "4 attention heads cannot share 3 key-value heads");
    }

    #[test]
    fn ropes_by_layer_type_are_for_families_that_have_two() {
        let nested = json!({"rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 9e3},
            "sliding_attention": {"rope_type": "default", "rope_theta": 3e3},
        }, KV_HEADS: 4});
        for family in Family::ALL {
            match family {
                Family::Gemma3 | Family::Gemma4 | Family::Olmo3 => {
                    let config = config(family, nested.clone());
                    let theta = config.local_rope.map(|rope| rope.theta);
                    assert_eq!((config.rope.theta, theta), (9e3, Some(3e3)));
                }
                _ => refused(family, nested.clone(), "rope_parameters has an entry \"full_att"),
            }
        }

        // An older field is added to the rope of layers that see everything, which has to be there.
        let older = json!({"rope_type": "linear", "factor": 2.0});
        for newer in [json!({"rope_type": "default"}), json!({"full_attention": null})] {
            let both = json!({"rope_scaling": older, "rope_parameters": newer, KV_HEADS: 4});
            refused(Family::Olmo3, both, "which rope_parameters does not have");
        }

        let unread = json!({"rope_scaling": {"type": "linear", "factor": 2.0}, KV_HEADS: 4});
        for family in [Family::Gemma3, Family::Olmo3] {
            refused(family, unread.clone(), "\"rope_type\" should be there");
        }

        let newer = json!({"full_attention": {"rope_theta": 9e3}});
        let both = json!({"rope_scaling": older, "rope_parameters": newer, KV_HEADS: 4});
        let rope = config(Family::Gemma3, both).rope;
        assert_eq!((rope.theta, rope.scaling), (9e3, RopeScaling::Linear { factor: 2.0 }));
    }

    #[test]
    fn a_scaling_needs_what_transformers_needs() {
        let yarn = |own: Value| {
            let mut yarn = json!({"rope_type": "yarn", "original_max_position_embeddings": 16});
            yarn.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            json!({"rope_scaling": yarn, "max_position_embeddings": 64, KV_HEADS: 4})
        };

        refused(Family::Llama, yarn(json!({})), "\"factor\" should be a number, but is missing");
        let null = yarn(json!({"factor": null, "truncate": null}));
        let RopeScaling::Yarn(read) = config(Family::Llama, null).rope.scaling else {
            panic!("no yarn")
        };
        assert_eq!((read.factor, read.truncate), (4.0, false));

        // In a family with two ropes, transformers looks for the field next to them.
        let inside = yarn(json!({"factor": 4, "truncate": false}));
        let RopeScaling::Yarn(read) = config(Family::Olmo3, inside).rope.scaling else {
            panic!("no yarn")
        };
        assert!(read.truncate);

        let linear = json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0}});
        refused(Family::Phi3, linear, "a rope scaling other than longrope is not implemented");

        let factors = json!([1.0, 1.0, 1.0, 1.0]);
        let long = json!({"type": "longrope", "short_factor": factors, "long_factor": factors});
        let wide = json!({"rope_scaling": long, HEAD_DIM: 8});
        refused(Family::Phi3, wide, "head_dim is 8; expected 2");
    }

    #[test]
    fn the_second_name_of_the_number_of_experts_counts() {
        let experts = |own: Value| config(Family::Qwen3Moe, own).experts.map(|it| it.count);

        let both = json!({"num_experts": 16, "num_local_experts": 8});
        assert_eq!(experts(both), Some(8));
        assert_eq!(experts(json!({"num_experts": 16})), Some(16));
        assert_eq!(experts(json!({})), Some(128));

        refused(
            Family::Qwen3Moe,
            json!({"num_local_experts": null}),
            "\"num_local_experts\" should",
        );
    }
}
