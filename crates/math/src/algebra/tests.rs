//! Tables of equal and unequal pairs, in a plain notation that this file reads.

use std::iter::Peekable;
use std::str::Chars;

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;

use super::*;
use crate::expr::{Constant, Fold, FoldKind, Function};

/// Reads `1/2*x^2 + sqrt(3) - f(x)!`, with `oo` for infinity, `sum(k, 1, n, body)`, `root(3, x)`.
fn read(text: &str) -> Expr {
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut chars = compact.chars().peekable();
    let expr = sum(&mut chars);
    assert_eq!(chars.next(), None, "{text}");
    expr
}

fn sum(chars: &mut Peekable<Chars>) -> Expr {
    let mut terms = vec![product(chars)];
    loop {
        match chars.next_if(|c| "+-".contains(*c)) {
            Some('+') => terms.push(product(chars)),
            Some(_) => terms.push(Expr::Negate(Box::new(product(chars)))),
            None => return if terms.len() == 1 { terms.remove(0) } else { Expr::Sum(terms) },
        }
    }
}

fn product(chars: &mut Peekable<Chars>) -> Expr {
    let mut left = power(chars);
    loop {
        match chars.next_if(|c| "*/".contains(*c)) {
            Some('*') => left = Expr::Product(vec![left, power(chars)]),
            Some(_) => left = Expr::Quotient(Box::new([left, power(chars)])),
            None => return left,
        }
    }
}

fn power(chars: &mut Peekable<Chars>) -> Expr {
    if chars.next_if_eq(&'-').is_some() {
        return Expr::Negate(Box::new(power(chars)));
    }

    let mut base = atom(chars);
    while chars.next_if_eq(&'!').is_some() {
        base = Expr::Call(Function::Factorial, vec![base]);
    }
    match chars.next_if_eq(&'^') {
        Some(_) => Expr::Power(Box::new([base, power(chars)])),
        None => base,
    }
}

fn atom(chars: &mut Peekable<Chars>) -> Expr {
    if chars.next_if_eq(&'(').is_some() {
        let inner = sum(chars);
        assert_eq!(chars.next(), Some(')'));
        return inner;
    }

    let mut word = String::new();
    while let Some(c) = chars.next_if(|c| c.is_alphanumeric() || *c == '.') {
        word.push(c);
    }

    if word.starts_with(|c: char| c.is_ascii_digit()) {
        let (whole, fraction) = word.split_once('.').unwrap_or((&word, ""));
        let digits: BigInt = format!("{whole}{fraction}").parse().unwrap();
        let value = BigRational::new(digits, BigInt::from(10).pow(fraction.len() as u32));
        return if word.contains('.') { Expr::Decimal(value) } else { Expr::Number(value) };
    }

    if chars.next_if_eq(&'(').is_none() {
        return match word.as_str() {
            "pi" => Expr::Constant(Constant::Pi),
            "e" => Expr::Constant(Constant::E),
            "i" => Expr::Constant(Constant::I),
            "oo" => Expr::Constant(Constant::Infinity),
            _ => Expr::Symbol(word.into()),
        };
    }

    let mut parts = vec![sum(chars)];
    while chars.next_if_eq(&',').is_some() {
        parts.push(sum(chars));
    }
    assert_eq!(chars.next(), Some(')'));
    call(&word, parts)
}

fn call(name: &str, mut parts: Vec<Expr>) -> Expr {
    use Function::*;
    let function = match name {
        "sqrt" => {
            let two = Expr::Number(BigRational::from_integer(2.into()));
            return Expr::Root(Box::new([two, parts.remove(0)]));
        }
        "root" => return Expr::Root(Box::new([parts.remove(0), parts.remove(0)])),
        "deg" => return Expr::Degrees(Box::new(parts.remove(0))),
        "sum" | "prod" => {
            let kind = if name == "sum" { FoldKind::Sum } else { FoldKind::Product };
            let [index, from, to, body] = parts.try_into().unwrap();
            let Expr::Symbol(index) = index else { panic!("an index is a name") };
            return Expr::Fold(Box::new(Fold { kind, index, from, to, body }));
        }
        "sin" => Sin,
        "cos" => Cos,
        "tan" => Tan,
        "cot" => Cot,
        "sec" => Sec,
        "sinh" => Sinh,
        "cosh" => Cosh,
        "arctan" => Arctan,
        "exp" => Exp,
        "ln" => Ln,
        "log" => Log,
        "abs" => Abs,
        "floor" => Floor,
        "ceil" => Ceil,
        "min" => Min,
        "binom" => Binomial,
        "mod" => Mod,
        "gcd" => Gcd,
        "lcm" => Lcm,
        "max" => Max,
        "re" => Re,
        "conj" => Conjugate,
        _ => return Expr::Apply(name.into(), parts),
    };

    Expr::Call(function, parts)
}

