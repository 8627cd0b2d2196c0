//! Tests of numeric comparison: pairs, domains and budgets.

use num_bigint::BigInt;
use num_rational::BigRational;
use proptest::prelude::*;

use super::*;
use crate::expr::{Constant, Fold, FoldKind, Function};

fn num(n: i64) -> Expr {
    Expr::Number(BigRational::from(BigInt::from(n)))
}

fn big(digits: &str) -> Expr {
    Expr::Number(BigRational::from(digits.parse::<BigInt>().expect("digits")))
}

fn dec(n: i64, d: i64) -> Expr {
    Expr::Decimal(BigRational::new(n.into(), d.into()))
}

fn var(name: &str) -> Expr {
    Expr::Symbol(name.into())
}

fn sum(terms: impl Into<Vec<Expr>>) -> Expr {
    Expr::Sum(terms.into())
}

fn product(factors: impl Into<Vec<Expr>>) -> Expr {
    Expr::Product(factors.into())
}

fn neg(expr: Expr) -> Expr {
    Expr::Negate(Box::new(expr))
}

fn over(a: Expr, b: Expr) -> Expr {
    Expr::Quotient(Box::new([a, b]))
}

fn pow(a: Expr, b: Expr) -> Expr {
    Expr::Power(Box::new([a, b]))
}

fn root(degree: i64, radicand: Expr) -> Expr {
    Expr::Root(Box::new([num(degree), radicand]))
}

fn sqrt(radicand: Expr) -> Expr {
    root(2, radicand)
}

fn call(function: Function, argument: Expr) -> Expr {
    Expr::Call(function, vec![argument])
}

fn call2(function: Function, a: Expr, b: Expr) -> Expr {
    Expr::Call(function, vec![a, b])
}

fn apply(name: &str, argument: Expr) -> Expr {
    Expr::Apply(name.into(), vec![argument])
}

fn degrees(n: i64) -> Expr {
    Expr::Degrees(Box::new(num(n)))
}

fn fold(kind: FoldKind, index: &str, from: Expr, to: Expr, body: Expr) -> Expr {
    Expr::Fold(Box::new(Fold { kind, index: index.into(), from, to, body }))
}

fn pi() -> Expr {
    Expr::Constant(Constant::Pi)
}

fn e() -> Expr {
    Expr::Constant(Constant::E)
}

fn i() -> Expr {
    Expr::Constant(Constant::I)
}

fn infinity() -> Expr {
    Expr::Constant(Constant::Infinity)
}

fn budget() -> Budget {
    Budget::new(1_000_000)
}

fn agreement(a: &Expr, b: &Expr) -> Agreement {
    let forth = agree(a, b, &mut budget());
    let back = agree(b, a, &mut budget());
    let kind =
        |agreement: Result<Agreement, OverBudget>| agreement.map(|a| std::mem::discriminant(&a));

    assert_eq!(kind(forth), kind(back), "not symmetric: {a:?} and {b:?}");
    forth.expect("within the budget")
}

#[track_caller]
fn close(a: Expr, b: Expr) {
    let found = agreement(&a, &b);
    assert!(matches!(found, Agreement::Close { .. }), "{found:?}: {a:?} and {b:?}");
}

#[track_caller]
fn distinct(a: Expr, b: Expr) {
    let found = agreement(&a, &b);
    assert_eq!(found, Agreement::Distinct, "{a:?} and {b:?}");
}

#[track_caller]
fn undefined(a: Expr) {
    assert_eq!(agreement(&a, &num(1)), Agreement::Undefined, "{a:?}");
}

#[track_caller]
fn unknown(a: Expr, b: Expr) {
    assert_eq!(agreement(&a, &b), Agreement::Unknown, "{a:?} and {b:?}");
}

