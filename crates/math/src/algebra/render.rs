//! Plain text of normal forms, and of expressions that have none.

use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, Zero};

use super::{
    atom::{Algebra, Atom},
    exact::Value,
    integer,
    limits::AlgebraError,
    polynomial::{AtomId, Exponent, Monomial, Polynomial, RationalFunction},
};
use crate::expr::{Constant, Expr, FoldKind};

impl Algebra<'_> {
    /// Writes a value. Every piece of the text is paid for, because it can grow longer than the quotients that it is
    /// made of, which may occur in it many times.
    pub(super) fn render(&mut self, value: &Value) -> Result<String, AlgebraError> {
        crate::parts::gate!(Rendering, Err(AlgebraError::Opaque));
        match value {
            Value::Number(number) => self.number(number),
            Value::Fraction(fraction) => self.fraction_text(fraction),
            Value::Infinity { positive } => {
                Ok(if *positive { "infinity" } else { "-infinity" }.into())
            }
        }
    }

    fn pay(&mut self, text: String) -> Result<String, AlgebraError> {
        self.budget.spend(8 + text.len() as u64)?;
        Ok(text)
    }

    fn number(&mut self, number: &BigRational) -> Result<String, AlgebraError> {
        let limbs = integer::bits(number) / 64;
        self.budget.spend(limbs * limbs)?;
        self.pay(number.to_string())
    }

    fn fraction_text(&mut self, fraction: &RationalFunction) -> Result<String, AlgebraError> {
        let Some(denom) = &fraction.denom else { return self.polynomial_text(&fraction.numer) };
        // The denominator has integer coefficients; the numerator gets them too.
        let factor = BigRational::from_integer(self.content(&fraction.numer)?.denom().clone());
        let numer = self.scale(&fraction.numer, &factor)?;
        let denom = self.scale(denom, &factor)?;

        let numer = self.polynomial_text(&numer)?;
        let denom = self.polynomial_text(&denom)?;
        let numer = if fraction.numer.0.len() > 1 { format!("({numer})") } else { numer };
        self.pay(format!("{numer}/({denom})"))
    }

    /// Writes the terms, those of higher degree first. Terms of one degree are ordered by name, but numbers precede
    /// other constants.
    fn polynomial_text(&mut self, polynomial: &Polynomial) -> Result<String, AlgebraError> {
        let mut terms = Vec::with_capacity(polynomial.0.len());
        for (monomial, coefficient) in &polynomial.0 {
            let degree: Exponent = monomial
                .0
                .iter()
                .filter(|(id, _)| matches!(self.atom(*id), Atom::Symbol(_)))
                .map(|(_, exponent)| exponent)
                .sum();
            let text = self.term_text(monomial, &coefficient.abs())?;
            terms.push((-degree, !monomial.0.is_empty(), text, coefficient.is_negative()));
        }

        terms.sort();
        let mut sum = String::new();
        for (index, (_, _, text, negative)) in terms.iter().enumerate() {
            sum += match (index, negative) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            };
            sum += text;
        }

        self.pay(if sum.is_empty() { "0".into() } else { sum })
    }

    fn term_text(
        &mut self,
        monomial: &Monomial,
        coefficient: &BigRational,
    ) -> Result<String, AlgebraError> {
        let mut over = vec![];
        let mut under = vec![];
        let mut under_root = BigRational::one();

        for (id, exponent) in &monomial.0 {
            if let Atom::IntegerBase { base, .. } = self.atom(*id)
                && *exponent == Ratio::new(1, 2)
            {
                // All square roots of whole numbers share one sign.
                let base = BigRational::from_integer(base.clone().into());
                under_root = integer::product(&under_root, &base, self.budget)?;
                continue;
            }

            let text = self.power_text(*id, exponent.abs())?;
            if exponent.is_negative() { &mut under } else { &mut over }.push(text);
        }

        over.sort();
        under.sort();
        if !under_root.is_one() {
            over.insert(0, format!("sqrt({})", self.number(&under_root)?));
        }

        let whole = |number: &num_bigint::BigInt| BigRational::from_integer(number.clone());
        if !coefficient.numer().is_one() || over.is_empty() {
            over.insert(0, self.number(&whole(coefficient.numer()))?);
        }
        if !coefficient.denom().is_one() {
            under.insert(0, self.number(&whole(coefficient.denom()))?);
        }

        let over = over.join("*");
        self.pay(match under.as_slice() {
            [] => over,
            [one] => format!("{over}/{one}"),
            _ => format!("{over}/({})", under.join("*")),
        })
    }

    fn power_text(&mut self, id: AtomId, exponent: Exponent) -> Result<String, AlgebraError> {
        let text = match self.atom(id).clone() {
            Atom::I => "i".into(),
            Atom::Pi => "pi".into(),
            Atom::E => "e".into(),
            Atom::Symbol(name) => name.into(),
            Atom::IntegerBase { base, .. } => {
                self.number(&BigRational::from_integer(base.into()))?
            }
            Atom::Root { radicand, .. } => {
                let inside = self.polynomial_text(&radicand)?;
                if exponent == Ratio::new(1, 2) {
                    return self.pay(format!("sqrt({inside})"));
                }
                format!("({inside})")
            }
            Atom::Power { base, exponent: mut inner } => {
                // The atom's own exponent is a factor of the exponent that is written.
                let factor =
                    BigRational::new((*exponent.numer()).into(), (*exponent.denom()).into());
                inner.numer = self.scale(&inner.numer, &factor)?;
                let base = self.fraction_text(&base)?;
                let inner = self.fraction_text(&inner)?;
                return self.pay(format!("{}^{}", closed(base), closed(inner)));
            }
            Atom::Call(function, arguments) => {
                let arguments = self.list(&arguments)?;
                format!("{}({arguments})", format!("{function:?}").to_lowercase())
            }
            Atom::Apply(name, arguments) => format!("{name}({})", self.list(&arguments)?),
        };

        self.pay(if exponent.is_one() {
            text
        } else if exponent.is_integer() {
            format!("{text}^{exponent}")
        } else {
            format!("{text}^({exponent})")
        })
    }

    fn list(&mut self, fractions: &[RationalFunction]) -> Result<String, AlgebraError> {
        let mut texts = Vec::with_capacity(fractions.len());
        for fraction in fractions {
            texts.push(self.fraction_text(fraction)?);
        }
        self.pay(texts.join(", "))
    }
}

