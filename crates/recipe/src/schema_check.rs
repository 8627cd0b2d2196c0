//! Check against the schema: every key is known, and every value has its type and is in its range.
//!
//! Serde would find the same faults, although it points at the table's header when the fault is inside an
//! enum with a `kind`, and names no likely spelling. So the document is first compared with the JSON schema,
//! which comes from the very types that serde fills.

use std::ops::Range;

use firebrick_core::device::{Name, meant};
use serde_json::Value as Json;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::{bounds, error::Problem, foreign_keys::foreign_key_help, likely::likely};

/// Returns everything in which the document differs from the schema.
pub(super) fn problems(document: &DeTable<'_>, schema: &Json) -> Vec<Problem> {
    let mut walk = Walk { root: schema, path: Vec::new(), in_list: false, problems: Vec::new() };
    walk.table(document, 0..0, schema);
    walk.problems
}

/// Removes the values that `problems` blame from the document. If they blame an entry of a list, the whole list is
/// removed.
pub(super) fn leave_out(document: &mut DeTable<'_>, problems: &[Problem]) {
    fn remove(table: &mut DeTable<'_>, path: &[String]) {
        let [key, rest @ ..] = path else { return };
        match table.get_mut(key.as_str()).map(Spanned::get_mut) {
            Some(DeValue::Table(inner)) if !rest.is_empty() => remove(inner, rest),
            _ => drop(table.remove(key.as_str())),
        }
    }

    problems.iter().flat_map(|problem| &problem.keys).for_each(|path| remove(document, path));
}

/// Returns the problems in `candidates` that involve no table of `problems`. A problem that involves such a table may
/// not be a real one, because a value of the table was left out or is misspelt. A misspelt table may be involved in
/// every problem.
pub(super) fn unrelated(candidates: Vec<Problem>, problems: &[Problem]) -> Vec<Problem> {
    let paths: Vec<&Vec<String>> = problems.iter().flat_map(|problem| &problem.keys).collect();
    let touches = |key: &Vec<String>| {
        let table = |path: &[String]| path.split_last().map(|(_, table)| table.to_vec());
        paths.iter().any(|path| {
            // A path without a table is a key at the root, or a table whose name may be misspelt.
            let related = path.starts_with(key) || key.starts_with(path);
            path.len() < 2 || related || table(path) == table(key)
        })
    };
    candidates.into_iter().filter(|problem| !problem.keys.iter().any(touches)).collect()
}

/// Returns true if the recipe's schema has a table at `path`, and not a value.
pub(super) fn is_table_at(root: &Json, path: &[&str]) -> bool {
    let walk = Walk { root, path: Vec::new(), in_list: false, problems: Vec::new() };
    let mut current = root;
    for name in path {
        // A key may be next to the kinds of a table, or in one of the kinds.
        let variants = current.get("oneOf").and_then(Json::as_array).into_iter().flatten();
        let mut found = std::iter::once(current)
            .chain(variants)
            .filter_map(|schema| schema.get("properties")?.get(name));
        let Some(inner) = found.next() else { return false };
        current = walk.resolve(inner);
    }

    is_table(current)
}

/// Keys that recipes once had: the table, the key, and what to write instead.
const MOVED: [(&str, &str, &str); 9] = [
    ("", "warmup", "supervised fine-tuning is now `[sft]`"),
    ("environment", "heard", "it is now `observation`"),
    ("environment", "max_heard_tokens", "it is now `max_observation_tokens`"),
    ("loss", "importance_cap", "it is now `tis_cap`"),
    ("loss", "importance_range", "it is now `tis_mask`"),
    ("sampling", "max_surplus_age", "it is now `max_carry_over_age`"),
    ("sampling", "memory", "it is now `[sampling.curriculum]`"),
    (
        "sampling",
        "min_replace_ratio",
        "it belongs to the kind: `dynamic = { kind = \"replace\", min_ratio = 0.3 }`",
    ),
    ("sampling", "surplus", "it is now `carry_over`, true or false"),
];

struct Walk<'schema> {
    root: &'schema Json,
    path: Vec<String>,
    /// True if the table at `path` is one of several, each under a `[[header]]`.
    in_list: bool,
    problems: Vec<Problem>,
}

