//! Golden files: inputs and expected numbers of other trainers, one JSON file for each topic.
//!
//! A case is read through [`Fields`], which remember the values that were read. A value that nobody read fails the
//! case, because a setting that is ignored is a setting that is not tested.

use std::{
    cell::RefCell,
    collections::BTreeSet,
    fmt::Display,
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use serde_json::{Map, Value};

/// Returns the folder of golden files: `FIREBRICK_GOLDEN_DIR`, or the one in this repository.
pub fn folder() -> PathBuf {
    std::env::var_os("FIREBRICK_GOLDEN_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("golden"), PathBuf::from)
}

/// Lists the golden files of the folder whose topic, the name up to the first underscore, is `wanted`.
///
/// # Panics
/// If the folder cannot be read.
pub fn files(wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let folder = folder();
    let entries =
        fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("a folder's entry can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .filter(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            wanted(name.split('_').next().unwrap_or_default())
        })
        .collect();
    files.sort();
    files
}

/// Runs every case of `file`, and lists the checks that failed, one line each.
///
/// # Panics
/// If the file is not a golden file, or has no cases.
pub fn failures(file: &Path, run: impl Fn(&Case)) -> Vec<String> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{name}: {error}"));
    let content: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(content["schema_version"], 1, "{name}: unknown schema");
    let cases = content["cases"].as_array().unwrap_or_else(|| panic!("{name} has no cases"));
    assert!(!cases.is_empty(), "{name} has no cases");
    assert_eq!(content["case_count"], cases.len(), "{name} is not whole");

    let mut failures = Vec::new();
    for case in cases {
        let case = Case::new(&content["tolerance"], case);
        // A panic fails this case alone.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            run(&case);
            case.all_used();
        }));
        if let Err(panic) = outcome {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("panicked");
            case.fail(text);
        }
        let found = case.failures.take();
        failures.extend(found.iter().map(|failure| format!("{name} {}: {failure}", case.label)));
    }
    failures
}

/// How far a value may be from the expected one: `atol + rtol · max(|want|, 0.001 · largest |want|
/// of the array)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Relative part.
    pub rtol: f64,
    /// Absolute part.
    pub atol: f64,
}

/// One case of a golden file.
pub struct Case {
    /// Name of the computation.
    pub function: String,
    /// Subject of the case, in a few words.
    pub kind: String,
    /// Its settings.
    pub config: Fields,
    /// Its input arrays.
    pub inputs: Fields,
    /// Values that must come out.
    pub expected: Fields,
    /// Tolerance for computations in f32.
    pub f32: Tolerance,
    /// Tolerance for computations in f64.
    pub f64: Tolerance,
    label: String,
    failures: RefCell<Vec<String>>,
}

impl Case {
    fn new(of_file: &Value, case: &Value) -> Self {
        let text = |key: &str| case[key].as_str().unwrap_or_default().to_owned();
        let fields = |key: &str| Fields::new(key, &case[key]);
        // A file with nothing but decisions has no tolerances: decisions are exact.
        let number = |key: &str| {
            let own = case.get("tolerance").and_then(|own| own.get(key));
            own.or(of_file.get(key)).and_then(Value::as_f64).unwrap_or(0.0)
        };
        let tolerance = |kind: &str| Tolerance {
            rtol: number(&format!("{kind}_rtol")),
            atol: number(&format!("{kind}_atol")),
        };

        Case {
            function: text("fn"),
            kind: text("kind"),
            config: fields("config"),
            inputs: fields("inputs"),
            expected: fields("expected"),
            f32: tolerance("f32"),
            f64: tolerance("f64"),
            label: format!("{} ({}, {})", text("id"), text("fn"), text("kind")),
            failures: RefCell::default(),
        }
    }

    /// Notes that the case does not hold, and continues.
    pub fn fail(&self, what: impl Display) {
        self.failures.borrow_mut().push(what.to_string());
    }

    /// Compares `got` with the expected `field`, row-major, within the case's f32 tolerance.
    pub fn check(&self, field: &str, got: &[f32]) {
        let got: Vec<f64> = got.iter().map(|&value| f64::from(value)).collect();
        self.compare(field, &got, &self.expected.array(field).values, self.f32);
    }

    /// Compares `got` with `want` under a tolerance; `field` is only for the message.
    pub fn compare(&self, field: &str, got: &[f64], want: &[f64], tolerance: Tolerance) {
        if got.len() != want.len() {
            self.fail(format!("{field}: {} values, expected {}", got.len(), want.len()));
        }

        // A value far below the array's largest is allowed the error of a larger one.
        let largest =
            want.iter().filter(|want| want.is_finite()).fold(0.0f64, |a, b| a.max(b.abs()));
        for (index, (&got, &want)) in got.iter().zip(want).enumerate() {
            let allowed = tolerance.atol + tolerance.rtol * want.abs().max(1e-3 * largest);
            let holds = if want.is_finite() {
                (got - want).abs() <= allowed
            } else {
                got == want || (got.is_nan() && want.is_nan())
            };
            if !holds {
                self.fail(format!(
                    "{field}[{index}] is {got:e}, expected {want:e} ± {allowed:.1e}"
                ));
            }
        }
    }

