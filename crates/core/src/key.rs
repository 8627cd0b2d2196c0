use std::fmt;

/// A word that nobody may read: it is shown as `***`.
#[derive(Clone)]
pub struct Key(String);

impl Key {
    /// Keeps `word` secret.
    pub fn new(word: impl Into<String>) -> Self {
        Key(word.into())
    }

    /// The word, for whoever it opens a door of.
    pub fn word(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}