fn budget() -> Budget {
    Budget::new(2_000_000)
}

/// Returns the decision on two expressions that a test recorded.
#[cfg(feature = "parts")]
pub(crate) fn decision(a: &str, b: &str) -> Decision {
    equal(&read(a), &read(b), &mut budget())
}

/// Returns the decision, which has to be the same in both directions.
fn decide(a: &str, b: &str) -> Decision {
    #[cfg(feature = "parts")]
    crate::parts::record_equal(a, b);

    let left = read(a);
    let right = read(b);
    let decision = equal(&left, &right, &mut budget());
    assert_eq!(decision, equal(&right, &left, &mut budget()), "{a} and {b}");
    decision
}

const SAME: &[(&str, &str)] = &[
    ("1/2", "2/4"),
    ("9/8 + 5/4", "19/8"),
    ("0.5", "1/2"),
    ("-(-3)", "3"),
    ("2^(-36)", "1/2^36"),
    ("7^20", "7^17*343"),
    ("1/2004!", "2005/2005!"),
    // Radicals.
    ("sqrt(8)", "2*sqrt(2)"),
    ("1/sqrt(2)", "sqrt(2)/2"),
    ("1/(sqrt(3)+1)", "(sqrt(3)-1)/2"),
    ("sqrt(2)*sqrt(3)", "sqrt(6)"),
    ("root(3, 16)", "2*root(3, 2)"),
    ("2^(1/2)*2^(1/3)", "32^(1/6)"),
    ("root(4, 4)", "sqrt(2)"),
    ("sqrt(2/3)", "sqrt(6)/3"),
    ("(2+sqrt(3))^2", "7+4*sqrt(3)"),
    ("(2+sqrt(3))^300*(2-sqrt(3))^300", "1"),
    ("sqrt(1000001)-1000", "1/(sqrt(1000001)+1000)"),
    ("(-8)^(1/3)", "-2"),
    ("(-8)^(2/3)", "4"),
    ("root(3, -2)", "-root(3, 2)"),
    ("sqrt(10^(10^9))", "10^(10^9/2)"),
    ("sqrt(-4)", "2*i"),
    ("sqrt(i)", "(1+i)/sqrt(2)"),
    ("root(4, -4)", "1+i"),
    ("(-4)^(3/2)", "-8*i"),
    // Complex numbers.
    ("(1+i)^8", "16"),
    ("(3+2*i)*(-1-4*i)", "5-14*i"),
    ("1/i", "-i"),
    ("(1+i)/(1-i)", "i"),
    ("e^(i*pi)", "-1"),
    ("e^(i*pi/3)", "1/2+sqrt(3)/2*i"),
    ("abs(3-4*i)", "5"),
    ("conj(2-3*i)", "2+3*i"),
    // Polynomials and rational functions.
    ("(x-4)^2-9", "x^2-8*x+7"),
    ("(x^2-1)/(x-1)", "x+1"),
    ("(x^3+8)/(x+2)", "x^2-2*x+4"),
    ("1/x + 1/y", "(x+y)/(x*y)"),
    ("1/(1/x)", "x"),
    ("x/sqrt(2)", "x*sqrt(2)/2"),
    ("(x+1)^1000000", "(1+x)^1000000"),
    ("(x+y)^4000*(x-y)^4000", "(x^2-y^2)^4000"),
    ("x^0", "1"),
    // Powers and logarithms.
    ("2^(x+3)", "8*2^x"),
    ("4^x", "2^(2*x)"),
    ("6^x", "2^x*3^x"),
    ("e^x*e^y", "e^(x+y)"),
    ("exp(2*x)", "(e^x)^2"),
    ("e^(-x)", "1/e^x"),
    ("(e^x)^y", "e^(x*y)"),
    ("x^(n+1)", "x*x^n"),
    ("ln(32)", "5*ln(2)"),
    ("log(2, 128)", "7"),
    ("log(4, 8)", "3/2"),
    ("ln(1/9)", "-2*ln(3)"),
    ("ln(sqrt(e))", "1/2"),
    ("e^(2*ln(3))", "9"),
    ("e^(ln(3)/2)", "sqrt(3)"),
    ("e^(x*ln(2))", "2^x"),
    ("ln(2*x+2)", "ln(2)+ln(1+x)"),
    ("e^2*pi", "pi*e*e"),
    ("1-1/e", "(e-1)/e"),
    ("cosh(x)^2-sinh(x)^2", "1"),
    // Absolute values and roots of variables.
    ("abs(x-3)", "abs(3-x)"),
    ("abs(-2*pi*x)", "2*pi*abs(x)"),
    ("abs(x)^2", "x^2"),
    ("sqrt(x^2)", "abs(x)"),
    ("sqrt(4*x)", "2*sqrt(x)"),
    ("sqrt(x)^2", "x"),
    ("x/sqrt(x)", "sqrt(x)"),
    ("root(3, -x)", "-root(3, x)"),
    ("root(3, x^3)", "x"),
    ("abs(x^2+1)", "x^2+1"),
    ("1/sqrt(x+1)", "sqrt(x+1)/(x+1)"),
    // Trigonometry.
    ("sin(pi/6)", "1/2"),
    ("cos(deg(15))", "(sqrt(6)+sqrt(2))/4"),
    ("tan(pi/3)", "sqrt(3)"),
    ("sin(7*pi/9)", "sin(2*pi/9)"),
    ("cos(2*pi/7)", "-cos(5*pi/7)"),
    ("cos(pi/5)", "(1+sqrt(5))/4"),
    ("sin(-x)", "-sin(x)"),
    ("cos(y-x)", "cos(x-y)"),
    ("tan(x)*cos(x)", "sin(x)"),
    ("sin((x^2-1)/(x-1))", "sin(x+1)"),
    // Unknown functions.
    ("f(x)*2", "f(x)+f(x)"),
    ("f((x^2-1)/(x-1))", "f(x+1)"),
    // Whole numbers.
    ("5!", "120"),
    ("(n+1)!", "(n+1)*n!"),
    ("(n-1)!", "n!/n"),
    ("binom(5, 2)", "10"),
    ("binom(n, 2)", "n*(n-1)/2"),
    ("binom(n, k)", "n!/(k!*(n-k)!)"),
    ("gcd(12, 18) + lcm(4, 6)", "18"),
    ("mod(10^500, 7)", "2"),
    ("mod(-7, 3)", "2"),
    ("mod(3^(4^(5^6)), 100)", "81"),
    ("floor(-7/2)", "-4"),
    ("sum(k, 1, 100, k)", "5050"),
    ("sum(k, 0, 3, sum(j, 0, k, x^j))", "4+3*x+2*x^2+x^3"),
    ("prod(k, 1, 5, k)", "5!"),
    ("sum(k, 1, 0, 1/k)", "0"),
    // Too large to be computed.
    ("9^9^9^9", "9^9^9^9"),
    ("9^(9^(9^9))", "9^9^(3^18)"),
    ("2^(10^9)*2", "2^(10^9+1)"),
    ("1000000!", "1000000!"),
    ("1/9^9^9^9", "1/9^9^9^9"),
    ("1/(9^9^9^9-8^9^9^9)", "1/(9^9^9^9-8^9^9^9)"),
    ("20000!/19999!", "20000"),
    // Infinity.
    ("oo", "oo+1"),
    ("-oo", "-2*oo"),
    ("1/oo", "0"),
    ("e^(-oo)", "0"),
    ("oo^2", "(-oo)^2"),
];

