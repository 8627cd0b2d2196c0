//! Checks that products of a recipe's numbers, such as completions in a step, are not too large.

use super::Checks;
use crate::{NewModel, bounds};

impl Checks<'_> {
    /// Checks products of numbers, each of which is within its own bounds.
    pub(super) fn bounds(&mut self) {
        let recipe = self.recipe;
        self.completions(
            [
                ("sampling.prompts_per_step", recipe.sampling.prompts_per_step),
                ("rollout.group_size", recipe.rollout.group_size),
            ],
            "a step",
        );

        let data = &recipe.data;
        // A number of held-out prompts counts only where they are generated or split off.
        let split_off = data.heldout.is_none() && data.heldout_split.is_none();
        let prompts = match (recipe.eval.prompts, data.heldout_size) {
            (0, _) if !split_off => None, // A file's prompts are counted when it is read.
            (most, size) if split_off && (most == 0 || most > size) => {
                Some(("data.heldout_size", size))
            }
            (most, _) => Some(("eval.prompts", most)),
        };

        if let Some(prompts) = prompts {
            self.completions([prompts, ("eval.samples", recipe.eval.samples)], "an evaluation");
        }

        if let Some(model) = &recipe.model.new {
            self.parameters(model);
        }
    }

    /// Checks the number of completions that are kept at the same time.
    fn completions(&mut self, factors: [(&str, usize); 2], scope: &str) {
        let [(prompts, many), (each, samples)] = factors;
        let total = many as u128 * samples as u128;
        if total > u128::from(bounds::SIZE) {
            self.fail(
                &[each, prompts],
                format!(
                    "{prompts} × {each} is {many} × {samples} = {total}, expected at most {} \
                     completions in {scope}",
                    bounds::SIZE
                ),
                "too many to be kept",
                "lower one of the two",
            );
        }
    }

    /// Checks the number of values in the largest matrix and in the whole model. If the vocabulary is the
    /// tokenizer's, its matrices are not counted.
    fn parameters(&mut self, model: &NewModel) {
        let NewModel { hidden_size, layers, heads, kv_heads, intermediate_size, .. } = *model;
        let [hidden, layers, inner] = [hidden_size, layers, intermediate_size].map(|of| of as u128);
        let vocabulary = model.vocab_size.unwrap_or(0) as u128;

        // Gate and up are one matrix. A layer has queries and outputs, keys and values, and three more.
        let widest = hidden.max(2 * inner).max(vocabulary);
        let keys = hidden * kv_heads as u128 / heads as u128;
        let layer = hidden * (2 * hidden + 2 * keys + 3 * inner);
        let head = if model.tied { vocabulary } else { 2 * vocabulary };

        for (what, values, limit) in [
            ("a matrix", hidden * widest, bounds::MATRIX),
            ("a model", layers * layer + hidden * head, bounds::PARAMETERS),
        ] {
            if values > limit {
                self.fail(
                    &["model.new.hidden_size", "model.new"],
                    format!(
                        "the sizes of model.new make {what} of {values} values, expected at most \
                         {limit}"
                    ),
                    "too large",
                    "lower `hidden_size`, `layers`, `intermediate_size` or `vocab_size`",
                );
            }
        }
    }
}