impl<'schema> Walk<'schema> {
    fn table(&mut self, table: &DeTable<'_>, header: Range<usize>, schema: &'schema Json) {
        if schema.get("additionalProperties").is_some_and(|any| any == true) {
            // Its keys belong to somebody else, who checks them.
            for (key, value) in table {
                self.path.push(key.get_ref().to_string());
                self.foreign(value);
                self.path.pop();
            }
            return;
        }

        if let Some(each) = schema.get("additionalProperties").filter(|any| any.is_object()) {
            // Its keys are names of the user's, with values of one type.
            for (key, value) in table {
                self.path.push(key.get_ref().to_string());
                self.value(value, each);
                self.path.pop();
            }
            return;
        }

        // A table whose kind is unknown has no keys to compare with.
        let Some(schemas) = self.schemas(table, &header, schema) else { return };
        let keys: Vec<(String, &Json)> = schemas.iter().copied().flat_map(properties).collect();
        let mut all_known = true;

        for (key, value) in table {
            self.path.push(key.get_ref().to_string());
            match keys.iter().find(|(name, _)| name == key.get_ref()) {
                Some((_, schema)) => self.value(value, schema),
                None => {
                    all_known = false;
                    let valid: Vec<&str> = keys.iter().map(|(name, _)| name.as_str()).collect();
                    let kinds = Kinds::of_table(table, self.resolve(schema));
                    self.unknown_key(key.span(), value.get_ref().is_table(), &valid, kinds);
                }
            }
            self.path.pop();
        }
        if !all_known {
            return; // A key that seems to be missing is most likely the misspelt one.
        }

        let required = schemas.iter().flat_map(|schema| strings(schema.get("required")));
        let missing: Vec<&str> = required.filter(|name| !table.contains_key(*name)).collect();

        match missing[..] {
            [] => {}
            [only] => self.missing_key(header, only, keys.iter().find(|(name, _)| name == only)),
            _ => self.missing_keys(header, &missing),
        }
    }

    /// Refuses what would reach somebody else as another value: a number that JSON can't hold, and a date.
    fn foreign(&mut self, value: &Spanned<DeValue<'_>>) {
        let (found, expected) = match value.get_ref() {
            DeValue::Table(table) => {
                for (key, value) in table {
                    self.path.push(key.get_ref().to_string());
                    self.foreign(value);
                    self.path.pop();
                }
                return;
            }
            DeValue::Array(items) => return items.iter().for_each(|item| self.foreign(item)),
            DeValue::Integer(number)
                if i64::from_str_radix(number.as_str(), number.radix()).is_err() =>
            {
                (number.to_string(), "a whole number of at most 64 bits")
            }
            DeValue::Float(number) if !number.as_str().parse::<f64>().is_ok_and(f64::is_finite) => {
                (number.to_string(), "a number below 1.8e308")
            }
            DeValue::Datetime(date) => (date.to_string(), "a text or a number"),
            _ => return,
        };

        let message = format!("{} is {found}, expected {expected}", self.dotted());
        let help = Some("write it in quotes, and it is a text".into());
        self.problem(value.span(), message, "not a JSON value", help);
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, schema: &'schema Json) {
        let schema = self.shape(value.get_ref(), self.resolve(schema));
        let span = value.span();
        let names = string_choices(schema);
        let is = |kind: &str| schema.get("type").is_some_and(|named| named == kind);

        match value.get_ref() {
            DeValue::Table(table) if is_table(schema) || has_kinds(schema) => {
                self.table(table, span, schema);
            }
            DeValue::String(text) if names.contains(&text.as_ref()) => {}
            DeValue::Boolean(flag) if has_flag(schema, *flag) => {}
            _ if !names.is_empty() => self.no_such_choice(value, &names),
            DeValue::String(text) if is("string") => {
                let bounds = [schema.get("minLength"), schema.get("maxLength")];
                self.length(span, text.chars().count(), bounds, "a text", "characters");
            }
            DeValue::Boolean(_) if is("boolean") => {}
            DeValue::Float(number) if is("number") => {
                let given = number.as_str();
                self.range(span, given, given.parse().unwrap_or(f64::NAN), schema);
            }
            DeValue::Integer(number) if is("number") || is("integer") => {
                // A number beyond 64 bits is left to serde, which reports it.
                if let Ok(value) = i64::from_str_radix(number.as_str(), number.radix()) {
                    self.range(span, &value.to_string(), value as f64, schema);
                }
            }
            DeValue::Array(items) if is("array") => {
                let bounds = [schema.get("minItems"), schema.get("maxItems")];
                self.length(span, items.len(), bounds, "an array", "entries");
                // The items of an array of tables are named by a `[[header]]`.
                let outer = std::mem::replace(&mut self.in_list, true);
                let of_items = schema.get("items").unwrap_or(&Json::Null);
                items.iter().for_each(|item| self.value(item, of_items));
                self.in_list = outer;
            }
            other => {
                // Whatever is left has the wrong type.
                let kind = if is_table(schema) { Some("table") } else { kind_of_value(schema) };
                let expected = kind.map_or_else(|| self.shapes(schema), article);
                let found = article(other.type_str());
                let message = format!("{} is {found}, expected {expected}", self.dotted());

                let help = match other {
                    DeValue::Table(_) | DeValue::Array(_) => None,
                    DeValue::String(text) if self.path == ["device"] => Some(device(text)),
                    _ if is_table(schema) => Some(smallest_table(schema)),
                    _ if is("string") => Some("write it in quotes".into()),
                    DeValue::String(text) if is("array") => Some(format!(
                        "write [{}]",
                        quoted(&text.split_whitespace().collect::<Vec<_>>(), '"').join(", ")
                    )),
                    DeValue::String(text) if is_bare(text) => {
                        Some("write it without quotes".into())
                    }
                    _ => None,
                };
                self.problem(span, message, &format!("this is {found}"), help);
            }
        }
    }