const DIFFERENT: &[(&str, &str)] = &[
    ("1/2", "1/3"),
    ("0.333333", "1/3"),
    ("sqrt(2)", "1"),
    ("sqrt(2)", "root(3, 3)"),
    ("sqrt(3)+sqrt(6)", "3"),
    ("5*sqrt(5)", "5^(2/3)"),
    ("(5+sqrt(3))/22", "1/(5+sqrt(3))"),
    ("1/2^99", "1/2^98"),
    ("i", "-i"),
    ("sqrt(-1)", "1"),
    ("24+10*i", "23+10*i"),
    ("19*pi/7", "18*pi/7"),
    ("pi", "22/7"),
    ("pi*sqrt(2)", "pi*sqrt(3)"),
    ("e", "2.718281828459045"),
    ("(x+y)^2", "x^2+y^2"),
    ("x-x+y", "0"),
    ("x/y", "1"),
    ("x", "y"),
    ("x^10-1", "(x-1)^10"),
    ("1/(x-1)", "1/(x+1)"),
    ("(x+1)^1000000", "42"),
    ("(x+1)^1000000", "(x+1)^1000001"),
    ("f(x)", "g(x)"),
    ("f(x)", "f(y)"),
    ("f(x)+1", "f(x)"),
    ("sqrt(2)+sin(1)", "sin(1)"),
    ("9^9^9^9", "42"),
    ("9^9^9^9", "8^9^9^9"),
    ("9^9^9^9", "9^9^9^8"),
    ("2^(10^9)", "2^(10^8)"),
    ("10^(-10^10)", "42"),
    ("10^(-10^10)", "0"),
    ("2^(100!)", "3^(100!)"),
    ("2^3^(100!)", "2^5^(100!)"),
    ("30000!", "30001!"),
    ("mod(10^500, 7)", "42"),
    ("oo", "-oo"),
    ("oo", "9^9^9^9"),
    ("oo", "x"),
    ("0", "oo"),
];

