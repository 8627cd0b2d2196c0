//! An environment of one's own: a guessing game that says how far a guess is from the secret, and not on which
//! side.

use std::path::Path;

use firebrick::{
    Environment, EnvironmentFailed, Episode, Prompt, Recipe, Reply, Result, Session, Summary,
};

// ANCHOR: distance
/// A game that hides the digit that is the prompt's reference.
struct Distance;

impl Environment for Distance {
    fn begin(&self, prompt: &Prompt) -> std::result::Result<Box<dyn Episode>, EnvironmentFailed> {
        let secret = prompt.reference.parse();
        let secret =
            secret.map_err(|_| EnvironmentFailed::Episode("the reference is no digit".into()));
        Ok(Box::new(Hidden(secret?)))
    }
}

struct Hidden(i64);

impl Episode for Hidden {
    fn step(&mut self, action: &str) -> std::result::Result<Reply, EnvironmentFailed> {
        // A word that is no digit is a move too: it is as far off as can be.
        let distance = action.parse::<i64>().map_or(9, |guess| (guess - self.0).abs());
        Ok(match distance {
            0 => Reply::over("=", 1.0),
            _ => Reply::observation(distance.to_string()),
        })
    }
}
// ANCHOR_END: distance

// ANCHOR: main
fn game(runs: &Path, steps: u64) -> Result<Summary> {
    let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/game.toml"))?;
    let session = Session::new(recipe).name("distance").runs(runs).environment(Distance);
    Ok(session.settings(|recipe| recipe.train.steps = steps).run()?.summary)
}

fn main() -> Result<()> {
    let heldout = game(Path::new("runs"), 300)?.heldout;
    println!("found within two guesses before training {:?}", heldout.initial);
    println!("                         after           {:?}", heldout.r#final);
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_game_says_the_distance() {
        let mut episode =
            Distance.begin(&Prompt { reference: "7".into(), ..Prompt::default() }).unwrap();
        let replies: Vec<Reply> =
            ["0", "x", "9", "7"].map(|action| episode.step(action).unwrap()).into();
        let expected = [
            Reply::observation("7"),
            Reply::observation("9"),
            Reply::observation("2"),
            Reply::over("=", 1.0),
        ];
        assert_eq!(replies, expected);
    }
}
