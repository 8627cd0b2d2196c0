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

    /// Builds a complex number, or a real one if the imaginary part is certainly zero.
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

    pub(super) fn add(&self, other: &Self, prec: u32) -> Self {
        let re = self.re.add(&other.re, prec);
        match (&self.im, &other.im) {
            (None, None) => Value::real(re),
            (Some(im), None) | (None, Some(im)) => Value { re, im: Some(im.clone()) },
            (Some(first), Some(second)) => Value::complex(re, first.add(second, prec)),
        }
    }

    pub(super) fn sub(&self, other: &Self, prec: u32) -> Self {
        self.add(&other.clone().neg(), prec)
    }

    pub(super) fn mul(&self, other: &Self, prec: u32) -> Self {
        match (&self.im, &other.im) {
            (None, None) => Value::real(self.re.mul(&other.re, prec)),
            (Some(im), None) => {
                Value::complex(self.re.mul(&other.re, prec), im.mul(&other.re, prec))
            }
            (None, Some(im)) => {
                Value::complex(self.re.mul(&other.re, prec), im.mul(&self.re, prec))
            }
            (Some(first), Some(second)) => {
                let re = self.re.mul(&other.re, prec).add(&first.mul(second, prec).neg(), prec);
                Value::complex(re, self.re.mul(second, prec).add(&first.mul(&other.re, prec), prec))
            }
        }
    }

    pub(super) fn square(&self, prec: u32) -> Self {
        match &self.im {
            // A square is not negative. The product of two unrelated factors might be.
            None => {
                let magnitude = self.re.abs(prec);
                Value::real(magnitude.mul(&magnitude, prec))
            }
            Some(_) => self.mul(self, prec),
        }
    }

    /// Divides. Returns `None` if the divisor may be zero.
    pub(super) fn div(&self, other: &Self, prec: u32) -> Option<Self> {
        let Some(im) = &other.im else {
            let re = self.re.div(&other.re, prec)?;
            let Some(own_im) = &self.im else { return Some(Value::real(re)) };
            return Some(Value { re, im: Some(own_im.div(&other.re, prec)?) });
        };

        if !other.is_nonzero() {
            return None;
        }
        // a/b = a·b̄/|b|²
        let norm = other.re.mul(&other.re, prec).add(&im.mul(im, prec), prec);
        self.mul(&other.clone().conjugate(), prec).div(&Value::real(norm), prec)
    }

    /// Computes the modulus.
    pub(super) fn abs(&self, prec: u32) -> R {
        let Some(im) = &self.im else { return self.re.abs(prec) };
        let re = self.re.abs(prec);
        let im = im.abs(prec);
        re.mul(&re, prec).add(&im.mul(&im, prec), prec).sqrt(prec)
    }

    pub(super) fn exp(&self, prec: u32) -> Self {
        let magnitude = self.re.exp(prec);
        let Some(im) = &self.im else { return Value::real(magnitude) };
        let (sin, cos) = im.sin_cos(prec);
        Value::complex(magnitude.mul(&cos, prec), magnitude.mul(&sin, prec))
    }

    /// Computes the principal logarithm. Returns `None` if the number may be zero, or may lie on either side of
    /// the branch cut, the negative real axis.
    pub(super) fn ln(&self, prec: u32) -> Option<Self> {
        let im = R::angle(&self.imaginary(), &self.re, prec)?;
        Some(Value::complex(self.abs(prec).ln(prec)?, im))
    }

    /// Computes the principal square root of a number with an imaginary part. Returns `None` if the number may lie
    /// on either side of the branch cut.
    pub(super) fn sqrt(&self, prec: u32) -> Option<Self> {
        let im = self.im.as_ref()?;
        let half = |value: R| value.div(&R::integer(2), prec);
        let magnitude = self.abs(prec);

        // The larger part is the root of a sum, and the smaller one a quotient, so neither cancels.
        if self.re.sign() == Some(Ordering::Greater) {
            let re = half(magnitude.add(&self.re, prec))?.sqrt(prec);
            let im = half(im.div(&re, prec)?)?;
            return Some(Value { re, im: Some(im) });
        }

        let sign = im.sign()?;
        let part = half(magnitude.add(&self.re.clone().neg(), prec))?.sqrt(prec);
        let re = half(im.abs(prec).div(&part, prec)?)?;
        Some(Value::complex(re, if sign.is_lt() { part.neg() } else { part }))
    }

    /// Computes sine and cosine.
    pub(super) fn sin_cos(&self, prec: u32) -> (Self, Self) {
        let (sin, cos) = self.re.sin_cos(prec);
        let Some(im) = &self.im else { return (Value::real(sin), Value::real(cos)) };
        let sinh = im.sinh(prec);
        let cosh = cosh(im, prec);
        // sin(x + iy) = sin x·cosh y + i·cos x·sinh y
        let sine = Value::complex(sin.mul(&cosh, prec), cos.mul(&sinh, prec));
        (sine, Value::complex(cos.mul(&cosh, prec), sin.mul(&sinh, prec).neg()))
    }

    /// Computes hyperbolic sine and cosine.
    pub(super) fn sinh_cosh(&self, prec: u32) -> (Self, Self) {
        let sinh = self.re.sinh(prec);
        let cosh = cosh(&self.re, prec);
        let Some(im) = &self.im else { return (Value::real(sinh), Value::real(cosh)) };
        let (sin, cos) = im.sin_cos(prec);
        // sinh(x + iy) = sinh x·cos y + i·cosh x·sin y
        let sine = Value::complex(sinh.mul(&cos, prec), cosh.mul(&sin, prec));
        (sine, Value::complex(cosh.mul(&cos, prec), sinh.mul(&sin, prec)))
    }
}

fn cosh<R: Real>(x: &R, prec: u32) -> R {
    let sum = x.exp(prec).add(&x.clone().neg().exp(prec), prec);
    sum.div(&R::integer(2), prec).unwrap_or(sum)
}
