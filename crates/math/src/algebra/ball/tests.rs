//! Tests of enclosures against exact values and known digits.

use std::cmp::Ordering;

use num_rational::BigRational;
use proptest::prelude::*;

use super::{square_root::square_root, *};
use crate::algebra::{interval::Interval, real::Real};

/// An enclosure that can tell whether it holds a rational.
trait Encloses: Real {
    fn holds(&self, value: &BigRational) -> bool;
}

impl Encloses for Ball {
    fn holds(&self, value: &BigRational) -> bool {
        let unit = BigRational::from(BigInt::from(2)).pow(self.exp as i32);
        let off = value - BigRational::from(self.mid.clone()) * &unit;
        off.abs() <= BigRational::from(BigInt::from(self.rad)) * unit
    }
}

impl Encloses for Interval {
    fn holds(&self, value: &BigRational) -> bool {
        let value = Interval::ratio(value.numer(), value.denom(), 0);
        meet(self, &value, 0)
    }
}

/// Tells whether two enclosures may hold the same number.
fn meet<R: Real>(a: &R, b: &R, prec: u32) -> bool {
    a.add(&b.clone().neg(), prec).sign().is_none_or(Ordering::is_eq)
}

/// One step of a random walk over the arithmetic operations from rational starts.
#[derive(Clone, Debug)]
enum Step {
    Add(i64, i64),
    Mul(i64, i64),
    Div(i64, i64),
    Square,
    Negate,
    Invert,
    Absolute,
}

fn step() -> impl Strategy<Value = Step> {
    let fraction = || (-1000i64..1000, 1i64..1000);
    prop_oneof![
        fraction().prop_map(|(n, d)| Step::Add(n, d)),
        fraction().prop_map(|(n, d)| Step::Mul(n, d)),
        fraction().prop_map(|(n, d)| Step::Div(n, d)),
        Just(Step::Square),
        Just(Step::Negate),
        Just(Step::Invert),
        Just(Step::Absolute),
    ]
}

fn walk<R: Encloses>(start: i64, steps: &[Step], prec: u32) -> Option<(R, BigRational)> {
    let ratio = |n: i64, d: i64| R::ratio(&n.into(), &d.into(), prec);
    let rational = |n: i64, d: i64| BigRational::new(n.into(), d.into());
    let mut enclosure = R::integer(start);
    let mut truth = rational(start, 1);

    for step in steps {
        (enclosure, truth) = match *step {
            Step::Add(n, d) => (enclosure.add(&ratio(n, d), prec), truth + rational(n, d)),
            Step::Mul(n, d) => (enclosure.mul(&ratio(n, d), prec), truth * rational(n, d)),
            Step::Div(0, _) => continue,
            Step::Div(n, d) => (enclosure.div(&ratio(n, d), prec)?, truth / rational(n, d)),
            Step::Square => (enclosure.mul(&enclosure.clone(), prec), &truth * &truth),
            Step::Negate => (enclosure.neg(), -truth),
            Step::Invert => (R::integer(1).div(&enclosure, prec)?, truth.recip()),
            Step::Absolute => (enclosure.abs(prec), truth.abs()),
        };

        if truth.numer().bits() + truth.denom().bits() > 2000 {
            break;
        }
    }

    Some((enclosure, truth))
}

/// Returns sine, cosine, hyperbolic sine, exponential and roots, then the functions that are not precise near zero
/// or not defined everywhere.
fn functions<R: Real>(x: &R, prec: u32) -> Vec<R> {
    let (sin, cos) = x.sin_cos(prec);
    let one = R::integer(1);
    let size = x.abs(prec).add(&one, 600);
    let mut values = vec![sin, cos, x.sinh(prec), x.exp(prec), size.sqrt(prec), size.root(5, prec)];
    values.extend(size.ln(prec));

    for (y, x) in [(x, &one), (&one, x), (x, &one.clone().neg())] {
        values.extend(R::angle(y, x, prec));
    }
    values
}

