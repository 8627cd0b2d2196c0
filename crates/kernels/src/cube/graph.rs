//! What recordings are made with.

use super::{cubecl::client, *};

/// Recorded launches.
#[derive(Debug)]
pub(crate) struct Recording(client::Graph);

/// See [`crate::Graph::record`]: what the work made first, what it makes when it is repeated, and the launches.
pub(crate) fn record<R>(
    device: &Device,
    work: &mut dyn FnMut() -> R,
) -> Result<(R, R, Recording), String> {
    let client = any(&Tensor::<1>::empty([1], device)).client;
    client.graph_prepare().map_err(said)?;
    let first = work();
    client.start_capture().map_err(said)?;
    let made = work();
    let graph = client.stop_capture().map_err(said)?;
    Ok((first, made, Recording(graph)))
}

impl Recording {
    pub(crate) fn replay(&self) -> Result<(), String> {
        // SAFETY: every buffer that the launches touch is there. Those that they made are held beside the recording or were
        // given back to the graph's own pages, which nobody else gets while it lives; those that they were given are held
        // by whoever holds the graph. The process has one stream, so nothing runs beside a replay.
        #[allow(unsafe_code)]
        unsafe {
            self.0.replay().map_err(said)
        }
    }
}

fn said(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

pub(crate) fn overwrite(to: &Tensor<1>, from: &Tensor<1>) {
    rows::copy(any(from), &any(to));
}

pub(crate) fn overwrite_ints(to: &Tensor<1, Int>, from: &Tensor<1, Int>) {
    let (to, from) = (whole(to), whole(from));
    copy_ints::launch(
        &to.client.clone(),
        units(count(&from)),
        dim(),
        from.into_buffer_arg(),
        to.into_buffer_arg(),
    );
}

#[cube(launch)]
fn copy_ints(from: &[i32], to: &mut [i32]) {
    if ABSOLUTE_POS < from.len() {
        to[ABSOLUTE_POS] = from[ABSOLUTE_POS];
    }
}