const UNDEFINED: &[(&str, &str)] = &[
    ("1/0", "1"),
    ("1/0", "1/0"),
    ("1/0", "2/0"),
    ("1/(x-x)", "1"),
    ("0*(1/0)", "0"),
    ("1/(1/0)", "0"),
    ("0^(-1)", "0"),
    ("0^0", "1"),
    ("tan(deg(90))", "0"),
    ("cot(0)", "0"),
    ("ln(0)", "1"),
    ("log(1, 2)", "1"),
    ("log(2, x-x)", "1"),
    ("oo-oo", "0"),
    ("oo-oo", "oo-oo"),
    ("oo/oo", "1"),
    ("0*oo", "0"),
    ("1^oo", "1"),
    ("oo^0", "1"),
    ("oo", "1/0"),
    ("(-1)!", "0"),
    ("mod(3, 0)", "0"),
    ("9^9^9^9 + 1/0", "9^9^9^9 + 1/0"),
    ("1/(sqrt(2)*sqrt(3)-sqrt(6))", "1"),
    ("sum(k, 0, 3, 1/k)", "1"),
];

/// Pairs that exact arithmetic and residues must leave to enclosures.
const OPEN: &[(&str, &str)] = &[
    ("sqrt(x^2)", "x"),
    ("sqrt(10^20+1)", "10^10"),
    ("sqrt(x)*sqrt(y)", "sqrt(x*y)"),
    ("sqrt(3+2*sqrt(2))", "1+sqrt(2)"),
    ("sin(x)^2+cos(x)^2", "1"),
    ("sin(1)", "cos(1)"),
    ("x^(1/6)*x^(1/6)", "x^(1/3)"),
    ("sqrt(1/n)", "1/sqrt(n)"),
    ("ln(x^2)", "2*ln(x)"),
    ("pi+e", "pi*e"),
    ("x/(sin(x)^2+cos(x)^2-1)", "2*x/(sin(x)^2+cos(x)^2-1)/2"),
    ("1/(sin(x)^2+cos(x)^2-1)", "1/(sin(x)^2+cos(x)^2-1)"),
    ("x*oo", "oo"),
    ("sum(k, 1, n, k)", "n*(n+1)/2"),
    ("abs(1-sqrt(2))", "sqrt(2)-1"),
    ("((x+1)^2)^n", "(x+1)^(2*n)"),
];

#[test]
fn equal_pairs_are_equal() {
    for (a, b) in SAME {
        let decision = decide(a, b);
        assert!(matches!(decision, Decision::Equal(_)), "{a} = {b}: {decision:?}");
    }
}

#[test]
fn unequal_pairs_are_proved_unequal() {
    for (a, b) in DIFFERENT {
        assert_eq!(decide(a, b), Decision::Different(Certainty::Proved), "{a} = {b}");
    }
}

#[test]
fn undefined_forms_equal_nothing() {
    for (a, b) in UNDEFINED {
        assert_eq!(decide(a, b), Decision::Undefined, "{a} = {b}");
    }
}

#[test]
fn what_has_no_unique_form_is_left_to_enclosures() {
    for (a, b) in OPEN {
        let left = read(a);
        let right = read(b);

        let exact = exactly(&left, &right, &mut budget(), &mut false);
        assert!(!matches!(exact, ExactVerdict::Decided(_)), "{a} = {b}");
        assert_eq!(
            modular::compare(&left, &right, &mut budget()),
            Err(AlgebraError::Opaque),
            "{a} = {b}"
        );
    }
}

#[test]
fn constants_are_ordered() {
    for (a, b, expected) in [
        ("1/3", "1/2", Some(Ordering::Less)),
        ("sqrt(8)", "2*sqrt(2)", Some(Ordering::Equal)),
        ("-oo", "-10", Some(Ordering::Less)),
        ("oo", "pi", Some(Ordering::Greater)),
        ("oo", "oo", Some(Ordering::Equal)),
        ("oo", "i", None),
        ("1/0", "oo", None),
        ("9^9^9^9", "9^9^9^9", Some(Ordering::Equal)),
    ] {
        assert_eq!(order(&read(a), &read(b), &mut budget()), expected, "{a} and {b}");
        let reversed = order(&read(b), &read(a), &mut budget());
        assert_eq!(reversed, expected.map(Ordering::reverse), "{a} and {b}");
    }
}

