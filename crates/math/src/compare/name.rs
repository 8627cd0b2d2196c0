//! Names of values: the left sides of `x = 5`, `f(x) = 2x`, `AB = 12`.

use super::single;
use crate::{
    expr::{Expr, Function},
    value::Value,
};

/// Tells whether the left side of an equation only names the right side: `x`, `f(x)`, `(p, q)`, `AB`, `NO/BO`,
/// `S_{ABC} : S`, `cos A`, words. `xy` and `x + z` are expressions.
pub(super) fn is_name(value: &Value) -> bool {
    match value {
        Value::Scalar(expr) => match expr {
            Expr::Symbol(_) | Expr::Apply(..) => true,
            Expr::Quotient(two) => two.iter().all(is_geometric),
            Expr::Call(function, arguments) => {
                matches!(
                    function,
                    Function::Sin
                        | Function::Cos
                        | Function::Tan
                        | Function::Cot
                        | Function::Abs
                        | Function::Gcd
                        | Function::Lcm
                        | Function::Max
                        | Function::Min
                ) && arguments
                    .iter()
                    .all(|argument| matches!(argument, Expr::Symbol(_)) || is_geometric(argument))
            }
            other => is_geometric(other),
        },
        Value::Tuple { items, .. } => items.iter().all(is_name),
        Value::Ratio(terms) => {
            terms.iter().all(|term| matches!(term, Expr::Symbol(_)) || is_geometric(term))
        }
        Value::Text(_) => true,
        _ => false,
    }
}

/// Tells whether a name occurs in its own value, as in `x = x^2`. Such an equation names nothing.
pub(super) fn occurs(name: &Value, value: &Value) -> bool {
    match name {
        Value::Scalar(name) => value.any(&|part| part == name),
        name => name == value,
    }
}

/// Tells whether two names may stand for the same value.
///
/// Two letters may, and so may a letter and a function. Words may stand for anything. Two functions may not, because
/// [`with_common_letters`] has already run, so they differ in more than their letters. A name that is made of other
/// names is part of the statement, as in `(x, y) = (1, 2)` or `|x| = 5`.
pub(super) fn are_interchangeable(a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }

    match (a, b) {
        (Value::Text(_), _) | (_, Value::Text(_)) => true,
        (Value::Scalar(a), Value::Scalar(b)) => match (a, b) {
            (Expr::Symbol(_), Expr::Symbol(_)) => true,
            (Expr::Symbol(_), Expr::Apply(..)) | (Expr::Apply(..), Expr::Symbol(_)) => true,
            (Expr::Product(a), Expr::Product(b)) => {
                // A segment has no direction.
                a.len() == b.len() && a.iter().all(|letter| b.contains(letter))
            }
            _ => false,
        },
        _ => false,
    }
}

/// Renames the arguments of a function or sequence to the same letters on both sides, so that `f(x) = 2x` and
/// `f(t) = 2t` are compared as one function.
///
/// `sides` holds the gold name and value, then those of the response. The new letters occur in no answer, so none can
/// clash. Returns `None` if the letters are the same already, or if they are more than placeholders.
pub(super) fn with_common_letters(sides: [&Value; 4]) -> Option<[Value; 4]> {
    let (gold, response) = letters(sides[0], sides[2])?;
    let [a, b, c, d] = sides.map(Value::clone);

    let [a, b] = [a, b].map(|side| relettered(side, &gold));
    let [c, d] = [c, d].map(|side| relettered(side, &response));
    Some([a, b, c, d])
}

/// Returns the letters that two names of one function or sequence use for its arguments: `x` and `t` for `f(x)` and
/// `f(t)`, `n` and `k` for `a_n` and `a_k`. Arguments that agree are left out. Capital letters are events or points,
/// which are not placeholders.
fn letters<'a>(gold: &'a Value, response: &'a Value) -> Option<(Vec<&'a str>, Vec<&'a str>)> {
    let (Value::Scalar(gold), Value::Scalar(response)) = (gold, response) else { return None };
    let small = |letter: &str| single(letter).is_some_and(char::is_lowercase);

    let (a, b): (Vec<&str>, Vec<&str>) = match (gold, response) {
        (Expr::Apply(f, of_f), Expr::Apply(g, of_g)) if f == g && of_f.len() == of_g.len() => {
            let pairs = of_f.iter().zip(of_g).filter(|(a, b)| a != b);
            // An argument that is not a letter can't be renamed.
            let letters = pairs.map(|pair| match pair {
                (Expr::Symbol(a), Expr::Symbol(b)) => Some((&**a, &**b)),
                _ => None,
            });
            letters.collect::<Option<Vec<_>>>()?.into_iter().unzip()
        }
        (Expr::Symbol(a), Expr::Symbol(b)) if a != b => {
            let (base, a) = a.rsplit_once('_')?;
            let (other, b) = b.rsplit_once('_')?;
            (base == other).then(|| (vec![a], vec![b]))?
        }
        _ => return None,
    };

    let placeholders = |letters: &[&str]| {
        letters.iter().enumerate().all(|(at, one)| small(one) && !letters[..at].contains(one))
    };
    (!a.is_empty() && placeholders(&a) && placeholders(&b)).then_some((a, b))
}

/// Replaces each of the letters by a new one that holds its position. An index is replaced too, as `n` in `n + b_n`.
fn relettered(value: Value, letters: &[&str]) -> Value {
    // No text can hold a name with `@`.
    let new_name = |letter: &str| {
        let at = letters.iter().position(|known| *known == letter)?;
        Some(format!("@{at}"))
    };

    let by = |symbol: &str| {
        let name = new_name(symbol).or_else(|| {
            let (base, index) = symbol.rsplit_once('_')?;
            Some(format!("{base}_{}", new_name(index)?))
        })?;
        Some(Expr::Symbol(name.into()))
    };

    value.map(&mut |expr| expr.replaced(&by))
}

/// Tells whether an expression names a point, a segment or an angle: capital letters side by side.
fn is_geometric(expr: &Expr) -> bool {
    let capital = |expr: &Expr| match expr {
        Expr::Symbol(name) => {
            name.chars().next().is_some_and(|c| c.is_uppercase() || c == '∠' || c == '△')
        }
        _ => false,
    };

    match expr {
        Expr::Product(factors) => match factors.as_slice() {
            // `m∠A`
            [Expr::Symbol(m), angle @ ..] if **m == *"m" && angle.len() > 1 => {
                angle.iter().all(capital)
            }
            factors => factors.iter().all(capital),
        },
        other => capital(other),
    }
}
