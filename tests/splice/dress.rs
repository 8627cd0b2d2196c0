//! Dresses of an answer: a frame around a number in one of its forms.

use rand::{Rng, RngExt as _};

/// A frame, with the number at `@` and the counted thing at `&`, and the form of the number.
pub(super) struct Dress {
    frame: &'static str,
    form: Form,
}

/// Where the answer is found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Position {
    /// In a box.
    Box,
    /// After words that announce it.
    Marker,
    /// At the end, as the last thing that is said.
    End,
}

/// Value that a number stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    /// The number itself.
    Whole,
    /// The number and a half, away from zero.
    Half,
    /// The number in hundredths.
    Percent,
}

/// Form in which a number is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    Plain,
    Commas,
    CommasInBraces,
    CommasWithoutSpace,
    ThinSpaces,
    NarrowSpaces,
    OneZero,
    TwoZeros,
    FullWidth,
    Halves,
    Thirds,
    OverOne,
    Slash,
    Scientific,
    ScientificPlain,
    Degrees,
    DegreesPlain,
    Text,
    Bold,
    MixedLatex,
    MixedShort,
    MixedPlain,
    HalfFraction,
    HalfDecimal,
    PercentLatex,
    PercentPlain,
    PercentWord,
    PercentDecimal,
}

/// Frames for a bare number.
const FRAMES: &[&str] = &[
    // Boxes.
    r"The answer is \boxed{@}.",
    r"$\boxed{@}$",
    r"$$\boxed{@}$$",
    "\\[\n\\boxed{@}\n\\]",
    r"\(\boxed{@}\)",
    r"The final answer is $\boxed{@}$.",
    r"The final answer is: $\boxed{@}$. I hope it is correct.",
    r"**Final Answer:** \boxed{@}",
    "### Final Answer\n\n$\\boxed{@}$",
    r"Answer: $\boxed{@}$",
    r"#### \boxed{@}",
    r"$\boxed{x = @}$",
    r"\boxed{@ \text{ &}}",
    r"\boxed{@\text{ &}}",
    r"\boxed{@~\text{&}}",
    r"\boxed{@\ \mathrm{&}}",
    r"\boxed{@ &}",
    r"\boxed{\$@}",
    r"\boxed{\text{@ &}}",
    r"$\boxed{@}$ &",
    r"\boxed{@.}",
    r"\boxed{ @ }",
    r"\boxed{\boxed{@}}",
    r"\mathbf{\boxed{@}}",
    r"\boxed{\displaystyle @}",
    r"\boxed{{@}}",
    r"\fbox{@}",
    r"\\boxed{@}",
    r"<answer>\boxed{@}</answer>",
    "\\begin{align*}\nx &= \\boxed{@}\n\\end{align*}",
    // Markers.
    "#### @",
    "#### **@**",
    "#### $@",
    "#### @ &",
    "#### $@$",
    "Answer: @",
    "Answer: @.",
    "Answer: $@$",
    "Answer: **@**",
    "Answer: $@",
    r"Answer: \$@",
    "Answer: @ &",
    "Answer: @ & per day",
    r"Answer: $@\text{ &}$",
    r"Answer: \(@\)",
    r"Answer: \[@\]",
    "Answer: $x = @$",
    "Answer: x = @",
    "Answer:\n@",
    "answer: @",
    "ANSWER: @",
    "**Answer:** @",
    "**Answer: @**",
    "**Answer**: @",
    "**Answer:** **@**",
    "**Answer:** $@$ &",
    "**Answer:**\n\n@",
    "__Answer:__ @",
    "*Answer:* @",
    "## Answer: @",
    "### Answer\n\n@",
    "### Final Answer:\n**@ &**",
    "Final answer: @",
    "Final Answer: $@$.",
    "**Final Answer:** @",
    r"**Final Answer**: \(@\)",
    "The answer is @.",
    "The answer is: @",
    "The answer is $@$.",
    "The answer is **@**.",
    "So the answer is @ &.",
    "Therefore, the answer is $@.",
    "Thus, the final answer is @.",
    "The final answer is @ &.",
    "The final answer is: **@**",
    "Hence the correct answer is @.",
    "答案：@",
    "答案：$@$",
    "> **Answer:** @",
    "- Answer: @",
    // The end.
    "So she has @ & in total.",
    "So she has **@** & in total.",
    "In total, that is @.",
    "Together they make $@.",
    r"Together they make \$@ in all.",
    "He needs **@ &**.",
    "That is a total of €@.",
    "It costs £@ altogether.",
    "Thus $x = @$.",
    r"Therefore \(x = @\).",
    r"So there are $@$ & left.",
    r"So there are \(@\text{ &}\) left.",
    "\\[\nx = @\n\\]",
    "$$\\text{Total} = @$$",
    r"\[ \text{Total} = @ \text{ &} \]",
    "**@**",
    "**@ &**",
    "`@`",
    "@",
    "@ &",
    "= @",
    "### @",
    "Total: @ &",
    "<answer>@</answer>",
    "<answer> @ & </answer>",
];

