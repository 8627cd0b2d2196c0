//! Parts of the verifier that can be switched off, so that a measurement shows which verdicts each decides alone.
//!
//! A part is switched off where it is entered: [`gate`] returns there what the part says if it can't tell, so that the
//! rest works on. Without the feature `parts` nothing can be switched off, and the gates are compiled away.

#[cfg(all(test, feature = "parts"))]
mod measure;

#[cfg(feature = "parts")]
use std::{
    env,
    fs::{File, OpenOptions},
    io::Write as _,
    sync::{
        Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    thread,
};

/// Returns `$value` from the function if the part is off.
macro_rules! gate {
    ($part:ident, $value:expr) => {
        if $crate::parts::off($crate::parts::Part::$part) {
            return $value;
        }
    };
    ($part:ident if $condition:expr, $value:expr) => {
        if $crate::parts::off($crate::parts::Part::$part) && $condition {
            return $value;
        }
    };
}

/// Tells whether the part is off.
macro_rules! is_off {
    ($part:ident) => {
        $crate::parts::off($crate::parts::Part::$part)
    };
}

pub(crate) use {gate, is_off};

/// Lists the parts: what each is for, and its sources below `src`. A source is a file, or an item of a file.
macro_rules! parts {
    ($($name:ident: $what:literal, [$($source:literal),* $(,)?];)*) => {
        /// A part that can be switched off.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Part {
            $($name,)*
        }

        #[cfg(all(test, feature = "parts"))]
        const PARTS: &[(Part, &str, &[&str])] = &[$((Part::$name, $what, &[$($source),*]),)*];
    };
}