/// Puts the text in parentheses, unless it is a single name or number.
fn closed(text: String) -> String {
    if text.chars().all(char::is_alphanumeric) { text } else { format!("({text})") }
}

/// Writes an expression in its original form.
pub(super) fn written(e: &Expr) -> String {
    let mut text = String::new();
    write(e, &mut text);
    text
}

fn write(e: &Expr, text: &mut String) {
    match e {
        Expr::Number(number) | Expr::Decimal(number) => write_number(number, text),
        Expr::Symbol(name) => *text += name,
        Expr::Constant(constant) => {
            *text += match constant {
                Constant::Pi => "pi",
                Constant::E => "e",
                Constant::I => "i",
                Constant::Infinity => "infinity",
                Constant::NotANumber => "nan",
            }
        }
        Expr::Sum(terms) => write_all(terms, " + ", text),
        Expr::Product(factors) => write_all(factors, "*", text),

        Expr::Negate(inner) => {
            text.push('-');
            write_closed(inner, text);
        }
        Expr::Quotient(parts) => write_all(parts.as_slice(), "/", text),
        Expr::Power(parts) => write_all(parts.as_slice(), "^", text),
        Expr::Root(parts) => {
            *text += "root(";
            write_all(parts.as_slice(), ", ", text);
            text.push(')');
        }

        Expr::Call(function, arguments) => {
            *text += &format!("{function:?}").to_lowercase();
            write_arguments(arguments, text);
        }
        Expr::Apply(name, arguments) => {
            *text += name;
            write_arguments(arguments, text);
        }

        Expr::Fold(fold) => {
            *text += if fold.kind == FoldKind::Sum { "sum(" } else { "product(" };
            write(&fold.body, text);
            *text += ", ";
            *text += &fold.index;
            *text += " = ";
            write(&fold.from, text);
            *text += "..";
            write(&fold.to, text);
            text.push(')');
        }

        Expr::Degrees(angle) => {
            write_closed(angle, text);
            *text += " degrees";
        }
    }
}

/// Writes a number. If it is too long to be worth its digits, its size is written instead.
fn write_number(number: &BigRational, text: &mut String) {
    let bits = integer::bits(number);
    *text += &if bits > integer::MAX_BITS {
        format!("[a number of {bits} bits]")
    } else {
        number.to_string()
    };
}

fn write_arguments(arguments: &[Expr], text: &mut String) {
    text.push('(');
    for (index, argument) in arguments.iter().enumerate() {
        *text += if index == 0 { "" } else { ", " };
        write(argument, text);
    }
    text.push(')');
}

fn write_all(parts: &[Expr], between: &str, text: &mut String) {
    for (index, part) in parts.iter().enumerate() {
        *text += if index == 0 { "" } else { between };
        write_closed(part, text);
    }
}

/// Writes an expression so that it can stand next to any operator.
fn write_closed(e: &Expr, text: &mut String) {
    let stands_alone = match e {
        Expr::Number(number) | Expr::Decimal(number) => {
            number.is_integer() && !number.is_negative() || number.is_zero()
        }
        Expr::Symbol(_) | Expr::Constant(_) | Expr::Call(..) | Expr::Apply(..) | Expr::Fold(_) => {
            true
        }
        Expr::Root(_) => true,
        _ => false,
    };

    if stands_alone {
        write(e, text);
    } else {
        text.push('(');
        write(e, text);
        text.push(')');
    }
}