#[test]
fn equal_constants() {
    // Cardano's formula finds this root of x³ + 3x − 4.
    let cube = |sign: i64| root(3, sum([num(2), product([num(sign), sqrt(num(5))])]));
    close(sum([cube(1), cube(-1)]), num(1));

    let roots = || sqrt(num(1_000_001));
    close(sum([roots(), neg(num(1000))]), over(num(1), sum([num(1000), roots()])));

    close(call(Function::Sin, degrees(10)), call(Function::Cos, degrees(80)));

    close(pow(e(), product([i(), pi()])), num(-1));
    let factor = |re, im| sum([num(re), product([num(im), i()])]);
    close(product([factor(1, 2), factor(3, -1)]), factor(5, 5));
    close(pow(factor(1, 1), num(8)), num(16));
    close(
        sqrt(sum([num(11), product([num(2), sqrt(num(30))])])),
        sum([sqrt(num(6)), sqrt(num(5))]),
    );

    close(sum([sqrt(num(2)), neg(sqrt(num(2)))]), num(0));
    close(sqrt(num(-1)), i());
    close(call(Function::Ln, num(-1)), product([i(), pi()]));
    close(root(3, num(-8)), num(-2));
    close(pow(num(-8), over(num(2), num(3))), num(4));
    close(pow(num(-8), dec(2, 10)), neg(pow(num(8), dec(1, 5))));
    close(pow(i(), i()), pow(e(), over(neg(pi()), num(2))));

    // Machin's formula.
    let atan = |n| call(Function::Arctan, over(num(1), num(n)));
    close(sum([product([num(4), atan(5)]), neg(atan(239))]), over(pi(), num(4)));

    close(call2(Function::Log, num(10), num(1000)), num(3));
    close(call(Function::Arcsin, over(sqrt(num(2)), sqrt(num(2)))), over(pi(), num(2)));
    close(call(Function::Arccos, over(num(-1), num(2))), over(product([num(2), pi()]), num(3)));

    close(call(Function::Sin, pi()), num(0));
    close(call(Function::Tan, degrees(45)), num(1));
    close(call(Function::Abs, factor(3, -4)), num(5));
    close(sqrt(factor(3, -4)), factor(2, -1));
    close(sqrt(factor(-3, -4)), factor(1, -2));

    close(dec(15, 10), over(num(3), num(2)));
    close(call(Function::Tanh, call(Function::Ln, num(2))), over(num(3), num(5)));
}

#[test]
fn conventions() {
    // The inverse cotangent lies in (0, π).
    close(call(Function::Arccot, num(-1)), over(product([num(3), pi()]), num(4)));
    close(call(Function::Arctan, neg(num(1))), neg(over(pi(), num(4))));
    close(pow(pow(num(2), var("x")), num(3)), pow(num(8), var("x")));

    // 0.5 is one half, as an exponent too.
    close(pow(num(-4), dec(5, 10)), product([num(2), i()]));
    close(pow(num(-1), over(num(1), num(4))), pow(e(), over(product([i(), pi()]), num(4))));
    distinct(pow(num(-1), over(num(1), num(3))), pow(e(), over(product([i(), pi()]), num(3))));

    close(root(-2, num(4)), over(num(1), num(2)));
    undefined(root(0, num(4)));

    close(call(Function::Sec, degrees(60)), num(2));
    close(call(Function::Csc, degrees(30)), num(2));
    close(degrees(180), pi());

    close(call(Function::Conjugate, sum([num(1), i()])), sum([num(1), neg(i())]));
    close(call(Function::Re, pow(sum([num(1), i()]), num(2))), num(0));
    close(call(Function::Im, pow(sum([num(1), i()]), num(2))), num(2));
    close(call(Function::Sin, i()), product([i(), call(Function::Sinh, num(1))]));
    close(call(Function::Cosh, i()), call(Function::Cos, num(1)));

    distinct(call(Function::Tanh, num(1000)), num(-1));
    unknown(call(Function::Arcsin, num(2)), num(1));
}