/// Frames for a number in LaTeX.
const LATEX: &[&str] = &[
    r"\boxed{@}",
    r"$\boxed{@}$.",
    "\\[\n\\boxed{@}\n\\]",
    r"\boxed{@\text{ &}}",
    r"**Answer:** $@$",
    r"Answer: \(@\)",
    r"The final answer is $@$.",
    r"The final answer is: $\boxed{@}$",
    r"#### $@$",
    r"Thus $x = @$.",
    r"So there are $@$ & left.",
];

/// Frames for a number that needs no LaTeX.
const WORDS: &[&str] = &[
    r"\boxed{@}",
    r"$\boxed{@}$",
    "Answer: @",
    "**Answer:** @",
    "**Answer: @ &**",
    "The answer is @.",
    "The final answer is **@**.",
    "#### @",
    "So she has @ & in total.",
    "**@**",
];

/// Frames without a counted thing, since nobody says what a percentage or an angle is of.
const BARE_LATEX: &[&str] = &[
    r"\boxed{@}",
    r"$\boxed{@}$.",
    r"**Answer:** $@$",
    r"The final answer is $@$.",
    r"Thus $x = @$.",
];
const BARE_WORDS: &[&str] = &[
    r"\boxed{@}",
    "Answer: @",
    "**Answer:** @",
    "The answer is @.",
    "#### @",
    "So in the end it is @.",
    "**@**",
];

const FORMS: &[(Form, &[&str])] = &[
    (Form::Plain, FRAMES),
    (Form::Commas, WORDS),
    (Form::CommasInBraces, LATEX),
    (Form::CommasWithoutSpace, LATEX),
    (Form::ThinSpaces, LATEX),
    (Form::NarrowSpaces, WORDS),
    (Form::OneZero, WORDS),
    (Form::TwoZeros, WORDS),
    (Form::FullWidth, WORDS),
    (Form::Halves, LATEX),
    (Form::Thirds, LATEX),
    (Form::OverOne, LATEX),
    (Form::Slash, WORDS),
    (Form::Scientific, LATEX),
    (Form::ScientificPlain, WORDS),
    (Form::Degrees, BARE_LATEX),
    (Form::DegreesPlain, BARE_WORDS),
    (Form::Text, LATEX),
    (Form::Bold, LATEX),
    (Form::MixedLatex, LATEX),
    (Form::MixedShort, LATEX),
    (Form::MixedPlain, WORDS),
    (Form::HalfFraction, LATEX),
    (Form::HalfDecimal, WORDS),
    (Form::PercentLatex, BARE_LATEX),
    (Form::PercentPlain, BARE_WORDS),
    (Form::PercentWord, BARE_WORDS),
    (Form::PercentDecimal, BARE_WORDS),
];

const UNITS: [&str; 14] = [
    "apples",
    "dollars",
    "hours",
    "miles",
    "students",
    "cookies",
    "minutes",
    "pages",
    "pounds",
    "km",
    "years old",
    "cm",
    "square feet",
    "people",
];

