//! Numbers that should be equal up to rounding.

/// How far a number may be from its reference: `absolute + relative · |reference|`.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// Part that does not depend on the reference.
    pub absolute: f64,
    /// Part that grows with the reference, as a share of it.
    pub relative: f64,
}

impl Tolerance {
    /// Compares pairs of (number, reference), at least one, and prints the worst deviation.
    ///
    /// # Panics
    /// If a number is further off than it may be, or is a NaN.
    pub fn check(self, what: &str, pairs: impl IntoIterator<Item = (f64, f64)>) {
        let mut count = 0;
        let mut worst = 0.0f64;
        let mut worst_share = 0.0f64;
        for (index, (came, reference)) in pairs.into_iter().enumerate() {
            let deviation = (came - reference).abs();
            let share = deviation / (self.absolute + self.relative * reference.abs());

            // Not `share > 1.0`, which a NaN would pass.
            assert!(
                share <= 1.0,
                "{what}, value {index}: {came}, but the reference is {reference}"
            );

            count += 1;
            worst = worst.max(deviation);
            worst_share = worst_share.max(share);
        }

        assert!(count > 0, "{what}: there was nothing to compare");
        report(&format!(
            "{what}: {count} values, off by at most {worst:.1e}, {:.1} % of the tolerance",
            100.0 * worst_share
        ));
    }
}

/// Pairs the numbers of two lists.
///
/// # Panics
/// If one list is longer.
pub fn pairs<A, B>(came: &[A], reference: &[B]) -> Vec<(f64, f64)>
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    assert_eq!(came.len(), reference.len(), "lengths of the numbers and of their reference");
    came.iter().zip(reference).map(|(&came, &reference)| (came.into(), reference.into())).collect()
}

/// Pairs the numbers of lists of lists, as [`pairs`] does.
///
/// # Panics
/// If one of the lists is longer.
pub fn nested_pairs<A, B>(came: &[Vec<A>], reference: &[Vec<B>]) -> Vec<(f64, f64)>
where
    A: Copy + Into<f64>,
    B: Copy + Into<f64>,
{
    assert_eq!(came.len(), reference.len(), "lists of numbers and of their reference");
    came.iter().zip(reference).flat_map(|(came, reference)| pairs(came, reference)).collect()
}

/// Prints a measurement, for `cargo test -- --nocapture` to show.
#[allow(clippy::print_stdout, reason = "a test's standard output is its report")]
pub fn report(line: &str) {
    println!("{line}");
}
