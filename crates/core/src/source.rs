//! The trait `PromptSource`, which supplies training prompts in a reproducible order.

use crate::Prompt;

/// An endless supply of training prompts, in an order that depends only on the cursor.
///
/// A source over a finite set starts again, reshuffled, when it reaches its end.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not supply prompts",
    label = "needs `draw`, `cursor`, `seek` and `size`"
)]
pub trait PromptSource: Send {
    /// Returns the prompt at the cursor, and advances the cursor by one.
    fn draw(&mut self) -> Prompt;

    /// Returns the number of prompts drawn since the start of the run.
    fn cursor(&self) -> u64;

    /// Continues as if `cursor` prompts had been drawn, which is how a resumed run finds its position.
    fn seek(&mut self, cursor: u64);

    /// Returns the number of draws in which every prompt comes at least once, which is the number of prompts if all come
    /// equally often; at least 1.
    fn size(&self) -> u64;

    /// Returns a number made from all prompts, or 0 if the source has none. A resumed run compares it, to refuse
    /// other prompts.
    fn fingerprint(&self) -> u64 {
        0
    }
}

impl<T: PromptSource + ?Sized> PromptSource for Box<T> {
    fn draw(&mut self) -> Prompt {
        (**self).draw()
    }

    fn cursor(&self) -> u64 {
        (**self).cursor()
    }

    fn seek(&mut self, cursor: u64) {
        (**self).seek(cursor);
    }

    fn size(&self) -> u64 {
        (**self).size()
    }

    fn fingerprint(&self) -> u64 {
        (**self).fingerprint()
    }
}