#[test]
fn proportional_sides_are_found() {
    let proved = |positive| Some((positive, Certainty::Proved));
    for (a, b, expected) in [
        ("6*x-2*y-14", "y-3*x+7", proved(false)),
        ("2*x-14", "x-7", proved(true)),
        ("x-7", "x+7", None),
        ("0", "0", proved(true)),
        ("0", "x", None),
        ("x-x", "0", proved(true)),
        ("x/2-1/3", "3*x-2", proved(true)),
        ("f(x)-1", "2-2*f(x)", proved(false)),
        ("x", "y", None),
        ("x", "1", None),
        ("1/0", "1/0", None),
    ] {
        assert_eq!(proportional(&read(a), &read(b), &mut budget()), expected, "{a} and {b}");
        assert_eq!(proportional(&read(b), &read(a), &mut budget()), expected, "{b} and {a}");
    }

    // The factor is found although it is not a rational number, but its sign is left to enclosures.
    let mut budget = budget();
    let mut algebra = Algebra::new(&mut budget);
    let exact = algebra.proportional(&read("x*sqrt(2)-2"), &read("x-sqrt(2)"));
    assert!(matches!(exact, Ok(Proportion::Constant)));
}

#[test]
fn decimals_are_compared_after_rounding() {
    let equal = Decision::Equal(Certainty::Proved);
    let different = Decision::Different(Certainty::Proved);
    for (a, b, expected) in [
        ("6.857142857", "48/7", equal),
        ("4.388615385", "57/13", different),
        ("0.333333", "1/3", equal),
        ("0.3333335", "1/3", different),
        ("-0.0000005", "0", different),
        ("0.5*x", "x/2", equal),
        ("1.5", "oo", different),
        ("1.5", "1/0", Decision::Undefined),
    ] {
        assert_eq!(equal_rounded(&read(a), &read(b), 6, &mut budget()), expected, "{a} and {b}");
        assert_eq!(equal_rounded(&read(b), &read(a), 6, &mut budget()), expected, "{b} and {a}");
    }
}

#[test]
fn normal_forms_are_readable() {
    for (text, expected) in [
        ("2/4", "1/2"),
        ("0.50", "1/2"),
        ("(1+x)^2", "x^2 + 2*x + 1"),
        ("sqrt(18)/2", "3*sqrt(2)/2"),
        ("1/sqrt(6)", "sqrt(6)/6"),
        ("y+x-z^2", "-z^2 + x + y"),
        ("root(3, 2)*pi/e", "2^(1/3)*pi/e"),
        ("1/x", "1/x"),
        ("(x+1)/(2-2*x)", "(-x - 1)/(2*x - 2)"),
        ("3-2*i", "3 - 2*i"),
        ("e^(2*x)", "e^(2*x)"),
        ("2*sin(-x)", "-2*sin(x)"),
        ("f(x+x)", "f(2*x)"),
        ("-oo", "-infinity"),
        ("x-x", "0"),
        ("9^9^9^9/2", "3^(2*3^774840978)/2"),
        ("x^oo/2", "(x^infinity)/2"),
    ] {
        assert_eq!(canonical(&read(text), &mut budget()), expected, "{text}");
    }
}

#[test]
fn only_rational_values_are_rational() {
    let half = BigRational::new(1.into(), 2.into());
    for (text, expected) in [
        ("sin(pi/6)", Some(half.clone())),
        ("sqrt(1/4)", Some(half)),
        ("sqrt(2)", None),
        ("x", None),
        ("oo", None),
        ("1/0", None),
        ("0/(sin(x)^2+cos(x)^2-1)", None),
    ] {
        assert_eq!(rational(&read(text), &mut budget()), expected, "{text}");
    }
}

#[test]
fn a_small_budget_leaves_things_undecided_but_never_wrong() {
    for operations in (0..60).map(|step| step * step * 20) {
        for (a, b) in SAME {
            let decision = equal(&read(a), &read(b), &mut Budget::new(operations));
            assert!(
                matches!(decision, Decision::Equal(_) | Decision::Undecided(_)),
                "{a} = {b} with {operations}: {decision:?}"
            );
        }

        for (a, b) in DIFFERENT.iter().chain(UNDEFINED) {
            let decision = equal(&read(a), &read(b), &mut Budget::new(operations));
            assert!(
                !matches!(decision, Decision::Equal(_)),
                "{a} = {b} with {operations}: {decision:?}"
            );
        }
    }
}

/// A complex value in floating point, as an independent judge.
type Complex = (f64, f64);

