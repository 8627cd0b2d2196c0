//! Meanings of names: LaTeX commands, function names in plain text, and single signs.

use num_bigint::BigInt;
use num_rational::BigRational;

use super::token::{Bracket, Token};
use crate::{
    expr::{Constant, Expr, Function},
    value::{NamedSet, Relation},
};

/// What a LaTeX command means to the lexer.
pub(super) enum Command {
    Token(Token),
    /// Layout without meaning: `\left`, `\,`, `\displaystyle`.
    Nothing,
    /// Layout with one argument, both without meaning: `\hspace{1em}`.
    NothingWith,
    /// A command whose argument is text: `\text{…}`.
    Text,
    /// A command whose argument is set upright. A single letter is a symbol, several letters are a word.
    Upright,
    /// A command whose argument stands for itself: `\mathbf{x}`, `\boxed{5}`.
    Transparent,
    /// A command with two arguments, the second of which stands for itself: `\textcolor{red}{5}`.
    Coloured,
    /// An accent, `\bar` or `\hat`. With it a letter is another name, while capital letters are a segment.
    Accent,
    Begin,
    End,
    Unknown,
}

pub(super) fn command(name: &str) -> Command {
    use Function as F;
    let token = match name {
        "," | ";" | ":" | "!" | " " | ">" | "/" | "quad" | "qquad" | "enspace" | "thinspace"
        | "medspace" | "thickspace" | "negthinspace" | "displaystyle" | "textstyle"
        | "scriptstyle" | "limits" | "nolimits" | "left" | "right" | "middle" | "big" | "Big"
        | "bigg" | "Bigg" | "bigl" | "bigr" | "Bigl" | "Bigr" | "biggl" | "biggr" | "Biggl"
        | "Biggr" | "hfill" | "bf" | "it" | "sf" | "tt" | "cal" | "strut" | "allowbreak"
        | "nobreak" | "hfil" | "null" | "-" | "@" | "$" | "euro" | "pounds" | "textdollar"
        | "noindent" | "par" | "centering" | "relax" | "ensuremath" => return Command::Nothing,
        "hspace" | "vspace" | "phantom" | "hphantom" | "vphantom" | "label" | "tag" | "color" => {
            return Command::NothingWith;
        }
        "text" | "textbf" | "textit" | "textrm" | "textnormal" | "textsf" | "texttt" | "textsc"
        | "textup" | "emph" | "mbox" | "hbox" | "operatorname" | "mathop" => return Command::Text,
        "mathrm" | "mathsf" | "mathtt" | "rm" | "unit" | "si" => return Command::Upright,
        "mathbf" | "mathit" | "boldsymbol" | "bm" | "pmb" | "mathnormal" | "mathbin"
        | "mathrel" | "boxed" | "fbox" | "framebox" | "underline" | "vec" | "overrightarrow"
        | "overleftrightarrow" | "overarc" | "wideparen" | "smash" => {
            return Command::Transparent;
        }
        "textcolor" | "colorbox" => return Command::Coloured,
        "overline" | "bar" | "dot" | "hat" | "widehat" | "tilde" => return Command::Accent,
        "begin" => return Command::Begin,
        "end" => return Command::End,
        "frac" | "dfrac" | "tfrac" | "cfrac" | "sfrac" | "nicefrac" => Token::Fraction,
        "sqrt" | "surd" => Token::Root,
        "binom" | "dbinom" | "tbinom" => Token::Binomial,
        "choose" => Token::Choose,
        "sum" => Token::Sum,
        "prod" => Token::Product,
        "bmod" | "mod" => Token::Modulo,
        "cdot" | "times" | "ast" | "star" | "bullet" | "cdotp" => Token::Times,
        "div" => Token::Slash,
        "pm" => Token::PlusMinus,
        "mp" => Token::MinusPlus,
        "%" => Token::Percent,
        "circ" | "degree" | "textdegree" => Token::Degree,
        "prime" => Token::Prime,
        "le" | "leq" | "leqslant" | "leqq" => Token::Relation(Relation::LessEqual),
        "ge" | "geq" | "geqslant" | "geqq" => Token::Relation(Relation::GreaterEqual),
        "lt" => Token::Relation(Relation::Less),
        "gt" => Token::Relation(Relation::Greater),
        "ne" | "neq" => Token::Relation(Relation::NotEqual),
        "approx" | "approxeq" | "thickapprox" | "simeq" | "cong" | "doteq" => {
            Token::Relation(Relation::About)
        }
        "equiv" => Token::Relation(Relation::Congruent),
        "coloneqq" => Token::Relation(Relation::Equal),
        "in" => Token::In,
        "cup" | "bigcup" => Token::Union,
        "cap" | "bigcap" => Token::Intersection,
        "setminus" | "backslash" | "smallsetminus" => Token::Without,
        "land" | "wedge" | "And" => Token::And,
        "lor" | "vee" | "Or" => Token::Or,
        "mid" | "vert" => Token::Bar,
        "lvert" => Token::Open(Bracket::Bar),
        "rvert" => Token::Close(Bracket::Bar),
        "|" | "lVert" | "rVert" | "Vert" => Token::Bar,
        "lfloor" => Token::Open(Bracket::Floor),
        "rfloor" => Token::Close(Bracket::Floor),
        "lceil" => Token::Open(Bracket::Ceil),
        "rceil" => Token::Close(Bracket::Ceil),
        "langle" => Token::Open(Bracket::Angle),
        "rangle" => Token::Close(Bracket::Angle),
        "lparen" => Token::Open(Bracket::Round),
        "rparen" => Token::Close(Bracket::Round),
        "lbrack" => Token::Open(Bracket::Square),
        "rbrack" => Token::Close(Bracket::Square),
        "{" | "lbrace" => Token::Open(Bracket::Curly),
        "}" | "rbrace" => Token::Close(Bracket::Curly),
        "colon" => Token::Colon,
        "infty" => Token::Constant(Constant::Infinity),
        "pi" => Token::Constant(Constant::Pi),
        "emptyset" | "varnothing" => Token::NamedSet(NamedSet::Empty),
        "Re" => Token::Function(F::Re),
        "Im" => Token::Function(F::Im),
        "lg" | "log" | "ln" | "exp" | "min" | "max" | "gcd" | "lcm" | "sin" | "cos" | "tan"
        | "cot" | "sec" | "csc" | "arcsin" | "arccos" | "arctan" | "arccot" | "arcctg" | "tg"
        | "ctg" | "arctg" | "sinh" | "cosh" | "tanh" => match function(name) {
            Some(function) => Token::Function(function),
            None => return Command::Unknown,
        },
        "ldots" | "dots" | "cdots" | "dotsc" | "dotsb" | "dotsm" => Token::Symbol("…".into()),
        "ell" => Token::Symbol("l".into()),
        "ohm" | "textohm" => Token::Symbol("Ω".into()),
        "micro" | "textmu" | "upmu" => Token::Symbol("μ".into()),
        "celsius" | "textcelsius" | "degreeCelsius" => Token::Word("celsius".into()),
        "AA" | "angstrom" => Token::Word("angstrom".into()),
        "forall" => Token::Word("forall".into()),
        _ => match greek(name) {
            Some(name) => Token::Symbol(name.into()),
            None => return Command::Unknown,
        },
    };

    Command::Token(token)
}