proptest! {
    #[test]
    fn arithmetic_encloses(start in -50i64..50, steps in prop::collection::vec(step(), 1..12), prec in 8u32..300) {
        if let Some((ball, truth)) = walk::<Ball>(start, &steps, prec) {
            prop_assert!(ball.holds(&truth), "{ball:?} {truth}");
            prop_assert!(ball.mid.bits() <= u64::from(prec) + 33);
            let size = BigRational::from(BigInt::from(2)).pow(ball.log2().max(-9999) as i32);
            prop_assert!(truth.abs() <= size);
            if let Some(floor) = ball.floor() {
                prop_assert_eq!(floor, truth.floor().to_integer());
            }
            if let Some(sign) = ball.sign() {
                prop_assert_eq!(sign, truth.cmp(&BigRational::zero()));
            }
        }

        if let Some((interval, truth)) = walk::<Interval>(start, &steps, 0) {
            prop_assert!(interval.holds(&truth), "{interval:?} {truth}");
            if let Some(sign) = interval.sign() {
                prop_assert_eq!(sign, truth.cmp(&BigRational::zero()));
            }
        }
    }

    #[test]
    fn functions_enclose(numer in -4_000_000i64..4_000_000, shift in 0u32..50, prec in 20u32..200) {
        let x = Ball::exact(numer.into(), -i64::from(shift));
        let fine = functions(&x, 500);
        let wide = x.clone().widened(Magnitude::power_of_two(-20), 99);

        for coarse in [functions(&x, prec), functions(&wide, prec)] {
            for (index, (coarse, fine)) in coarse.iter().zip(&fine).enumerate() {
                prop_assert!(meet(coarse, fine, 600), "{index}: {x:?} {coarse:?} {fine:?}");
            }
        }

        for value in &functions(&x, prec)[..6] {
            let wanted = value.log2() - i64::from(prec) + 8;
            prop_assert!(value.rad == 0 || value.radius().top() <= wanted, "{x:?} {value:?}");
        }

        let short = Interval::ratio(&numer.into(), &BigInt::from(1u64 << shift), 0);
        for (index, (interval, fine)) in functions(&short, 0).iter().zip(&fine).enumerate() {
            // Larger numbers overflow floats, whose enclosures are then trivial.
            if fine.top().abs() < 900 {
                let unit = BigRational::from(BigInt::from(2)).pow(fine.exp as i32);
                let fine = BigRational::from(fine.mid.clone()) * unit;
                prop_assert!(interval.holds(&fine), "{index}: {x:?} {interval:?}");
            }
        }
    }

    #[test]
    fn roots_of_integers(words in prop::collection::vec(any::<u32>(), 1..40)) {
        let n = BigUint::new(words);
        let (root, rest) = square_root(n.clone());
        prop_assert_eq!(&root * &root + &rest, n);
        prop_assert!(rest <= root << 1u32);
    }
}

/// Digits come from the tables of the On-Line Encyclopedia of Integer Sequences, which list sixty.
#[test]
fn digits_of_constants() {
    let prec = 320;
    let int = Ball::integer;
    let one = int(1);
    let ratio = |n: i64, d: i64| Ball::ratio(&n.into(), &d.into(), prec);
    let atan = |n, d| Ball::angle(&ratio(n, d), &one, prec).expect("an angle");

    let constants = [
        (Ball::pi(prec), "3.14159265358979323846264338327950288419716939937510582097494"),
        (one.exp(prec), "2.71828182845904523536028747135266249775724709369995957496696"),
        (
            int(2).ln(prec).expect("positive"),
            "0.69314718055994530941723212145817656807550013436025525412068",
        ),
        (
            int(10).ln(prec).expect("positive"),
            "2.30258509299404568401799145468436420760110148862877297603332",
        ),
        (one.sin_cos(prec).0, "0.84147098480789650665250232163029899962256306079837106567275"),
        (one.sin_cos(prec).1, "0.54030230586813971740093660744297660373231042061792222767009"),
        (atan(1, 5), "0.19739555984988075837004976519479029344758510378785210151768"),
        (int(2).sqrt(prec), "1.41421356237309504880168872420969807856967187537694807317667"),
        (int(2).root(3, prec), "1.25992104989487316476721060727822835057025146470150798008197"),
        (one.sinh(prec), "1.17520119364380145688238185059560081515571798133409587022956"),
    ];

    for (ball, digits) in constants {
        let (whole, fraction) = digits.split_once('.').expect("a point");
        let truth = format!("{whole}{fraction}").parse::<BigInt>().expect("digits");
        let scale = BigInt::from(10).pow(fraction.len() as u32);
        let floor = ball.mul(&Ball::exact(scale, 0), prec).floor();
        assert_eq!(floor, Some(truth), "{digits}");
    }
}