fn times((a, b): Complex, (c, d): Complex) -> Complex {
    (a * c - b * d, a * d + b * c)
}

/// Returns the logarithm of the modulus, and the argument. The logarithm is NaN if a rounding error would decide it.
fn logarithm((a, b): Complex) -> Complex {
    let noise = a.hypot(b) < 1e-9 || (a < 0.0 && b != 0.0 && b.abs() < 1e-9 * a.abs());
    (
        if noise { f64::NAN } else { a.hypot(b).ln() },
        if b == 0.0 { 0f64.atan2(a) } else { b.atan2(a) },
    )
}

fn raised(base: Complex, exponent: &Expr, point: f64) -> Complex {
    // ∞ to the power of 0 is 1 in floating point, and undefined in mathematics.
    if !(base.0.is_finite() && base.1.is_finite()) {
        return (f64::NAN, 0.0);
    }

    if base.0.hypot(base.1) < 1e-9 {
        return (f64::NAN, f64::NAN);
    }

    if let Some(reduced) = rational(exponent, &mut budget())
        && (reduced.denom() % 2u32 == BigInt::from(1))
        && base.1 == 0.0
    {
        let odd = reduced.numer() % 2u32 != BigInt::from(0);
        let size = base.0.abs().powf(num_traits::ToPrimitive::to_f64(&reduced).unwrap());
        return (if odd && base.0 < 0.0 { -size } else { size }, 0.0);
    }

    // With logarithms i³ would be a little off -i, and i + i³ would not be 0.
    let whole = rational(exponent, &mut budget()).filter(|it| it.is_integer());
    let whole = whole.and_then(|it| num_traits::ToPrimitive::to_i32(it.numer()));
    if let Some(whole @ -16..=16) = whole {
        let times_itself = (0..whole.abs()).map(|_| base).fold((1.0, 0.0), times);
        return if whole < 0 { inverted(times_itself) } else { times_itself };
    }

    let (re, im) = value(exponent, point);
    let (log, angle) = times(logarithm(base), (re, im));
    let angle = turned(angle);
    (log.exp() * angle.cos(), log.exp() * angle.sin())
}

fn inverted((a, b): Complex) -> Complex {
    let square = a * a + b * b;
    (a / square, -b / square)
}

/// Returns the angle, or NaN if rounding has left too few of its digits.
fn turned(angle: f64) -> f64 {
    if angle.abs() < 1e6 { angle } else { f64::NAN }
}

/// The exponent has 87 digits where x is 6, and the sine of that may be any number.
#[test]
fn floating_point_does_not_tell_where_rounding_has_left_no_digits() {
    let sides = ["((sqrt(1/2))^2)^(sin(sin(i*x)))", "(sqrt(1/2))^(2*sin(sin(i*x)))"];
    let sides = sides.map(read);
    for point in [-7.0, -2.5, -0.4, 0.9, 2.2, 6.0] {
        let [left, right] = sides.each_ref().map(|side| value(side, point));
        assert!(left.0.is_nan() || close(left, right, 0.0), "{left:?} and {right:?} at {point}");
    }
}

fn value(e: &Expr, point: f64) -> Complex {
    match e {
        Expr::Number(n) | Expr::Decimal(n) => (num_traits::ToPrimitive::to_f64(n).unwrap(), 0.0),
        Expr::Symbol(name) => (if &**name == "x" { point } else { 1.7 - 2.3 * point }, 0.0),
        Expr::Constant(Constant::Pi) => (std::f64::consts::PI, 0.0),
        Expr::Constant(Constant::E) => (std::f64::consts::E, 0.0),
        Expr::Constant(Constant::I) => (0.0, 1.0),
        Expr::Sum(terms) => terms
            .iter()
            .map(|term| value(term, point))
            .fold((0.0, 0.0), |(a, b), (c, d)| (a + c, b + d)),
        Expr::Product(factors) => {
            factors.iter().map(|factor| value(factor, point)).fold((1.0, 0.0), times)
        }
        Expr::Negate(inner) => times((-1.0, 0.0), value(inner, point)),
        Expr::Quotient(parts) => {
            let (a, b) = value(&parts[1], point);
            let size = a * a + b * b;
            let size = if size < 1e-18 { f64::NAN } else { size };
            times(value(&parts[0], point), (a / size, -b / size))
        }
        Expr::Power(parts) => raised(value(&parts[0], point), &parts[1], point),
        Expr::Root(parts) => {
            let one = Expr::Number(BigRational::from_integer(1.into()));
            let exponent = Expr::Quotient(Box::new([one, parts[0].clone()]));
            raised(value(&parts[1], point), &exponent, point)
        }
        Expr::Call(function, parts) => {
            let (a, b) = value(&parts[0], point);
            match function {
                Function::Sin => {
                    (trusted(turned(a).sin() * b.cosh()), trusted(turned(a).cos() * b.sinh()))
                }
                Function::Cos => {
                    (trusted(turned(a).cos() * b.cosh()), trusted(-turned(a).sin() * b.sinh()))
                }
                Function::Exp => (a.exp() * turned(b).cos(), a.exp() * turned(b).sin()),
                Function::Ln => logarithm((a, b)),
                Function::Abs => (a.hypot(b), 0.0),
                _ => (f64::NAN, 0.0),
            }
        }
        _ => (f64::NAN, 0.0),
    }
}

