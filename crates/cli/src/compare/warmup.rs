//! Which runs of a comparison begin with the same warm-up.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use firebrick::recipe::{Advantage, Critic, Loss, Observe, Overlong, Recipe, Sampling, Schedule};
use firebrick_core::Seed;
use rand::Rng as _;

/// Where in `out` each run keeps what its warm-up left, or finds what another's did; none for one
/// without a warm-up, or with one of its own.
///
/// An ablation changes what follows the warm-up, so that its recipes would all make the same steps again:
/// a resumed run goes on to the bit, so beginning after another's warm-up changes nothing but the time.
/// Only where the recipe alone says what it will be: files may be others the next time.
pub fn warmup_folders(recipes: &[&Recipe], out: &Path) -> Vec<Option<PathBuf>> {
    let keys: Vec<Option<String>> = recipes
        .iter()
        .map(|recipe| {
            let shares = recipe.warmup.steps > 0 && from_itself(recipe);
            shares.then(|| format!("{} {:?}", env!("CARGO_PKG_VERSION"), before_the_steps(recipe)))
        })
        .collect();
    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    keys.iter().flatten().for_each(|key| *shared.entry(key).or_default() += 1);
    let folder = |(key, recipe): (&Option<String>, &&Recipe)| {
        let key = key.as_ref().filter(|key| shared[key.as_str()] > 1)?;
        let digest = Seed::run(0).derive(key, &[]).rng().next_u64();
        Some(out.join("warmups").join(format!("seed{}-{digest:016x}", recipe.seed)))
    };
    keys.iter().zip(recipes).map(folder).collect()
}

/// Whether model and problems follow from the recipe and no file.
fn from_itself(recipe: &Recipe) -> bool {
    let new = recipe.model.new.as_ref().filter(|new| new.tokenizer.is_none());
    new.is_some() && recipe.data.task.is_some()
}

/// The recipe without what only matters from the first step on. A key that is forgotten here costs a
/// warm-up; so what is not known to be of no influence stays.
fn before_the_steps(recipe: &Recipe) -> Recipe {
    let mut recipe = recipe.clone();
    recipe.name = None;
    recipe.observe = Observe::default();
    recipe.sampling = Sampling::default();
    recipe.advantage = Advantage::default();
    recipe.loss = Loss::default();
    // It is made when the first step begins.
    recipe.critic = Critic::default();
    let reward = &mut recipe.reward;
    (reward.overlong, reward.stop, reward.length) = (Overlong::default(), None, None);
    let optim = &mut recipe.optim;
    (optim.lr, optim.warmup_steps, optim.warmup_from_zero) = (0.0, 0, false);
    optim.schedule = Schedule::Constant;
    let train = &mut recipe.train;
    (train.steps, train.mini_batch, train.stop_at, train.adaptive) = (1, 1, None, None);
    train.epochs = None;
    (recipe.rollout.group_size, recipe.rollout.temperature) = (2, 1.0);
    (recipe.eval.every, recipe.checkpoint.every, recipe.checkpoint.keep) = (1, 1, 0);
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
        [warmup]
        steps = 5";

    #[test]
    fn recipes_that_differ_after_the_warm_up_share_it() {
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
            recipe(&["warmup.steps=0"]),
            recipe(&["seed=18", "train.steps=3"]),
        ];
        let folders = warmup_folders(&recipes.each_ref(), Path::new("out"));
        let [base, other] = [&folders[0], &folders[3]];
        assert!(base.is_some() && *base == folders[1] && *base == folders[2]);
        assert!(other.is_some() && *other == folders[7] && other != base);
        assert!(folders[4..7].iter().all(Option::is_none));
    }
}
