//! Submits requests to an engine and waits for all answers.

use std::collections::BTreeMap;

use firebrick_core::Group;

use crate::{GroupRequest, InFlight, RolloutEngine, RolloutError};

/// Submits `requests`, waits until all are answered, and returns the groups in the order of the requests. Nothing else
/// may be in flight.
///
/// Answers are checked, and lost work is submitted again, as in an [`InFlight`]. `finished` is called with the
/// number of completions that have ended since its last call, each of them once.
///
/// # Errors
/// Fails if a request asks for nothing or has the id of another, an answer does not fit its request, or the engine
/// fails. Everything in flight is then cancelled ([`RolloutEngine::cancel`]).
pub fn generate<M>(
    engine: &mut dyn RolloutEngine<M>,
    requests: Vec<GroupRequest>,
    finished: &mut dyn FnMut(usize),
) -> Result<Vec<Group>, RolloutError> {
    let order: Vec<_> = requests.iter().map(|request| request.id).collect();
    let mut in_flight = InFlight::default();
    in_flight.ask(requests)?;

    let mut groups = BTreeMap::new();
    while in_flight.open() > 0 {
        groups.extend(in_flight.fetch(engine, finished)?);
    }

    Ok(order.iter().filter_map(|id| groups.remove(id)).collect())
}
