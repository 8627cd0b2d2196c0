//! Budget of a judgement, counted in operations.

/// Operations that one judgement may still spend.
///
/// An operation is about one multiplication of two 64-bit words. Because operations are counted, and not seconds, the
/// verdict is the same on a busy machine, on any thread and on any computer. Code whose cost depends on its input (a
/// power, a factorial, a higher precision) estimates the cost first, asks for it here, and does not start a step
/// that was refused.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    left: u64,
}

/// Refusal: the budget could not pay for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OverBudget;

impl Budget {
    pub(crate) fn new(operations: u64) -> Self {
        Budget { left: operations }
    }

    /// Takes `operations` off the budget, or refuses and leaves nothing. After a refusal every later request is
    /// refused too, so that the judgement ends soon.
    pub(crate) fn spend(&mut self, operations: u64) -> Result<(), OverBudget> {
        match self.left.checked_sub(operations) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => {
                self.left = 0;
                Err(OverBudget)
            }
        }
    }

    /// Returns how many operations are left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Splits off a part of the budget, at most `share` of it, for an attempt that may fail without harm: when the
    /// part runs out, the rest is still there. Pay back with [`Budget::settle`].
    pub(crate) fn portion(&mut self, share: f64) -> Budget {
        let part = (self.left as f64 * share.clamp(0.0, 1.0)) as u64;
        self.left -= part;
        Budget { left: part }
    }

    /// Pays back the operations that an attempt did not use.
    pub(crate) fn settle(&mut self, attempt: Budget) {
        self.left += attempt.left;
    }
}