    /// Returns the shape that a value has, if the schema allows several (a text, or a list), else the schema itself.
    fn shape(&self, value: &DeValue<'_>, schema: &'schema Json) -> &'schema Json {
        let shapes = schema.get("anyOf").and_then(Json::as_array).into_iter().flatten();
        let kind = match value {
            DeValue::Array(_) => "array",
            DeValue::String(_) => "string",
            _ => return schema,
        };
        let mut shapes = shapes.map(|shape| self.resolve(shape));
        shapes.find(|shape| kind_of_value(shape) == Some(kind)).unwrap_or(schema)
    }

    /// Names the types of a schema that allows several.
    fn shapes(&self, schema: &Json) -> String {
        let shapes = schema.get("anyOf").and_then(Json::as_array).into_iter().flatten();
        let kinds = shapes.filter_map(|shape| kind_of_value(self.resolve(shape)));
        let kinds: Vec<String> = kinds.map(article).collect();
        if kinds.is_empty() { "another type".into() } else { one_of(&kinds) }
    }

    /// Compares a number with the schema's bounds, in the type that it is computed in: 0.99999999999 is 1 in
    /// float32, which is not below 1. NaN and infinities are never in range.
    fn range(&mut self, span: Range<usize>, given: &str, value: f64, schema: &Json) {
        let is_integer = schema.get("type").is_some_and(|kind| kind == "integer");
        let computed = |number: f64| if is_integer { number } else { f64::from(number as f32) };
        let bound = |name: &str| schema.get(name).and_then(Json::as_f64);

        let computed_value = computed(value);
        let minimum = bound("minimum");
        let maximum = bound("maximum");
        let exclusive_minimum = bound("exclusiveMinimum");
        let exclusive_maximum = bound("exclusiveMaximum");

        let mut limits: Vec<(bool, String)> = [
            minimum.map(|minimum| (value >= minimum, format!("at least {minimum}"))),
            exclusive_minimum.map(|exclusive_minimum| {
                (
                    value > exclusive_minimum && computed_value > computed(exclusive_minimum),
                    format!("above {exclusive_minimum}"),
                )
            }),
            maximum.map(|maximum| (value <= maximum, format!("at most {maximum}"))),
            exclusive_maximum.map(|exclusive_maximum| {
                (
                    value < exclusive_maximum && computed_value < computed(exclusive_maximum),
                    format!("below {exclusive_maximum}"),
                )
            }),
        ]
        .into_iter()
        .flatten()
        .collect();

        // Numbers without their own bound have to stay numbers in float32.
        let largest = bounds::NUMBER;
        let smallest = bounds::SMALLEST;
        if !is_integer && maximum.is_none() && value.abs() > largest {
            let words = format!("at most {largest:e}{}", if value < 0.0 { " in size" } else { "" });
            limits.push((false, words));
        }

        // A number such as 1e-400 is already 0 when it is read, so its digits decide.
        let digits = given.split(['e', 'E']).next().unwrap_or_default();
        let is_zero = !digits.contains(|digit| matches!(digit, '1'..='9'));
        if !is_integer && !is_zero && value.abs() < smallest {
            limits.retain(|(holds, _)| !holds);
            let or = if exclusive_minimum == Some(0.0) { "" } else { "0, or " };
            let size = if minimum.or(exclusive_minimum) == Some(0.0) { "" } else { " in size" };
            limits.push((false, format!("{or}at least {smallest:e}{size}")));
        }

        if value.is_finite() && limits.iter().all(|(holds, _)| *holds) {
            return;
        }

        let words: Vec<&str> = limits.iter().map(|(_, words)| words.as_str()).collect();
        let expected = match (value.is_finite(), words.as_slice()) {
            (false, []) => "a finite number".into(),
            (false, words) => format!("a finite number, {}", words.join(" and ")),
            (true, words) => words.join(" and "),
        };

        let at_the_bound = [exclusive_minimum, exclusive_maximum].contains(&Some(computed_value))
            && computed_value != value;
        let rounded =
            if at_the_bound { format!(" ({computed_value} in float32)") } else { String::new() };

        let message = format!("{} is {given}{rounded}, expected {expected}", self.dotted());
        let key = self.path.last().cloned().unwrap_or_default();
        let help = format!("`{key}`: {}", description(Some(schema)));
        self.problem(span, message, "out of range", Some(help));
    }

    /// Compares the length of a text or an array with the schema's minimum and maximum.
    fn length(
        &mut self,
        span: Range<usize>,
        length: usize,
        bounds: [Option<&Json>; 2],
        what: &str,
        units: &str,
    ) {
        let length = length as u64;

        let [minimum, maximum] = bounds.map(|bound| bound.and_then(Json::as_u64));
        if let Some(maximum) = maximum.filter(|&maximum| length > maximum) {
            let message =
                format!("{} has {length} {units}, expected at most {maximum}", self.dotted());
            self.problem(span, message, "too long", None);
        } else if minimum.is_some_and(|minimum| length < minimum) {
            let message = format!("{} is empty, expected {what} that is not empty", self.dotted());
            self.problem(span, message, "nothing in it", None);
        }
    }

    fn no_such_choice(&mut self, value: &Spanned<DeValue<'_>>, names: &[&str]) {
        let given = value.get_ref().as_str();
        let found = given
            .map_or_else(|| article(value.get_ref().type_str()), |given| format!("\"{given}\""));

        let choices = one_of(&quoted(names, '"'));
        let message = format!("{} is {found}, expected {choices}", self.dotted());

        // A vendor's name, such as that of a GPU's maker, gets its own advice.
        let vendor = given.filter(|_| self.path == ["device", "kind"]).and_then(meant);
        let help = given.and_then(|given| likely(given, names.iter().copied()));
        let help = help.map(|name| format!("did you mean \"{name}\"?"));
        let help = vendor.map(String::from).or(help);

        self.problem(value.span(), message, "no such choice", help);
    }

    /// Returns the schemas that this table's keys are compared with. For an enum they are the variant that
    /// the table chose, and the keys of all variants.
    fn schemas(
        &mut self,
        table: &DeTable<'_>,
        header: &Range<usize>,
        schema: &'schema Json,
    ) -> Option<Vec<&'schema Json>> {
        let schema = self.resolve(schema);
        let Some(variants) = schema.get("oneOf").and_then(Json::as_array) else {
            return Some(vec![schema]);
        };

        if !has_kinds(schema) {
            return Some(vec![self.sole_key(table, header, variants)?]);
        }

        if !table.contains_key("kind") {
            if let Some(default) = variants.iter().find(|variant| is_default(variant)) {
                return Some(vec![default, schema]);
            }
            // The entry with `not` is the table that names no kind.
            if variants.iter().any(|variant| variant.get("not").is_some()) {
                return Some(vec![schema]);
            }
        }

        Some(vec![self.tagged(table, header, variants)?, schema])
    }

    /// Returns the variant that the table's `kind` names.
    fn tagged(
        &mut self,
        table: &DeTable<'_>,
        header: &Range<usize>,
        variants: &'schema [Json],
    ) -> Option<&'schema Json> {
        let kinds: Vec<&str> = variants.iter().filter_map(kind_of).collect();

        let Some(kind) = table.get("kind") else {
            let message = format!("{} has no `kind`", self.name());
            let help = format!("add `kind`, {}", one_of(&quoted(&kinds, '"')));
            self.problem(header.clone(), message, "`kind` is missing", Some(help));
            return None;
        };

        let variant = variants.iter().find(|variant| {
            kind_of(variant).is_some_and(|name| kind.get_ref().as_str() == Some(name))
        });

        if variant.is_none() {
            self.path.push("kind".into());
            self.no_such_choice(kind, &kinds);
            self.path.pop();
        }
        variant
    }

    /// Returns the variant of an enum whose variants are keys. Exactly one of these keys may be in the table.
    fn sole_key(
        &mut self,
        table: &DeTable<'_>,
        header: &Range<usize>,
        variants: &'schema [Json],
    ) -> Option<&'schema Json> {
        // A key of no variant is more likely misspelt than a variant is missing.
        let keys: Vec<&str> =
            variants.iter().flat_map(|variant| strings(variant.get("required"))).collect();

        for (key, value) in table {
            if !keys.contains(&key.get_ref().as_ref()) {
                self.path.push(key.get_ref().to_string());
                let is_table = value.get_ref().is_table();
                self.unknown_key(key.span(), is_table, &keys, Kinds::default());
                self.path.pop();
                return None;
            }
        }

        let mut key_spans: Vec<Range<usize>> = table.keys().map(Spanned::span).collect();
        key_spans.sort_by_key(|span| span.start);
        let help = Some(format!("give one of them: {}", one_of(&quoted(&keys, '`'))));

        match key_spans.as_slice() {
            [_] => variants.iter().find(|variant| {
                strings(variant.get("required")).iter().all(|key| table.contains_key(*key))
            }),
            [] => {
                let message =
                    format!("{} has neither {}", self.name(), quoted(&keys, '`').join(" nor "));
                self.problem(header.clone(), message, "one key is missing", help);
                None
            }
            [_, second, ..] => {
                let message =
                    format!("{} has both {}", self.name(), quoted(&keys, '`').join(" and "));
                self.problem(second.clone(), message, "one too many", help);
                None
            }
        }
    }

    fn unknown_key(
        &mut self,
        span: Range<usize>,
        is_table: bool,
        valid: &[&str],
        kinds: Kinds<'_>,
    ) {
        let key = self.path.last().cloned().unwrap_or_default();
        let table = self.table_name(&self.path[..self.path.len().saturating_sub(1)]);
        let location = format!("{table}{}", kinds.chosen());
        let what = if is_table { "table" } else { "key" };
        let message = format!("unknown {what} `{key}` in {location}");

        let owners = kinds.that_know(&key);
        let homes = self.homes(&key);
        let moved = MOVED.iter().find(|(table, name, _)| *name == key && table == &self.above());

        // The most specific advice wins: a key with a new name, another kind's, another program's, a likely
        // spelling.
        let help = if let Some((.., says)) = moved {
            (*says).to_owned()
        } else if !owners.is_empty() {
            // Without a kind the table has the first one, so naming another is part of the advice.
            let needs = if kinds.kind.is_some() { "" } else { ", which has to be set too" };
            format!("`{key}` is an option of kind = {}{needs}", one_of(&quoted(&owners, '"')))
        } else if let Some(help) = foreign_key_help(&key, valid) {
            help
        } else if let Some(name) = likely(&key, valid.iter().copied()) {
            format!("did you mean `{name}`?")
        } else if homes.is_empty() {
            format!("{location} knows {}", quoted(valid, '`').join(", "))
        } else {
            format!("`{key}` is a key of {}", homes.join(" and of "))
        };

        self.problem(span, message, &format!("unknown {what}"), Some(help));
    }

    fn missing_key(&mut self, header: Range<usize>, key: &str, schema: Option<&(String, &Json)>) {
        let schema = schema.map(|&(_, schema)| schema);
        let (what, help) = if schema.is_some_and(|schema| is_table(self.resolve(schema))) {
            let mut path = self.path.clone();
            path.push(key.to_owned());
            let named = self.table_name(&path);
            (named.clone(), format!("add {named}: {}", description(schema)))
        } else {
            (format!("key `{key}`"), format!("add `{key}`: {}", description(schema)))
        };

        let message = format!("{} has no {what}", self.name());
        let label = if header.is_empty() { String::new() } else { format!("{what} is missing") };
        self.problem(header, message, &label, Some(help));
    }

    /// Reports one fault for all of them, because they are missing from the same table.
    fn missing_keys(&mut self, header: Range<usize>, keys: &[&str]) {
        let first = quoted(&keys[..keys.len() - 1], '`').join(", ");
        let last = keys[keys.len() - 1];

        let message = format!("{} has no {first} and no `{last}`", self.name());
        let help =
            "add them; `firebrick schema`, and the book's page of every option, say what they are";
        let label = if header.is_empty() { "" } else { "they are missing" };
        self.problem(header, message, label, Some(help.into()));
    }

    /// Returns the tables at the root that know `key`.
    fn homes(&self, key: &str) -> Vec<String> {
        let tables = properties(self.root).into_iter();
        tables
            .filter(|(_, schema)| {
                let schema = self.resolve(schema);
                let variants = schema.get("oneOf").and_then(Json::as_array).into_iter().flatten();
                let mut schemas = std::iter::once(schema).chain(variants);
                schemas.any(|schema| properties(schema).iter().any(|(name, _)| name == key))
            })
            .map(|(table, _)| format!("[{table}]"))
            .collect()
    }

    /// Returns the dotted name of the table that holds the key at `path`.
    fn above(&self) -> String {
        self.path[..self.path.len().saturating_sub(1)].join(".")
    }

    fn problem(&mut self, span: Range<usize>, message: String, label: &str, help: Option<String>) {
        let keys = vec![self.path.clone()];
        self.problems.push(Problem { span, keys, message, label: label.into(), help });
    }

    fn resolve(&self, schema: &'schema Json) -> &'schema Json {
        match schema
            .get("$ref")
            .and_then(Json::as_str)
            .and_then(|pointer| pointer.strip_prefix('#'))
        {
            Some(pointer) => self.root.pointer(pointer).unwrap_or(schema),
            None => schema,
        }
    }

    fn name(&self) -> String {
        self.table_name(&self.path)
    }

    fn table_name(&self, path: &[String]) -> String {
        let path = path.join(".");
        match (path.is_empty(), self.in_list) {
            (true, _) => "the recipe".into(),
            (false, true) => format!("[[{path}]]"),
            (false, false) => format!("[{path}]"),
        }
    }

    fn dotted(&self) -> String {
        self.path.join(".")
    }
}

