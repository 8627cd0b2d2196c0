use burn::tensor::{Device, Int, Tensor};

#[cfg(feature = "gpu")]
use crate::cube::graph as cube;

/// Launches that were recorded once and are given to the device together, again and again, instead of one by one: CUDA and
/// HIP take them as one, other kinds of device take them faster.
///
/// They read and write the very buffers of the recording. So what goes from one replay to the next has to be
/// [overwritten](overwrite), and what is to last has to be copied before the next replay. While it is recorded, no other
/// thread may use the device: what it asks for would be recorded too.
#[derive(Debug)]
pub struct Graph<I, R> {
    #[cfg(feature = "gpu")]
    recording: cube::Recording,
    /// What the recorded work was given and what it gave, whose buffers must stay where they are.
    inputs: I,
    made: R,
}

impl<I, R> Graph<I, R> {
    /// Does `work` with `inputs` once, so that kernels are chosen and memory is there, and gives what it made; and records it a second time,
    /// which does nothing yet. Inside nothing may be read, nor sent to the device.
    ///
    /// # Errors
    /// When the device has no graphs, or something in the work can't be recorded.
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

    /// What the recorded work was given.
    pub fn inputs(&self) -> &I {
        &self.inputs
    }

    /// What the recorded work gave: it has what the last replay made of it.
    pub fn made(&self) -> &R {
        &self.made
    }
}

/// Writes numbers where others are, on a GPU, whoever else holds them: what a [`Graph`] reads.
///
/// # Panics
/// When they are not of one length, or on no GPU.
pub fn overwrite(to: &Tensor<1>, from: &Tensor<1>) {
    assert_eq!(to.dims(), from.dims(), "as many numbers as there are");
    #[cfg(feature = "gpu")]
    cube::overwrite(to, from);
    let _ = (to, from);
}

/// [`overwrite`] of whole numbers.
///
/// # Panics
/// As [`overwrite`].
pub fn overwrite_ints(to: &Tensor<1, Int>, from: &Tensor<1, Int>) {
    assert_eq!(to.dims(), from.dims(), "as many numbers as there are");
    #[cfg(feature = "gpu")]
    cube::overwrite_ints(to, from);
    let _ = (to, from);
}
