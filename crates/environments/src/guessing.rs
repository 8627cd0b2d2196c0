//! The environment `Guessing`, a game in which the policy guesses a hidden number.

use firebrick_core::{Environment, EnvironmentFailed, Episode, Prompt, Reply};

/// A guessing game: the prompt's reference is a whole number from 0, and the first number in the policy's text is its
/// guess.
///
/// The reply is `>` if the secret is larger than the guess, `<` if it is smaller, and `?` if the policy named no
/// number. A right guess is answered with `=`, and ends the episode with a reward of 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guessing;

impl Guessing {
    /// Characters of the game's replies.
    pub const ALPHABET: &str = "<>=?";
}

impl Environment for Guessing {
    fn begin(&self, prompt: &Prompt) -> Result<Box<dyn Episode>, EnvironmentFailed> {
        let secret = prompt.reference.trim().parse().map_err(|_| {
            let reference: String = prompt.reference.chars().take(80).collect();
            let sentence = format!(
                "the reference of prompt {} is `{reference}`, expected a whole number to guess",
                prompt.id
            );
            EnvironmentFailed::Episode(sentence.into())
        })?;
        Ok(Box::new(GuessingEpisode(secret)))
    }
}

struct GuessingEpisode(i64);

impl Episode for GuessingEpisode {
    fn step(&mut self, action: &str) -> Result<Reply, EnvironmentFailed> {
        let from = action.find(|c: char| c.is_ascii_digit()).unwrap_or(action.len());
        let digits = action[from..].split(|c: char| !c.is_ascii_digit()).next();
        let Some(Ok(guess)) = digits.map(str::parse::<i64>) else {
            return Ok(Reply::observation("?"));
        };

        Ok(match self.0.cmp(&guess) {
            std::cmp::Ordering::Less => Reply::observation("<"),
            std::cmp::Ordering::Greater => Reply::observation(">"),
            std::cmp::Ordering::Equal => Reply::over("=", 1.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_game_says_where_the_secret_is() {
        let prompt = Prompt { reference: "7".into(), ..Prompt::default() };
        let mut game = Guessing.begin(&prompt).unwrap();
        for (guess, reply) in
            [("5", ">"), ("Is it 9, or 7?", "<"), ("é", "?"), ("", "?"), ("It is 7.", "=")]
        {
            let Reply { observation, reward, over } = game.step(guess).unwrap();
            assert_eq!(observation, reply, "{guess:?}");
            assert_eq!(
                (reward, over),
                if reply == "=" { (Some(1.0), true) } else { (None, false) }
            );
        }

        let nameless = Prompt { reference: "seven".into(), ..prompt };
        assert!(Guessing.begin(&nameless).is_err());
    }
}