parts! {
    ExactValues: "exact arithmetic as a whole: normal forms, and rational numbers in them", [
        "algebra/exact.rs",
        "algebra/atom.rs",
        "algebra/polynomial.rs",
        "algebra/arithmetic.rs",
        "algebra/power.rs",
        "algebra/trigonometry.rs",
        "algebra/function.rs",
        "algebra/integer.rs",
        "algebra/defined.rs",
        "algebra/render.rs#impl Algebra<'_>",
        "algebra.rs#impl Algebra<'_>",
        "algebra.rs#fn exactly",
        "algebra.rs#enum ExactVerdict",
        "algebra.rs#enum Proportion",
    ];
    Defined: "is an expression sure to have a value?", ["algebra/defined.rs"];
    Values: "values at points, as a whole", [
        "algebra/numeric.rs",
        "algebra/numeric/",
        "algebra/ball.rs",
        "algebra/ball/",
        "algebra/interval.rs",
        "algebra/real.rs",
    ];
    Balls: "balls of any precision", ["algebra/ball.rs", "algebra/ball/"];
    Floats: "intervals of floats", ["algebra/interval.rs"];
    HighPrecision: "balls of more than 256 bits", [];
    Probes: "more points for functions made of pieces", [
        "algebra/numeric/piecewise.rs",
        "algebra/numeric.rs#fn differs_at_probes",
        "algebra/numeric/points.rs#fn shift",
    ];
    FunctionClasses: "values of unknown functions, by their arguments", [
        "algebra/numeric/pair.rs#fn classify",
        "algebra/numeric/pair.rs#fn same",
    ];
    Rounding: "values rounded to places", ["algebra/numeric/rounded.rs"];
    RoundedRationals: "rational numbers rounded to places", [
        "algebra/integer.rs#fn same_to",
        "algebra/integer.rs#fn zeros",
        "algebra/integer.rs#fn rounded",
    ];
    GivenPlaces: "a second rounding, to the places that are given", [
        "algebra/integer.rs#fn places_given",
    ];
    ComplexValues: "complex values at points", [
        "algebra/numeric/value.rs",
        "algebra/numeric/evaluate.rs#fn principal_power",
    ];
    NumericFolds: "sums and products at points", ["algebra/numeric/evaluate.rs#fn fold"];
    ExactFolds: "sums and products, exactly", ["algebra/exact.rs#fn fold"];
    NumericArcs: "arcsine and arccosine at points", ["algebra/numeric/call.rs#fn arc"];
    NumericFactorials: "factorials at points", [
        "algebra/numeric/call.rs#fn factorial",
        "algebra/numeric/call.rs#fn double_factorial",
        "algebra/numeric/call.rs#fn stirling",
        "algebra/numeric/call.rs#fn product",
        "algebra/numeric/call.rs#const STIRLING",
    ];
    Stirling: "factorials by Stirling's series", [
        "algebra/numeric/call.rs#fn stirling",
        "algebra/numeric/call.rs#const STIRLING",
    ];
    NumericChoices: "binomials at points", ["algebra/numeric/call.rs#fn choices"];
    NumericRemainders: "remainders at points", ["algebra/numeric/call.rs#fn remainder"];
    NumericDivisors: "gcd and lcm at points", ["algebra/numeric/call.rs#fn divisors"];
    NumericExtremes: "min and max at points", ["algebra/numeric/call.rs#fn extreme"];
    NumericFloors: "floor and ceiling at points", ["algebra/numeric/call.rs#fn cell"];
    Proportions: "is one a multiple of the other?", [
        "algebra.rs#fn proportional",
        "algebra.rs#enum Proportion",
        "algebra/numeric.rs#fn ratio",
        "algebra/numeric.rs#fn proportion",
    ];
    NumericProportions: "the same by values at points", [
        "algebra/numeric.rs#fn ratio",
        "algebra/numeric.rs#fn proportion",
    ];
    Ordering: "which constant is greater?", [
        "algebra.rs#fn order",
        "algebra.rs#fn compare",
        "algebra/numeric.rs#fn order",
    ];
    NumericOrdering: "the same by enclosures", ["algebra/numeric.rs#fn order"];
    RealSets: "sets of real numbers", ["set.rs"];
    Inequalities: "solved inequalities", [
        "set.rs#fn of_inequality",
        "set.rs#fn unknown_of",
        "set.rs#fn collect_symbols",
        "set.rs#fn solve",
        "set.rs#fn absolute_value",
        "set.rs#fn solve_polynomial",
        "set.rs#fn half_line",
        "set.rs#fn sign_of",
        "set.rs#fn quadratic_roots",
        "set.rs#fn replace",
    ];
    Quadratics: "quadratic inequalities", ["set.rs#fn quadratic_roots"];
    AbsoluteInequalities: "inequalities of absolute values", ["set.rs#fn absolute_value"];
    UnionsInLists: "lists of conditions as a set", ["set.rs#fn of_list"];
    CommonLetters: "one letter for `f(x)` and `f(t)`", [
        "compare/name.rs#fn with_common_letters",
        "compare/name.rs#fn letters",
        "compare/name.rs#fn relettered",
    ];
    GeometricNames: "points and segments as names", ["compare/name.rs#fn is_geometric"];
    LetterRanges: "ranges that one side lacks", [
        "compare.rs#fn without_range",
        "compare.rs#fn is_range",
    ];
    LettersAsUnits: "a letter as a unit", ["compare.rs#fn measured"];
    Points: "lists as points", ["compare.rs#fn point"];
    Assignments: "lists of assignments", [
        "compare.rs#fn assignments",
        "compare.rs#fn have_an_order",
        "compare.rs#fn point",
    ];
    OrderedUnknowns: "values of different unknowns, in order", ["compare.rs#fn have_an_order"];
    Claims: "equations of numbers that have to hold", [];
    Congruences: "congruences", ["compare.rs#fn residue"];
    Degrees: "degree signs that don't count", ["compare.rs#fn without_degrees"];
    Chains: "inequalities that are not solved", ["compare.rs#fn chains"];
    Clocks: "`3:30` for `3:30 pm`", ["compare.rs#fn names_time"];
    NumberSets: "sets of numbers by look-up", ["compare.rs#fn numbers"];
    Matrices: "matrices, compared", ["compare.rs#fn matrices"];
    Equations: "equations, compared", ["compare.rs#fn equations"];
    DigitStrings: "numbers compared by their digits", ["decimal.rs"];
    BaseTen: "a second try with `log` to base ten", [
        "verifier.rs#fn to_base_ten",
        "verifier.rs#fn with_lg",
    ];
    ChoiceLetters: "`B` for `(B) 5`", ["verifier.rs#fn is_letter_of"];
    SameWords: "the same words", ["verifier.rs#fn words_of", "verifier.rs#fn bare_text"];
    WrittenAlike: "unread texts that are written alike", [];
    ChoiceLabels: "the letter of a choice before an answer", ["parse/label.rs"];
    Openings: "words that open an argument", ["parse.rs#fn without_opening"];
    Conditions: "conditions behind an answer", ["parse/condition.rs"];
    ListedRanges: "ranges such as `n = 1, 2, 3, …`", ["parse/condition.rs#fn is_listed"];
    Days: "days", [
        "parse/moment.rs#fn day",
        "parse/moment.rs#fn weekday_and_day",
        "parse/moment.rs#fn ordinal",
        "parse/moment.rs#fn whole_number",
        "parse/moment.rs#const WEEKDAYS",
        "moment.rs#fn month",
        "moment.rs#fn month_name",
        "moment.rs#const MONTHS",
    ];
    Times: "times of day", [
        "parse/moment.rs#fn time",
        "moment.rs#fn time",
        "moment.rs#fn is_afternoon",
    ];
    DaysInDigits: "days in digits", ["parse/lex/number.rs#fn day"];
    UnitsAndNouns: "units and nouns behind a number", ["parse/unit.rs"];
    UnitLetters: "letters as units, by how they are set", [
        "parse/unit.rs#fn letters_of_unit",
        "parse/unit.rs#fn is_hyphen",
    ];
    CompoundUnits: "products and quotients of units", [
        "parse/unit.rs#fn grouped_units",
        "parse/unit.rs#fn power_of_unit",
    ];
    Measures: "units that contradict each other", ["unit.rs"];
    DescribedSets: "sets by a condition", ["parse.rs#fn described"];
    BothSigns: "`±` as two values", ["parse.rs#fn both_signs"];
    JoinedConditions: "conditions with `and` and `or`", ["parse.rs#fn conditions"];
    Fillers: "words that introduce a number", ["parse.rs#fn filler"];
    PositiveReals: "`ℝ^+`", ["parse/atom.rs#fn positive_reals"];
    NumberBases: "numbers in another base", ["parse/atom.rs#fn base", "parse/lexicon.rs#fn number"];
    MatrixEntries: "matrices, read", ["parse/atom.rs#fn matrix"];
    SumsAndProducts: "`\\sum` and `\\prod`, read", ["parse/atom.rs#fn fold"];
    AppliedLetters: "letters as functions", ["parse/atom.rs#fn is_application"];
    Derivatives: "derivatives, refused", ["parse/atom.rs#fn is_derivative"];
    IndexNames: "names as indices", ["parse/atom.rs#fn literal_group"];
    MixedNumbers: "mixed numbers", ["parse/arithmetic.rs#fn mixed_number"];
    Moduli: "moduli", ["parse/arithmetic.rs#fn reduce"];
    MatrixProducts: "products of matrices", ["parse/arithmetic.rs#fn multiply_matrices"];
    Thousands: "separators of thousands", ["parse/lex/number.rs#fn thousands_separator"];
    DecimalCommas: "decimal commas", ["parse/lex/number.rs#fn decimal_comma"];
    Periods: "decimals that repeat", ["parse/lex/number.rs#fn period_of"];
    Exponents: "`1.2e5`", ["parse/lex/number.rs#fn exponent"];
    Accents: "letters with accents", ["parse/lex/command.rs#fn accent"];
    Environments: "environments", [
        "parse/lex/command.rs#fn environment",
        "parse/lex/command.rs#fn skip_of",
    ];
    StatementsAfterSpace: "a wide space as a separator", [
        "parse/lex/command.rs#fn statement_follows",
    ];
    EquationLines: "equations on lines", ["parse/lex/command.rs#fn equation_follows"];
    SmallDigits: "small digits, such as `x²`", ["parse/lexicon.rs#fn small_digit"];
    LoneSigns: "braces around a sign", ["parse/lex.rs#fn lone_sign"];
    LetterTimes: "`x` for times", ["parse/lex/letters.rs#fn is_times"];
    LetterUnion: "`U` for a union", ["parse/lex/letters.rs#fn is_union"];
    TimeUnits: "`min` and `sec` as units", [
        "parse/lex/letters.rs#fn is_time",
        "parse/lex/letters.rs#fn is_after_unit",
    ];
    HalvesOfDays: "`pm`", ["parse/lex/letters.rs#fn is_half_of_day"];
    MonthWords: "months next to a day", ["parse/lex/letters.rs#fn is_month"];
    Rates: "`m/s` without upright letters", ["parse/lex/letters.rs#fn is_rate"];
    SentenceStarts: "the first word of a sentence", ["parse/lex/letters.rs#fn opens_sentence"];
    ArgumentStarts: "`So,`", [
        "parse/lex/letters.rs#fn opens_argument",
        "parse/lexicon.rs#fn is_opening",
    ];
    ArgumentEnds: "`as required`", [
        "parse/lex/letters.rs#fn closes_argument",
        "parse/lexicon.rs#fn is_closing",
    ];
    GluedConjunctions: "`1orW`", ["parse/lex/letters.rs#fn conjunction"];
    NamedValues: "`inf` and `NaN`", ["parse/lexicon.rs#fn value", "parse/lex/letters.rs#fn named"];
    MeaningWords: "words that change a number's meaning", ["parse/lexicon.rs#fn changes_meaning"];
    Multipliers: "`million`", ["parse/lexicon.rs#fn multiplier"];
    UnitWords: "units that stick to a number", ["parse/lexicon.rs#fn is_unit"];
    PrefixedUnits: "units with a prefix", ["parse/lexicon.rs#fn is_prefixed_unit"];
    MeasureWords: "words that are units", ["parse/lexicon.rs#fn is_measure"];
    SetWords: "words for sets", ["parse/lexicon.rs#fn set"];
    ShortWords: "short words", ["parse/lexicon.rs#fn is_short_word"];
    Boxes: "boxes", ["extract/boxes.rs", "extract/box_command.rs"];
    BareBoxes: "boxes without braces", [
        "extract/boxes.rs#fn in_mathematics",
        "extract/box_command.rs#fn boundary",
    ];
    BlankBoxes: "boxes to fill in", ["extract/blank.rs"];
    JoinedBoxes: "boxes that are one answer", [
        "extract/grouping.rs#fn joins_boxes",
        "extract/grouping.rs#const CONCLUDING",
        "extract/grouping.rs#fn ends_sentence",
    ];
    JoinedFormulas: "formulas that are one answer", ["extract/grouping.rs#fn joins_formulas"];
    PercentAfter: "a percent sign behind the answer", ["extract/trim.rs#fn percent_follows"];
    TurnEnds: "tokens that end the turn", ["extract/trim.rs#const ENDS"];
    Thoughts: "thoughts between tags", ["thoughts.rs"];
    Markers: "answer markers", ["extract/marker.rs"];
    HashMarkers: "`####`", ["extract/marker.rs#fn after_hashes"];
    WordMarkers: "`Answer:` and the like", [
        "extract/marker.rs#fn after_word",
        "extract/marker.rs#fn closers",
        "extract/marker.rs#fn verb",
        "extract/marker.rs#fn heading",
        "extract/marker.rs#const VERBS",
        "extract/marker.rs#const DENIALS",
        "extract/marker.rs#const BRIDGES",
        "extract/marker.rs#const IDLE",
    ];
    VerbMarkers: "“the answer is”", [
        "extract/marker.rs#fn verb",
        "extract/marker.rs#const VERBS",
        "extract/marker.rs#const DENIALS",
        "extract/marker.rs#const BRIDGES",
        "extract/marker.rs#const IDLE",
    ];
    Headings: "a heading as a marker", ["extract/marker.rs#fn heading"];
    ChineseMarkers: "`答案：`", ["extract/marker.rs#fn after_chinese"];
    MarkedEnvironments: "environments behind a marker", ["extract/marker.rs#fn environment"];
    FirstSentences: "the end of the first sentence", ["extract/marker.rs#fn first_sentence"];
    Compounds: "`12 hours 30 minutes`", [
        "extract/sentence.rs#fn compound",
        "extract/sentence.rs#const EXPLAINING",
    ];
    ProseConditions: "conditions behind the last formula", ["extract/sentence.rs#fn is_condition"];
    BalancedBrackets: "brackets without a partner", ["extract/sentence.rs#fn balanced"];
    ChangedMeanings: "“half of 5”", [
        "extract/negation.rs#fn changes_meaning",
        "extract/negation.rs#const CHANGES",
        "extract/negation.rs#const OPERATIONS",
        "extract/negation.rs#const EVERYTHING",
        "extract/negation.rs#const LINKS",
    ];
    Denials: "“it is not 5”", [
        "extract/negation.rs#fn is_denied",
        "extract/fallback.rs#fn affirmed",
    ];
    ProseMoments: "days and times in prose", ["extract/prose.rs#fn is_of_moment"];
    ProseTags: "tags in prose", ["extract/prose.rs#fn tag"];
    ProseJoiners: "`1orW` in prose", ["extract/prose.rs#fn joiner_glued"];
    Currency: "`$5 and $6`", ["extract/delimiters.rs#fn currency"];
    BareEnvironments: "environments without delimiters", [
        "extract/delimiters.rs#fn last_environment",
        "extract/delimiters.rs#const MATRICES",
        "extract/delimiters.rs#const DISPLAYS",
    ];
    WholeTexts: "a text that is all mathematics", [
        "extract/fallback.rs#fn whole_text",
        "extract/sentence.rs#fn is_maths",
    ];
    FewWords: "a text of a few words", ["extract/fallback.rs#fn few_words"];
    LastMathematics: "the last formula or number", [
        "extract/fallback.rs#fn mathematics",
        "extract/fallback.rs#fn affirmed",
        "extract/fallback.rs#fn window",
        "extract/sentence.rs#fn last",
        "extract/sentence.rs#fn last_run",
    ];
    PlainNumbers: "bare numbers for `plain`", ["extract/number.rs"];
}

