//! Finds the runs of a comparison that share their SFT.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use firebrick::recipe::{Advantage, Critic, Loss, Observe, Overlong, Recipe, Sampling, Schedule};
use firebrick_core::Seed;
use rand::Rng as _;

/// Returns for each run the folder in `out` that holds the state after its SFT, written by this run or by another;
/// `None` for a run without SFT, or with SFT that no other run has.
///
/// An ablation changes what follows SFT, so all its recipes would make the same SFT steps again. A
/// resumed run continues bit for bit, so beginning after another run's SFT changes nothing but the time. Runs
/// share SFT only if it follows from the recipe alone, because files may have changed by the next time.
pub fn sft_folders(recipes: &[&Recipe], out: &Path) -> Vec<Option<PathBuf>> {
    let keys: Vec<Option<String>> = recipes
        .iter()
        .map(|recipe| {
            let shares = recipe.sft.steps > 0 && from_itself(recipe);
            shares.then(|| format!("{} {:?}", env!("CARGO_PKG_VERSION"), before_the_steps(recipe)))
        })
        .collect();

    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    keys.iter().flatten().for_each(|key| *shared.entry(key).or_default() += 1);

    // A state that a single run would use is not worth a folder.
    let folder = |(key, recipe): (&Option<String>, &&Recipe)| {
        let key = key.as_ref().filter(|key| shared[key.as_str()] > 1)?;
        let digest = Seed::run(0).derive(key, &[]).rng().next_u64();
        Some(out.join("sft").join(format!("seed{}-{digest:016x}", recipe.seed)))
    };
    keys.iter().zip(recipes).map(folder).collect()
}

/// Returns whether the model, the problems and the examples follow from the recipe alone and from no file.
fn from_itself(recipe: &Recipe) -> bool {
    let new = recipe.model.new.as_ref().filter(|new| new.tokenizer.is_none());
    new.is_some() && recipe.data.task.is_some() && recipe.sft.data.is_none()
}

/// Returns the recipe without the keys that matter only once the first step begins. A key that is forgotten here costs
/// only another SFT phase, so every key stays that may have an influence on SFT.
fn before_the_steps(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    recipe.name = None;
    recipe.observe = Observe::default();
    recipe.sampling = Sampling::default();
    recipe.advantage = Advantage::default();
    recipe.loss = Loss::default();
    // The critic is made when the first step begins.
    recipe.critic = Critic::default();

    let reward = &mut recipe.reward;
    reward.overlong = Overlong::default();
    reward.stop = None;
    reward.length = None;

    let optim = &mut recipe.optim;
    optim.lr = Some(0.0);
    optim.warmup_steps = 0;
    optim.warmup_from_zero = false;
    optim.schedule = Schedule::Constant;

    let train = &mut recipe.train;
    train.steps = 1;
    train.mini_batch = 1;
    train.stop_at = None;
    train.adaptive = None;
    train.epochs = None;

    recipe.rollout.group_size = 2;
    recipe.rollout.temperature = 1.0;
    recipe.eval.every = 1;
    recipe.checkpoint.every = 1;
    recipe.checkpoint.keep = 0;
    recipe
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECIPE: &str = "
        [data]
        task = { kind = 'addition', digits = 1 }
        [model.new]
        hidden_size = 8
        layers = 1
        heads = 1
        kv_heads = 1
        intermediate_size = 8
        [rollout]
        max_completion_tokens = 6
        [sft]
        steps = 5";

    #[test]
    fn recipes_that_differ_after_sft_share_it() {
        let recipe = |set: &[&str]| {
            let set: Vec<String> = set.iter().map(|set| (*set).to_owned()).collect();
            Recipe::parse(Path::new("a.toml"), RECIPE, &set).unwrap().recipe
        };

        let recipes = [
            recipe(&[]),
            recipe(&["loss.clip_ratio_high=0.2", "reward.overlong.filter=true"]),
            recipe(&["optim.schedule=cosine"]),
            recipe(&["sampling.dynamic=false", "seed=18"]),
            recipe(&["optim.beta1=0.8"]),
            recipe(&["optim.kind=muon"]),
            recipe(&["sft.steps=0"]),
            recipe(&["seed=18", "train.steps=3"]),
            recipe(&["sft.data=rows.jsonl"]),
            recipe(&["sft.data=rows.jsonl", "train.steps=3"]),
        ];

        let folders = sft_folders(&recipes.each_ref(), Path::new("out"));
        let [base, other] = [&folders[0], &folders[3]];
        assert!(base.is_some() && *base == folders[1] && *base == folders[2]);
        assert!(other.is_some() && *other == folders[7] && other != base);
        assert!(folders[4..7].iter().all(Option::is_none));
        // A file may have changed by the next time.
        assert!(folders[8..].iter().all(Option::is_none));
    }
}
