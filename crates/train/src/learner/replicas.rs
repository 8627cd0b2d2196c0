//! An update on several devices of one machine.

use std::{cmp::Reverse, panic::resume_unwind, thread};

use burn::tensor::Device;
use firebrick_models::PolicyModel;

use crate::{error::TrainError, sample::Sample};

/// Devices that an update is computed on, besides the policy's; none by default.
///
/// Each device gets a replica of the policy and a part of the update's micro-batches. Because losses are
/// already divided by the tokens of the whole update, gradients are summed, once for each update, and never
/// averaged, and it does not matter which device had how many tokens. The optimizer's state is on the
/// policy's device alone.
#[derive(Clone, Debug, Default)]
pub struct Replicas {
    devices: Vec<Device>,
}

impl Replicas {
    /// Computes on `devices` too. They are without autodiff and of the same kind as the policy's.
    pub fn new(devices: Vec<Device>) -> Self {
        Replicas { devices }
    }

    /// Counts the devices, including the policy's.
    pub(crate) fn count(&self) -> usize {
        1 + self.devices.len()
    }

    /// Does `work` on each device, with a part of `batches` and the policy, and returns the results, that of
    /// the policy's device first. The numbers of tokens in the parts are as equal as whole micro-batches
    /// allow.
    ///
    /// # Errors
    /// The first error of a device. If a device panics, the panic continues.
    pub(crate) fn map_devices<M: PolicyModel, T: Send>(
        &self,
        policy: &M,
        samples: &[Sample],
        batches: Vec<Vec<usize>>,
        work: impl Fn(&M, Vec<Vec<usize>>) -> Result<T, TrainError> + Sync,
    ) -> Result<Vec<T>, TrainError> {
        if self.devices.is_empty() {
            return Ok(vec![work(policy, batches)?]);
        }

        let mut parts = partition_by_cost(batches, self.count(), |batch| {
            batch.iter().map(|&index| samples[index].length()).sum()
        });

        let first_part = parts.remove(0);
        let autodiff = policy.device().is_autodiff();
        let replicas: Vec<(M, Vec<Vec<usize>>)> = self
            .devices
            .iter()
            .zip(parts)
            .map(|(device, part)| {
                let device = if autodiff { device.clone().autodiff() } else { device.clone() };
                (policy.clone().fork(&device), part)
            })
            .collect();

        // The policy's device works on this thread, and every other device on a separate thread.
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = replicas
                .into_iter()
                .map(|(replica, part)| scope.spawn(move || work(&replica, part)))
                .collect();

            let mut results = vec![work(policy, first_part)];
            for thread in threads {
                results.push(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            results.into_iter().collect()
        })
    }
}

/// Partitions `items` into `count` parts of nearly equal cost: the next costliest item is added to the part
/// that costs least so far.
fn partition_by_cost<T>(
    mut items: Vec<T>,
    count: usize,
    cost: impl Fn(&T) -> usize,
) -> Vec<Vec<T>> {
    items.sort_by_key(|item| Reverse(cost(item)));
    let mut parts: Vec<(usize, Vec<T>)> = (0..count).map(|_| (0, Vec::new())).collect();

    for item in items {
        let cheapest = parts.iter_mut().min_by_key(|(cost, _)| *cost).expect("there is a part");
        cheapest.0 += cost(&item);
        cheapest.1.push(item);
    }

    parts.into_iter().map(|(_, items)| items).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_equal_cost_as_far_as_that_goes() {
        let parts = partition_by_cost(vec![7, 1, 5, 3, 4, 4, 2], 3, |cost| *cost);
        let sums: Vec<usize> = parts.iter().map(|part| part.iter().sum()).collect();
        assert_eq!(sums.iter().sum::<usize>(), 26);
        assert!(sums.iter().all(|sum| (8..=9).contains(sum)), "{parts:?}");
        assert_eq!(partition_by_cost(vec![1], 3, |cost| *cost), [vec![1], vec![], vec![]]);
    }
}