#[test]
fn unequal_constants() {
    // This power misses the integer by less than 10⁻¹².
    let ramanujan = pow(e(), product([pi(), sqrt(num(163))]));
    distinct(ramanujan, big("262537412640768744"));

    // Machin's formula, with a wrong denominator.
    let atan = |n| call(Function::Arctan, over(num(1), num(n)));
    distinct(sum([product([num(4), atan(5)]), neg(atan(240))]), over(pi(), num(4)));

    distinct(sqrt(sum([pow(num(10), num(40)), num(1)])), pow(num(10), num(20)));
    distinct(sqrt(sum([pow(num(10), num(200)), num(1)])), pow(num(10), num(100)));

    let half_to = |n| over(num(1), pow(num(2), num(n)));
    distinct(half_to(99), half_to(98));
    distinct(half_to(9999), half_to(9998));

    let inverse_factorial = |n| over(num(1), call(Function::Factorial, num(n)));
    distinct(inverse_factorial(100), inverse_factorial(101));
    distinct(inverse_factorial(100_000), inverse_factorial(100_001));
    distinct(inverse_factorial(3000), num(0));

    distinct(pow(num(9), pow(num(9), pow(num(9), num(9)))), num(42));
    distinct(pow(num(10), pow(num(10), num(10))), num(42));
    distinct(call(Function::Factorial, num(99_999_999)), num(42));
    distinct(pow(e(), pow(e(), pow(e(), pow(e(), e())))), num(42));
    distinct(call(Function::Sin, pow(num(10), num(-400))), num(0));

    distinct(i(), neg(i()));
    distinct(i(), num(1));

    distinct(pow(num(-8), over(num(1), num(3))), num(2));
    distinct(
        pow(num(10), pow(num(10), num(7))),
        product([num(2), pow(num(10), pow(num(10), num(7)))]),
    );
}

#[test]
fn without_value() {
    undefined(over(num(1), num(0)));
    undefined(over(num(1), sum([over(num(1), num(3)), over(num(2), num(3)), num(-1)])));
    undefined(pow(num(0), num(0)));
    undefined(pow(num(0), num(-1)));
    undefined(pow(num(0), neg(sqrt(num(2)))));

    undefined(call(Function::Ln, num(0)));
    undefined(call2(Function::Log, num(1), num(5)));
    undefined(call(Function::Factorial, num(-1)));
    undefined(call(Function::Factorial, over(num(1), num(2))));

    undefined(sum([infinity(), num(1)]));
    undefined(call2(Function::Mod, num(5), num(0)));
    undefined(call(Function::Cot, num(0)));
    unknown(call(Function::Tan, over(pi(), num(2))), num(5));
}

#[test]
fn functions_of_variables() {
    let x = || var("x");
    let square = || pow(x(), num(2));
    let abs = |a| call(Function::Abs, a);

    close(pow(sum([x(), var("y")]), num(2)), {
        sum([square(), product([num(2), x(), var("y")]), pow(var("y"), num(2))])
    });
    distinct(pow(sum([x(), num(1)]), num(2)), sum([square(), num(1)]));
    distinct(sqrt(square()), x());
    distinct(sqrt(square()), neg(abs(x())));
    close(sqrt(square()), abs(x()));

    let n = || var("n");
    close(sqrt(over(num(1), n())), over(num(1), sqrt(n())));
    close(call(Function::Ln, square()), product([num(2), call(Function::Ln, abs(x()))]));
    close(call(Function::Ln, pow(e(), x())), x());

    let trig = |f, k| pow(call(f, x()), num(k));
    close(sum([trig(Function::Sin, 2), trig(Function::Cos, 2)]), num(1));
    close(sum([call(Function::Arcsin, x()), call(Function::Arccos, x())]), over(pi(), num(2)));
    close(over(sum([square(), num(-1)]), sum([x(), num(-1)])), sum([x(), num(1)]));

    close(pow(num(-1), n()), call(Function::Cos, product([n(), pi()])));
    distinct(pow(num(-1), n()), pow(num(-1), sum([n(), num(1)])));
    close(pow(num(4), n()), pow(num(2), product([num(2), n()])));

    close(
        call2(Function::Binomial, n(), num(2)),
        over(product([n(), sum([n(), num(-1)])]), num(2)),
    );

    let factorial = |a| call(Function::Factorial, a);
    close(factorial(sum([n(), num(1)])), product([sum([n(), num(1)]), factorial(n())]));

    let sums = |body| fold(FoldKind::Sum, "k", num(1), n(), body);
    close(sums(var("k")), over(product([n(), sum([n(), num(1)])]), num(2)));
    distinct(sums(var("k")), over(product([n(), n()]), num(2)));

    close(root(3, pow(x(), num(3))), x());
    close(product([sqrt(num(-2)), x()]), product([i(), sqrt(num(2)), x()]));

    unknown(over(num(1), sum([x(), neg(x())])), num(1));
    let scaled = |k: i64| sqrt(sum([num(k * k), neg(square())]));
    distinct(scaled(20), scaled(21));
    distinct(sqrt(sum([x(), num(-100)])), sqrt(sum([x(), num(-101)])));
}