/// Returns the set that a letter in `\mathbb{…}` names.
pub(super) fn named_set(letter: char) -> Option<NamedSet> {
    Some(match letter {
        'N' | 'ℕ' => NamedSet::Naturals,
        'Z' | 'ℤ' => NamedSet::Integers,
        'Q' | 'ℚ' => NamedSet::Rationals,
        'R' | 'ℝ' => NamedSet::Reals,
        'C' | 'ℂ' => NamedSet::Complex,
        '∅' => NamedSet::Empty,
        _ => return None,
    })
}

/// Returns the set that a phrase names. An equation without a solution has an empty set of solutions.
pub(super) fn set(text: &str) -> Option<NamedSet> {
    Some(match text {
        "no solution" | "no solutions" | "no real solution" | "no real solutions" | "empty set"
        | "the empty set" => NamedSet::Empty,
        "all real numbers"
        | "all reals"
        | "real numbers"
        | "the real numbers"
        | "all real"
        | "the set of all real numbers"
        | "the set of real numbers" => NamedSet::Reals,
        _ => return None,
    })
}

/// Returns the function that a name in plain text means.
pub(super) fn function(name: &str) -> Option<Function> {
    Some(match name {
        "sin" => Function::Sin,
        "cos" => Function::Cos,
        "tan" | "tg" => Function::Tan,
        "cot" | "ctg" => Function::Cot,
        "sec" => Function::Sec,
        "csc" | "cosec" => Function::Csc,
        "arcsin" | "asin" => Function::Arcsin,
        "arccos" | "acos" => Function::Arccos,
        "arctan" | "atan" | "arctg" => Function::Arctan,
        "arccot" | "acot" | "arcctg" => Function::Arccot,
        "sinh" => Function::Sinh,
        "cosh" => Function::Cosh,
        "tanh" => Function::Tanh,
        "exp" => Function::Exp,
        "ln" | "log" => Function::Ln,
        "lg" => Function::Log,
        "abs" => Function::Abs,
        "floor" => Function::Floor,
        "ceil" | "ceiling" => Function::Ceil,
        "gcd" => Function::Gcd,
        "lcm" => Function::Lcm,
        "min" => Function::Min,
        "max" => Function::Max,
        "perm" => Function::Permutations,
        "conj" => Function::Conjugate,
        _ => return None,
    })
}

