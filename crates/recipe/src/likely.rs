//! The name that a misspelt one was most likely meant to be.

/// Returns the candidate that `given` was most likely meant to be, if one is near: few letters differ for its length, or
/// one of the two begins with the other, as `batch_size` does with `batch`.
pub fn likely<'a>(given: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let candidates = candidates.into_iter().filter(|candidate| is_near(given, candidate));
    // Jaro-Winkler favours a common beginning, which misremembered names often have.
    let similarity = |candidate: &&str| strsim::jaro_winkler(given, candidate);
    candidates.max_by(|a, b| similarity(a).total_cmp(&similarity(b)))
}

/// Shortest beginning that two names have in common by more than chance.
const BEGINNING: usize = 3;

fn is_near(given: &str, candidate: &str) -> bool {
    let begins = given.starts_with(candidate) || candidate.starts_with(given);
    if begins && given.len().min(candidate.len()) >= BEGINNING {
        return true;
    }

    // A letter of three may be wrong, as rustc has it: `lr` is then no misspelt `layers`. Counted in bytes, a text of
    // any length is measured before its letters are compared.
    let allowed = if given.len() < 2 { 0 } else { given.len().max(3) / 3 };
    given.len().abs_diff(candidate.len()) <= allowed
        && strsim::osa_distance(given, candidate) <= allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_near_is_meant() {
        let keys = ["group_size", "batch", "clip_ratio_high", "layers", "steps", "kind", "lr"];
        for (given, meant) in [
            ("groupsize", "group_size"),
            ("gruop_size", "group_size"),
            ("batch_size", "batch"),
            ("clip_ratio_hi", "clip_ratio_high"),
            ("step", "steps"),
            ("knid", "kind"),
            ("Ir", "lr"),
        ] {
            assert_eq!(likely(given, keys), Some(meant), "{given}");
        }

        for far in ["l", "stop", "keen", "gradient", "clipping", "größe", ""] {
            assert_eq!(likely(far, keys), None, "{far}");
        }
    }
}
