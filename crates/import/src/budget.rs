//! The limit on what references and tables may add to the size of a configuration.

use firebrick_recipe::Problem;

/// Bytes that the references of a configuration, and the tables around its keys, may add to it. Ten lines, each with
/// ten references to the line before, are 846 bytes and expand to ten billion values. Twenty thousand references to one
/// long text are a file of 189 KB and expand to 659 MB.
const MOST: usize = 4 << 20;

/// The remaining bytes.
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Budget(MOST)
    }
}

impl Budget {
    /// Takes `bytes` off the budget, before they are allocated.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Problem> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| Problem {
            span: 0..0,
            keys: Vec::new(),
            message: format!(
                "the configuration has more than {} MiB with its references filled in",
                MOST >> 20
            ),
            label: String::new(),
            help: Some(
                "write out the values that refer to long texts or lists, or leave them out".into(),
            ),
        })?;
        Ok(())
    }
}