#[test]
fn unknown_functions() {
    let f = |a| apply("f", a);
    let x = || var("x");
    close(sum([f(sum([x(), num(1)])), num(2)]), sum([num(2), f(sum([num(1), x()]))]));
    distinct(f(x()), f(sum([x(), num(1)])));
    distinct(f(x()), apply("g", x()));
    close(f(f(product([num(2), x()]))), f(f(sum([x(), x()]))));
    close(f(num(2)), f(sqrt(num(4))));
    unknown(f(x()), f(over(num(1), num(0))));
    unknown(fold(FoldKind::Sum, "k", num(1), num(3), f(var("k"))), f(num(1)));
}

#[test]
fn integer_functions() {
    let cell = pow(sum([num(2), sqrt(num(3))]), num(100));
    let parity = call2(Function::Mod, call(Function::Floor, cell), num(2));
    close(parity, num(1));

    let large = pow(sum([num(2), sqrt(num(3))]), num(1000));
    close(sum([call(Function::Ceil, large.clone()), neg(call(Function::Floor, large))]), num(1));

    close(call(Function::Floor, neg(dec(5, 2))), num(-3));
    close(call(Function::Ceil, neg(dec(5, 2))), num(-2));
    close(call(Function::Floor, product([num(3), over(num(7), num(3))])), num(7));
    unknown(call(Function::Floor, product([root(3, num(2)), root(3, num(4))])), num(2));

    close(call(Function::DoubleFactorial, num(7)), num(105));
    close(call(Function::DoubleFactorial, num(8)), num(384));
    close(call2(Function::Binomial, num(10), num(3)), num(120));
    close(call2(Function::Binomial, num(3), num(10)), num(0));
    close(call2(Function::Permutations, num(10), num(3)), num(720));

    close(call2(Function::Mod, num(-7), num(3)), num(2));
    close(call2(Function::Mod, dec(75, 10), num(2)), dec(15, 10));

    close(Expr::Call(Function::Gcd, vec![num(12), num(-18), num(27)]), num(3));
    close(Expr::Call(Function::Lcm, vec![num(4), num(6)]), num(12));
    close(Expr::Call(Function::Max, vec![num(4), pi(), sqrt(num(17))]), sqrt(num(17)));
    close(Expr::Call(Function::Min, vec![num(4), pi(), sqrt(num(17))]), pi());

    // Here Stirling's formula meets the product.
    let factorial = |n| call(Function::Factorial, num(n));
    close(over(factorial(1001), factorial(1000)), num(1001));
    close(
        over(
            call(Function::DoubleFactorial, num(2001)),
            call(Function::DoubleFactorial, num(1999)),
        ),
        num(2001),
    );

    close(
        call2(Function::Binomial, num(4000), num(2000)),
        over(factorial(4000), pow(factorial(2000), num(2))),
    );
}

#[test]
fn finite_folds() {
    let k = || var("k");
    let sums = |to, body| fold(FoldKind::Sum, "k", num(1), num(to), body);
    close(sums(100, k()), num(5050));
    close(sums(0, k()), num(0));
    close(fold(FoldKind::Product, "k", num(1), num(0), k()), num(1));
    close(fold(FoldKind::Product, "k", num(1), num(10), k()), num(3_628_800));

    let telescope = sums(99, over(num(1), product([k(), sum([k(), num(1)])])));
    close(telescope, over(num(99), num(100)));
    let nested = sums(4, fold(FoldKind::Sum, "j", num(1), k(), product([var("j"), k()])));
    close(nested, num(1 + 2 * 3 + 3 * 6 + 4 * 10));

    let endless = sums(1_000_000_000_000, k());
    assert_eq!(agree(&endless, &num(1), &mut budget()), Err(OverBudget));
}

