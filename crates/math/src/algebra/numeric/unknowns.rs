//! Variables and unknown functions of two expressions.

use crate::{
    budget::{Budget, OverBudget},
    expr::Expr,
};

/// Unknowns of a pair of expressions, which stand for any real number: the free symbols, then the classes of the
/// unknown functions' values.
#[derive(Default)]
pub(super) struct Unknowns<'e> {
    pub(super) symbols: Vec<&'e str>,
    /// Outermost applications of unknown functions, each with its class. Applications of one class are known to be
    /// equal, while those of different classes are known to differ in name or arguments.
    pub(super) applications: Vec<(&'e Expr, usize)>,
    pub(super) classes: usize,
    /// True if an unknown function occurs in a sum or product, where its argument may be the index, so that it
    /// need not have a single value.
    pub(super) indexed: bool,
}

impl<'e> Unknowns<'e> {
    /// Maximum number of unknowns. With more, a search by name would take too long.
    pub(super) const MANY: usize = 64;

    /// Adds the unknowns of an expression. Their classes are assigned later.
    pub(super) fn collect(
        &mut self,
        expr: &'e Expr,
        bound: &mut Vec<&'e str>,
        budget: &mut Budget,
    ) -> Result<(), OverBudget> {
        budget.spend(1)?;

        match expr {
            Expr::Symbol(name) => {
                budget.spend(self.symbols.len() as u64 / 4)?;
                let known = bound.iter().chain(&self.symbols).any(|known| **known == **name);
                if !known && self.symbols.len() <= Self::MANY {
                    self.symbols.push(name);
                }
            }
            Expr::Apply(..) if !bound.is_empty() => self.indexed = true,
            Expr::Apply(..) if self.applications.len() <= Self::MANY => {
                self.applications.push((expr, 0));
            }

            Expr::Fold(fold) => {
                self.collect(&fold.from, bound, budget)?;
                self.collect(&fold.to, bound, budget)?;

                bound.push(&fold.index);
                // The index is unbound again before an error can be returned.
                let body = self.collect(&fold.body, bound, budget);
                bound.pop();
                body?;
            }
            _ => {
                for part in parts(expr) {
                    self.collect(part, bound, budget)?;
                }
            }
        }

        Ok(())
    }

    pub(super) fn symbol(&self, name: &str) -> Option<usize> {
        self.symbols.iter().position(|symbol| *symbol == name)
    }

    pub(super) fn applied(&self, expr: &Expr) -> Option<usize> {
        let found = self.applications.iter().find(|(known, _)| std::ptr::eq(*known, expr))?;
        Some(self.symbols.len() + found.1)
    }

    /// Tells whether any unknown occurs in a part of the expressions, in which some symbols are bound.
    pub(super) fn occur_in<'x>(
        &self,
        expr: &'x Expr,
        bound: &mut Vec<&'x str>,
        budget: &mut Budget,
    ) -> Result<bool, OverBudget> {
        budget.spend(1)?;

        match expr {
            Expr::Symbol(name) => Ok(bound.iter().all(|bound| **bound != **name)),
            Expr::Apply(..) => Ok(true),
            Expr::Fold(fold) => {
                if self.occur_in(&fold.from, bound, budget)?
                    || self.occur_in(&fold.to, bound, budget)?
                {
                    return Ok(true);
                }

                bound.push(&fold.index);
                let body = self.occur_in(&fold.body, bound, budget);
                bound.pop();
                body
            }

            _ => {
                for part in parts(expr) {
                    if self.occur_in(part, bound, budget)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
        }
    }
}

/// Returns the parts of an expression that is neither a fold nor an unknown function.
fn parts(expr: &Expr) -> &[Expr] {
    match expr {
        Expr::Sum(parts) | Expr::Product(parts) | Expr::Call(_, parts) => parts,
        Expr::Negate(inner) | Expr::Degrees(inner) => std::slice::from_ref(inner),
        Expr::Quotient(parts) | Expr::Power(parts) | Expr::Root(parts) => &parts[..],
        _ => &[],
    }
}
