//! The syntax of names on the Hugging Face Hub.

use std::path::Path;

/// Splits a name on the Hugging Face Hub, `owner/name` or `owner/name@revision`, into the repository and the
/// revision. The revision is `main` if the name gives none. Returns `None` if the text cannot be such a name.
pub fn hub_name(text: &str) -> Option<(&str, &str)> {
    let (repository, revision) = text.split_once('@').unwrap_or((text, "main"));
    let (owner, name) = repository.split_once('/')?;

    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        (1..=96).contains(&part.len())
            && part.chars().all(plain)
            && !part.starts_with(['.', '-'])
            && !part.contains("..")
    };

    // The Hub's cache writes `/` as `--`.
    let clear = part(owner) && part(name) && !repository.contains("--");
    (clear && is_hub_revision(revision)).then_some((repository, revision))
}

/// Tells whether a text can be a branch, a tag or a commit of a repository on the Hub.
pub fn is_hub_revision(revision: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/');
    let parts_are_names = revision
        .split('/')
        .all(|part| !part.is_empty() && !part.starts_with(['.', '-']) && !part.ends_with('.'));

    revision.len() <= 128
        && revision.chars().all(plain)
        && parts_are_names
        && !revision.contains("..")
}

/// Tells whether a path has the ending of a data file. The Hub is not asked for a mistyped path of this kind.
pub fn is_data_file(path: &Path) -> bool {
    let ends = ["json", "jsonl", "ndjson", "csv", "tsv", "parquet"];
    path.extension().is_some_and(|is| ends.iter().any(|end| is.eq_ignore_ascii_case(end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for (text, name) in [
            ("openai/gsm8k", ("openai/gsm8k", "main")),
            ("a.b/c_d-E.5", ("a.b/c_d-E.5", "main")),
            ("a/b@v1.0", ("a/b", "v1.0")),
            ("a/b@refs/pr/1", ("a/b", "refs/pr/1")),
        ] {
            assert_eq!(hub_name(text), Some(name));
        }

        // Anything that a path would follow elsewhere, and anything that the cache's names would mix up.
        for text in [
            "gsm8k", "a/b/c", "/b", "a/", "../b", "a/..", "a/.b", "a/b..c", "a\\b/c", "a/b c",
            "~/b", "C:/b", "a/b@", "a/b@../c", "a/b@/c", "a/b@c/", "a/b@c?d", "a--b/c", "a/-b", "",
            "./a/b",
        ] {
            assert_eq!(hub_name(text), None, "{text}");
        }
    }
}
