//! How large a configuration may become.

use firebrick_recipe::Problem;

/// Bytes that the references of a configuration, and the tables around its keys, may add to it. Ten
/// lines, each of ten references to the one before, are 846 bytes and ten billion values; twenty
/// thousand references to one long text are a file of 189 KB and 659 MB.
const MOST: usize = 4 << 20;

/// What is left of it.
pub(super) struct Budget(usize);

impl Default for Budget {
    fn default() -> Self {
        Budget(MOST)
    }
}

impl Budget {
    /// Takes so many bytes, before they are allocated.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Problem> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(|| Problem {
            span: 0..0,
            keys: Vec::new(),
            message: format!(
                "with its references filled in the configuration has more than {} MiB",
                MOST >> 20
            ),
            label: String::new(),
            help: Some("write out what refers to long texts or lists, or leave it out".into()),
        })?;
        Ok(())
    }
}
