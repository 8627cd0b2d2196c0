//! Plain text of expressions, as they were written.

use num_rational::BigRational;
use num_traits::{Signed, ToPrimitive, Zero};

use super::integer;
use crate::expr::{Constant, Expr, FoldKind};

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
        Expr::Sum(terms) => {
            for (index, term) in terms.iter().enumerate() {
                // A summand that is taken away is written with the sign in front.
                let (term, sign, first) = match term {
                    Expr::Negate(term) => (term.as_ref(), " - ", "-"),
                    term => (term, " + ", ""),
                };
                *text += if index == 0 { first } else { sign };
                write_factor(term, text);
            }
        }
        Expr::Product(factors) => write_all(factors, "*", text),

        Expr::Negate(inner) => {
            text.push('-');
            write_factor(inner, text);
        }
        Expr::Quotient(parts) => write_all(parts.as_slice(), "/", text),
        Expr::Power(parts) => write_all(parts.as_slice(), "^", text),
        Expr::Root(parts) => {
            let is_square = matches!(&parts[0], Expr::Number(degree) if degree.to_u32() == Some(2));
            *text += if is_square { "sqrt" } else { "root" };
            write_arguments(&parts[usize::from(is_square)..], text);
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

/// Writes an expression so that it can stand next to a plus or minus.
fn write_factor(e: &Expr, text: &mut String) {
    match e {
        Expr::Product(_) | Expr::Quotient(_) | Expr::Power(_) => write(e, text),
        Expr::Number(number) if !number.is_negative() => write(e, text),
        _ => write_closed(e, text),
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
