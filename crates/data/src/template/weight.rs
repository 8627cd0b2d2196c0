use minijinja::{
    Error, ErrorKind, State, Value,
    value::{DynObject, ValueKind},
};

/// The largest value that a template may make or use, in the units of [`weigh`]: about bytes.
pub(super) const MAX_VALUE: usize = 4 << 20;
/// What a rendering may make and use in all: what it keeps at one time cannot be more, and what it
/// does takes time in proportion. A conversation of 100 kB takes some 1 MB.
const MAX_TOTAL: usize = 256 << 20;
/// What a value weighs beside its text: its place in a list or an object.
pub(super) const ITEM: usize = 32;
/// Values nested deeper are refused, because printing or dropping them recurses.
const MAX_DEPTH: usize = 100;

/// What a rendering has used so far.
#[derive(Default)]
struct Spent {
    total: usize,
    written: usize,
}

/// Takes the weight of `value`, all that is in it included, from what the rendering may spend.
///
/// A value that occurs twice counts twice, as it does when it is printed. The walk ends where the
/// limit does, so it is itself bounded.
pub(super) fn weigh(state: &mut State, value: &Value) -> Result<(), Error> {
    let mut room = MAX_VALUE;
    walk(value, &mut room, 0)?;
    charge(state, MAX_VALUE - room)
}

/// Takes the weight of what is at hand without looking inside: what it costs to index into a value
/// or to begin a loop over it.
pub(super) fn weigh_outside(state: &mut State, value: &Value) -> Result<(), Error> {
    charge(state, ITEM + length(value))
}

/// Takes `amount` from what the rendering may spend.
pub(super) fn charge(state: &mut State, amount: usize) -> Result<(), Error> {
    let spent = state.get_or_insert_extension_with(Spent::default);
    spent.total = spent.total.saturating_add(amount);
    if amount > MAX_VALUE || spent.total > MAX_TOTAL { Err(too_much()) } else { Ok(()) }
}

/// Counts what is written, into the result or into a variable.
pub(super) fn charge_written(state: &mut State, bytes: usize, limit: usize) -> Result<(), Error> {
    let spent = state.get_or_insert_extension_with(Spent::default);
    spent.written = spent.written.saturating_add(bytes);
    if spent.written > limit { Err(too_much()) } else { charge(state, bytes) }
}

pub(super) fn too_much() -> Error {
    Error::new(ErrorKind::OutOfFuel, "the template makes too much of too little")
}

/// The bytes of a text, the items of anything else.
pub(super) fn length(value: &Value) -> usize {
    match (value.as_str(), value.as_bytes()) {
        (Some(text), _) => text.len(),
        (None, Some(bytes)) => bytes.len(),
        // What does not know its length is a generator, which makes its items one by one.
        (None, None) => value.len().unwrap_or_default(),
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
    let is_container =
        matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map);
    spend(room, if is_container { ITEM } else { ITEM + length(value) })?;
    let kept_open = value.as_object().is_some_and(can_change) || value.kind() == ValueKind::Plain;
    if depth > MAX_DEPTH || (depth > 0 && kept_open) {
        // A namespace inside another value could later be given that value, and so on for ever.
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