/// Returns `x`, or NaN if `x` may be only a rounding error: the sine of π is 0, but 10⁻¹⁶ here.
fn trusted(x: f64) -> f64 {
    if x != 0.0 && x.abs() < 1e-12 { f64::NAN } else { x }
}

/// Generates expressions of every kind whose branches floating point finds too. An expression is left out if only a
/// rounding error puts a base on the negative real axis.
fn expressions() -> impl Strategy<Value = String> {
    let leaf =
        prop::sample::select(vec!["x", "y", "2", "3", "-1", "-4", "1/2", "6", "pi", "e", "i"]);

    leaf.prop_map(str::to_owned).prop_recursive(4, 24, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            two.clone().prop_map(|(a, b)| format!("(({a})+({b}))")),
            two.clone().prop_map(|(a, b)| format!("(({a})-({b}))")),
            two.clone().prop_map(|(a, b)| format!("(({a})*({b}))")),
            two.clone().prop_map(|(a, b)| format!("(({a})/({b}))")),
            two.prop_map(|(a, b)| format!("(({a})^({b}))")),
            (
                inner.clone(),
                prop::sample::select(vec!["2", "3", "-1", "-2", "1/2", "1/3", "2/3", "-3/2"])
            )
                .prop_map(|(a, b)| format!("(({a})^({b}))")),
            inner.clone().prop_map(|a| format!("sqrt({a})")),
            inner.clone().prop_map(|a| format!("root(3, {a})")),
            inner.clone().prop_map(|a| format!("abs({a})")),
            inner.clone().prop_map(|a| format!("sin({a})")),
            inner.clone().prop_map(|a| format!("exp({a})")),
            inner.prop_map(|a| format!("ln({a})")),
        ]
    })
}

fn close((a, b): Complex, (c, d): Complex, floor: f64) -> bool {
    let size = a.abs() + b.abs() + c.abs() + d.abs() + floor;
    (a - c).abs() + (b - d).abs() < 1e-6 * size
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn exact_verdicts_agree_with_floating_point(a in expressions(), b in expressions()) {
        // Each of these pairs has a chance of being equal: its sides say the same in different ways.
        let pairs = [
            (format!("({a})*({b})"), format!("({b})*({a})")),
            (format!("(({a})+({b}))^2"), format!("({a})^2+2*({a})*({b})+({b})^2")),
            (format!("sqrt(({a})*({b}))"), format!("sqrt({a})*sqrt({b})")),
            (format!("sqrt(({a})^2)"), a.clone()),
            (format!("({a})^({b})"), format!("exp(({b})*ln({a}))")),
            (format!("(({a})^2)^({b})"), format!("({a})^(2*({b}))")),
            (format!("ln(({a})*({b}))"), format!("ln({a})+ln({b})")),
            (format!("abs(({a})*({b}))"), format!("abs({a})*abs({b})")),
            (format!("({a})^(1/3)*({b})^(1/3)"), format!("(({a})*({b}))^(1/3)")),
            (a.clone(), b.clone()),
            (a.clone(), a.clone()),
        ];

        for (a, b) in pairs {
            let left = read(&a);
            let right = read(&b);
            let decision = equal(&left, &right, &mut budget());
            prop_assert_eq!(decision, equal(&right, &left, &mut budget()), "{} and {}", a, b);

            let (left_side, right_side) = arranged(&left, &right);
            let ExactVerdict::Decided(decision) =
                exactly(left_side, right_side, &mut budget(), &mut false)
            else {
                continue;
            };

            canonical(&left, &mut budget());
            let points: [f64; 40] = std::array::from_fn(|step| 0.3713 * step as f64 - 7.0);
            let values: Vec<_> =
                points.map(|point| (value(&left, point), value(&right, point))).into_iter()
                .filter(|((a, b), (c, d))| {
                    [a, b, c, d].into_iter().all(|part| part.abs() < 1e6)
                })
                .collect();

            let floor = if matches!(decision, Decision::Equal(_)) { 1e-3 } else { 0.0 };
            let agree = values.iter().filter(|(a, b)| close(*a, *b, floor)).count();
            match decision {
                Decision::Equal(_) => prop_assert!(agree == values.len(), "{a} = {b}: {values:?}"),
                // The sides may differ at points where floating point could not tell a branch.
                Decision::Different(_) => {
                    prop_assert!(values.len() < points.len() || agree < values.len(), "{a} != {b}: {values:?}")
                }
                Decision::Undefined => prop_assert!(values.len() < 2, "undefined: {a}, {b}: {values:?}"),
                Decision::Undecided(_) => {}
            }
        }
    }
}

