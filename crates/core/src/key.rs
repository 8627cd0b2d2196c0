//! Secrets, such as keys of servers, which are never printed.

use std::fmt;

/// A secret: it is shown as `***`.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Keeps `word` secret.
    pub fn new(word: impl Into<String>) -> Self {
        Key(word.into())
    }

    /// Returns the secret, for the service that it gives access to.
    pub fn word(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
