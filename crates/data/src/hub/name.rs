//! Names of models and data sets on the Hub: `owner/name@revision`.

use std::fmt;

use firebrick_core::{hub_name, is_hub_revision};

/// Name of a model or data set on the Hub, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// Repository, as `owner/name`.
    pub(super) repo: String,
    /// A branch, tag or commit.
    pub(super) revision: String,
}

impl HubName {
    /// Reads `owner/name` or `owner/name@revision`. Returns `None` if the text has another form. The revision is
    /// `main` if none is given.
    pub fn parse(text: &str) -> Option<HubName> {
        let (repo, revision) = hub_name(text)?;
        Some(HubName { repo: repo.into(), revision: revision.into() })
    }

    /// Returns `owner/name`, without a revision.
    pub fn repository(&self) -> &str {
        &self.repo
    }

    /// Returns the branch, tag or commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Returns the name at another revision. Returns `None` if that can't be a branch, tag or commit.
    pub fn at(self, revision: &str) -> Option<HubName> {
        is_hub_revision(revision).then(|| HubName { revision: revision.into(), ..self })
    }
}

impl fmt::Display for HubName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revision.as_str() {
            "main" => f.write_str(&self.repo),
            revision => write!(f, "{}@{revision}", self.repo),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_written_as_it_was_read() {
        for name in ["openai/gsm8k", "a.b/c_d-E.5", "a/b@v1.0", "a/b@refs/pr/1"] {
            assert_eq!(HubName::parse(name).unwrap().to_string(), name);
        }

        assert_eq!(HubName::parse("a/b@main").unwrap().to_string(), "a/b");
    }
}
