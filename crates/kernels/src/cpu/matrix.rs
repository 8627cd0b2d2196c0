//! Matrices in slices.

use std::ops::Range;

/// A matrix in a slice, with steps from row to row and from column to column.
#[derive(Clone, Copy)]
pub(crate) struct Matrix<'a, T = f32> {
    pub(super) values: &'a [T],
    pub(super) rows: usize,
    pub(super) columns: usize,
    pub(super) steps: [usize; 2],
}

impl<'a, T: Copy> Matrix<'a, T> {
    /// # Panics
    /// If the slice ends before the matrix does.
    pub(crate) fn new(values: &'a [T], [rows, columns]: [usize; 2], steps: [usize; 2]) -> Self {
        let empty = rows == 0 || columns == 0;
        // The index of the last number, in whichever order rows and columns are stored.
        let last = rows.saturating_sub(1) * steps[0] + columns.saturating_sub(1) * steps[1];
        assert!(empty || last < values.len(), "a matrix ends within its slice");
        Matrix { values, rows, columns, steps }
    }

    /// Makes a matrix of consecutive rows.
    pub(crate) fn dense(values: &'a [T], columns: usize) -> Self {
        Matrix::new(values, [values.len() / columns, columns], [columns, 1])
    }

    pub(crate) fn transposed(self) -> Self {
        let (rows, columns, [row, column]) = (self.rows, self.columns, self.steps);
        Matrix { rows: columns, columns: rows, steps: [column, row], ..self }
    }

    pub(crate) fn dims(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    pub(crate) fn rows(self, which: Range<usize>) -> Self {
        assert!(which.start <= which.end && which.end <= self.rows, "a matrix has these rows");
        let first = (which.start * self.steps[0]).min(self.values.len());
        Matrix { values: &self.values[first..], rows: which.len(), ..self }
    }

    pub(crate) fn columns(self, which: Range<usize>) -> Self {
        self.transposed().rows(which).transposed()
    }

    /// Returns the numbers column by column.
    pub(super) fn by_columns(self) -> impl Iterator<Item = T> {
        let [row_step, column_step] = self.steps;
        (0..self.columns).flat_map(move |column| {
            (0..self.rows).map(move |row| self.values[row * row_step + column * column_step])
        })
    }
}