/// One bit for each part: 1 if it is off.
#[cfg(feature = "parts")]
static OFF: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Tells whether a part is off.
#[cfg(feature = "parts")]
pub(crate) fn off(part: Part) -> bool {
    let index = part as usize;
    (OFF[index / 64].load(Ordering::Relaxed) >> (index % 64)) & 1 == 1
}

/// Tells whether a part is off, which it never is.
#[cfg(not(feature = "parts"))]
pub(crate) const fn off(_: Part) -> bool {
    false
}

/// Switches these parts off, and all others on.
#[cfg(all(test, feature = "parts"))]
fn switch_off(parts: &[Part]) {
    let mut words = [0_u64; 4];
    for part in parts {
        let index = *part as usize;
        words[index / 64] |= 1 << (index % 64);
    }
    for (word, bits) in OFF.iter().zip(words) {
        word.store(bits, Ordering::Relaxed);
    }
}

/// Records what a test judges, if `FIREBRICK_PARTS_RECORD` names a file: the tests' tables are rows of the measurement.
#[cfg(feature = "parts")]
pub(crate) fn record_judged(verifier: &crate::Verifier, gold: &str, response: &str) {
    if gold.len() + response.len() <= LONGEST {
        record(|id| {
            serde_json::json!({
                "id": id, "verifier": verifier, "gold": gold, "response": response,
            })
        });
    }
}

