//! The recipes that come with Firebrick, as text. The program `firebrick` has them built in, so that it
//! needs no clone: `firebrick train quickstart`.
//!
//! ```
//! let quickstart = firebrick_recipes::find("quickstart").unwrap();
//! assert!(quickstart.text.contains("[model.new]"));
//! assert!(firebrick_recipes::find("quikstart").is_none());
//! ```

/// A recipe that comes with Firebrick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BuiltIn {
    /// Path of its file in the folder `recipes`, without the ending: `quickstart`, `ablation/5-dapo`.
    pub name: &'static str,
    /// A few words about the model and the task.
    pub about: &'static str,
    /// Recipe in TOML, with its comments.
    pub text: &'static str,
}

/// Finds the recipe of that name, which has neither the folder `recipes` nor an ending: the name of a file would
/// mean that file.
pub fn find(name: &str) -> Option<&'static BuiltIn> {
    ALL.iter().find(|recipe| recipe.name == name)
}

macro_rules! recipes {
    ($($name:literal: $about:literal,)*) => {
        &[$(BuiltIn {
            name: $name,
            about: $about,
            text: include_str!(concat!("../", $name, ".toml")),
        }),*]
    };
}

/// All recipes, with those that a newcomer runs first at the top.
pub const ALL: &[BuiltIn] = recipes! {
    "quickstart": "a new, tiny model learns to add; CPU, minutes",
    "guessing": "a new, tiny model learns a game of several turns; CPU, half a minute",
    "calculator": "a new, tiny model learns to multiply with a calculator; CPU, minutes",
    "functions": "a new, tiny model learns to write functions in Python, which are run in a sandbox; CPU, minutes",
    "smollm2-arithmetic": "a published model of 135 million parameters learns to add; CPU, 15 to 25 minutes",
    "smollm2-stories": "the same model learns to think stories through; CPU, two hours",
    "smollm2-distillation": "the same model learns to add from a teacher, itself after smollm2-arithmetic; CPU, minutes",
    "smollm2-judged": "the same model answers sums, and a larger model on a server judges them",
    "openenv": "the same model plays a game that an OpenEnv server holds; CPU",
    "gsm8k-tiny": "two steps that show whether a model and a file of GSM8K fit together; CPU",
    "gsm8k": "Qwen2.5-0.5B-Instruct on grade-school mathematics, both from the Hub; 12 GB",
    "cards/8gb": "GSM8K on 8 GB: adapters on a 1.5B model in 8 bits",
    "cards/12gb": "GSM8K on 12 GB: adapters on a 1.5B model",
    "cards/16gb": "GSM8K on 16 GB: adapters on a 3B model in 8 bits",
    "cards/24gb": "GSM8K on 24 GB: adapters on a 4B model in 8 bits",
    "cards/48gb": "GSM8K on 48 GB: adapters on a 4B model",
    "cards/80gb": "GSM8K on 80 GB: all weights of a 3B model",
    "dapo-math-17k": "the DAPO paper's task at the size of one GPU",
    "paper/dapo-24gb": "the paper's run scaled to a card with 24 GB: a 7B model in 4 bits, through adapters",
    "paper/dapo-80gb": "the paper's run scaled to a card with 80 GB: a 7B model through adapters",
    "paper/dapo-qwen2.5-32b": "the paper's run with its own numbers, to plan with and to compare",
    "ablation/0-grpo": "the paper's ladder on sums: naive GRPO",
    "ablation/1-overlong-filtering": "the ladder: with overlong filtering",
    "ablation/2-clip-higher": "the ladder: with Clip-Higher",
    "ablation/3-soft-overlong-punishment": "the ladder: with soft overlong punishment",
    "ablation/4-token-level-loss": "the ladder: with the token-level loss",
    "ablation/5-dapo": "the ladder: with dynamic sampling, which is DAPO",
    "variants/sampling-drop": "5-dapo, but filtered groups are not replaced",
    "variants/sampling-replace": "5-dapo, but copies of kept groups replace filtered ones",
    "variants/dapo-unfiltered": "5-dapo without overlong filtering, to compare PPO with",
    "variants/ppo": "PPO: a value head on the policy, and GAE",
    "variants/ppo-separate": "PPO with a critic of its own",
    "variants/adaptive-off": "5-dapo in smaller mini-batches, to compare adaptive updates with",
    "variants/adaptive": "as many updates of a mini-batch as its score suggests",
    "variants/adaptive-unguarded": "adaptive updates without the guard against collapse",
    "variants/dapo-few-prompts": "1000 prompts, many out of reach, to compare prompt memories with",
    "variants/curriculum-variance": "a curriculum by the variance of the last group",
    "variants/curriculum-posterior": "a curriculum that predicts which groups will have spread",
};

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// Every file is built in, except those of `ci`, which nobody learns from, and those of `failures`, most of which need
    /// the files next to them.
    #[test]
    fn the_list_is_the_folder() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut files = BTreeSet::new();

        for folder in ["", "ablation", "cards", "paper", "variants"] {
            for entry in fs::read_dir(root.join(folder)).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().replace('\\', "/");
                if let Some(name) = name.strip_suffix(".toml").filter(|name| *name != "Cargo") {
                    files.insert(name.to_owned());
                }
            }
        }

        let listed: BTreeSet<String> = ALL.iter().map(|recipe| recipe.name.to_owned()).collect();
        assert_eq!(listed, files);
        assert_eq!(find("paper/dapo-24gb").unwrap().name, "paper/dapo-24gb");
        assert!(find("quickstart.toml").is_none());
    }
}
