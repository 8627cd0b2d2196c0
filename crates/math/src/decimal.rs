//! Decimal numbers of any length, compared by their digits in linear time.

/// An exact decimal number, in a form that equal numbers share.
///
/// Two numbers are equal if their digits are, so a comparison takes linear time and no arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// Digits before the point, without leading zeros; empty below 1.
    whole: String,
    /// Digits after the point, without trailing zeros; empty for an integer.
    fraction: String,
}

impl Decimal {
    /// Maximum number of digits that are read. Answers have a few, and thanks to the cap, a policy that repeats one
    /// digit up to its token limit costs nothing.
    pub const MAX_DIGITS: usize = 4096;

    /// Reads an optional sign, digits, and optionally a point and more digits. There must be at least one digit,
    /// and nothing else. Returns `None` for other text, and for more than [`Decimal::MAX_DIGITS`] digits.
    pub fn parse(text: &str) -> Option<Decimal> {
        let (negative, digits) = match text.strip_prefix(['-', '−']) {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };

        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let count = whole.len() + fraction.len();
        let all_digits =
            [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()));
        if count == 0 || count > Self::MAX_DIGITS || !all_digits {
            return None;
        }

        // Zero has no sign, so that -0.0 equals 0.
        let whole = whole.trim_start_matches('0').to_owned();
        let fraction = fraction.trim_end_matches('0').to_owned();
        let zero = whole.is_empty() && fraction.is_empty();
        Some(Decimal { negative: negative && !zero, whole, fraction })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_one_form() {
        let same = |a, b| assert_eq!(Decimal::parse(a).unwrap(), Decimal::parse(b).unwrap());
        same("72", "72.0");
        same("+072.50", "72.5");
        same("-0.0", "0");
        same(".5", "0.50");
        same("5.", "5");

        assert_ne!(Decimal::parse("-1"), Decimal::parse("1"));
        assert_ne!(Decimal::parse("1.05"), Decimal::parse("1.5"));

        for junk in ["", ".", "-", "+-1", "1.2.3", "1e3", "1 2", "٣"] {
            assert_eq!(Decimal::parse(junk), None, "{junk:?}");
        }
    }
}
