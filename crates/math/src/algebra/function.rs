//! Functions of exact values.

use num_bigint::BigInt;
use num_integer::Integer;
use num_rational::{BigRational, Ratio};
use num_traits::{One, Signed, ToPrimitive, Zero};

use super::{
    atom::{Algebra, Atom},
    exact::Value,
    integer,
    limits::AlgebraError,
    modular,
    polynomial::{Monomial, Polynomial, RationalFunction},
};
use crate::expr::{Constant, Expr, Function};

/// Largest shift of a factorial that is multiplied out: (n+2)! = (n+2)(n+1)·n!.
const MAX_SHIFT: u64 = 32;

impl Algebra<'_> {
    pub(super) fn call(
        &mut self,
        function: Function,
        arguments: &[Expr],
    ) -> Result<Value, AlgebraError> {
        if let (Function::Mod, [number, modulus]) = (function, arguments)
            && let Some(rest) = self.residue(number, modulus)?
        {
            return Ok(rest);
        }

        let mut values = Vec::with_capacity(arguments.len());
        for argument in arguments {
            values.push(self.evaluate(argument)?);
        }
        if values.is_empty() || function.arity().is_some_and(|arity| arity != values.len()) {
            return Err(AlgebraError::Opaque);
        }

        if let Some(numbers) = values.iter().map(Value::as_number).collect::<Option<Vec<_>>>()
            && let Some(value) = self.of_numbers(function, &numbers)?
        {
            return Ok(value);
        }
        if let [Value::Infinity { positive }] = values.as_slice() {
            return self.of_infinity(function, *positive);
        }

        let mut fractions = Vec::with_capacity(values.len());
        for value in values {
            fractions.push(value.into_fraction()?);
        }
        Ok(self.of_fractions(function, fractions)?.into())
    }

    /// Computes the remainder of a number too large to be computed itself: 10^500 mod 7.
    fn residue(&mut self, number: &Expr, modulus: &Expr) -> Result<Option<Value>, AlgebraError> {
        crate::parts::gate!(HugeRemainders, Ok(None));
        // Residues do not see the indices in scope, and a literal number needs no residue.
        if !self.scope.is_empty() || matches!(number, Expr::Number(_) | Expr::Decimal(_)) {
            return Ok(None);
        }

        let modulus = self.evaluate(modulus)?;
        let Some(modulus) = modulus.as_number().filter(|m| m.is_integer()) else { return Ok(None) };
        let Some(modulus) = modulus.numer().to_u64().filter(|m| *m > 0) else { return Ok(None) };
        let rest = modular::residue(number, modulus, self.budget)?;
        Ok(rest.map(|rest| BigInt::from(rest).into()))
    }

    /// Computes functions whose values at these numbers are numbers.
    fn of_numbers(
        &mut self,
        function: Function,
        numbers: &[&BigRational],
    ) -> Result<Option<Value>, AlgebraError> {
        let size: u64 = numbers.iter().map(|number| integer::bits(number)).sum();
        self.budget.spend(size / 64 * (size / 64) + 8 * numbers.len() as u64)?;

        let natural = |at: usize| -> Option<u64> {
            numbers[at].is_integer().then(|| numbers[at].numer().to_u64()).flatten()
        };
        let first = numbers[0];

        Ok(Some(match function {
            Function::Abs => first.abs().into(),
            Function::Floor => first.floor().into(),
            Function::Ceil => first.ceil().into(),
            Function::Re | Function::Conjugate => first.clone().into(),
            Function::Im => BigRational::zero().into(),
            Function::Min | Function::Max => {
                let extreme = match function {
                    Function::Min => numbers.iter().min(),
                    _ => numbers.iter().max(),
                };
                extreme.map_or(first, |extreme| extreme).clone().into()
            }

            Function::Factorial | Function::DoubleFactorial if first.is_integer() => {
                if function == Function::Factorial && first.is_negative() {
                    return Err(AlgebraError::Undefined);
                }
                let step = if function == Function::Factorial { 1 } else { 2 };
                if first.is_negative() {
                    return Ok(None);
                }

                let n = first.numer().to_u64().ok_or(AlgebraError::TooLarge)?;
                integer::factorial(n, step, self.budget)?.into()
            }

            Function::Permutations => match (natural(0), natural(1)) {
                (Some(n), Some(k)) if k > n => BigInt::zero().into(),
                (Some(n), Some(k)) => integer::permutations(n, k, self.budget)?.into(),
                _ => return Ok(None),
            },

            Function::Binomial => match (natural(0), natural(1)) {
                (Some(n), Some(k)) if k > n => BigInt::zero().into(),
                (Some(n), Some(k)) => {
                    // C(n, k) = C(n, n−k), and the smaller k is less work.
                    let k = k.min(n - k);
                    let numer = integer::permutations(n, k, self.budget)?;
                    let denom = integer::factorial(k, 1, self.budget)?;
                    let limbs = numer.bits() / 64 + 1;
                    self.budget.spend(limbs * limbs)?;
                    (numer / denom).into()
                }
                _ => return Ok(None),
            },

            Function::Mod => {
                let modulus = numbers[1];
                if modulus.is_zero() {
                    return Err(AlgebraError::Undefined);
                }
                if modulus.is_negative() {
                    return Ok(None);
                }
                if first.is_integer() && modulus.is_integer() {
                    return Ok(Some(first.numer().mod_floor(modulus.numer()).into()));
                }

                // a mod m = a − m·⌊a/m⌋
                let quotient = integer::product(first, &modulus.recip(), self.budget)?.floor();
                let multiple = integer::product(modulus, &quotient, self.budget)?;
                integer::sum(first, &-multiple, self.budget)?.into()
            }

            Function::Gcd | Function::Lcm if numbers.iter().all(|number| number.is_integer()) => {
                let mut result = first.numer().abs();
                for number in &numbers[1..] {
                    let bits = result.bits() + number.numer().bits();
                    if bits > integer::MAX_BITS {
                        return Err(AlgebraError::TooLarge);
                    }
                    self.budget.spend(16 + bits * (bits / 64 + 1))?;
                    result = match function {
                        Function::Gcd => result.gcd(number.numer()),
                        _ => result.lcm(number.numer()),
                    };
                }
                result.into()
            }
            _ => return Ok(None),
        }))
    }

    fn of_infinity(&mut self, function: Function, positive: bool) -> Result<Value, AlgebraError> {
        crate::parts::gate!(InfiniteArguments, Err(AlgebraError::Opaque));
        match (function, positive) {
            (Function::Abs, _) | (Function::Exp | Function::Ln | Function::Factorial, true) => {
                Ok(Value::Infinity { positive: true })
            }
            (Function::Exp, false) => Ok(BigRational::zero().into()),
            (Function::Arctan, _) => {
                let half = BigRational::new(if positive { 1 } else { -1 }.into(), 2.into());
                let pi = self.constant(Constant::Pi)?;
                Ok(self.scale(&pi, &half)?.into())
            }
            _ => Err(AlgebraError::Opaque),
        }
    }

    fn of_fractions(
        &mut self,
        function: Function,
        mut fractions: Vec<RationalFunction>,
    ) -> Result<RationalFunction, AlgebraError> {
        use Function::*;
        let second = (fractions.len() == 2).then(|| fractions[1].clone());
        let first = fractions[0].clone();

        match (function, second) {
            (Sin, _) => self.sine(first),
            (Cos, _) => self.cosine(first),
            (Tan | Cot, _) => {
                let sine = self.sine(first.clone())?;
                let cosine = self.cosine(first)?;
                let (over, under) = if function == Tan { (sine, cosine) } else { (cosine, sine) };
                let inverse = self.inverse(&under)?;
                self.multiply(&over, &inverse)
            }
            (Sec, _) => {
                let cosine = self.cosine(first)?;
                self.inverse(&cosine)
            }
            (Csc, _) => {
                let sine = self.sine(first)?;
                self.inverse(&sine)
            }
            (Sinh | Cosh | Tanh, _) => self.hyperbolic(function, &first),
            (Exp, _) => {
                let e = self.constant(Constant::E)?.into();
                self.symbolic(&e, &first)
            }
            (Ln, _) => self.logarithm(first),
            (Log, Some(second)) => {
                let base = self.logarithm(first)?;
                let inverse = self.inverse(&base)?;
                let logarithm = self.logarithm(second)?;
                self.multiply(&logarithm, &inverse)
            }
            (Abs, _) => self.absolute(&first),
            (Re | Im | Conjugate, _) => self.part(function, first),
            (Factorial, _) => self.symbolic_factorial(first),
            (Binomial | Permutations, Some(second)) => self.choices(function, &first, &second),

            (Min | Max | Gcd | Lcm, _) => {
                let mut distinct: Vec<RationalFunction> = vec![];
                for fraction in fractions {
                    self.budget.spend(8 * distinct.len() as u64)?;
                    if !distinct.contains(&fraction) {
                        distinct.push(fraction);
                    }
                }

                // The order of the arguments does not matter.
                distinct.sort_by(|a, b| a.numer.0.cmp(&b.numer.0));
                self.opaque(function, distinct)
            }
            (Arcsin | Arctan, _) => {
                // Both functions are odd.
                let (fraction, negative) = self.signed(fractions.remove(0));
                let value = self.opaque(function, vec![fraction])?;
                Ok(if negative { value.negated() } else { value })
            }
            _ => self.opaque(function, fractions),
        }
    }

    pub(super) fn opaque(
        &mut self,
        function: Function,
        arguments: Vec<RationalFunction>,
    ) -> Result<RationalFunction, AlgebraError> {
        Ok(self.polynomial(Atom::Call(function, arguments), Ratio::one())?.into())
    }

    /// Returns the quotient or its negation, whichever has a positive last coefficient, and whether it was negated.
    pub(super) fn signed(&self, fraction: RationalFunction) -> (RationalFunction, bool) {
        match fraction.numer.0.last() {
            Some((_, coefficient)) if coefficient.is_negative() => (fraction.negated(), true),
            _ => (fraction, false),
        }
    }

    /// Computes the natural logarithm. The logarithm of a positive product is split into its factors.
    fn logarithm(&mut self, argument: RationalFunction) -> Result<RationalFunction, AlgebraError> {
        if argument.numer.is_zero() {
            return Err(AlgebraError::Undefined);
        }

        if !self.is_surely_nonzero(&argument.numer) {
            self.uncertain = true;
        }
        crate::parts::gate!(Logarithms, self.opaque(Function::Ln, vec![argument]));
        let Some(polynomial) = argument.as_polynomial() else {
            return self.opaque(Function::Ln, vec![argument]);
        };

        let (outside, inside) = match polynomial.as_term().cloned() {
            Some((monomial, coefficient)) => {
                let (positive, rest) = monomial
                    .0
                    .into_iter()
                    .partition::<Vec<_>, _>(|(id, _)| self.atoms[*id as usize].positive);

                let mut sum: RationalFunction = Polynomial::default().into();
                for (id, power) in positive {
                    let power = BigRational::new((*power.numer()).into(), (*power.denom()).into());
                    let part = self.logarithm_of_atom(id)?;
                    let part = self.multiply(&part, &power.into())?;
                    sum = self.add(&sum, &part)?;
                }

                let of_number = self.logarithm_of_number(&coefficient.abs())?;
                sum = self.add(&sum, &of_number)?;
                let sign = coefficient.signum();
                (sum, Polynomial::term(Monomial(rest), sign))
            }
            None => {
                let content = self.content(polynomial)?.abs();
                let inside = self.scale(polynomial, &content.recip())?;
                (self.logarithm_of_number(&content)?, inside)
            }
        };

        if inside.as_number().is_some_and(|number| number.is_one()) {
            return Ok(outside);
        }

        let inside = self.opaque(Function::Ln, vec![inside.into()])?;
        self.add(&outside, &inside)
    }

    fn logarithm_of_atom(&mut self, id: u32) -> Result<RationalFunction, AlgebraError> {
        match self.atom(id).clone() {
            Atom::E => Ok(BigRational::one().into()),
            Atom::Power { base, exponent } => {
                let logarithm = self.logarithm(*base)?;
                self.multiply(&logarithm, &exponent)
            }
            Atom::IntegerBase { base, .. } => {
                self.logarithm_of_number(&BigRational::from_integer(base.into()))
            }
            _ => {
                let atom = Polynomial::term(Monomial::of(id, Ratio::one()), BigRational::one());
                self.opaque(Function::Ln, vec![atom.into()])
            }
        }
    }

    fn logarithm_of_number(
        &mut self,
        number: &BigRational,
    ) -> Result<RationalFunction, AlgebraError> {
        // The logarithm of a product of primes is the sum of theirs.
        let mut sum = Polynomial::default();
        for factor in integer::factors(number, self.budget)? {
            let base = BigRational::from_integer(factor.base.into());
            let logarithm =
                self.polynomial(Atom::Call(Function::Ln, vec![base.into()]), Ratio::one())?;
            let exponent = BigRational::from_integer(factor.exponent.into());
            let logarithm = self.scale(&logarithm, &exponent)?;
            sum = self.add_polynomials(&sum, &logarithm)?;
        }
        Ok(sum.into())
    }

    /// Computes the absolute value. Factors that are known to be positive come out of it: |−2πx| = 2π|x|.
    pub(super) fn absolute(
        &mut self,
        fraction: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        if self.is_positive(fraction) || fraction.numer.is_zero() {
            return Ok(fraction.clone());
        }
        crate::parts::gate!(AbsoluteValues, self.opaque(Function::Abs, vec![fraction.clone()]));

        if let Some(denom) = &fraction.denom {
            let numer = self.absolute(&fraction.numer.clone().into())?;
            let denom = self.absolute(&denom.clone().into())?;
            let inverse = self.inverse(&denom)?;
            return self.multiply(&numer, &inverse);
        }

        if !self.is_real(fraction) {
            let (real, imaginary) = match self.parts(&fraction.numer) {
                Some(parts) => parts,
                None => return self.opaque(Function::Abs, vec![fraction.clone()]),
            };

            // |a + bi| = √(a² + b²)
            let real = self.power(&real.into(), 2)?;
            let imaginary = self.power(&imaginary.into(), 2)?;
            let square = self.add(&real, &imaginary)?;
            let half = Value::Number(BigRational::new(1.into(), 2.into()));
            return self.raise(square.into(), half)?.into_fraction();
        }

        match fraction.numer.as_term().cloned() {
            Some((monomial, coefficient)) => {
                let mut product: RationalFunction = coefficient.abs().into();
                for (id, power) in monomial.0 {
                    let positive = self.atoms[id as usize].positive;
                    // Positive factors and even powers need no bars.
                    let even = power.is_integer() && power.to_integer().is_even();
                    let factor = if positive || even {
                        Polynomial::term(Monomial::of(id, power), BigRational::one()).into()
                    } else {
                        let atom =
                            Polynomial::term(Monomial::of(id, Ratio::one()), BigRational::one());
                        let atom = match self.atom(id) {
                            Atom::Call(Function::Abs, _) => atom.into(),
                            _ => self.opaque(Function::Abs, vec![atom.into()])?,
                        };
                        if !power.is_integer() {
                            return self.opaque(Function::Abs, vec![fraction.clone()]);
                        }
                        self.power(&atom, power.to_integer())?
                    };

                    product = self.multiply(&product, &factor)?;
                }
                Ok(product)
            }
            None => {
                let content = self.content(&fraction.numer)?;
                let inside = self.scale(&fraction.numer, &content.recip())?;
                let inside = self.opaque(Function::Abs, vec![inside.into()])?;
                self.multiply(&inside, &content.abs().into())
            }
        }
    }

    /// Splits a polynomial into real and imaginary part, if all its atoms but i are known to be real.
    fn parts(&self, polynomial: &Polynomial) -> Option<(Polynomial, Polynomial)> {
        let mut real = vec![];
        let mut imaginary = vec![];
        for (monomial, coefficient) in &polynomial.0 {
            let mut rest = monomial.clone();
            rest.0.retain(|(id, _)| *self.atom(*id) != Atom::I);
            if !rest.0.iter().all(|(id, _)| self.atoms[*id as usize].real) {
                return None;
            }

            let turned = rest.0.len() < monomial.0.len();
            if turned { &mut imaginary } else { &mut real }.push((rest, coefficient.clone()));
        }

        // Monomials may have changed their order when i was taken out.
        real.sort_by(|a, b| a.0.cmp(&b.0));
        imaginary.sort_by(|a, b| a.0.cmp(&b.0));
        Some((Polynomial(real), Polynomial(imaginary)))
    }

    fn part(
        &mut self,
        function: Function,
        fraction: RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(ComplexParts, self.opaque(function, vec![fraction]));
        let parts = fraction.as_polynomial().and_then(|polynomial| self.parts(polynomial));
        let Some((real, imaginary)) = parts else { return self.opaque(function, vec![fraction]) };

        match function {
            Function::Re => Ok(real.into()),
            Function::Im => Ok(imaginary.into()),
            _ => {
                let i = self.constant(Constant::I)?;
                let turned = self.multiply_polynomials(&i, &imaginary)?;
                Ok(self.add_polynomials(&real, &turned.negated())?.into())
            }
        }
    }

    /// Expands (f+k)! = (f+k)(f+k−1)…(f+1)·f! for the whole part k of the constant term.
    fn symbolic_factorial(
        &mut self,
        argument: RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(SymbolicFactorials, self.opaque(Function::Factorial, vec![argument]));
        let Some(polynomial) = argument.as_polynomial() else {
            return self.opaque(Function::Factorial, vec![argument]);
        };

        let constant = polynomial.0.iter().find(|(monomial, _)| monomial.0.is_empty());
        let shift = constant.map_or_else(BigRational::zero, |(_, number)| number.floor());
        let Some(shift) = shift.numer().to_i64().filter(|k| k.unsigned_abs() <= MAX_SHIFT) else {
            return self.opaque(Function::Factorial, vec![argument]);
        };

        let shifted = |by: i64| BigRational::from_integer(by.into()).into();
        let base = self.add(&argument, &shifted(-shift))?;
        if base.as_number().is_some() {
            return self.opaque(Function::Factorial, vec![argument]);
        }

        let mut product = self.opaque(Function::Factorial, vec![base.clone()])?;
        // Upwards, the factors are f+1 … f+k. Downwards, they are the inverses of f … f−k+1.
        for step in 1..=shift.abs() {
            let factor = self.add(&base, &shifted(if shift > 0 { step } else { 1 - step }))?;
            let factor = if shift > 0 { factor } else { self.inverse(&factor)? };
            product = self.multiply(&product, &factor)?;
        }

        Ok(product)
    }

    /// Computes n (n−1) … (n−k+1), divided by k! for a binomial coefficient.
    fn choices(
        &mut self,
        function: Function,
        n: &RationalFunction,
        k: &RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        crate::parts::gate!(SymbolicChoices, self.opaque(function, vec![n.clone(), k.clone()]));
        let small = k.as_number().filter(|k| k.is_integer()).and_then(|k| k.to_integer().to_u64());

        let falling = match small.filter(|k| *k <= MAX_SHIFT) {
            Some(k) => {
                let mut product: RationalFunction = BigRational::one().into();
                for step in 0..k {
                    let step = BigRational::from_integer((-BigInt::from(step)).clone());
                    let factor = self.add(n, &step.into())?;
                    product = self.multiply(&product, &factor)?;
                }
                product
            }
            None => {
                let rest = self.add(n, &k.clone().negated())?;
                let denom = self.any_factorial(rest)?;
                let inverse = self.inverse(&denom)?;
                let numer = self.any_factorial(n.clone())?;
                self.multiply(&numer, &inverse)?
            }
        };

        if function == Function::Permutations {
            return Ok(falling);
        }
        let denom = self.any_factorial(k.clone())?;
        let inverse = self.inverse(&denom)?;
        self.multiply(&falling, &inverse)
    }

    fn any_factorial(
        &mut self,
        argument: RationalFunction,
    ) -> Result<RationalFunction, AlgebraError> {
        match argument.as_number() {
            Some(number) => match self.of_numbers(Function::Factorial, &[&number])? {
                Some(value) => value.into_fraction(),
                None => self.opaque(Function::Factorial, vec![argument]),
            },
            None => self.symbolic_factorial(argument),
        }
    }
}
