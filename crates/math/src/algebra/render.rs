//! Plain text of normal forms, and of expressions that have none.

use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, Zero};

use super::{
    atom::{Algebra, Atom},
    exact::Value,
    integer,
    limits::Stop,
    polynomial::{AtomId, Exponent, Form, Monomial, Polynomial},
};
use crate::expr::{Constant, Expr, FoldKind};

impl Algebra<'_> {
    /// Writes a value. The text can be longer than the forms that it is made of, because they occur in it again
    /// and again. So every piece of the text is paid for.
    pub(super) fn render(&mut self, value: &Value) -> Result<String, Stop> {
        match value {
            Value::Number(number) => self.number(number),
            Value::Form(form) => self.form_text(form),
            Value::Infinity { positive } => {
                Ok(if *positive { "infinity" } else { "-infinity" }.into())
            }
        }
    }

    fn pay(&mut self, text: String) -> Result<String, Stop> {
        self.budget.spend(8 + text.len() as u64)?;
        Ok(text)
    }

    fn number(&mut self, number: &BigRational) -> Result<String, Stop> {
        let limbs = integer::bits(number) / 64;
        self.budget.spend(limbs * limbs)?;
        self.pay(number.to_string())
    }

    fn form_text(&mut self, form: &Form) -> Result<String, Stop> {
        let Some(denom) = &form.denom else { return self.polynomial_text(&form.numer) };
        // The denominator has whole coefficients; the numerator gets them too.
        let factor = BigRational::from_integer(self.content(&form.numer)?.denom().clone());
        let (numer, denom) = (self.scale(&form.numer, &factor)?, self.scale(denom, &factor)?);
        let numer = self.polynomial_text(&numer)?;
        let denom = self.polynomial_text(&denom)?;
        let numer = if form.numer.0.len() > 1 { format!("({numer})") } else { numer };
        self.pay(format!("{numer}/({denom})"))
    }

    /// Writes the terms, terms of higher degree first. Terms of one degree are ordered by name, but numbers stand
    /// before other constants.
    fn polynomial_text(&mut self, polynomial: &Polynomial) -> Result<String, Stop> {
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
        for (place, (_, _, text, negative)) in terms.iter().enumerate() {
            sum += match (place, negative) {
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
    ) -> Result<String, Stop> {
        let (mut over, mut under) = (vec![], vec![]);
        let mut under_root = BigRational::one();
        for (id, exponent) in &monomial.0 {
            if let Atom::Whole { base, .. } = self.atom(*id)
                && *exponent == Ratio::new(1, 2)
            {
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

    fn power_text(&mut self, id: AtomId, exponent: Exponent) -> Result<String, Stop> {
        let text = match self.atom(id).clone() {
            Atom::I => "i".into(),
            Atom::Pi => "pi".into(),
            Atom::E => "e".into(),
            Atom::Symbol(name) => name.into(),
            Atom::Whole { base, .. } => self.number(&BigRational::from_integer(base.into()))?,
            Atom::Root { radicand, .. } => {
                let inside = self.polynomial_text(&radicand)?;
                if exponent == Ratio::new(1, 2) {
                    return self.pay(format!("sqrt({inside})"));
                }
                format!("({inside})")
            }
            Atom::Power { base, exponent: mut inner } => {
                let factor =
                    BigRational::new((*exponent.numer()).into(), (*exponent.denom()).into());
                inner.numer = self.scale(&inner.numer, &factor)?;
                let (base, inner) = (self.form_text(&base)?, self.form_text(&inner)?);
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

    fn list(&mut self, forms: &[Form]) -> Result<String, Stop> {
        let mut texts = Vec::with_capacity(forms.len());
        for form in forms {
            texts.push(self.form_text(form)?);
        }
        self.pay(texts.join(", "))
    }
}

/// Puts the text in parentheses, unless it is a single name or number.
fn closed(text: String) -> String {
    match text.chars().all(char::is_alphanumeric) {
        true => text,
        false => format!("({text})"),
    }
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
    *text += &match bits > integer::MAX_BITS {
        true => format!("[a number of {bits} bits]"),
        false => number.to_string(),
    };
}

fn write_arguments(arguments: &[Expr], text: &mut String) {
    text.push('(');
    for (place, argument) in arguments.iter().enumerate() {
        *text += if place == 0 { "" } else { ", " };
        write(argument, text);
    }
    text.push(')');
}

fn write_all(parts: &[Expr], between: &str, text: &mut String) {
    for (place, part) in parts.iter().enumerate() {
        *text += if place == 0 { "" } else { between };
        write_closed(part, text);
    }
}

/// Writes an expression so that it can stand next to any operator.
fn write_closed(e: &Expr, text: &mut String) {
    let whole = match e {
        Expr::Number(number) | Expr::Decimal(number) => {
            number.is_integer() && !number.is_negative() || number.is_zero()
        }
        Expr::Symbol(_) | Expr::Constant(_) | Expr::Call(..) | Expr::Apply(..) | Expr::Fold(_) => {
            true
        }
        Expr::Root(_) => true,
        _ => false,
    };
    if whole {
        write(e, text);
    } else {
        text.push('(');
        write(e, text);
        text.push(')');
    }
}
