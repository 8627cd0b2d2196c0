use std::fmt;

/// The name of a model or data set on the Hub, and the version of it that is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubName {
    /// `owner/name`.
    pub(super) repo: String,
    /// A branch, tag or commit.
    pub(super) revision: String,
}

impl HubName {
    /// Reads `owner/name` or `owner/name@revision`; none when the text is not of that form. The
    /// revision is `main` if none is given.
    pub fn parse(text: &str) -> Option<HubName> {
        let (repo, revision) = text.split_once('@').unwrap_or((text, "main"));
        let (owner, name) = repo.split_once('/')?;
        let part = |part: &str| {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            (1..=96).contains(&part.len())
                && part.chars().all(plain)
                && !part.starts_with(['.', '-'])
                && !part.contains("..")
        };
        // The cache writes `/` as `--`.
        let clear = part(owner) && part(name) && !repo.contains("--");
        clear.then_some(HubName { repo: repo.into(), revision: "main".into() })?.at(revision)
    }

    /// `owner/name`, without a revision.
    pub fn repository(&self) -> &str {
        &self.repo
    }

    /// The branch, tag or commit.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// The same name at another revision; none when that can be no branch, tag or commit.
    pub fn at(self, revision: &str) -> Option<HubName> {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
        let parts_are_names = revision
            .split('/')
            .all(|part| !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.'));
        (revision.len() <= 128
            && revision.chars().all(plain)
            && parts_are_names
            && !revision.contains(".."))
        .then(|| HubName { revision: revision.into(), ..self })
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
    fn a_name_leads_nowhere_else() {
        for name in ["openai/gsm8k", "a.b/c_d-E.5", "a/b@v1.0", "a/b@refs/pr/1"] {
            assert_eq!(HubName::parse(name).unwrap().to_string(), name);
        }
        assert_eq!(HubName::parse("a/b@main").unwrap().to_string(), "a/b");
        for name in [
            "gsm8k", "a/b/c", "/b", "a/", "../b", "a/..", "a/.b", "a/b..c", "a\\b/c", "a/b c",
            "~/b", "C:/b", "a/b@", "a/b@../c", "a/b@/c", "a/b@c/", "a/b@c?d", "a--b/c", "a/-b", "",
        ] {
            assert_eq!(HubName::parse(name), None, "{name}");
        }
    }
}
