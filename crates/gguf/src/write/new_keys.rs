//! Keys of a new file, with the bytes of their values.

use crate::{
    family::Family,
    metadata::{ARRAY, Metadata, TEXT, Value},
};

/// Numbers of types in the format.
const U32: u32 = 4;
const I32: u32 = 5;
const F32: u32 = 6;
const BOOL: u32 = 7;

/// Keys that will be written. What decides how tensors are stored can be looked up as in a file that was read.
pub(super) struct NewKeys {
    family: Family,
    metadata: Metadata,
    /// Each key with the type and the bytes of its value.
    bytes: Vec<(String, u32, Vec<u8>)>,
}

impl NewKeys {
    pub(super) fn new(family: Family) -> Self {
        NewKeys { family, metadata: Metadata::default(), bytes: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn into_metadata(self) -> Metadata {
        self.metadata
    }

    /// Returns a key of the architecture, such as `llama.block_count`.
    pub(super) fn own(&self, key: &str) -> String {
        format!("{}.{key}", self.family.name())
    }

    pub(super) fn text(&mut self, key: &str, text: &str) {
        self.metadata.set(key, Value::Text(text.to_owned()));
        let mut bytes = Vec::new();
        write_text(text, &mut bytes);
        self.add(key, TEXT, bytes);
    }

    pub(super) fn number(&mut self, key: &str, number: u64) {
        self.metadata.set(key, Value::Unsigned(number));
        // Whatever the format counts fits into 32 bits, in which programs expect it.
        self.add(key, U32, (number as u32).to_le_bytes().to_vec());
    }

    pub(super) fn float(&mut self, key: &str, number: f64) {
        self.metadata.set(key, Value::Float(number));
        self.add(key, F32, (number as f32).to_le_bytes().to_vec());
    }

    pub(super) fn flag(&mut self, key: &str, flag: bool) {
        self.metadata.set(key, Value::Bool(flag));
        self.add(key, BOOL, vec![flag.into()]);
    }

    pub(super) fn texts<'a>(&mut self, key: &str, texts: impl ExactSizeIterator<Item = &'a str>) {
        let count = texts.len();
        let mut bytes = Vec::new();
        texts.for_each(|text| write_text(text, &mut bytes));
        self.array(key, TEXT, count, &bytes);
    }

    pub(super) fn integers(&mut self, key: &str, numbers: &[i32]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.array(key, I32, numbers.len(), &bytes);
    }

    pub(super) fn floats(&mut self, key: &str, numbers: &[f32]) {
        let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        self.array(key, F32, numbers.len(), &bytes);
    }

    pub(super) fn flags(&mut self, key: &str, flags: &[bool]) {
        let bytes: Vec<u8> = flags.iter().map(|&flag| flag.into()).collect();
        self.array(key, BOOL, flags.len(), &bytes);
    }

    /// Appends all keys with their values.
    pub(super) fn write(&self, head: &mut Vec<u8>) {
        for (key, kind, value) in &self.bytes {
            write_text(key, head);
            head.extend(kind.to_le_bytes());
            head.extend(value);
        }
    }

    fn array(&mut self, key: &str, kind: u32, count: usize, elements: &[u8]) {
        let bytes = [&kind.to_le_bytes()[..], &(count as u64).to_le_bytes(), elements].concat();
        self.add(key, ARRAY, bytes);
    }

    fn add(&mut self, key: &str, kind: u32, bytes: Vec<u8>) {
        self.bytes.push((key.to_owned(), kind, bytes));
    }
}

/// Appends a text after its length.
pub(super) fn write_text(text: &str, bytes: &mut Vec<u8>) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}