/// Records a text in which a test looks for an answer.
#[cfg(all(test, feature = "parts"))]
pub(crate) fn record_extracted(extraction: crate::Extraction, text: &str) {
    record(|id| serde_json::json!({ "id": id, "extraction": extraction, "text": text }));
}

/// Records two expressions that a test compares, in the notation of the tests of `algebra`.
#[cfg(all(test, feature = "parts"))]
pub(crate) fn record_equal(left: &str, right: &str) {
    record(|id| serde_json::json!({ "id": id, "left": left, "right": right }));
}

/// Longest row that is recorded, in bytes.
#[cfg(feature = "parts")]
const LONGEST: usize = 20_000;

/// Appends a row, with the name of the running test as its id.
#[cfg(feature = "parts")]
fn record(row: impl FnOnce(&str) -> serde_json::Value) {
    static RECORD: OnceLock<Option<Mutex<File>>> = OnceLock::new();
    let record = RECORD.get_or_init(|| {
        let path = env::var_os("FIREBRICK_PARTS_RECORD")?;
        let file = OpenOptions::new().create(true).append(true).open(path);
        Some(Mutex::new(file.expect("the file of FIREBRICK_PARTS_RECORD can be written")))
    });

    // Threads without a name are not a test's own.
    let current = thread::current();
    if let Some(file) = record
        && let Some(id) = current.name()
    {
        let line = format!("{}\n", row(id));
        if let Ok(mut file) = file.lock() {
            // A row that is not written is missing in the measurement, which says how many there are.
            let _ = file.write_all(line.as_bytes());
        }
    }
}
