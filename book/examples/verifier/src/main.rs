//! A verifier of one's own in a recipe's run: an answer within one per cent is right.

use std::path::Path;

use firebrick::{Completion, Prompt, Recipe, Result, Score, Session, Summary, Verdict, Verifier};

// ANCHOR: near
/// A verifier that takes a number within one per cent of the reference as right.
struct Near;

impl Verifier for Near {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let answer = completion.text.trim();
        match (number(&prompt.reference), number(answer)) {
            (None, _) => Score::none(Verdict::Error),
            (_, None) => Score::none(Verdict::Unparsable),
            (Some(expected), Some(found)) if (found - expected).abs() <= 0.01 * expected.abs() => {
                Score::right(answer)
            }
            _ => Score::wrong(answer),
        }
    }
}

fn number(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|number: &f64| number.is_finite())
}
// ANCHOR_END: near

// ANCHOR: main
/// Makes the recipe's run, with [`Near`] in place of its judge.
fn session(runs: &Path) -> Result<Session> {
    let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/near.toml"))?;
    Ok(Session::new(recipe).verifier(Near).runs(runs))
}

fn main() -> Result<()> {
    let Summary { heldout, seconds, .. } = session(Path::new("runs"))?.run()?.summary;
    let percent = |accuracy: Option<f64>| 100.0 * accuracy.unwrap_or(f64::NAN);
    println!("within one per cent of the sum, in {:.0} s:", seconds.total);
    println!("{:5.1} % of held-out answers after SFT", percent(heldout.after_sft));
    println!("{:5.1} % after training", percent(heldout.r#final));
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_cent_is_near_and_more_is_wrong() {
        let verdict = |reference: &str, text: &str| {
            let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
            Near.score(&prompt, &Completion::of_text(text)).verdict
        };
        assert_eq!(verdict("1000", "990"), Verdict::Right);
        assert_eq!(verdict("1000", " 1010\n"), Verdict::Right);
        assert_eq!(verdict("1000", "989"), Verdict::Wrong);
        assert_eq!(verdict("-200", "-198"), Verdict::Right);
        for text in ["", "ten", "NaN", "1e999", "9".repeat(1_000_000).as_str()] {
            assert_eq!(verdict("1000", text), Verdict::Unparsable);
        }
        assert_eq!(verdict("many", "1000"), Verdict::Error);
    }

    #[test]
    fn the_recipes_own_judge_is_never_started() {
        let place = tempfile::tempdir().unwrap();
        let short = |recipe: &mut Recipe| {
            (recipe.sft.steps, recipe.train.steps, recipe.data.heldout_size) = (0, 1, 20);
        };
        let summary = session(place.path()).unwrap().settings(short).run().unwrap().summary;
        assert_eq!(summary.steps, 1);
        // The recipe's own judge would end the run.
        let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/near.toml")).unwrap();
        let error = Session::new(recipe).runs(place.path().join("judged")).run().unwrap_err();
        assert!(error.to_string().contains("no-such-judge"), "{error}");
    }
}
