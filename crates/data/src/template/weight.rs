//! Weighs the values that a rendering makes, and limits their sum.

use minijinja::{
    Error, ErrorKind, State, Value,
    value::{DynObject, ValueKind},
};

use crate::number::Digits;

/// Limit on a value that a template makes or uses, in the units of [`weigh`]: about bytes.
pub(super) const MAX_VALUE: usize = 4 << 20;
/// Limit on what a rendering makes and uses in all. It can't keep more at one time, and its time grows in
/// proportion. A conversation of 100 kB takes some 1 MB.
const MAX_TOTAL: usize = 256 << 20;
/// Weight of a value in addition to its text, for its slot in a list or an object.
pub(super) const ITEM: usize = 32;
/// Limit on the nesting of values. Deeper values are refused, because printing or dropping them recurses.
const MAX_DEPTH: usize = 100;

/// What a rendering has used so far.
#[derive(Default)]
struct Spent {
    total: usize,
    written: usize,
}

/// Takes the weight of `value`, with everything in it, from the amount that the rendering may spend.
///
/// A value that occurs twice counts twice, as it does when it is printed. The walk ends at the limit, so it is
/// itself bounded.
pub(super) fn weigh(state: &mut State, value: &Value) -> Result<(), Error> {
    let mut room = MAX_VALUE;
    walk(value, &mut room, 0)?;
    charge(state, MAX_VALUE - room)
}

/// Takes the weight of a value without looking inside it. This is the cost of indexing into the value, or of
/// beginning a loop over it.
pub(super) fn weigh_outside(state: &mut State, value: &Value) -> Result<(), Error> {
    charge(state, ITEM + length(value))
}

/// Takes `amount` from the amount that the rendering may spend.
pub(super) fn charge(state: &mut State, amount: usize) -> Result<(), Error> {
    let spent = state.get_or_insert_extension_with(Spent::default);
    spent.total = spent.total.saturating_add(amount);
    if amount > MAX_VALUE || spent.total > MAX_TOTAL { Err(too_much()) } else { Ok(()) }
}

/// Counts bytes that are written, into the result or into a variable.
pub(super) fn charge_written(state: &mut State, bytes: usize, limit: usize) -> Result<(), Error> {
    let spent = state.get_or_insert_extension_with(Spent::default);
    spent.written = spent.written.saturating_add(bytes);
    if spent.written > limit { Err(too_much()) } else { charge(state, bytes) }
}

pub(super) fn too_much() -> Error {
    Error::new(ErrorKind::OutOfFuel, "the template makes too much of too little")
}

/// Returns the bytes of a text, or the items of anything else.
pub(super) fn length(value: &Value) -> usize {
    match (value.as_str(), value.as_bytes()) {
        (Some(text), _) => text.len(),
        (None, Some(bytes)) => bytes.len(),
        (None, None) => match Digits::of(value) {
            Some(digits) => digits.len(),
            // A value that does not know its length is a generator, which makes its items one by one.
            None => value.len().unwrap_or_default(),
        },
    }
}

fn walk(value: &Value, room: &mut usize, depth: usize) -> Result<(), Error> {
    let spend = |room: &mut usize, amount: usize| match room.checked_sub(amount) {
        Some(left) => {
            *room = left;
            Ok(())
        }
        None => Err(too_much()),
    };

    // The items of a container are weighed one by one, below.
    let is_container =
        matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map);
    spend(room, if is_container { ITEM } else { ITEM + length(value) })?;

    // Objects that a template can change later, and those of which nothing is known here.
    let is_plain = value.kind() == ValueKind::Plain && Digits::of(value).is_none();
    let kept_open = value.as_object().is_some_and(can_change) || is_plain;
    if depth > MAX_DEPTH || (depth > 0 && kept_open) {
        // A namespace inside another value could later get that value, and so contain itself.
        return Err(too_much());
    }

    match value.kind() {
        ValueKind::Map => {
            for key in value.try_iter()? {
                walk(&value.get_item(&key)?, room, depth + 1)?;
                walk(&key, room, depth + 1)?;
            }
        }
        ValueKind::Seq | ValueKind::Iterable => {
            for item in value.try_iter()? {
                walk(&item, room, depth + 1)?;
            }
        }
        _ => {}
    }

    Ok(())
}

fn can_change(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}
