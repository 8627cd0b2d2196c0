//! A program of one's own around a recipe: everything as the recipe says, but another verifier.

#![allow(clippy::print_stdout, reason = "an example talks")]

use std::{error::Error, path::Path};

use firebrick_core::{Completion, Metrics, Prompt, Score, Verdict, Verifier};

// ANCHOR: near
/// Pays for numbers that come near: all for the right one, half for one off, a third for two off.
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

// ANCHOR: train
/// Takes `steps` steps of the recipe at `path`, with [`Near`] in the place of its verifier.
fn train(path: &Path, steps: usize) -> Result<Vec<Metrics>, Box<dyn Error>> {
    let recipe = firebrick::recipe::Recipe::load(path, &[])?.recipe;
    let mut wired = firebrick::wire::wire(
        &recipe,
        None,
        &firebrick::source::Sources::here(),
        firebrick_data::DateTime::default(),
    )?;
    wired.trainer.task.verifier = Box::new(Near);
    (0..steps).map(|_| Ok(wired.trainer.step(&mut ())?.metrics)).collect()
}
// ANCHOR_END: train

fn main() -> Result<(), Box<dyn Error>> {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
    for metrics in train(&recipe, 3)? {
        println!("{}", metrics.get("reward/mean").unwrap_or(f64::NAN));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_marks_are_paid_and_counted_as_wrong() {
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
        let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recipes/ci/tiny.toml");
        let steps = train(&recipe, 2).unwrap();
        // A new model writes noise; some of it is a number, and earns part marks.
        let paid = |metrics: &Metrics| metrics.get("reward/accuracy").unwrap_or(0.0);
        assert!(steps.iter().any(|metrics| paid(metrics) > 0.0), "{steps:?}");
    }
}
