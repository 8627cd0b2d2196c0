//! An answer is right if it is one word that begins with the letter of the question.

use std::io::{self, BufRead as _, Write as _};

use serde_json::{Value, json};

/// Returns what a completion is worth, from 0 to 1. `reference` is the row's answer: here, the letter.
fn score(_question: &str, completion: &str, reference: &str) -> f64 {
    let word = completion.trim();
    let word = word.strip_suffix(['.', '!']).unwrap_or(word);
    let is_word = (3..=12).contains(&word.len()) && word.chars().all(|c| c.is_ascii_alphabetic());
    let begins = word.to_uppercase().starts_with(reference);
    if is_word && begins { 1.0 } else { 0.0 }
}

/// Answers each line of JSON on standard input by a line on standard output.
fn main() -> io::Result<()> {
    let mut answers = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let row: Value = serde_json::from_str(&line?)?;
        let text = |key: &str| row[key].as_str().unwrap_or_default();
        let score = score(text("question"), text("completion"), text("reference"));
        writeln!(answers, "{}", json!({ "id": row["id"], "score": score }))?;
        answers.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::score;

    #[test]
    fn one_word_with_the_letter_is_right() {
        for completion in ["Bread", " bridge.", "BALLOON!"] {
            assert_eq!(score("", completion, "B"), 1.0, "{completion}");
        }
        for completion in ["", "B", "Apple", "Bread and butter", "The word is bread."] {
            assert_eq!(score("", completion, "B"), 0.0, "{completion}");
        }
    }
}