#[test]
fn rounding() {
    let rounds = |a: &Expr, b: &Expr, places| {
        let forth = rounded::agree(a, b, places, &mut budget()).expect("within the budget");
        let back = rounded::agree(b, a, places, &mut budget()).expect("within the budget");
        assert_eq!(forth, back);
        match forth {
            Agreement::Close { .. } => true,
            Agreement::Distinct => false,
            other => panic!("{other:?}: {a:?} and {b:?}"),
        }
    };

    let tenths = |n| dec(n, 10_000_000);
    let cases = [
        (over(num(1), num(3)), dec(333_333, 1_000_000), 6, true),
        (over(num(1), num(3)), dec(33_333, 100_000), 6, false),
        (pi(), dec(314_159, 100_000), 5, true),
        (pi(), dec(314_159, 100_000), 6, false),
        (dec(25, 10), num(3), 0, true),
        (dec(25, 10), num(2), 0, false),
        (neg(dec(25, 10)), num(-3), 0, true),
        (dec(15, 100), dec(2, 10), 1, true),
        (dec(149, 1000), dec(2, 10), 1, false),
        (tenths(1), tenths(2), 6, false),
        (tenths(1), num(0), 6, false),
        (tenths(1), over(num(1), num(10_000_000)), 6, true),
        (tenths(30_001), tenths(30_000), 6, true),
        (pow(num(10), num(30)), sum([pow(num(10), num(30)), dec(1, 10_000_000)]), 6, true),
        (
            sum([dec(1, 2), product([i(), sqrt(num(2))])]),
            sum([dec(1, 2), product([i(), dec(1_414_214, 1_000_000)])]),
            6,
            true,
        ),
        (product([dec(314_159_265, 100_000_000), var("x")]), product([pi(), var("x")]), 6, true),
        (product([dec(314, 100), var("x")]), product([pi(), var("x")]), 6, false),
        (over(sqrt(num(4)), num(16)), dec(125, 1000), 2, true),
        (neg(tenths(1)), tenths(1), 6, false),
    ];

    for (a, b, places, expected) in cases {
        assert_eq!(rounds(&a, &b, places), expected, "{a:?} and {b:?} to {places}");
    }
}

#[test]
fn order_of_constants() {
    let ordered = |a: &Expr, b: &Expr| order(a, b, &mut budget()).expect("within the budget");
    let tower = pow(num(9), pow(num(9), pow(num(9), num(9))));
    let root = sqrt(sum([pow(num(10), num(40)), num(1)]));

    let cases = [
        (sqrt(num(2)), dec(14, 10), Some(Ordering::Greater)),
        (pi(), over(num(22), num(7)), Some(Ordering::Less)),
        (tower, num(42), Some(Ordering::Greater)),
        (root, pow(num(10), num(20)), Some(Ordering::Greater)),
        (num(2), sqrt(num(4)), None),
        (sqrt(num(2)), i(), None),
        (var("x"), num(1), None),
    ];

    for (a, b, expected) in cases {
        assert_eq!(ordered(&a, &b), expected, "{a:?} and {b:?}");
        assert_eq!(ordered(&b, &a), expected.map(Ordering::reverse), "{b:?} and {a:?}");
    }
}

#[test]
fn constant_factors() {
    let x = || var("x");
    let y = || var("y");
    let line = |a, b, c| sum([product([num(a), x()]), product([num(b), y()]), num(c)]);
    let factor = |a: &Expr, b: &Expr| match ratio(a, b, &mut budget()).expect("within the budget") {
        Some((positive, Agreement::Close { .. })) => Some(positive),
        Some((_, Agreement::Distinct)) | None => None,
        other => panic!("{other:?}"),
    };

    assert_eq!(factor(&line(2, -4, 6), &line(1, -2, 3)), Some(true));
    assert_eq!(factor(&line(1, -2, 3), &line(-2, 4, -6)), Some(false));
    assert_eq!(factor(&line(1, -2, 3), &line(1, -2, 4)), None);
    assert_eq!(factor(&x(), &product([x(), x()])), None);
    assert_eq!(factor(&product([sqrt(num(2)), x()]), &product([num(2), x()])), Some(true));

    assert_eq!(factor(&num(5), &num(-3)), Some(false));
    assert_eq!(factor(&num(0), &num(3)), None);
    assert_eq!(factor(&num(3), &num(0)), None);
}

