//! Arithmetic of whole numbers in shell scripts: `$((…))`.

/// Maximum nesting of brackets and signs.
const MOST_DEPTH: usize = 32;

/// Returns the value of `sum`, or `None` if it has no value here or a shell would refuse it.
pub(super) fn value(sum: &str, variable: &dyn Fn(&str) -> Option<String>) -> Option<i64> {
    let mut reader = Reader { rest: sum.trim(), variable };
    let value = reader.sum(0)?;
    reader.rest.is_empty().then_some(value)
}

struct Reader<'a> {
    rest: &'a str,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Reader<'_> {
    fn sum(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.product(depth)?;
        loop {
            value = match self.sign(&['+', '-']) {
                Some('+') => value.checked_add(self.product(depth)?)?,
                Some(_) => value.checked_sub(self.product(depth)?)?,
                None => return Some(value),
            };
        }
    }

    fn product(&mut self, depth: usize) -> Option<i64> {
        let mut value = self.factor(depth)?;
        loop {
            value = match self.sign(&['*', '/', '%']) {
                Some('*') => value.checked_mul(self.factor(depth)?)?,
                Some('/') => value.checked_div(self.factor(depth)?)?,
                Some(_) => value.checked_rem(self.factor(depth)?)?,
                None => return Some(value),
            };
        }
    }

    fn factor(&mut self, depth: usize) -> Option<i64> {
        if depth > MOST_DEPTH {
            return None;
        }
        match self.sign(&['-', '+', '(']) {
            Some('-') => return self.factor(depth + 1)?.checked_neg(),
            Some('+') => return self.factor(depth + 1),
            Some(_) => {
                let value = self.sum(depth + 1)?;
                self.sign(&[')'])?;
                return Some(value);
            }
            None => {}
        }

        // The rest is a number, or a variable as `x`, `$x` or `${x}`.
        let rest = self.rest.strip_prefix("${").or_else(|| self.rest.strip_prefix('$'));
        let word = rest.unwrap_or(self.rest);
        let end = word.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
        let (word, rest) = word.split_at(end);
        self.rest = if self.rest.starts_with("${") { rest.strip_prefix('}')? } else { rest };

        if word.starts_with(|c: char| c.is_ascii_digit()) {
            word.parse().ok()
        } else {
            (self.variable)(word)?.trim().parse().ok()
        }
    }

    /// Takes the next sign, if it is one of these.
    fn sign(&mut self, signs: &[char]) -> Option<char> {
        self.rest = self.rest.trim_start();
        let sign = self.rest.chars().next().filter(|c| signs.contains(c))?;
        self.rest = self.rest[1..].trim_start();
        Some(sign)
    }
}