#[test]
fn exact_where_it_can_be() {
    let int = Ball::integer;
    let exact = |ball: Ball, value: i64| assert_eq!(ball.whole(), Some(value.into()), "{ball:?}");

    exact(int(144).sqrt(64), 12);
    exact(int(-125).neg().root(3, 64), 5);
    exact(int(0).exp(64), 1);
    exact(int(1).ln(64).expect("positive"), 0);
    exact(int(0).sin_cos(64).1, 1);
    exact(int(84).div(&int(-7), 64).expect("not zero"), -12);

    assert!(int(1).div(&int(0), 64).is_none());
    assert_eq!(int(0).sign(), Some(Ordering::Equal));
}

#[test]
fn extremes_are_followed_or_given_up() {
    let prec = 128;
    let int = Ball::integer;
    let huge = int(1 << 37).exp(prec);
    assert_eq!(huge.sign(), Some(Ordering::Greater));
    assert!(int(1 << 41).exp(prec).is_everything());

    let tiny = int(-1 << 37).exp(prec);
    assert_eq!(tiny.sign(), Some(Ordering::Greater));
    assert_eq!(int(-1 << 41).exp(prec).sign(), None);

    // The first ball lies between -2^42 + 1 and -1; the others reach beyond it on either side.
    let wide = |mid: i64, rad| Ball { mid: BigInt::from(mid), rad, exp: 0 }.exp(prec);
    let power = int(-1).exp(prec);
    assert!(meet(&wide(-1 << 41, (1 << 41) - 1), &power, prec));
    assert!(meet(&wide(-1 << 41, 1 << 41), &int(1), prec));
    assert!(!meet(&wide(-1 << 42, 1 << 41), &power, prec));
    assert!(wide(0, 1 << 41).is_everything());

    let mut tower = huge.clone();
    for _ in 0..70 {
        tower = tower.mul(&tower.clone(), prec);
    }
    assert!(tower.is_everything());

    let nothing = [
        tower.clone().neg(),
        tower.add(&int(1), prec),
        tower.abs(prec),
        tower.sqrt(prec),
        tower.exp(prec),
    ];
    assert!(nothing.iter().all(|ball| ball.sign().is_none()));
    assert!(tower.ln(prec).is_none() && tower.floor().is_none() && tower.decade().is_none());
    assert!(Ball::angle(&tower, &int(1), prec).is_none());

    let mut nought = tiny;
    for _ in 0..70 {
        nought = nought.mul(&nought.clone(), prec);
    }
    assert_eq!(nought.sign(), None);
    assert!(meet(&nought, &int(0), prec));
}

#[test]
fn decades() {
    let decade = |n: i64, d: i64| Ball::ratio(&n.into(), &d.into(), 128).decade();

    let cases = [
        (1, 1, Some(0)),
        (9, 1, Some(0)),
        (10, 1, Some(1)),
        (-999, 1, Some(2)),
        (1000, 1, Some(3)),
        (1, 2, Some(-1)),
        (999, 1_000_000, Some(-4)),
        (1001, 1_000_000, Some(-3)),
        (0, 1, None),
    ];

    for (n, d, expected) in cases {
        assert_eq!(decade(n, d), expected, "{n}/{d}");
    }
}