/// Returns the meaning of a run of letters in plain text, if it has one.
pub(super) fn plain(word: &str) -> Option<Token> {
    Some(match word {
        "and" | "And" | "AND" => Token::And,
        "or" | "Or" | "OR" => Token::Or,
        "sqrt" => Token::Root,
        "cbrt" => Token::CubeRoot,
        "pi" | "Pi" => Token::Constant(Constant::Pi),
        "mod" => Token::Modulo,
        "percent" | "percentage" | "pct" | "percents" => Token::Percent,
        "degrees" | "degree" | "deg" => Token::Degree,
        "union" => Token::Union,
        "binom" => Token::Binomial,
        _ => Token::Function(function(word)?),
    })
}

/// Returns the value that programs print as this word. Infinity may be in upper or lower case. `Nan` does not count,
/// because it is somebody's name.
pub(super) fn value(word: &str) -> Option<Constant> {
    let infinite = ["inf", "infty", "infinity"].iter().any(|name| word.eq_ignore_ascii_case(name));
    match word {
        _ if infinite => Some(Constant::Infinity),
        "nan" | "NaN" | "NAN" => Some(Constant::NotANumber),
        _ => None,
    }
}

/// Returns the canonical name of a Greek letter.
fn greek(name: &str) -> Option<&'static str> {
    const NAMES: [(&str, &str); 43] = [
        ("alpha", "α"),
        ("beta", "β"),
        ("gamma", "γ"),
        ("delta", "δ"),
        ("epsilon", "ε"),
        ("varepsilon", "ε"),
        ("zeta", "ζ"),
        ("eta", "η"),
        ("theta", "θ"),
        ("vartheta", "θ"),
        ("iota", "ι"),
        ("kappa", "κ"),
        ("lambda", "λ"),
        ("mu", "μ"),
        ("nu", "ν"),
        ("xi", "ξ"),
        ("omicron", "ο"),
        ("rho", "ρ"),
        ("varrho", "ρ"),
        ("sigma", "σ"),
        ("varsigma", "σ"),
        ("tau", "τ"),
        ("upsilon", "υ"),
        ("phi", "φ"),
        ("varphi", "φ"),
        ("chi", "χ"),
        ("psi", "ψ"),
        ("omega", "ω"),
        ("Gamma", "Γ"),
        ("Delta", "Δ"),
        ("Theta", "Θ"),
        ("Lambda", "Λ"),
        ("Xi", "Ξ"),
        ("Pi", "Π"),
        ("Sigma", "Σ"),
        ("Upsilon", "Υ"),
        ("Phi", "Φ"),
        ("Psi", "Ψ"),
        ("Omega", "Ω"),
        ("hbar", "ħ"),
        ("partial", "∂"),
        ("triangle", "△"),
        ("angle", "∠"),
    ];

    NAMES.iter().find(|(latex, _)| *latex == name).map(|(_, letter)| *letter)
}