/// Variants of a table that has a `kind`. Any other table has none.
#[derive(Default)]
struct Kinds<'a> {
    variants: &'a [Json],
    kind: Option<&'a str>,
}

impl<'a> Kinds<'a> {
    fn of_table(table: &'a DeTable<'_>, schema: &'a Json) -> Self {
        match schema.get("oneOf").and_then(Json::as_array) {
            Some(variants) if has_kinds(schema) => {
                Kinds { variants, kind: table.get("kind").and_then(|kind| kind.get_ref().as_str()) }
            }
            _ => Kinds::default(),
        }
    }

    /// Returns what follows the name of the table.
    fn chosen(&self) -> String {
        match self.kind {
            _ if self.variants.is_empty() => String::new(),
            Some(kind) => format!(" of kind \"{kind}\""),
            None if self.variants.iter().any(is_default) => String::new(),
            None => " without a kind".into(),
        }
    }

    /// Returns the kinds that have an option `key`.
    fn that_know(&self, key: &str) -> Vec<&'a str> {
        let knows = |variant: &&Json| properties(variant).iter().any(|(name, _)| name == key);
        self.variants.iter().filter(knows).filter_map(kind_of).collect()
    }
}

fn properties(schema: &Json) -> Vec<(String, &Json)> {
    let properties = schema.get("properties").and_then(Json::as_object);
    properties.into_iter().flatten().map(|(name, schema)| (name.clone(), schema)).collect()
}

