//! Python's regular expressions, as the files of PEFT have them.

use fancy_regex::{Regex, RegexBuilder};

/// An expression that names modules.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// Makes an expression that has to match a name from beginning to end.
    pub(crate) fn whole(pattern: &str) -> Result<Self, String> {
        build(pattern, &format!(r"\A(?:{pattern})\z"))
    }

    /// Makes an expression that has to match the end of a name, from its beginning or after a dot, which is how PEFT
    /// reads the keys of `rank_pattern` and `alpha_pattern`.
    pub(crate) fn end(pattern: &str) -> Result<Self, String> {
        build(pattern, &format!(r"\A(?:.*\.)?(?:{pattern})\z"))
    }

    /// Makes an expression for the part of a name before the number of its layer.
    pub(crate) fn before_layer(pattern: &str) -> Result<Self, String> {
        build(pattern, &format!(r"\A(?:(?:^|.*?\.){pattern}\.(?P<layer>\d+)\.)"))
    }

    /// Tells whether a name matches, or fails because the expression takes too many steps.
    pub(crate) fn matches(&self, name: &str) -> Result<bool, String> {
        self.0.is_match(name).map_err(|error| self.too_slow(name, &error))
    }

    /// Returns the number of the layer in a name that matches [`Pattern::before_layer`].
    pub(crate) fn layer(&self, name: &str) -> Result<Option<u64>, String> {
        let found = self.0.captures(name).map_err(|error| self.too_slow(name, &error))?;
        let number = found.as_ref().and_then(|found| found.name("layer"));
        Ok(number.and_then(|number| number.as_str().parse().ok()))
    }

    fn too_slow(&self, name: &str, error: &fancy_regex::Error) -> String {
        format!("the pattern {:?} can't be compared with {name:?}: {error}", self.0.as_str())
    }
}

/// Compiles an expression. Files come from anybody, so its size and its steps have limits. Although looking ahead takes
/// more steps than other expressions, none that names modules comes near to these.
fn build(pattern: &str, whole: &str) -> Result<Pattern, String> {
    const SIZE: usize = 1 << 20;
    const STEPS: usize = 20_000;

    if pattern.len() > SIZE / 64 {
        return Err(format!(
            "a pattern has {} bytes, expected at most {}",
            pattern.len(),
            SIZE / 64
        ));
    }

    let built = RegexBuilder::new(whole)
        .delegate_size_limit(SIZE)
        .delegate_dfa_size_limit(SIZE)
        .backtrack_limit(STEPS)
        .build();

    let expression = built
        .map_err(|error| format!("the pattern {pattern:?} is not a regular expression: {error}"))?;
    Ok(Pattern(expression))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Python can look ahead, and training programs use that in `target_modules`.
    #[test]
    fn patterns_are_read_as_python_reads_them() {
        let ahead = Pattern::whole(r"^(model)(?!.*(lm_head|emb)).*\.(?:q_proj|v_proj)").unwrap();
        assert_eq!(ahead.matches("model.layers.0.self_attn.q_proj"), Ok(true));
        assert_eq!(ahead.matches("model.emb.0.self_attn.q_proj"), Ok(false));
        assert_eq!(ahead.matches("model.layers.0.self_attn.q_proj.more"), Ok(false));

        let end = Pattern::end("self_attn.(q|k)_proj").unwrap();
        assert_eq!(end.matches("model.layers.1.self_attn.k_proj"), Ok(true));
        assert_eq!(end.matches("model.layers.1.own_self_attn.k_proj"), Ok(false));

        let layers = Pattern::before_layer("layers").unwrap();
        assert_eq!(layers.layer("model.layers.12.mlp.experts.3.up_proj"), Ok(Some(12)));
        assert_eq!(layers.layer("model.blocks.12.mlp"), Ok(None));
        assert!(Pattern::whole("(").unwrap_err().contains("is not a regular expression"));

        // It would take more steps than the universe has seconds.
        let slow = Pattern::whole(r"(?=(a+)+$)(a+)+b").unwrap();
        assert!(slow.matches(&"a".repeat(60)).is_err());
    }
}
