//! A failure in a sentence, with the error that caused it.

use std::{error::Error, fmt, sync::Arc};

/// Why something failed: a sentence for the user, and the error that caused it, if there is one. It is the content of
/// [`VerifierFailed`](crate::VerifierFailed) and [`EnvironmentFailed`](crate::EnvironmentFailed).
#[derive(Clone, Debug)]
pub struct Reason {
    sentence: String,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl Reason {
    /// Makes a reason with the error that caused it, which [`Error::source`] returns.
    pub fn with_source(
        sentence: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Reason { sentence: sentence.into(), source: Some(Arc::new(source)) }
    }

    /// Replaces the sentence, and keeps the error that caused it.
    #[must_use]
    pub fn reworded(self, sentence: impl Into<String>) -> Self {
        Reason { sentence: sentence.into(), ..self }
    }
}

impl From<String> for Reason {
    fn from(sentence: String) -> Self {
        Reason { sentence, source: None }
    }
}

impl From<&str> for Reason {
    fn from(sentence: &str) -> Self {
        sentence.to_owned().into()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)
    }
}

impl Error for Reason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_ref().map(|source| &**source as &(dyn Error + 'static))
    }
}
