//! How codes of a few bits are laid out.

/// Layout of a matrix that is quantised group-wise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuantLayout {
    /// Bits of a code: 4 or 8. Codes are unsigned: half of the range of that many bits has been added to the number.
    pub bits: usize,
    /// Inputs that share a scale: a multiple of the codes in an integer.
    pub group_size: usize,
}

impl QuantLayout {
    /// Returns how many codes an integer of 32 bits holds.
    pub fn per_word(self) -> usize {
        32 / self.bits
    }
}
