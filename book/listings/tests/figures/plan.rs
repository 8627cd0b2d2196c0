//! A plan of memory as bars: the moments of a step, and what they hold.

use std::{fmt::Write as _, fs, path::Path};

use firebrick::{
    Recipe,
    build::model_sizes,
    models::Compute,
    plan::{Moment, Plan},
    source::Sources,
};
use serde_json::json;

use super::figure::{Hue, line, open, text};

/// Groups of a plan's parts, by the beginnings of their names. Parts in no group are the rest.
const GROUPS: [(&str, Hue, &[&str]); 5] = [
    ("weights", Hue::Blue, &["weights"]),
    ("moments of AdamW", Hue::Purple, &["moments"]),
    ("gradient", Hue::Green, &["gradient"]),
    ("KV cache", Hue::Red, &["KV cache"]),
    ("kept of the layers", Hue::Orange, &["kept of the layers"]),
];
const REST: (&str, Hue) = ("the rest", Hue::Grey);

const LEFT: f64 = 84.0;
/// Pixels of a GiB.
const UNIT: f64 = 28.0;
const ROW: f64 = 34.0;

/// Draws the plan that the page on memory shows.
pub(super) fn svg() -> String {
    let plan = plan();
    let bottom = 40.0 + ROW * Moment::ALL.len() as f64;
    let mut svg = open("The memory of gsm8k at each moment of a step, in GiB", bottom + 36.0);

    for (row, moment) in Moment::ALL.into_iter().enumerate() {
        let y = 40.0 + ROW * row as f64;
        text(&mut svg, (LEFT - 8.0, y + 18.0), "end", moment.name());

        let mut x = LEFT;
        let groups = GROUPS.iter().map(|(name, hue, _)| (*name, *hue)).chain([REST]);
        for (name, hue) in groups {
            let width = UNIT * gibibytes(&plan, name, moment);
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"{width:.1}\" height=\"24\" fill=\"{}\"/>",
                y + 2.0,
                hue.ink()
            );
            x += width;
        }

        let sum = plan.sum(moment) as f64 / f64::from(1 << 30);
        text(&mut svg, (x + 6.0, y + 18.0), "start", &format!("{sum:.1}"));
    }

    for gibibytes in [0, 5, 10, 15] {
        let x = LEFT + UNIT * f64::from(gibibytes);
        line(&mut svg, (x, 40.0), (x, bottom), 0.25);
        text(&mut svg, (x, bottom + 18.0), "middle", &gibibytes.to_string());
    }

    let names = GROUPS.iter().map(|(name, hue, _)| (*name, *hue)).chain([REST]);
    for (row, (name, hue)) in names.enumerate() {
        let y = 52.0 + 24.0 * row as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"560\" y=\"{:.1}\" width=\"14\" height=\"14\" fill=\"{}\"/>",
            y - 7.0,
            hue.ink()
        );
        text(&mut svg, (582.0, y + 4.5), "start", name);
    }

    svg + "</svg>\n"
}

/// Adds up the parts of a group at a moment.
fn gibibytes(plan: &Plan, group: &str, moment: Moment) -> f64 {
    let of = |part: &str| {
        let starts =
            |(_, _, names): &&(&str, Hue, &[&str])| names.iter().any(|name| part.starts_with(name));
        GROUPS.iter().find(starts).map_or(REST.0, |(name, ..)| *name)
    };
    let parts = plan.parts.iter().filter(|part| of(part.name) == group);
    parts.map(|part| part.bytes[moment as usize]).sum::<u64>() as f64 / f64::from(1 << 30)
}

/// Plans the recipe `gsm8k` for Qwen2.5-0.5B's shape and 22 GiB, as the command on the page does.
fn plan() -> Plan {
    let folder = tempfile::tempdir().unwrap();
    let config = json!({
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 896, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864, "vocab_size": 151_936,
        "max_position_embeddings": 32_768, "rms_norm_eps": 1e-6, "rope_theta": 1e6, "tie_word_embeddings": true,
    });
    fs::write(folder.path().join("config.json"), config.to_string()).unwrap();

    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/gsm8k.toml");
    let set = [
        format!("model.path={}", folder.path().display()),
        "train.micro_batch_tokens=4096".to_owned(),
    ];

    let recipe = Recipe::load(&path, &set).unwrap().recipe;
    let models = model_sizes(&recipe, &Sources::here()).unwrap();
    Plan::new(&models, &recipe, Compute::F32, Some(22 << 30))
}
