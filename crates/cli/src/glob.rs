//! Patterns with stars, for the names of metrics.

/// Returns whether `name` matches `pattern`. A `*` in the pattern stands for any letters.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((start, rest)) => name.strip_prefix(start).is_some_and(|name| {
            name.char_indices()
                .map(|(at, _)| at)
                .chain([name.len()])
                .any(|at| matches(rest, &name[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_any_letters() {
        for (pattern, name, expected) in [
            ("loss/kl", "loss/kl", true),
            ("loss/kl", "loss/kl2", false),
            ("loss/*", "loss/", true),
            ("*/accuracy", "eval/büro/accuracy", true),
            ("eval/*/accuracy", "eval/x/majority", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
