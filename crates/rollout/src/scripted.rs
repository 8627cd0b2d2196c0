//! The engine `ScriptedEngine`, which gives written completions to tests.

use firebrick_core::{Completion, Group};

use crate::{GroupRequest, RequestId, RolloutEngine, RolloutError, Wait};

/// Returns the completions that a function makes for a request and an index in its group: the engine of tests that are
/// not about sampling. Groups are returned one at a time, the newest request first, because no caller may rely on
/// another order.
pub struct ScriptedEngine<F> {
    says: F,
    asked: Vec<GroupRequest>,
}

impl<F> ScriptedEngine<F>
where
    F: FnMut(&GroupRequest, usize) -> Completion + Send,
{
    /// Makes an engine that has nothing in flight.
    pub fn new(says: F) -> Self {
        ScriptedEngine { says, asked: Vec::new() }
    }
}

impl<M, F> RolloutEngine<M> for ScriptedEngine<F>
where
    F: FnMut(&GroupRequest, usize) -> Completion + Send,
{
    fn publish(&mut self, _: &M, _: u64) -> Result<(), RolloutError> {
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.asked.extend(requests);
        Ok(())
    }

    fn poll(
        &mut self,
        _: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        let Some(request) = self.asked.pop() else { return Ok(Vec::new()) };
        let indices = 0..request.group_size;
        let completions = indices.map(|index| (self.says)(&request, index)).collect();
        finished(request.group_size);
        Ok(vec![request.into_group(completions)])
    }
}