/// Returns the meaning of a single sign outside of ASCII.
pub(super) fn sign(c: char) -> Option<Token> {
    let vulgar = |n: i64, d: i64| Token::Vulgar(BigRational::new(n.into(), d.into()));
    Some(match c {
        '−' | '–' | '—' | '‐' | '‑' | '‒' | '﹣' => Token::Minus,
        '×' | '·' | '⋅' | '∙' | '•' | '✕' | '∗' => Token::Times,
        '÷' | '∕' | '⁄' => Token::Slash,
        '±' => Token::PlusMinus,
        '∓' => Token::MinusPlus,
        '≤' | '⩽' | '≦' => Token::Relation(Relation::LessEqual),
        '≥' | '⩾' | '≧' => Token::Relation(Relation::GreaterEqual),
        '≠' => Token::Relation(Relation::NotEqual),
        '≈' | '≅' | '≃' | '≒' => Token::Relation(Relation::About),
        '≡' => Token::Relation(Relation::Congruent),
        '°' | 'º' | '˚' => Token::Degree,
        '′' | '’' => Token::Prime,
        'π' | '𝜋' => Token::Constant(Constant::Pi),
        '∞' => Token::Constant(Constant::Infinity),
        '√' => Token::Root,
        '∛' => Token::CubeRoot,
        '∈' => Token::In,
        '∪' => Token::Union,
        '∩' => Token::Intersection,
        '∖' => Token::Without,
        '∧' => Token::And,
        '∨' => Token::Or,
        '∑' => Token::Sum,
        '∏' => Token::Product,
        '∣' => Token::Bar,
        '⟨' => Token::Open(Bracket::Angle),
        '⟩' => Token::Close(Bracket::Angle),
        '⌊' => Token::Open(Bracket::Floor),
        '⌋' => Token::Close(Bracket::Floor),
        '⌈' => Token::Open(Bracket::Ceil),
        '⌉' => Token::Close(Bracket::Ceil),
        '、' | '，' => Token::Comma,
        '；' => Token::Semicolon,
        '：' | '∶' => Token::Colon,
        '％' => Token::Percent,
        '¢' => Token::Word("cents".into()),
        '…' => Token::Symbol("…".into()),
        '∀' => Token::Word("forall".into()),
        // Unicode has signs for micro and ohm besides the Greek letters.
        '\u{b5}' => Token::Symbol("μ".into()),
        '\u{2126}' => Token::Symbol("Ω".into()),
        '℃' => Token::Word("celsius".into()),
        '℉' => Token::Word("fahrenheit".into()),
        '½' => vulgar(1, 2),
        '⅓' => vulgar(1, 3),
        '⅔' => vulgar(2, 3),
        '¼' => vulgar(1, 4),
        '¾' => vulgar(3, 4),
        '⅕' => vulgar(1, 5),
        '⅖' => vulgar(2, 5),
        '⅗' => vulgar(3, 5),
        '⅘' => vulgar(4, 5),
        '⅙' => vulgar(1, 6),
        '⅚' => vulgar(5, 6),
        '⅛' => vulgar(1, 8),
        '⅜' => vulgar(3, 8),
        '⅝' => vulgar(5, 8),
        '⅞' => vulgar(7, 8),
        'α'..='ω' | 'Α'..='Ω' | 'ħ' | '∂' | '△' | '∠' => {
            Token::Symbol(c.to_string().into())
        }
        _ => Token::NamedSet(named_set(c)?),
    })
}

/// Returns the digit of a superscript or subscript, and whether it is a superscript.
pub(super) fn small_digit(c: char) -> Option<(u32, bool)> {
    let superscript = match c {
        '⁰' => 0,
        '¹' => 1,
        '²' => 2,
        '³' => 3,
        '⁴'..='⁹' => c as u32 - '⁴' as u32 + 4,
        '₀'..='₉' => return Some((c as u32 - '₀' as u32, false)),
        _ => return None,
    };
    Some((superscript, true))
}