/// Lists every dress there is.
pub(super) fn wardrobe() -> Vec<Dress> {
    let dresses = |&(form, frames): &(Form, &[&'static str])| {
        frames.iter().map(|&frame| Dress { frame, form }).collect::<Vec<_>>()
    };
    FORMS.iter().flat_map(dresses).collect()
}

impl Dress {
    /// Tells whether an answer of this value is ever written so.
    pub(super) fn suits(&self, value: i64) -> bool {
        // Nobody writes a minus behind a currency sign, while `$@$` is LaTeX.
        let money = ["$@", "€@", "£@"].iter().any(|money| self.frame.contains(money));
        let formula = self.frame.contains("$@$") || self.frame.contains("$@\\");
        if value < 0 && money && !formula {
            return false;
        }

        match self.form {
            Form::Commas
            | Form::CommasInBraces
            | Form::CommasWithoutSpace
            | Form::ThinSpaces
            | Form::NarrowSpaces => value.abs() >= 1000,
            Form::Scientific | Form::ScientificPlain => value.abs() >= 100,
            // To the eye a negative half is two numbers, and so is nothing and a half.
            Form::MixedLatex | Form::MixedShort | Form::MixedPlain => value > 0,
            Form::HalfFraction | Form::HalfDecimal => value > 0,
            Form::Degrees | Form::DegreesPlain => (0..=360).contains(&value),
            _ if self.value() == Value::Percent => (0..=1000).contains(&value),
            _ => true,
        }
    }

    pub(super) fn value(&self) -> Value {
        match self.form {
            Form::MixedLatex
            | Form::MixedShort
            | Form::MixedPlain
            | Form::HalfFraction
            | Form::HalfDecimal => Value::Half,
            Form::PercentLatex | Form::PercentPlain | Form::PercentWord | Form::PercentDecimal => {
                Value::Percent
            }
            _ => Value::Whole,
        }
    }

    pub(super) fn position(&self) -> Position {
        let frame = self.frame.to_lowercase();
        if frame.contains("box") {
            Position::Box
        } else if frame.contains("#### ")
            || frame.contains("答案")
            || frame.contains("answer") && !frame.starts_with('<')
        {
            Position::Marker
        } else {
            Position::End
        }
    }

    pub(super) fn name(&self) -> String {
        format!("{:?} in {}", self.form, self.frame)
    }

    /// Writes the answer's line or lines.
    pub(super) fn write(&self, number: i64, rng: &mut impl Rng) -> String {
        let unit = UNITS[rng.random_range(0..UNITS.len())];
        // The alignment mark of a LaTeX environment is no unit.
        let frame = self.frame.replace("&=", "\0");
        let text = frame.replace('&', unit).replace('@', &self.form.write(number));
        text.replace('\0', "&=")
    }
}

impl Form {
    fn write(self, number: i64) -> String {
        let sign = if number < 0 { "-" } else { "" };
        let size = number.unsigned_abs();
        // Halves in the number that is one half further from zero.
        let half = 2 * size + 1;
        match self {
            Form::Plain => format!("{number}"),
            Form::Commas => format!("{sign}{}", grouped(size, ",")),
            Form::CommasInBraces => format!("{sign}{}", grouped(size, "{,}")),
            Form::CommasWithoutSpace => format!("{sign}{}", grouped(size, r",\!")),
            Form::ThinSpaces => format!("{sign}{}", grouped(size, r"\,")),
            Form::NarrowSpaces => format!("{sign}{}", grouped(size, "\u{202f}")),
            Form::OneZero => format!("{number}.0"),
            Form::TwoZeros => format!("{number}.00"),
            Form::FullWidth => full_width(number),
            Form::Halves => format!(r"{sign}\frac{{{}}}{{2}}", 2 * size),
            Form::Thirds => format!(r"\dfrac{{{}}}{{3}}", 3 * number),
            Form::OverOne => format!(r"\frac{{{number}}}{{1}}"),
            Form::Slash => format!("{}/2", 2 * number),
            Form::Scientific => {
                let (digits, exponent) = scientific(size);
                format!(r"{sign}{digits} \times 10^{{{exponent}}}")
            }
            Form::ScientificPlain => {
                let (digits, exponent) = scientific(size);
                format!("{sign}{digits} × 10^{exponent}")
            }
            Form::Degrees => format!(r"{number}^\circ"),
            Form::DegreesPlain => format!("{number}°"),
            Form::Text => format!(r"\text{{{number}}}"),
            Form::Bold => format!(r"\mathbf{{{number}}}"),
            Form::MixedLatex => format!(r"{sign}{size}\frac{{1}}{{2}}"),
            Form::MixedShort => format!(r"{sign}{size} \frac12"),
            Form::MixedPlain => format!("{sign}{size} 1/2"),
            Form::HalfFraction => format!(r"{sign}\frac{{{half}}}{{2}}"),
            Form::HalfDecimal => format!("{sign}{size}.50"),
            Form::PercentLatex => format!(r"{number}\%"),
            Form::PercentPlain => format!("{number}%"),
            Form::PercentWord => format!("{number} percent"),
            Form::PercentDecimal => format!("{sign}{}.{:02}", size / 100, size % 100),
        }
    }
}

/// Writes a number in groups of three digits.
fn grouped(number: u64, separator: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text += separator;
        }
        text.push(digit);
    }
    text
}

fn full_width(number: i64) -> String {
    let wide = |c: char| match c.to_digit(10) {
        Some(digit) => char::from_u32('０' as u32 + digit).unwrap(),
        None => '－',
    };
    number.to_string().chars().map(wide).collect()
}

/// Returns all of the digits, with a point after the first, and the power of ten that belongs to them.
fn scientific(number: u64) -> (String, usize) {
    let digits = number.to_string();
    let (first, rest) = digits.split_at(1);
    let rest = rest.trim_end_matches('0');
    let point = if rest.is_empty() { "" } else { "." };
    (format!("{first}{point}{rest}"), digits.len() - 1)
}
