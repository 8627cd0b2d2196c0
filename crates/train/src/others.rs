//! An update on several devices of one machine.

use std::{cmp::Reverse, panic::resume_unwind, sync::Arc, thread};

use burn::{
    module::Param,
    tensor::{
        DType, Device, Tensor,
        distributed::{DistributedConfig, DistributedContext, ReduceOperation, all_reduce},
    },
};
use firebrick_models::{GradientMap, GradientSum, PolicyModel};

use crate::{Sample, TrainError};

/// The devices that an update is computed on, beside the policy's; none by default.
///
/// Each device gets a copy of the policy and a part of the update's micro-batches. Losses are divided by the
/// tokens of the whole update before that. So gradients are added up, once for each update, and never
/// averaged, and it does not matter which device had how many tokens. The optimizer's state is on the
/// policy's device alone.
#[derive(Clone, Debug, Default)]
pub struct Others {
    devices: Vec<Device>,
    sync: GradSync,
    /// The context of a collective operation, kept for as long as it is used.
    _context: Option<Arc<DistributedContext>>,
}

/// The way in which gradients of several devices are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GradSync {
    /// Gradients are copied to the policy's device.
    #[default]
    MainDevice,
    /// burn's collective operation adds gradients up. Only CUDA has it: NCCL, in one process. It has never
    /// been run.
    Collective,
}

impl Others {
    /// Computes on `devices` too. All of them are without autodiff and of the kind of `main`.
    ///
    /// # Panics
    /// With [`GradSync::Collective`] on a device that has none.
    pub fn new(main: &Device, devices: Vec<Device>, sync: GradSync) -> Self {
        let context = (sync == GradSync::Collective).then(|| {
            let all = [vec![main.clone().inner()], devices.clone()].concat();
            let config = DistributedConfig { all_reduce_op: ReduceOperation::Sum };
            Arc::new(DistributedContext::init(all, config))
        });
        Others { devices, sync, _context: context }
    }

    /// Counts the devices, the policy's among them.
    pub(crate) fn count(&self) -> usize {
        1 + self.devices.len()
    }

    /// Gives the way in which gradients are added up.
    pub(crate) fn sync(&self) -> GradSync {
        self.sync
    }

    /// Does `work` on each device, with a part of `batches` and the policy, and gives the results, the
    /// policy's own device first. The numbers of tokens in the parts are as equal as whole micro-batches
    /// allow.
    ///
    /// # Errors
    /// The first error of a device. If a device panics, the panic goes on.
    pub(crate) fn each<M: PolicyModel, T: Send>(
        &self,
        policy: &M,
        samples: &[Sample],
        batches: Vec<Vec<usize>>,
        work: impl Fn(&M, Vec<Vec<usize>>) -> Result<T, TrainError> + Sync,
    ) -> Result<Vec<T>, TrainError> {
        if self.devices.is_empty() {
            return Ok(vec![work(policy, batches)?]);
        }
        let mut parts = share_out(batches, self.count(), |batch| {
            batch.iter().map(|&index| samples[index].length()).sum()
        });
        let own = parts.remove(0);
        let autodiff = policy.device().is_autodiff();
        let copies: Vec<(M, Vec<Vec<usize>>)> = self
            .devices
            .iter()
            .zip(parts)
            .map(|(device, part)| {
                let device = if autodiff { device.clone().autodiff() } else { device.clone() };
                (policy.clone().fork(&device), part)
            })
            .collect();
        let work = &work;
        thread::scope(|scope| {
            let threads: Vec<_> = copies
                .into_iter()
                .map(|(copy, part)| scope.spawn(move || work(&copy, part)))
                .collect();
            let mut results = vec![work(policy, own)];
            for thread in threads {
                results.push(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            }
            results.into_iter().collect()
        })
    }

    /// Adds a device's gradient to the sum of all devices' gradients, if that is a collective operation; each
    /// device then has the whole sum. All devices have to call this.
    pub(crate) fn reduce<M: PolicyModel>(&self, policy: &M, sum: GradientSum) -> GradientSum {
        match self.sync {
            GradSync::MainDevice => sum,
            GradSync::Collective => {
                let devices = [vec![policy.device().inner()], self.devices.clone()].concat();
                sum.mapped(policy, &mut Reduce(devices))
            }
        }
    }
}

/// burn's collective sum over these devices.
struct Reduce(Vec<Device>);

impl GradientMap for Reduce {
    /// Takes part even if the parameter has no gradient on this device: the other devices would wait for it
    /// for ever.
    fn map<const D: usize>(
        &mut self,
        parameter: &Param<Tensor<D>>,
        sum: Option<Tensor<D>>,
    ) -> Option<Tensor<D>> {
        if !parameter.is_require_grad() {
            return sum;
        }
        let sum = sum.unwrap_or_else(|| parameter.val().inner().zeros_like().cast(DType::F32));
        Some(all_reduce(sum, ReduceOperation::Sum, self.0.clone()).resolve())
    }
}

/// Shares `items` out among `count` parts of nearly equal cost: the next costliest item goes to the part that
/// costs least so far.
fn share_out<T>(mut items: Vec<T>, count: usize, cost: impl Fn(&T) -> usize) -> Vec<Vec<T>> {
    items.sort_by_key(|item| Reverse(cost(item)));
    let mut parts: Vec<(usize, Vec<T>)> = (0..count).map(|_| (0, Vec::new())).collect();
    for item in items {
        let least = parts.iter_mut().min_by_key(|(cost, _)| *cost).expect("there is a part");
        least.0 += cost(&item);
        least.1.push(item);
    }
    parts.into_iter().map(|(_, items)| items).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_of_equal_cost_as_far_as_that_goes() {
        let parts = share_out(vec![7, 1, 5, 3, 4, 4, 2], 3, |cost| *cost);
        let sums: Vec<usize> = parts.iter().map(|part| part.iter().sum()).collect();
        assert_eq!(sums.iter().sum::<usize>(), 26);
        assert!(sums.iter().all(|sum| (8..=9).contains(sum)), "{parts:?}");
        assert_eq!(share_out(vec![1], 3, |cost| *cost), [vec![1], vec![], vec![]]);
    }
}