/// Returns the ASCII form of a sign that only looks different: full-width forms, mathematical and other digits.
pub(super) fn folded(c: char) -> char {
    let ascii = |offset: u32, base: u8| char::from(base + (offset % 10) as u8);
    match c as u32 {
        code @ 0xFF01..=0xFF5E => char::from_u32(code - 0xFEE0).unwrap_or(c),
        code @ 0x1D7CE..=0x1D7FF => ascii(code - 0x1D7CE, b'0'),
        code @ (0x660..=0x669 | 0x6F0..=0x6F9) => ascii(code & 0xF, b'0'),
        code @ (0x966..=0x96F | 0x9E6..=0x9EF) => {
            ascii(code - if code < 0x970 { 0x966 } else { 0x9E6 }, b'0')
        }
        _ => c,
    }
}

/// Tells whether a word says more than what is counted, so that a number before it is not just a number with a noun.
pub(super) fn changes_meaning(word: &str) -> bool {
    const WORDS: [&str; 55] = [
        "inf",
        "infty",
        "infinity",
        "nan",
        "nil",
        "null",
        "none",
        "undefined",
        "no",
        "nope",
        "never",
        "cannot",
        "impossible",
        "least",
        "most",
        "squared",
        "cubed",
        "factorial",
        "doubled",
        "halved",
        "is",
        "are",
        "was",
        "not",
        "if",
        "when",
        "where",
        "unless",
        "but",
        "wrong",
        "incorrect",
        "false",
        "maybe",
        "than",
        "times",
        "plus",
        "minus",
        "over",
        "otherwise",
        "else",
        "then",
        "should",
        "halves",
        "half",
        "thirds",
        "quarters",
        "fourths",
        "fifths",
        "sixths",
        "eighths",
        "tenths",
        "hundredths",
        "score",
        "below",
        "loss",
    ];

    // `NO` and `IS` are segments.
    let segment = word.len() == 2 && word.bytes().all(|b| b.is_ascii_uppercase());
    !segment && WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Returns the base that a word names: `1002_{\text{three}}`.
pub(super) fn number(word: &str) -> Option<u32> {
    const WORDS: [&str; 11] = [
        "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    ];
    let at = WORDS.iter().position(|known| word.eq_ignore_ascii_case(known))?;
    u32::try_from(at).ok().map(|at| at + 2)
}

/// Returns the factor by which a word multiplies a number: `5 million`, `3 dozen`.
pub(super) fn multiplier(word: &str) -> Option<Expr> {
    if word.eq_ignore_ascii_case("dozen") {
        return Some(Expr::Number(BigInt::from(12).into()));
    }

    // A capital `K` is not read, because it is Kelvin.
    if word == "k" {
        return Some(Expr::Number(BigInt::from(1000).into()));
    }

    let power = match word.to_ascii_lowercase().as_str() {
        "hundred" => 2,
        "thousand" => 3,
        "million" => 6,
        "billion" => 9,
        "trillion" => 12,
        "quadrillion" => 15,
        "lakh" => 5,
        "crore" => 7,
        "dozen" | "dozens" => return Some(Expr::Number(BigInt::from(12).into())),
        _ => return None,
    };
    Some(Expr::Number(BigInt::from(10).pow(power).into()))
}

/// Tells whether a word is an abbreviation of a unit that is not converted here.
pub(super) fn is_unit(word: &str) -> bool {
    matches!(
        word,
        "oz" | "Hz"
            | "kW"
            | "kWh"
            | "mL"
            | "dL"
            | "kN"
            | "Pa"
            | "kPa"
            | "mol"
            | "rad"
            | "rpm"
            | "mph"
            | "kph"
            | "gal"
            | "ton"
            | "USD"
            | "EUR"
            | "units"
            | "unit"
    )
}

/// Tells whether a word is a unit only with a space before it. Otherwise it could be a product: `2eV` is `2·e·V`.
pub(super) fn is_prefixed_unit(word: &str) -> bool {
    matches!(
        word,
        "hPa"
            | "MPa"
            | "GPa"
            | "kHz"
            | "MHz"
            | "GHz"
            | "kJ"
            | "MJ"
            | "MW"
            | "GW"
            | "mW"
            | "Wh"
            | "kV"
            | "mV"
            | "mA"
            | "MN"
            | "eV"
            | "keV"
            | "MeV"
            | "GeV"
            | "kB"
            | "KB"
            | "MB"
            | "GB"
            | "TB"
            | "dB"
            | "mmol"
            | "cal"
            | "kcal"
            | "atm"
            | "bar"
    )
}

/// Tells whether a word is a unit of measure on its own, by its sign or by its name: `N`, `kW`, `newton`, `ampere`. A
/// number with two of them has neither unit. Words that count (`units`, `USD`) are not, and neither are `us` and `in`,
/// which are other words as well.
pub(super) fn is_measure(word: &str) -> bool {
    // These may have a prefix: `kN`, `ms`.
    const SIGNS: [&str; 32] = [
        "m", "g", "s", "h", "l", "L", "N", "J", "W", "V", "A", "C", "F", "K", "T", "H", "S", "Ω",
        "Pa", "Hz", "Wb", "mol", "cd", "lm", "lx", "Bq", "Gy", "Sv", "eV", "Wh", "Ah", "VA",
    ];
    const OTHERS: [&str; 17] = [
        "B", "bar", "cal", "kcal", "rad", "atm", "psi", "lbf", "kgf", "dyn", "erg", "rpm", "rev",
        "ton", "gal", "dB", "kB",
    ];
    const NAMES: [&str; 23] = [
        "newton",
        "joule",
        "watt",
        "volt",
        "ampere",
        "amp",
        "coulomb",
        "farad",
        "kelvin",
        "tesla",
        "henry",
        "siemens",
        "ohm",
        "pascal",
        "hertz",
        "weber",
        "mole",
        "candela",
        "lumen",
        "lux",
        "calorie",
        "electronvolt",
        "radian",
    ];
    const PREFIXES: [&str; 6] = ["kilo", "mega", "giga", "milli", "micro", "nano"];

    let bare = word.strip_prefix(['k', 'M', 'G', 'T', 'm', 'n', 'p', 'c', 'd', 'h']);
    if SIGNS.contains(&word) || bare.is_some_and(|bare| SIGNS.contains(&bare)) {
        return true;
    }

    let small = word.to_lowercase();
    let name = PREFIXES.iter().find_map(|prefix| small.strip_prefix(prefix)).unwrap_or(&small);
    OTHERS.contains(&word)
        || is_prefixed_unit(word)
        || NAMES.contains(&name)
        || name.strip_suffix('s').is_some_and(|name| NAMES.contains(&name))
}

/// Tells whether a word or phrase opens the last step of an argument: `Thus, x = 8`. It is not part of the answer.
pub(super) fn is_opening(word: &str) -> bool {
    const WORDS: [&str; 18] = [
        "in conclusion",
        "in summary",
        "in short",
        "in total",
        "thus",
        "therefore",
        "so",
        "hence",
        "then",
        "consequently",
        "accordingly",
        "finally",
        "因此",
        "所以",
        "因而",
        "从而",
        "故",
        "于是",
    ];

    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Tells whether a word after `as` closes an argument: `x = 8, as required`.
pub(super) fn is_closing(word: &str) -> bool {
    matches!(
        word,
        "required"
            | "desired"
            | "claimed"
            | "needed"
            | "wanted"
            | "requested"
            | "asked"
            | "expected"
            | "promised"
    )
}

/// Tells whether a letter that is set upright after a number is a unit.
pub(super) fn is_unit_letter(letter: &str) -> bool {
    letter.len() == 1 && "msghlLAKNJWVCFHTS".contains(letter)
}

/// Tells whether a short run of letters is a word, although it could be a product.
pub(super) fn is_short_word(word: &str) -> bool {
    const WORDS: [&str; 44] = [
        "yes", "no", "odd", "even", "all", "none", "red", "men", "day", "the", "per", "one", "two",
        "six", "ten", "way", "cup", "cat", "dog", "car", "hat", "pen", "egg", "box", "bag", "bus",
        "toy", "pie", "map", "kid", "boy", "job", "row", "pcs", "man", "box", "win", "tie", "tip",
        "lap", "can", "jar", "bed", "key",
    ];

    // `NO` is a segment.
    let capitals = word.bytes().skip(1).any(|b| b.is_ascii_uppercase());
    word.len() > 1 && !capitals && WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}
