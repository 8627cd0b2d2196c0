//! Units of measure that can contradict each other.

use num_rational::Ratio;

/// A unit of measure that can contradict another unit: 15 cm are not 15 m, and 150 cm are 1.5 m.
///
/// A unit that only one side has is ignored. A length is not an area, whatever the numbers are. Nouns (`6 apples`) are
/// not units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    quantity: Quantity,
    /// Size in terms of the quantity's first unit below.
    scale: Ratio<i64>,
    name: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Quantity {
    Length,
    Mass,
    Time,
    Volume,
    Money,
    Celsius,
    Fahrenheit,
}

impl Unit {
    /// Returns the unit that a word names, in the singular or plural.
    pub(crate) fn named(word: &str) -> Option<Unit> {
        use Quantity::*;
        const UNITS: [(Quantity, &[&str], i64, i64); 31] = [
            (Length, &["m", "meter", "meters", "metre", "metres"], 1, 1),
            (Length, &["mm", "millimeter", "millimeters", "millimetre", "millimetres"], 1, 1000),
            (Length, &["cm", "centimeter", "centimeters", "centimetre", "centimetres"], 1, 100),
            (Length, &["dm", "decimeter", "decimeters", "decimetre", "decimetres"], 1, 10),
            (Length, &["km", "kilometer", "kilometers", "kilometre", "kilometres"], 1000, 1),
            (Length, &["inch", "inches", "in"], 254, 10_000),
            (Length, &["ft", "foot", "feet"], 3048, 10_000),
            (Length, &["yd", "yard", "yards"], 9144, 10_000),
            (Length, &["mi", "mile", "miles"], 1_609_344, 1000),
            (Mass, &["g", "gram", "grams"], 1, 1),
            (Mass, &["mg", "milligram", "milligrams"], 1, 1000),
            (Mass, &["kg", "kilogram", "kilograms"], 1000, 1),
            (Mass, &["lb", "lbs"], 45_359_237, 100_000),
            (Time, &["s", "sec", "second", "seconds"], 1, 1),
            (Time, &["ms", "millisecond", "milliseconds"], 1, 1000),
            (Time, &["min", "mins", "minute", "minutes"], 60, 1),
            (Time, &["h", "hr", "hrs", "hour", "hours"], 3600, 1),
            (Time, &["day", "days"], 86_400, 1),
            (Time, &["week", "weeks"], 604_800, 1),
            (Volume, &["l", "liter", "liters", "litre", "litres"], 1, 1),
            (Volume, &["ml", "milliliter", "milliliters", "millilitre", "millilitres"], 1, 1000),
            (Money, &["dollar", "dollars"], 1, 1),
            (Money, &["cent", "cents"], 1, 100),
            (Time, &["month", "months"], 2_629_800, 1),
            (Time, &["year", "years", "yr", "yrs"], 31_557_600, 1),
            (Mass, &["ounce", "ounces", "oz"], 45_359_237, 1_600_000),
            (Mass, &["pound", "pounds"], 45_359_237, 100_000),
            (Volume, &["gallon", "gallons"], 3_785_411_784, 1_000_000_000),
            (Celsius, &["c", "celsius"], 1, 1),
            (Fahrenheit, &["f", "fahrenheit"], 1, 1),
            (Length, &["nm", "nanometer", "nanometers"], 1, 1_000_000_000),
        ];

        UNITS.iter().find(|(_, names, ..)| names.contains(&word)).map(|(quantity, names, n, d)| {
            Unit { quantity: *quantity, scale: Ratio::new(*n, *d), name: names[0] }
        })
    }

    /// Returns the factor that turns a number in `self` into a number in `other`, or `None` if the units measure
    /// different things.
    pub(crate) fn factor(self, other: Unit) -> Option<Ratio<i64>> {
        (self.quantity == other.quantity).then(|| self.scale / other.scale)
    }

    /// Tells whether both units measure the same thing, in whatever scale.
    pub(crate) fn measures_as(self, other: Unit) -> bool {
        self.quantity == other.quantity
    }

    /// Tells whether the unit is a degree of temperature.
    pub(crate) fn is_temperature(self) -> bool {
        matches!(self.quantity, Quantity::Celsius | Quantity::Fahrenheit)
    }

    /// Tells whether a capital after the unit may say what is measured, so that it is not a second unit: the nitrogen
    /// of `5 g N`, or the north of `5 km N`.
    pub(crate) fn is_specified_by(self, name: &str) -> bool {
        let capital = name.len() == 1 && name.bytes().all(|b| b.is_ascii_uppercase());

        match self.quantity {
            Quantity::Mass => capital,
            Quantity::Length => matches!(name, "N" | "S" | "W"),
            _ => false,
        }
    }

    /// Returns the unit's name in canonical forms.
    pub(crate) fn name(self) -> &'static str {
        self.name
    }
}
