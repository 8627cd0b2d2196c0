//! The update that the benches measure.

use firebrick_train::{Aggregation, ClipRange, Dapo, MicroBatching, Objective, Updater};

/// Makes DAPO's update, without entropy and KL.
pub(crate) fn updater(micro_batching: MicroBatching) -> Updater {
    let clip = ClipRange { low: 0.2, high: 0.28 };

    Updater {
        replicas: Default::default(),
        loss_scale: 1.0,
        router_aux_loss_coef: 0.0,
        interrupted: Default::default(),
        objective: Objective {
            policy: Box::new(Dapo { clip, dual_clip: None }),
            entropy_coef: 0.0,
            kl: None,
        },
        aggregation: Aggregation::TokenMean,
        constant_length: 1,
        temperature: 1.0,
        micro_batching,
    }
}