#[test]
fn bounded_work() {
    let mut deep = num(2);
    for _ in 0..100 {
        deep = sqrt(sum([num(1), deep]));
    }

    let mut cost = budget();
    let started = cost.left();
    assert!(matches!(agree(&deep, &deep.clone(), &mut cost), Ok(Agreement::Close { .. })));
    assert!(cost.left() > started / 4, "{}", cost.left());

    let wide = |last| sum((0..20_000).map(|n| num(n % 7)).chain([num(last)]).collect::<Vec<_>>());
    assert!(matches!(agree(&wide(1), &wide(2), &mut budget()), Ok(Agreement::Distinct)));

    let roots = |last| sum((2..102).map(|n| sqrt(num(n))).chain([last]).collect::<Vec<_>>());
    let mut cost = budget();
    let found = agree(&roots(num(1)), &roots(num(1)), &mut cost);
    assert!(matches!(found, Ok(Agreement::Close { bits: 1000.., .. })), "{found:?} {cost:?}");

    let many = sum((0..200).map(|n| var(&format!("x_{n}"))).collect::<Vec<_>>());
    unknown(many.clone(), many);

    let mut small = Budget::new(10);
    assert_eq!(agree(&roots(num(1)), &num(1), &mut small), Err(OverBudget));
}

/// Generates any expression at all, sensible or not.
fn any_expr() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        (-12i64..13).prop_map(num),
        prop_oneof![Just(num(1_000_000_007)), Just(num(i64::MAX)), Just(pow(num(10), num(40)))],
        (-50i64..50, 1i64..20).prop_map(|(n, d)| dec(n, d)),
        prop_oneof![Just(pi()), Just(e()), Just(i()), Just(infinity())],
        prop_oneof![Just(var("x")), Just(var("n")), Just(var("k"))],
    ];

    leaf.prop_recursive(5, 24, 3, |inner| {
        let two = || (inner.clone(), inner.clone());
        let functions = [
            Function::Sin,
            Function::Cos,
            Function::Tan,
            Function::Cot,
            Function::Sec,
            Function::Csc,
            Function::Arcsin,
            Function::Arccos,
            Function::Arctan,
            Function::Arccot,
            Function::Sinh,
            Function::Cosh,
            Function::Tanh,
            Function::Exp,
            Function::Ln,
            Function::Abs,
            Function::Floor,
            Function::Ceil,
            Function::Factorial,
            Function::DoubleFactorial,
            Function::Re,
            Function::Im,
            Function::Conjugate,
        ];

        let binary = [
            Function::Log,
            Function::Binomial,
            Function::Permutations,
            Function::Mod,
            Function::Gcd,
            Function::Lcm,
            Function::Min,
            Function::Max,
        ];

        prop_oneof![
            two().prop_map(|(a, b)| sum([a, b])),
            two().prop_map(|(a, b)| product([a, b])),
            inner.clone().prop_map(neg),
            two().prop_map(|(a, b)| over(a, b)),
            two().prop_map(|(a, b)| pow(a, b)),
            (-3i64..8, inner.clone()).prop_map(|(n, a)| root(n, a)),
            (prop::sample::select(functions.to_vec()), inner.clone()).prop_map(|(f, a)| call(f, a)),
            (prop::sample::select(binary.to_vec()), two()).prop_map(|(f, (a, b))| call2(f, a, b)),
            (-3i64..3, two()).prop_map(|(from, (to, a))| fold(
                FoldKind::Sum,
                "k",
                num(from),
                to,
                a
            )),
            two().prop_map(|(to, a)| fold(FoldKind::Product, "k", num(1), to, a)),
            inner.clone().prop_map(|a| apply("f", a)),
            inner.prop_map(|a| Expr::Degrees(Box::new(a))),
        ]
    })
}

proptest! {
    #[test]
    fn anything_equals_itself(a in any_expr(), units in 0u64..100_000) {
        let budget = || Budget::new(units);
        let rewritten = sum([num(0), product([neg(a.clone()), num(-1)])]);

        for b in [&a, &rewritten] {
            prop_assert_ne!(agree(&a, b, &mut budget()), Ok(Agreement::Distinct));
            prop_assert_ne!(rounded::agree(&a, b, 6, &mut budget()), Ok(Agreement::Distinct));
            prop_assert!(!matches!(order(&a, b, &mut budget()), Ok(Some(_))));
            if let Ok(Some((positive, Agreement::Distinct))) = ratio(&a, b, &mut budget()) {
                prop_assert!(false, "{positive}");
            }
        }
    }
}