    /// Compares a decision, which must be the expected one.
    pub fn check_exact(&self, field: &str, got: impl Into<Value>) {
        let got: Value = got.into();
        let want = self.expected.value(field);
        if got != want {
            self.fail(format!("{field} is {got}, expected {want}"));
        }
    }

    fn all_used(&self) {
        for fields in [&self.config, &self.inputs, &self.expected] {
            for name in fields.unused() {
                self.fail(format!("{} \"{name}\" is not known to the test", fields.part));
            }
        }
    }
}

/// Named values of a case. An absent value reads as null.
pub struct Fields {
    part: String,
    values: Map<String, Value>,
    used: RefCell<BTreeSet<String>>,
}

impl Fields {
    fn new(part: &str, values: &Value) -> Self {
        let values = values.as_object().cloned().unwrap_or_default();
        Fields { part: part.to_owned(), values, used: RefCell::default() }
    }

    /// Reads the value of `name`.
    pub fn value(&self, name: &str) -> Value {
        self.used.borrow_mut().insert(name.to_owned());
        self.values.get(name).cloned().unwrap_or_default()
    }

    /// Tells whether `name` is there and not null. This does not count as reading it.
    pub fn has(&self, name: &str) -> bool {
        self.values.get(name).is_some_and(|value| !value.is_null())
    }

    /// Reads a number.
    pub fn number(&self, name: &str) -> f64 {
        self.optional(name).unwrap_or_else(|| self.wrong(name, "a number"))
    }

    /// Reads a number, or `None` if it is null.
    pub fn optional(&self, name: &str) -> Option<f64> {
        match self.value(name) {
            Value::Null => None,
            value => Some(value.as_f64().unwrap_or_else(|| self.wrong(name, "a number or null"))),
        }
    }

    /// Reads a whole number.
    pub fn whole(&self, name: &str) -> u64 {
        self.value(name).as_u64().unwrap_or_else(|| self.wrong(name, "a whole number"))
    }

    /// Reads a text.
    pub fn text(&self, name: &str) -> String {
        self.value(name).as_str().unwrap_or_else(|| self.wrong(name, "a text")).to_owned()
    }

    /// Reads a text, or `None` if it is null.
    pub fn optional_text(&self, name: &str) -> Option<String> {
        if self.has(name) { Some(self.text(name)) } else { None }
    }

    /// Reads a list of anything.
    pub fn list(&self, name: &str) -> Vec<Value> {
        self.value(name).as_array().unwrap_or_else(|| self.wrong(name, "a list")).clone()
    }

    /// Reads numbers; see [`Array::new`].
    pub fn array(&self, name: &str) -> Array {
        if !self.has(name) {
            self.wrong::<()>(name, "an array");
        }
        Array::new(&self.value(name))
    }

    fn wrong<T>(&self, name: &str, expected: &str) -> T {
        panic!("{} \"{name}\" should be {expected}, but is {}", self.part, self.value(name))
    }

    fn unused(&self) -> Vec<String> {
        let used = self.used.borrow();
        let left =
            self.values.iter().filter(|(name, value)| !value.is_null() && !used.contains(*name));
        left.map(|(name, _)| name.clone()).collect()
    }
}

/// A nested list of numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its sizes, outermost first; empty for a single number.
    pub shape: Vec<usize>,
    /// Its values, row-major.
    pub values: Vec<f64>,
}

impl Array {
    /// Reads nested lists. `true` and `false` are 1 and 0, "inf", "-inf" and "nan" are what they say, and
    /// "none", which stands for no number, is a NaN.
    ///
    /// # Panics
    /// If the lists are uneven or hold something else.
    pub fn new(value: &Value) -> Self {
        let Value::Array(parts) = value else {
            let number = match value {
                Value::Bool(flag) => f64::from(u8::from(*flag)),
                Value::String(text) if text == "none" => f64::NAN,
                Value::String(text) => text.parse().expect("a number in words"),
                _ => value.as_f64().unwrap_or_else(|| panic!("{value} is not a number")),
            };
            return Array { shape: Vec::new(), values: vec![number] };
        };

        let parts: Vec<Array> = parts.iter().map(Array::new).collect();
        let inner = parts.first().map_or(Vec::new(), |part| part.shape.clone());
        assert!(parts.iter().all(|part| part.shape == inner), "rows of different lengths");
        Array {
            shape: [vec![parts.len()], inner].concat(),
            values: parts.into_iter().flat_map(|part| part.values).collect(),
        }
    }

    /// Returns the values as f32. Golden inputs are chosen so that this loses nothing that matters.
    pub fn f32(&self) -> Vec<f32> {
        self.values.iter().map(|&value| value as f32).collect()
    }
}
