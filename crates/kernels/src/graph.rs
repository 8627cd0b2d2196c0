use burn::tensor::{Device, Int, Tensor};

#[cfg(feature = "gpu")]
use crate::cube::graph as cube;

/// Launches that were recorded once and are given to the device together, again and again, instead of one by one: CUDA and
/// HIP take them as one, other kinds of device take them faster.
///
/// They read and write the very buffers of the recording. So what goes from one replay to the next has to be
/// [overwritten](Graph::overwrite), and what is to last has to be [copied out](Graph::copied).
#[derive(Debug)]
pub struct Graph<R> {
    #[cfg(feature = "gpu")]
    recording: cube::Recording,
    /// What the recorded work gave, whose buffers must stay where they are.
    made: R,
}

impl<R> Graph<R> {
    /// Does `work` once, so that kernels are chosen and memory is there, and gives what it made; and records it a second time,
    /// which does nothing yet. Inside nothing may be read, nor sent to the device.
    ///
    /// # Errors
    /// When the device has no graphs, or something in the work can't be recorded.
    pub fn record(device: &Device, mut work: impl FnMut() -> R) -> Result<(R, Self), String> {
        #[cfg(feature = "gpu")]
        {
            let (first, made, recording) = cube::record(device, &mut work)?;
            Ok((first, Graph { recording, made }))
        }
        #[cfg(not(feature = "gpu"))]
        {
            let _ = (device, &mut work);
            Err("this build has no kind of GPU".to_owned())
        }
    }

    /// Gives the recorded launches to the device once more.
    ///
    /// # Errors
    /// When the device refuses them.
    pub fn replay(&self) -> Result<(), String> {
        #[cfg(feature = "gpu")]
        self.recording.replay()?;
        Ok(())
    }

    /// What the recorded work gave: it has what the last replay made of it.
    pub fn made(&self) -> &R {
        &self.made
    }
}

/// Writes numbers where others are, whoever else holds them: what a [`Graph`] reads.
pub fn overwrite(to: &Tensor<1>, from: &Tensor<1>) {
    #[cfg(feature = "gpu")]
    cube::overwrite(to, from);
    let _ = (to, from);
}

/// [`overwrite`] of whole numbers.
pub fn overwrite_ints(to: &Tensor<1, Int>, from: &Tensor<1, Int>) {
    #[cfg(feature = "gpu")]
    cube::overwrite_ints(to, from);
    let _ = (to, from);
}