/// Describes what to write for a table instead of a value. It names the kinds, if the table has to have one.
fn smallest_table(schema: &Json) -> String {
    let variants = schema.get("oneOf").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    let kinds: Option<Vec<&str>> = variants.iter().map(kind_of).collect();
    match kinds.unwrap_or_default().as_slice() {
        [] => "write `{}`, or keys in it".into(),
        kinds => {
            let tables: Vec<String> =
                kinds.iter().map(|kind| format!("`{{ kind = \"{kind}\" }}`")).collect();
            format!("write {}", one_of(&tables))
        }
    }
}

/// Describes what to write for a device that is named as on the command line.
fn device(text: &str) -> String {
    match text.parse() {
        Ok(Name { kind, index }) => {
            format!("write `{{ kind = \"{kind}\", index = {index} }}`, or --device {text}")
        }
        Err(error) => error.to_string(),
    }
}

fn is_table(schema: &Json) -> bool {
    let is_object = |schema: &Json| schema.get("type").is_some_and(|kind| kind == "object");
    is_object(schema)
        || schema.get("oneOf").and_then(Json::as_array).is_some_and(|all| all.iter().all(is_object))
}

/// Returns the names of an enum without data, and nothing for any other schema.
fn string_choices(schema: &Json) -> Vec<&str> {
    let variants = schema.get("oneOf").and_then(Json::as_array).map_or(&[][..], Vec::as_slice);
    variants.iter().filter_map(|variant| variant.get("const")?.as_str()).collect()
}

