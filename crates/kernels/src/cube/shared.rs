//! Sums and comparisons that the units of a cube compute together.

use super::*;

/// Sums the units' numbers and returns the sum to each unit. The number of units is a power of two, [`UNITS`] at most.
#[cube]
pub(super) fn sum_of_cube(x: f32) -> f32 {
    of_lanes(x, CUBE_DIM, false)
}

/// Sums the numbers of each group of `lanes` neighbouring units, and returns the sum to these units. The number is a
/// power of two that divides the number of units.
#[cube]
pub(super) fn sum_of_lanes(x: f32, lanes: u32) -> f32 {
    of_lanes(x, lanes, false)
}

/// Finds the largest of the units' numbers and returns it to each unit.
#[cube]
pub(super) fn largest_of_cube(x: f32) -> f32 {
    of_lanes(x, CUBE_DIM, true)
}

/// Finds the sum of the numbers of each group of `lanes` units, or the largest.
#[cube]
fn of_lanes(x: f32, lanes: u32, #[comptime] largest: bool) -> f32 {
    let mut all = Shared::<[f32]>::new_slice(comptime!(UNITS as usize));
    all[UNIT_POS as usize] = x;
    sync_cube();

    // Halves the numbers in each round, so the order of a sum depends only on the number of units.
    let lane = UNIT_POS % lanes;
    let mut step = lanes / 2;
    while step > 0 {
        if lane < step {
            let other = all[(UNIT_POS + step) as usize];
            if largest {
                all[UNIT_POS as usize] = max(all[UNIT_POS as usize], other);
            } else {
                all[UNIT_POS as usize] += other;
            }
        }
        step /= 2;
        sync_cube();
    }

    let found = all[(UNIT_POS - lane) as usize];
    // The next call writes where this one reads.
    sync_cube();
    found
}

/// Returns the sum of the numbers of the units before a unit, and the sum of all.
#[cube]
pub(super) fn sums_before(x: f32) -> (f32, f32) {
    let mut all = Shared::<[f32]>::new_slice(comptime!(UNITS as usize));
    let unit = UNIT_POS as usize;
    all[unit] = x;
    sync_cube();

    // Each round doubles the distance over which sums reach (Hillis and Steele 1986).
    let mut step = 1usize;
    while step < CUBE_DIM as usize {
        let mut sum = all[unit];
        if unit >= step {
            sum += all[unit - step];
        }
        sync_cube();
        all[unit] = sum;
        sync_cube();
        step *= 2;
    }

    let total = all[CUBE_DIM as usize - 1];
    let mut before = f32::new(0.0);
    if unit > 0 {
        before = all[unit - 1];
    }

    sync_cube();
    (before, total)
}

/// Finds the smallest `value` among the units for which `holds` is true, or the largest number of 32 bits if there is
/// none.
#[cube]
pub(super) fn first_of_cube(holds: bool, value: usize) -> usize {
    let mut all = Shared::<[u32]>::new_slice(comptime!(UNITS as usize));
    all[UNIT_POS as usize] = select(holds, value as u32, u32::MAX);
    sync_cube();

    let mut step = CUBE_DIM / 2;
    while step > 0 {
        if UNIT_POS < step {
            let other = all[(UNIT_POS + step) as usize];
            all[UNIT_POS as usize] = min(all[UNIT_POS as usize], other);
        }
        step /= 2;
        sync_cube();
    }

    let first = all[0];
    sync_cube();
    first as usize
}

/// Finds the largest `value` among the units for which `holds` is true; 0 if there is none.
#[cube]
pub(super) fn last_of_cube(holds: bool, value: usize) -> usize {
    u32::MAX as usize - first_of_cube(holds, u32::MAX as usize - value)
}
