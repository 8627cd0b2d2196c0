//! One answer judged, with everything that the verdict rests on.

#![allow(clippy::print_stdout, reason = "an example talks")]

use firebrick_math::{Judgement, Verifier};

// ANCHOR: judge
fn judgement() -> Judgement {
    let gold = r"\sqrt2+\sqrt3";
    let response =
        r"First I had \boxed{3.1}, which is too small. So it is $\boxed{\sqrt{5+2\sqrt6}}$.";
    Verifier::default().judge(gold, response)
}
// ANCHOR_END: judge

fn main() {
    println!("{:#?}", judgement());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chapter_shows_what_is_printed() {
        let page = include_str!("../../src/rewards/mathematics.md").replace("\r\n", "\n");
        let printed = format!("{:#?}", judgement());
        assert!(page.contains(&format!("```text\n{printed}\n```")), "{printed}");
    }
}
