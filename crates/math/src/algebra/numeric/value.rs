//! Complex numbers, each part within an enclosure.

use std::cmp::Ordering;

use crate::algebra::real::Real;

/// A number within an enclosure. It is real if there is no imaginary part.
#[derive(Clone, Debug)]
pub(super) struct Value<R> {
    pub(super) re: R,
    pub(super) im: Option<R>,
}

impl<R: Real> Value<R> {
    pub(super) fn real(re: R) -> Self {
        Value { re, im: None }
    }

    /// Makes a complex number, or a real one if the imaginary part is certainly zero.
    pub(super) fn complex(re: R, im: R) -> Self {
        let im = (im.sign() != Some(Ordering::Equal)).then_some(im);
        Value { re, im }
    }

    /// Returns the real number, if the value is known to be real.
    pub(super) fn as_real(&self) -> Option<&R> {
        self.im.is_none().then_some(&self.re)
    }

    pub(super) fn imaginary(&self) -> R {
        self.im.clone().unwrap_or_else(|| R::integer(0))
    }

    pub(super) fn is_zero(&self) -> bool {
        self.im.is_none() && self.re.sign() == Some(Ordering::Equal)
    }

    /// Tells whether the value is known not to be zero.
    pub(super) fn is_nonzero(&self) -> bool {
        let nonzero = |part: &R| part.sign().is_some_and(Ordering::is_ne);
        nonzero(&self.re) || self.im.as_ref().is_some_and(nonzero)
    }

    pub(super) fn log2(&self) -> i64 {
        self.im.as_ref().map_or(i64::MIN, R::log2).max(self.re.log2())
    }

    pub(super) fn neg(self) -> Self {
        Value { re: self.re.neg(), im: self.im.map(R::neg) }
    }

    pub(super) fn conjugate(self) -> Self {
        Value { re: self.re, im: self.im.map(R::neg) }
    }

    pub(super) fn add(&self, other: &Self, p: u32) -> Self {
        let re = self.re.add(&other.re, p);
        match (&self.im, &other.im) {
            (None, None) => Value::real(re),
            (Some(im), None) | (None, Some(im)) => Value { re, im: Some(im.clone()) },
            (Some(first), Some(second)) => Value::complex(re, first.add(second, p)),
        }
    }

    pub(super) fn sub(&self, other: &Self, p: u32) -> Self {
        self.add(&other.clone().neg(), p)
    }

    pub(super) fn mul(&self, other: &Self, p: u32) -> Self {
        match (&self.im, &other.im) {
            (None, None) => Value::real(self.re.mul(&other.re, p)),
            (Some(im), None) => Value::complex(self.re.mul(&other.re, p), im.mul(&other.re, p)),
            (None, Some(im)) => Value::complex(self.re.mul(&other.re, p), im.mul(&self.re, p)),
            (Some(first), Some(second)) => {
                let re = self.re.mul(&other.re, p).add(&first.mul(second, p).neg(), p);
                Value::complex(re, self.re.mul(second, p).add(&first.mul(&other.re, p), p))
            }
        }
    }

    pub(super) fn square(&self, p: u32) -> Self {
        match &self.im {
            // A square is not negative. The product of two unrelated factors might be.
            None => {
                let size = self.re.abs(p);
                Value::real(size.mul(&size, p))
            }
            Some(_) => self.mul(self, p),
        }
    }

    /// Divides. Returns `None` if the divisor may be zero.
    pub(super) fn div(&self, other: &Self, p: u32) -> Option<Self> {
        let Some(im) = &other.im else {
            let re = self.re.div(&other.re, p)?;
            let Some(own) = &self.im else { return Some(Value::real(re)) };
            return Some(Value { re, im: Some(own.div(&other.re, p)?) });
        };
        if !other.is_nonzero() {
            return None;
        }
        let norm = other.re.mul(&other.re, p).add(&im.mul(im, p), p);
        self.mul(&other.clone().conjugate(), p).div(&Value::real(norm), p)
    }

    /// Computes the modulus.
    pub(super) fn abs(&self, p: u32) -> R {
        let Some(im) = &self.im else { return self.re.abs(p) };
        let (re, im) = (self.re.abs(p), im.abs(p));
        re.mul(&re, p).add(&im.mul(&im, p), p).sqrt(p)
    }

    pub(super) fn exp(&self, p: u32) -> Self {
        let size = self.re.exp(p);
        let Some(im) = &self.im else { return Value::real(size) };
        let (sin, cos) = im.sin_cos(p);
        Value::complex(size.mul(&cos, p), size.mul(&sin, p))
    }

    /// Computes the principal logarithm. Returns `None` if the number may be zero, or may lie on either side of
    /// the cut.
    pub(super) fn ln(&self, p: u32) -> Option<Self> {
        let im = R::angle(&self.imaginary(), &self.re, p)?;
        Some(Value::complex(self.abs(p).ln(p)?, im))
    }

    /// Computes the principal square root of a number with an imaginary part. Returns `None` if the number may lie
    /// on either side of the cut.
    pub(super) fn sqrt(&self, p: u32) -> Option<Self> {
        let im = self.im.as_ref()?;
        let half = |value: R| value.div(&R::integer(2), p);
        let size = self.abs(p);
        if self.re.sign() == Some(Ordering::Greater) {
            let re = half(size.add(&self.re, p))?.sqrt(p);
            let im = half(im.div(&re, p)?)?;
            return Some(Value { re, im: Some(im) });
        }
        let sign = im.sign()?;
        let part = half(size.add(&self.re.clone().neg(), p))?.sqrt(p);
        let re = half(im.abs(p).div(&part, p)?)?;
        Some(Value::complex(re, if sign.is_lt() { part.neg() } else { part }))
    }

    /// Computes sine and cosine.
    pub(super) fn sin_cos(&self, p: u32) -> (Self, Self) {
        let (sin, cos) = self.re.sin_cos(p);
        let Some(im) = &self.im else { return (Value::real(sin), Value::real(cos)) };
        let (up, right) = (im.sinh(p), cosh(im, p));
        let sine = Value::complex(sin.mul(&right, p), cos.mul(&up, p));
        (sine, Value::complex(cos.mul(&right, p), sin.mul(&up, p).neg()))
    }

    /// Computes hyperbolic sine and cosine.
    pub(super) fn sinh_cosh(&self, p: u32) -> (Self, Self) {
        let (up, right) = (self.re.sinh(p), cosh(&self.re, p));
        let Some(im) = &self.im else { return (Value::real(up), Value::real(right)) };
        let (sin, cos) = im.sin_cos(p);
        let sine = Value::complex(up.mul(&cos, p), right.mul(&sin, p));
        (sine, Value::complex(right.mul(&cos, p), up.mul(&sin, p)))
    }
}

fn cosh<R: Real>(x: &R, p: u32) -> R {
    let sum = x.exp(p).add(&x.clone().neg().exp(p), p);
    sum.div(&R::integer(2), p).unwrap_or(sum)
}
