//! Recordings of launches on GPUs.

use super::{
    cubecl::client::{self, Client},
    *,
};

/// Recorded launches.
#[derive(Debug)]
pub(crate) struct Recording(client::Graph);

/// See [`crate::Graph::record`]. Returns the first result of the work, the result that replays change, and the
/// launches.
pub(crate) fn record<R>(
    device: &Device,
    work: &mut dyn FnMut() -> R,
) -> Result<(R, R, Recording), String> {
    let Some(Buffer { client, .. }) = buffer(&Tensor::<1>::empty([1], device)) else {
        return Err("this device records no launches".to_owned());
    };
    client.graph_prepare().map_err(said)?;

    // Ends the recording however the work ends, even by a panic. A device that still records can't be read.
    let mut open = Open(Some(client.clone()));

    let first = work();
    client.start_capture().map_err(said)?;
    let made = work();
    open.0 = None;
    let graph = client.stop_capture().map_err(said)?;
    Ok((first, made, Recording(graph)))
}

/// A recording that is not finished.
struct Open(Option<Client>);

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(client) = &self.0 {
            // The work failed before, so the recording is not needed.
            drop(client.stop_capture());
        }
    }
}

impl Recording {
    pub(crate) fn replay(&self) -> Result<(), String> {
        // SAFETY: every buffer that the launches touch exists. `Graph` holds the inputs and the results of the work.
        // The server guards all other memory, such as weights and pages of a cache, while the graph lives (`PageGuard`
        // of cubecl-server 0.12.0-pre.1), and the holder of the graph drops it before these change. The device crate
        // opens one stream for the process, so nothing runs next to a replay.
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
    let to = whole(to);
    let from = whole(from);
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
