//! The meaning of YAML scalars without quotes.
//!
//! YAML 1.2 of 2009 and its readers say one thing, YAML 1.1 and PyYAML another. For YAML 1.1, `no` is a truth
//! value and `010` is eight; for YAML 1.2, `no` is a text and `010` is ten. A file is refused at a scalar that
//! means two things. Only numbers such as `1e-6` are read by YAML 1.2 alone: PyYAML takes them for texts, but
//! everybody means numbers.

/// A scalar, by YAML 1.2's core schema.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// Nothing, `null` or `~`.
    Null,
    /// `true` or `false`, small, large or with a capital.
    Bool(bool),
    /// A number, as TOML writes it.
    Number(String),
    /// Anything else, and everything in quotes.
    Text(String),
    /// A text that readers of YAML disagree about.
    Unclear {
        /// The text as it stands in the file.
        text: String,
        /// The values that readers take it for.
        readings: &'static str,
        /// The text to write instead, as advice.
        remedy: String,
    },
}

pub(super) fn plain(text: &str) -> Scalar {
    let unclear = |readings, remedy: String| Scalar::Unclear {
        text: text.to_owned(),
        readings,
        remedy: format!("{remedy}, or '{text}' in quotes"),
    };
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Scalar::Null,
        "true" | "True" | "TRUE" => return Scalar::Bool(true),
        "false" | "False" | "FALSE" => return Scalar::Bool(false),
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" => {
            return unclear(
                "true to some readers of YAML and a text to others",
                "write true".into(),
            );
        }
        "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return unclear(
                "false to some readers of YAML and a text to others",
                "write false".into(),
            );
        }
        _ => {}
    }
    if let Some(number) = number(text) {
        return match octal_once(text) {
            Some(digits) => unclear(
                "a number with base 8 to some readers of YAML and with base 10 to others",
                format!("write {}", digits.trim_start_matches('0')),
            ),
            None => Scalar::Number(number),
        };
    }
    let begins_with_digit =
        text.trim_start_matches(['-', '+']).starts_with(|c: char| c.is_ascii_digit());
    let without = text.replace('_', "");
    if begins_with_digit && without != text && number(&without).is_some() {
        return unclear(
            "a number to some readers of YAML and a text to others",
            format!("write {without}"),
        );
    }
    if begins_with_digit && is_sexagesimal(text) {
        return unclear(
            "a number with base 60 to some readers of YAML and a text to others",
            "write the number".into(),
        );
    }
    Scalar::Text(text.to_owned())
}

/// Returns a number of YAML's core schema as TOML writes it.
fn number(text: &str) -> Option<String> {
    let (sign, rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (&text[..1], rest),
        None => ("", text),
    };
    match rest {
        ".inf" | ".Inf" | ".INF" => return Some(format!("{sign}inf")),
        ".nan" | ".NaN" | ".NAN" if sign.is_empty() => return Some("nan".into()),
        _ => {}
    }
    let all = |digits: &str, allowed: fn(&char) -> bool| {
        !digits.is_empty() && digits.chars().all(|c| allowed(&c))
    };
    if let (Some(digits), "") = (rest.strip_prefix("0o"), sign) {
        return all(digits, |c| c.is_digit(8)).then(|| text.to_owned());
    }
    if let (Some(digits), "") = (rest.strip_prefix("0x"), sign) {
        return all(digits, char::is_ascii_hexdigit).then(|| text.to_owned());
    }
    let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (rest, None),
    };
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        all(digits, char::is_ascii_digit).then_some(())?;
    }
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    let none = whole.is_empty() && fraction.is_none_or(str::is_empty);
    if none || !digits(whole) || !fraction.is_none_or(digits) {
        return None;
    }
    // TOML wants digits on both sides of a point, and no leading zeros.
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let fraction = fraction
        .map_or(String::new(), |part| format!(".{}", if part.is_empty() { "0" } else { part }));
    let exponent = exponent.map_or(String::new(), |exponent| format!("e{exponent}"));
    Some(format!("{sign}{whole}{fraction}{exponent}"))
}

/// Returns the digits of a whole number that begins with a needless zero.
fn octal_once(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(['-', '+']);
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    (is_octal && digits.chars().all(|c| c.is_ascii_digit()) && digits.contains(|c| c != '0'))
        .then_some(digits)
}

/// Tells whether a text is like `1:30`, which is ninety in YAML 1.1.
fn is_sexagesimal(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let whole = digits.split_once('.').map_or(digits, |(whole, _)| whole);
    let mut places = whole.split(':');
    let first = places.next().unwrap_or_default();
    let mut rest = places.peekable();
    rest.peek().is_some()
        && !first.is_empty()
        && first.chars().all(|c| c.is_ascii_digit())
        && rest.all(|place| place.parse::<u8>().is_ok_and(|place| place < 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_toml_writes_them() {
        for (yaml, toml) in [
            ("1e-6", "1e-6"),
            ("1E+3", "1e+3"),
            ("0", "0"),
            ("-3", "-3"),
            ("+12", "+12"),
            (".5", "0.5"),
            ("-.5e3", "-0.5e3"),
            ("1.", "1.0"),
            ("00.25", "0.25"),
            ("0x1F", "0x1F"),
            ("0o17", "0o17"),
            (".inf", "inf"),
            ("-.Inf", "-inf"),
            (".nan", "nan"),
        ] {
            assert_eq!(plain(yaml), Scalar::Number(toml.into()), "{yaml}");
            assert!(toml::de::DeValue::parse(toml).is_ok(), "{toml}");
        }
        for text in
            ["e5", ".", "1e", "1.2.3", "-", "0x", "0xg", "-0x1", "1 2", "inf", "y", "n", "1:99"]
        {
            assert_eq!(plain(text), Scalar::Text(text.into()), "{text}");
        }
    }

    #[test]
    fn what_readers_disagree_about_is_neither() {
        for text in ["yes", "No", "ON", "off", "010", "-07", "1_000", "1_0.5", "1:30", "190:20:30"]
        {
            assert!(matches!(plain(text), Scalar::Unclear { .. }), "{text}");
        }
    }
}
