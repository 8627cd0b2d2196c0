use burn::tensor::Device;

use super::{any, cubecl::client};

/// Launches that were recorded once and are given to the device together, again and again, instead of one by one: CUDA and
/// HIP take them as one, other kinds of device take them faster.
///
/// They read and write the very buffers of the recording. So what goes from one replay to the next has to be
/// [written in place](super::set), and what is to last has to be copied out.
#[derive(Debug)]
pub struct Graph<R> {
    graph: client::Graph,
    /// What the recorded work gave, whose buffers must stay where they are.
    made: R,
}

impl<R> Graph<R> {
    /// Does `work` once, so that kernels are chosen and memory is there, and records it a second time. Inside nothing may be
    /// read, nor sent to the device.
    ///
    /// # Errors
    /// When the device has no graphs, or something in the work can't be recorded.
    pub fn record(device: &Device, mut work: impl FnMut() -> R) -> Result<Self, String> {
        let said = |error: &dyn std::fmt::Debug| format!("{error:?}");
        let client = any(&burn::tensor::Tensor::<1>::empty([1], device)).client;
        client.graph_prepare().map_err(|error| said(&error))?;
        drop(work());
        client.start_capture().map_err(|error| said(&error))?;
        let made = work();
        let graph = client.stop_capture().map_err(|error| said(&error))?;
        Ok(Graph { graph, made })
    }

    /// Gives the recorded launches to the device once more.
    ///
    /// # Errors
    /// When the device refuses them.
    pub fn replay(&self) -> Result<(), String> {
        // SAFETY: every buffer that the launches touch is there. Those that they made are held by `made` or were given back
        // to the graph's own pages, which nobody else gets while it lives; those that they were given are held by the closure's owner, who
        // holds `self` too. The process has one stream, so nothing runs beside a replay.
        #[allow(unsafe_code)]
        unsafe {
            self.graph.replay().map_err(|error| format!("{error:?}"))
        }
    }

    /// What the recorded work gave: it has what the last replay made of it.
    pub fn made(&self) -> &R {
        &self.made
    }
}
