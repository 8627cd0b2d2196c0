//! A program of one's own around a recipe: everything is as the recipe says, except the verifier.

#![allow(clippy::print_stdout, reason = "an example talks")]

use firebrick::{Completion, Prompt, Recipe, Score, Session, Verdict, Verifier};

// ANCHOR: near
/// A verifier that pays for numbers that come near: all for the right one, half for one off, a third for two
/// off.
struct Near;

impl Verifier for Near {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let Ok(expected) = prompt.reference.trim().parse::<u32>() else {
            return Score::none(Verdict::Error);
        };
        let answer = completion.text.trim();
        match answer.parse::<u32>() {
            Err(_) => Score::none(Verdict::Unparsable),
            Ok(found) if found == expected => Score::right(answer),
            Ok(found) => {
                let credit = 1.0 / (1.0 + found.abs_diff(expected) as f32);
                Score { credit, ..Score::wrong(answer) }
            }
        }
    }
}
// ANCHOR_END: near

// ANCHOR: main
fn main() -> firebrick::Result<()> {
    let session = Session::new(Recipe::read("recipes/ci/tiny.toml")?).name("near");
    let run = session.verifier(Near).run()?;
    println!("{} steps, held-out {:?}", run.summary.steps, run.summary.heldout);
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;
    use firebrick::runs::Store;

    #[test]
    fn partial_credit_is_paid_and_counted_as_wrong() {
        let prompt = Prompt { reference: "12".into(), ..Prompt::default() };
        let score = |text: &str| {
            let completion = Completion::of_text(text);
            Near.score(&prompt, &completion)
        };

        assert_eq!((score("12").verdict, score("12").credit), (Verdict::Right, 1.0));
        assert_eq!((score("13").verdict, score("13").credit), (Verdict::Wrong, 0.5));
        assert_eq!(score("twelve").verdict, Verdict::Unparsable);
    }

    #[test]
    fn the_recipe_trains_with_it() {
        let recipe = concat!(env!("CARGO_MANIFEST_DIR"), "/../../recipes/ci/tiny.toml");
        let runs = tempfile::tempdir().unwrap();
        Session::new(Recipe::read(recipe).unwrap())
            .settings(|recipe| (recipe.sft.steps, recipe.train.steps) = (0, 2))
            .name("near")
            .runs(runs.path())
            .verifier(Near)
            .run()
            .unwrap();

        let store = Store::open_read_only(&runs.path().join("near/run.db")).unwrap();
        let paid = store.metrics("reward/mean").unwrap();
        // A wrong answer is paid -1. A new model writes noise, and some of it is a number, which
        // earns partial credit.
        assert!(paid.len() == 2 && paid.iter().any(|&(_, mean)| mean > -1.0), "{paid:?}");
    }
}
