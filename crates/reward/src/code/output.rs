//! Whether what a program has written is what was wanted.

/// Compares line by line, without white space at the ends of lines and of the text. Where lines differ, their words have
/// to be the same, or decimal numbers that are no further apart than `tolerance`, absolutely or in relation to the larger.
pub(super) fn is_same(written: &str, wanted: &str, tolerance: f64) -> bool {
    let lines = |text| -> Vec<&str> { str::trim_end(text).lines().map(str::trim_end).collect() };
    let (written, wanted) = (lines(written), lines(wanted));
    written.len() == wanted.len()
        && written.iter().zip(&wanted).all(|(one, two)| one == two || is_near(one, two, tolerance))
}

fn is_near(written: &str, wanted: &str, tolerance: f64) -> bool {
    let (mut one, mut two) = (written.split_whitespace(), wanted.split_whitespace());
    loop {
        match (one.next(), two.next()) {
            (None, None) => return true,
            (Some(one), Some(two)) if one == two || are_near(one, two, tolerance) => {}
            _ => return false,
        }
    }
}

fn are_near(written: &str, wanted: &str, tolerance: f64) -> bool {
    // A whole number is wanted exactly, and may have any number of digits.
    if !wanted.contains(['.', 'e', 'E']) {
        return false;
    }
    let number = |text: &str| {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || b"+-.eE".contains(&byte));
        text.parse().ok().filter(|number: &f64| plain && number.is_finite())
    };
    let (Some(one), Some(two)) = (number(written), number(wanted)) else { return false };
    (one - two).abs() <= tolerance * one.abs().max(two.abs()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_at_ends_and_rounding_do_not_count() {
        for (written, wanted, same) in [
            ("3\n", "3", true),
            ("1 2 \r\n3\n\n", "1 2\n3", true),
            ("1  2", "1 2", true),
            ("12", "1 2", false),
            ("1\n2", "1 2", false),
            ("", "0", false),
            ("", "", true),
            ("\n3", "3", false),
            ("Yes", "YES", false),
            ("0.30000000000000004", "0.3", true),
            ("0.50", "0.5", true),
            ("2.0", "2", false),
            ("2", "2.0", true),
            ("1e3", "1000.0", true),
            ("0.31", "0.3", false),
            ("1000000.5", "1000000.6", true),
            ("123456789012345678901", "123456789012345678902", false),
            ("nan", "nan", true),
            ("inf", "1e999", false),
            ("is 0.1000000001 m", "is 0.1 m", true),
        ] {
            assert_eq!(is_same(written, wanted, 1e-6), same, "{written:?}, {wanted:?}");
        }
        assert!(!is_same("0.30000000000000004", "0.3", 0.0));
        assert!(is_same("0.50", "0.5", 0.0));
    }
}
