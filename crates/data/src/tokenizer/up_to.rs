//! Tokens of a text that may be far longer than anybody wants.

use firebrick_core::TokenId;

/// Returns the tokens that `tokens` makes of a text. If a beginning of the text already has more than `limit`, returns
/// only the tokens of that beginning, so that nobody pays for the rest.
///
/// # Errors
/// Fails if `tokens` does.
pub fn tokens_up_to<E>(
    text: &str,
    limit: usize,
    tokens: impl Fn(&str) -> Result<Vec<TokenId>, E>,
) -> Result<Vec<TokenId>, E> {
    let enough = limit.saturating_add(AT_THE_CUT);
    let mut bytes = enough.saturating_mul(BYTES_PER_TOKEN);

    while bytes < text.len() {
        let of_beginning = tokens(&text[..text.floor_char_boundary(bytes)])?;
        if of_beginning.len() > enough {
            return Ok(of_beginning);
        }
        // Four times as much, so that all attempts together cost little more than the last.
        bytes = bytes.saturating_mul(4);
    }

    tokens(text)
}

/// Bytes for each token of the first beginning that is tried. Few tokens are longer.
const BYTES_PER_TOKEN: usize = 16;

/// How many tokens a beginning may have more than the same part of the full text: the cut may go through a word.
const AT_THE_CUT: usize = 64;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn of_a_long_text_only_a_beginning_is_encoded() {
        let encoded = Cell::new(0);
        let four_bytes = |text: &str| {
            encoded.set(encoded.get() + text.len());
            Ok::<_, String>(vec![7; text.len().div_ceil(4)])
        };

        for text in ["a".repeat(900_000), "é".repeat(450_000), "日本".repeat(150_000)] {
            encoded.set(0);
            assert!(tokens_up_to(&text, 4, four_bytes).unwrap().len() > 4);
            assert!(encoded.get() < 2000, "{}", encoded.get());
        }

        // Nothing is cut from a text that is short enough.
        for length in [0, 1, 4000, 4096, 5000] {
            let text = "é".repeat(length / 2);
            assert_eq!(tokens_up_to(&text, 1024, four_bytes), four_bytes(&text), "{length}");
        }

        // A tokenizer may leave out what it reads, so a long text may have few tokens.
        let blanks = " ".repeat(900_000);
        let few = |text: &str| Ok::<_, String>(vec![1; text.len() / 300_000]);
        assert_eq!(tokens_up_to(&blanks, 4, few), Ok(vec![1; 3]));

        // An error in the beginning is an error for the full text.
        assert_eq!(tokens_up_to(&blanks, 4, |_| Err("no")), Err("no"));
    }
}