#[test]
fn pieces_are_compared_where_they_differ() {
    for (a, b) in [
        ("abs(x+100)", "x+100"),
        ("abs(x-y+3000)", "x-y+3000"),
        ("n", "min(n, 1000)"),
        ("0", "max(0, x-1000)"),
        ("0", "max(0, x-10000000000)"),
        ("floor(n/100)", "floor(n/200)"),
        ("gcd(n, 100)", "gcd(n, 200)"),
        ("ceil(n/2)", "floor(n/2)+1"),
        ("floor(sqrt(n))", "ceil(sqrt(n))-1"),
        ("floor(log(2, n))+1", "ceil(log(2, n))"),
        ("(-1)^t", "1"),
        ("(-1)^a", "-1"),
        ("(-1)^a*(-1)^b", "(-1)^a"),
        ("sqrt((x-500)^2)", "500-x"),
        ("mod(n, 12)", "mod(n, 24)"),
    ] {
        assert_eq!(decide(a, b), Decision::Different(Certainty::Proved), "{a} and {b}");
    }

    for (a, b) in [
        ("ceil(n/2)", "-floor(-n/2)"),
        ("abs(x+100)", "sqrt(x^2+200*x+10000)"),
        ("abs(x+100)", "max(x+100, -x-100)"),
        ("(-1)^n", "cos(n*pi)"),
        ("(-1)^(n+2)", "(-1)^n"),
        ("min(x, y)+max(x, y)", "x+y"),
        ("gcd(m, n)*lcm(m, n)", "abs(m*n)"),
        ("floor(x+3)", "floor(x)+3"),
        ("n!", "n*(n-1)!"),
        ("sum(k, 1, n, abs(k))", "n*(n+1)/2"),
    ] {
        assert!(matches!(decide(a, b), Decision::Equal(_)), "{a} and {b}: {:?}", decide(a, b));
    }

    let proportion = |a, b| proportional(&read(a), &read(b), &mut budget());
    assert_eq!(proportion("abs(x+100)", "x+100"), None);
    assert!(proportion("abs(2*x+200)", "abs(x+100)").is_some_and(|(positive, _)| positive));
}

#[test]
fn pieces_far_out_are_seen_next_to_decimals() {
    let rounded = |a, b| equal_rounded(&read(a), &read(b), 6, &mut budget());
    assert_eq!(rounded("abs(x+100.0)", "x+100"), Decision::Different(Certainty::Proved));
    assert!(matches!(rounded("abs(x-0.5)", "max(x-1/2, 1/2-x)"), Decision::Equal(_)));
}

#[test]
fn numbers_made_for_the_primes_are_not_equal() {
    let [p, q, r] = modular::PRIMES[..3] else { panic!("there are three") };
    let forged = format!("5+{p}*{q}*{r}*20000!");
    assert_eq!(decide(&forged, "5"), Decision::Different(Certainty::Proved));

    // A product of all the primes, added to a number of moderate size, is congruent to that number whichever
    // primes are chosen.
    let all: Vec<_> = modular::PRIMES.iter().map(u64::to_string).collect();
    let forged = format!("5+{}*20000!", all.join("*"));
    assert_eq!(decide(&forged, "5"), Decision::Different(Certainty::Proved));

    let forged = format!("2^(({p}-1)*({q}-1)*({r}-1))");
    assert_eq!(decide(&forged, "1"), Decision::Different(Certainty::Proved));
}

#[test]
fn equal_calls_are_sought_within_the_budget() {
    let letters = |c: char| (0..40).map(|i| format!("{c}{i}")).collect::<Vec<_>>().join("+");
    let long = format!("f(({})*({}))", letters('a'), letters('b'));
    let short = vec!["f(x)"; 9_000].join("+");
    let expr = read(&format!("{long}+{short}"));

    let start = Budget::new(50_000_000);
    let mut budget = start.clone();
    assert!(matches!(
        equal(&expr, &read(&format!("{short}+{long}")), &mut budget),
        Decision::Equal(_)
    ));
}
