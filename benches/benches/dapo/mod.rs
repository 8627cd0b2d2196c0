//! The update that the benches measure.

use firebrick_train::{
    algorithm::{ClipRange, Dapo, Objective},
    learner::{MicroBatching, Updater},
};

/// Makes DAPO's update, without entropy and KL.
pub(crate) fn updater(micro_batching: MicroBatching) -> Updater {
    let clip = ClipRange { low: 0.2, high: 0.28 };

    let mut updater = Updater::new(Objective::new(Box::new(Dapo { clip, dual_clip: None })));
    updater.micro_batching = micro_batching;
    updater
}
