use super::Checks;

impl Checks<'_> {
    /// What needs groups of several.
    pub(super) fn sampling(&mut self) {
        let (sampling, group_size) = (&self.recipe.sampling, self.recipe.rollout.group_size);
        if sampling.memory.is_some() && group_size == 1 {
            self.fail(
                &["sampling.memory", "rollout.group_size"],
                "sampling.memory is set, expected only with rollout.group_size above 1".into(),
                "would skip every prompt",
                "it predicts which groups have no spread, and a group of one never has: remove it, or \
                 sample more completions per prompt",
            );
        }
    }
}
