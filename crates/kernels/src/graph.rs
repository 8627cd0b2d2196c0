//! Recorded launches, which a device repeats as one.

use burn::tensor::{Device, Int, Tensor};

#[cfg(feature = "gpu")]
use crate::cube::graph as cube;

/// Launches that were recorded once and are sent to the device together, repeatedly, instead of one by one. CUDA and
/// HIP treat them as one launch; other kinds of device merely accept them faster.
///
/// Replays read and write the same buffers as the recording. So data that is passed from one replay to the next must be
/// [overwritten](overwrite), and results that must last must be copied before the next replay. During the recording, no
/// other thread may use the device, because its work would be recorded too.
#[derive(Debug)]
pub struct Graph<I, R> {
    #[cfg(feature = "gpu")]
    recording: cube::Recording,
    /// Inputs of the recorded work. Their buffers and those of `made` must not move.
    inputs: I,
    made: R,
}

impl<I, R> Graph<I, R> {
    /// Does `work` with `inputs` once, so that kernels are chosen and memory is allocated, and returns the result. Then
    /// it records the work a second time, without executing it. Inside `work`, nothing may be read from the device or
    /// sent to it.
    ///
    /// # Errors
    /// If the device has no graphs, or something in the work can't be recorded.
    pub fn record(
        device: &Device,
        inputs: I,
        mut work: impl FnMut(&I) -> R,
    ) -> Result<(R, Self), String> {
        #[cfg(feature = "gpu")]
        {
            let (first, made, recording) = cube::record(device, &mut || work(&inputs))?;
            Ok((first, Graph { recording, inputs, made }))
        }
        #[cfg(not(feature = "gpu"))]
        {
            let _ = (device, inputs, &mut work);
            Err("this build supports no GPU".to_owned())
        }
    }

    /// Sends the recorded launches to the device once more.
    ///
    /// # Errors
    /// If the device refuses them.
    pub fn replay(&self) -> Result<(), String> {
        #[cfg(feature = "gpu")]
        self.recording.replay()?;
        Ok(())
    }

    /// Returns the inputs of the recorded work.
    pub fn inputs(&self) -> &I {
        &self.inputs
    }

    /// Returns the recorded work's result, as the last replay left it.
    pub fn made(&self) -> &R {
        &self.made
    }
}

/// Writes numbers over others in place, on a GPU, even if their buffer is shared: this is how a [`Graph`] gets new
/// inputs.
///
/// # Panics
/// If the two have different lengths, or are not on a GPU.
pub fn overwrite(to: &Tensor<1>, from: &Tensor<1>) {
    assert_eq!(to.dims(), from.dims(), "as many numbers as there are");
    #[cfg(feature = "gpu")]
    cube::overwrite(to, from);
    let _ = (to, from);
}

/// Does [`overwrite`] for integers.
///
/// # Panics
/// As [`overwrite`].
pub fn overwrite_ints(to: &Tensor<1, Int>, from: &Tensor<1, Int>) {
    assert_eq!(to.dims(), from.dims(), "as many numbers as there are");
    #[cfg(feature = "gpu")]
    cube::overwrite_ints(to, from);
    let _ = (to, from);
}