/// Returns true if an enum without data has this choice, which is written without quotes.
fn has_flag(schema: &Json, flag: bool) -> bool {
    let variants = schema.get("oneOf").and_then(Json::as_array);
    variants.into_iter().flatten().any(|variant| variant.get("const") == Some(&Json::Bool(flag)))
}

/// Returns true if a string would be a number or a boolean if it had no quotes.
fn is_bare(text: &str) -> bool {
    text.parse::<f64>().is_ok() || text.parse::<bool>().is_ok()
}

/// Returns true if one of the variants is a table that a `kind` chooses.
fn has_kinds(schema: &Json) -> bool {
    let variants = schema.get("oneOf").and_then(Json::as_array);
    variants.is_some_and(|variants| variants.iter().any(|variant| kind_of(variant).is_some()))
}

/// Returns the `kind` that chooses this variant of a tagged enum.
fn kind_of(variant: &Json) -> Option<&str> {
    variant.pointer("/properties/kind/const")?.as_str()
}

/// Returns true if this variant is the one of a table without a `kind`.
fn is_default(variant: &Json) -> bool {
    kind_of(variant).is_some() && !strings(variant.get("required")).contains(&"kind")
}

fn kind_of_value(schema: &Json) -> Option<&str> {
    schema.get("type").and_then(Json::as_str)
}

/// Returns the schema's description, to follow a colon. Its first letter becomes small, unless it begins an
/// abbreviation.
fn description(schema: Option<&Json>) -> String {
    let text = schema.and_then(|schema| schema.get("description")?.as_str()).unwrap_or_default();
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    match (letters.next(), letters.clone().next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(letters).collect()
        }
        _ => text.to_owned(),
    }
}

fn strings(array: Option<&Json>) -> Vec<&str> {
    array.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect()
}

fn quoted(names: &[&str], quote: char) -> Vec<String> {
    names.iter().map(|name| format!("{quote}{name}{quote}")).collect()
}

fn one_of(names: &[String]) -> String {
    match names {
        [] => "nothing".into(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

fn article(kind: &str) -> String {
    let article = if kind.starts_with(['a', 'i']) { "an" } else { "a" };
    format!("{article} {kind}")
}
