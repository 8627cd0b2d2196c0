//! Rule that holds for every line of a judge. The fuzz target calls it with generated lines.

use crate::command;

/// Checks that a line is a verdict with a credit from 0 to 1, or an error message. The error has no control characters
/// but line breaks.
pub fn judge(line: &[u8]) {
    match command::read(line, 7) {
        Ok((score, _)) => assert!((0.0..=1.0).contains(&score.credit), "{score:?}"),
        Err(problem) => {
            let controls = |character: char| character.is_control() && character != '\n';
            assert!(!problem.is_empty() && !problem.contains(controls), "{problem:?}");
        }
    }
}
