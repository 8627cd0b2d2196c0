use firebrick_core::{Completion, Group, Seed};

use crate::{GroupRequest, RolloutEngine, RolloutError, Sampling};

/// Writes what a function says: the engine of tests that are not about sampling.
pub struct ScriptedEngine<F>(pub F);

impl<M, F> RolloutEngine<M> for ScriptedEngine<F>
where
    F: FnMut(&GroupRequest, usize) -> Completion,
{
    fn generate(
        &mut self,
        requests: &[GroupRequest],
        _: &Sampling,
        _: Seed,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<Group>, RolloutError> {
        let group = |request: &GroupRequest| {
            finished(request.group_size);
            Group {
                prompt: request.prompt.clone(),
                completions: (0..request.group_size)
                    .map(|index| (self.0)(request, index))
                    .collect(),
                step: 0,
                draw: request.draw,
            }
        };
        Ok(requests.iter().map(group).collect())
    }

    fn publish(&mut self, _: &M) -> Result<(), RolloutError> {
        Ok(())
    }
}
