//! Meaning of YAML scalars without quotes.
//!
//! YAML 1.2 of 2009 and its readers take a scalar for one thing, YAML 1.1 and PyYAML for another. For YAML
//! 1.1, `no` is a truth value and `010` is eight; for YAML 1.2, `no` is a text and `010` is ten. A file is
//! refused at a scalar that means two things. Only numbers such as `1e-6` are read by YAML 1.2 alone: PyYAML
//! takes them for texts, although everybody means numbers.

/// Scalar, by YAML 1.2's core schema.
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
        /// The text as it is written in the file.
        text: String,
        /// What readers take it for.
        readings: &'static str,
        /// What to write instead, as advice.
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

    // YAML 1.1 ignores underscores between digits, and counts time in base 60.
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
    let (sign, unsigned) = match text.strip_prefix(['-', '+']) {
        Some(unsigned) => (&text[..1], unsigned),
        None => ("", text),
    };

    match unsigned {
        ".inf" | ".Inf" | ".INF" => return Some(format!("{sign}inf")),
        ".nan" | ".NaN" | ".NAN" if sign.is_empty() => return Some("nan".into()),
        _ => {}
    }

    let all_chars = |digits: &str, allowed: fn(&char) -> bool| {
        !digits.is_empty() && digits.chars().all(|c| allowed(&c))
    };
    if sign.is_empty()
        && let Some(digits) = unsigned.strip_prefix("0o")
    {
        return all_chars(digits, |c| c.is_digit(8)).then(|| text.to_owned());
    }
    if sign.is_empty()
        && let Some(digits) = unsigned.strip_prefix("0x")
    {
        return all_chars(digits, char::is_ascii_hexdigit).then(|| text.to_owned());
    }

    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    if let Some(exponent) = exponent {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        all_chars(digits, char::is_ascii_digit).then_some(())?;
    }

    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };

    let digits = |part: &str| part.chars().all(|c| c.is_ascii_digit());
    // A point alone is not a number, and neither is a sign alone.
    let none = integer.is_empty() && fraction.is_none_or(str::is_empty);
    if none || !digits(integer) || !fraction.is_none_or(digits) {
        return None;
    }

    // TOML wants digits on both sides of a point, and no leading zeros.
    let integer = integer.trim_start_matches('0');
    let integer = if integer.is_empty() { "0" } else { integer };
    let fraction = fraction
        .map_or(String::new(), |part| format!(".{}", if part.is_empty() { "0" } else { part }));
    let exponent = exponent.map_or(String::new(), |exponent| format!("e{exponent}"));

    Some(format!("{sign}{integer}{fraction}{exponent}"))
}

/// Returns the digits of a whole number that begins with a needless zero.
fn octal_once(text: &str) -> Option<&str> {
    let digits = text.trim_start_matches(['-', '+']);
    // Zeros alone are 0 to every reader.
    let is_octal = digits.len() > 1 && digits.starts_with('0');
    (is_octal && digits.chars().all(|c| c.is_ascii_digit()) && digits.contains(|c| c != '0'))
        .then_some(digits)
}

/// Returns true if a text is like `1:30`, which is ninety in YAML 1.1.
fn is_sexagesimal(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    let integer = digits.split_once('.').map_or(digits, |(integer, _)| integer);

    let mut parts = integer.split(':');
    let first_part = parts.next().unwrap_or_default();
    let mut further_parts = parts.peekable();

    further_parts.peek().is_some()
        && !first_part.is_empty()
        && first_part.chars().all(|c| c.is_ascii_digit())
        && further_parts.all(|part| part.parse::<u8>().is_ok_and(|part| part < 60))
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
