use crate::Prompt;

/// An endless supply of training prompts, in an order that depends on the cursor alone.
///
/// A source over a finite set starts again, reshuffled, when it comes to its end.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not give prompts",
    label = "needs `draw`, `cursor`, `seek` and `size`"
)]
pub trait PromptSource: Send {
    /// The prompt at the cursor, which moves on by one.
    fn draw(&mut self) -> Prompt;

    /// How many prompts were drawn since the start of the run.
    fn cursor(&self) -> u64;

    /// Continues as if `cursor` prompts had been drawn: how a resumed run finds its place.
    fn seek(&mut self, cursor: u64);

    /// How many different prompts there are; at least 1.
    fn size(&self) -> u64;

    /// A number made from all prompts, by which a resumed run is refused other ones; 0 of a source that
    /// cannot tell.
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
