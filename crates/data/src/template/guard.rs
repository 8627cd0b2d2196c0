//! Guards against templates that would overflow the compiler or make texts without end.

use minijinja::{
    Environment, Error, ErrorKind, State, Value,
    machinery::{Instruction, Instructions, Token, tokenize},
    syntax::SyntaxConfig,
    value::{Rest, ValueOrKwargs},
};

use super::{
    print::print,
    python,
    weight::{ITEM, charge, length, too_much, weigh, weigh_outside},
};

/// The longest template, in bytes. Published templates have up to some 20 kB.
const MAX_SOURCE: usize = 256 << 10;
/// The most tokens of one tag, and the most tags that continue an `if`. Both nest in the compiler, which recurses:
/// a sum of 100,000 terms overflowed its stack.
const MAX_TOKENS: usize = 500;
/// The largest number that a constant may be multiplied with, and the largest size of all such products together.
const MAX_FACTOR: u64 = 1000;
const MAX_PRODUCTS: u64 = 64 << 20;

/// Refuses a source that could harm the parser or the compiler, which know no limits of their own.
pub(super) fn check_source(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    let refuse = |problem: &'static str| Err(Error::new(ErrorKind::SyntaxError, problem));
    if source.len() > MAX_SOURCE {
        return refuse("the template is longer than 256 KiB");
    }
    let (mut tokens, mut branches, mut products, mut all_products) = (0, 0, 0_u32, 0_u64);
    let (mut characters, mut largest) = (0_u64, 0_u64);
    for token in tokenize(source, false, syntax) {
        let (token, span) = token?;
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => {
                (tokens, products, characters, largest) = (0, 0, 0, 0);
            }
            // The compiler computes constants, so it would make a product of constants before anything is weighed.
            Token::VariableEnd | Token::BlockEnd if products > 0 => {
                let factors = MAX_FACTOR.saturating_pow(products);
                let size = characters.max(1).saturating_mul(factors);
                all_products = all_products.saturating_add(size);
                if largest > MAX_FACTOR || all_products > MAX_PRODUCTS {
                    return refuse("the template multiplies with large numbers");
                }
            }
            Token::Mul | Token::Pow => products += 1,
            Token::Int(number) => largest = largest.max(number),
            Token::Int128(_) => largest = u64::MAX,
            Token::Ident("elif") => branches += 1,
            _ => {}
        }
        tokens += 1;
        characters += u64::from(span.end_offset.saturating_sub(span.start_offset));
        if tokens > MAX_TOKENS || branches > MAX_TOKENS {
            return refuse(
                "a tag of the template has more than 500 parts, or the template more than 500 `elif`",
            );
        }
    }
    Ok(())
}

/// Returns the program with a limit on all that it makes.
///
/// Fuel bounds how many instructions run. But one instruction can double a text, and forty of those fill any
/// memory. The interpreter has no hook at its operators. So each instruction that can make or read something large
/// is put between two filters that weigh it. No template can write the names of these filters. An instruction
/// makes nothing larger than its inputs, except for a product (which the interpreter ends at 100 MB) and a few
/// filters, which are asked before.
pub(super) fn guarded<'a>(program: &Instructions<'a>) -> Result<Instructions<'a>, Error> {
    let mut steps: Vec<(Vec<Instruction<'a>>, usize)> = Vec::new();
    let mut at: u32 = 0;
    let mut places = Vec::new();
    while let Some(instruction) = program.get(steps.len() as u32) {
        places.push(at);
        let expanded = expand(instruction)?;
        at += expanded.len() as u32;
        let line = program.get_line(steps.len() as u32).unwrap_or_default();
        steps.push((expanded, line));
    }
    places.push(at);

    let mut guarded = Instructions::new(program.name(), program.source());
    for (expanded, line) in steps {
        for mut instruction in expanded {
            match &mut instruction {
                Instruction::Jump(target)
                | Instruction::JumpIfFalse(target)
                | Instruction::JumpIfFalseOrPop(target)
                | Instruction::JumpIfTrueOrPop(target)
                | Instruction::Iterate(target)
                | Instruction::BuildMacro(_, target, _) => *target = places[*target as usize],
                _ => {}
            }
            guarded.add_with_line(instruction, line.try_into().unwrap_or(u16::MAX));
        }
    }
    Ok(guarded)
}

fn expand<'a>(instruction: &Instruction<'a>) -> Result<Vec<Instruction<'a>>, Error> {
    use Instruction as I;
    let filter = |name, arguments: u16| I::ApplyFilter(name, Some(arguments), !0);
    let weigh = || filter("<weigh>", 1);
    let named = |what, name: &'a str, arguments: u16| {
        vec![I::LoadConst(Value::from(name)), filter(what, arguments + 1), weigh()]
    };
    let one = instruction.clone();
    Ok(match instruction {
        // Text that the template itself writes also goes through the formatter.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::GetItem => vec![I::Swap, filter("<outside>", 1), I::Swap, one],
        I::SetAttr(_) => vec![I::Swap, filter("<keep>", 1), I::Swap, one],
        I::PushLoop(_) => vec![filter("<loop>", 1), one],
        I::Slice => vec![filter("<slice>", 4), weigh()],
        I::StringConcat => vec![filter("<concat>", 2), weigh()],
        I::Add | I::Sub | I::Mul | I::Div | I::IntDiv | I::Rem | I::Pow => {
            vec![weigh(), I::Swap, weigh(), I::Swap, one, weigh()]
        }
        I::Eq | I::Ne | I::CompareAndPreserve(_) => {
            vec![weigh(), I::Swap, weigh(), I::Swap, one]
        }
        I::Lt => named("<compare>", "<", 2),
        I::Lte => named("<compare>", "<=", 2),
        I::Gt => named("<compare>", ">", 2),
        I::Gte => named("<compare>", ">=", 2),
        I::In => named("<compare>", "in", 2),
        I::ApplyFilter(name, Some(arguments), _) => named("<filter>", name, *arguments),
        I::PerformTest(name, Some(arguments), _) => named("<test>", name, *arguments),
        I::CallMethod(name, Some(arguments)) => named("<method>", name, *arguments),
        I::BuildMap(_)
        | I::BuildList(_)
        | I::BuildTuple(_)
        | I::CallFunction(_, Some(_))
        | I::CallObject(Some(_))
        | I::EndCapture => vec![one, weigh()],
        I::ApplyFilter(..)
        | I::PerformTest(..)
        | I::CallMethod(..)
        | I::CallFunction(..)
        | I::CallObject(..)
        | I::UnpackLists(_) => return Err(unsupported("*arguments")),
        I::PushAutoEscape | I::PopAutoEscape => return Err(unsupported("autoescape")),
        I::FastSuper | I::CallBlock(_) | I::LoadBlocks | I::Include(_) | I::ExportLocals => {
            return Err(unsupported("block, extends, include and import"));
        }
        _ => vec![one],
    })
}

fn unsupported(what: &str) -> Error {
    Error::new(ErrorKind::SyntaxError, format!("chat templates cannot use {what}"))
}

/// Adds the filters that [`guarded`] programs use.
pub(super) fn add_guards(environment: &mut Environment<'static>) {
    let weighed = |state: &mut State, value: Value| weigh(state, &value).map(|()| value);
    environment.add_filter("<weigh>", weighed);
    environment.add_filter("<outside>", |state: &mut State, value: Value| {
        weigh_outside(state, &value).map(|()| value)
    });
    environment.add_filter("<loop>", looped);
    environment.add_filter("<compare>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (operator, sides) = called(state, &all)?;
        python::compare(state, operator, sides)
    });
    // The value is weighed as a list's item. A namespace in a namespace would be one inside another value.
    environment.add_filter("<keep>", |state: &mut State, value: Value| {
        weigh(state, &Value::from(vec![value.clone()])).map(|()| value)
    });
    environment.add_filter("<concat>", concat);
    environment.add_filter("<slice>", slice);
    environment.add_filter("<filter>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (name, arguments) = called(state, &all)?;
        let mut arguments = arguments.to_vec();
        let is_alone = !arguments.iter().any(Value::is_kwargs);
        if let Some(first) = arguments.first_mut() {
            *first = python::received(name, first, is_alone)?;
        }
        state.apply_filter(name, &arguments)
    });
    environment.add_filter("<test>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (name, arguments) = called(state, &all)?;
        state.perform_test(name, arguments)
    });
    environment.add_filter("<method>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (name, arguments) = called(state, &all)?;
        let [receiver, arguments @ ..] = arguments else { return Err(too_much()) };
        receiver.call_method(state, name, arguments)
    });
}

/// Returns the name and the arguments of a call, weighed.
fn called<'a>(state: &mut State, all: &'a [Value]) -> Result<(&'a str, &'a [Value]), Error> {
    let Some((name, arguments)) = all.split_last() else { return Err(too_much()) };
    let name = name.as_str().unwrap_or_default();
    let harmless = ["defined", "undefined", "none", "string", "mapping", "iterable", "number"];
    if !harmless.contains(&name) {
        for argument in arguments {
            weigh(state, argument)?;
        }
    }
    charge(state, growth(name, arguments)?)?;
    Ok((name, arguments))
}

/// Returns the size that a call may make beyond the size of its arguments.
fn growth(name: &str, arguments: &[Value]) -> Result<usize, Error> {
    let text = |place: usize| arguments.get(place).and_then(Value::as_str).unwrap_or_default();
    let all: usize = arguments.iter().map(length).sum();
    Ok(match name {
        "replace" => text(0).matches(text(1)).count().saturating_mul(text(2).len()),
        // The filter `join` has the items first, the method `join` the separator.
        "join" => {
            let items = arguments.iter().map(length).max().unwrap_or_default();
            let separator = text(1).len().max(text(0).len());
            let either = items.saturating_mul(separator);
            let is_filter = arguments.first().is_some_and(|first| first.as_str().is_none());
            let exact = |items: usize, separator: usize| {
                arguments.get(items).map_or(0, length).saturating_mul(text(separator).len())
            };
            if is_filter { exact(0, 1) } else { either.min(exact(1, 0)) }
        }
        "indent" => {
            let number = |value: &Value| value.as_usize().unwrap_or_default();
            let named = |value: &Value| value.get_attr("width").map(|width| number(&width));
            let width =
                arguments.iter().skip(1).map(|value| number(value).max(named(value).unwrap_or(0)));
            text(0).lines().count().saturating_mul(width.max().unwrap_or_default())
        }
        "format" => {
            let places = text(0).bytes().filter(|byte| b"{%".contains(byte)).count();
            // A width could be any number.
            if text(0).bytes().any(|byte| byte.is_ascii_digit() || b"*:".contains(&byte)) {
                return Err(unsupported("format with a width"));
            }
            places.saturating_mul(all)
        }
        "map" if ["replace", "join", "indent", "format"].contains(&text(1)) => {
            return Err(unsupported("map with a filter that makes its input longer"));
        }
        "batch" | "slice" | "pprint" | "urlencode" | "center" | "wordwrap" => {
            return Err(unsupported(name));
        }
        _ => 0,
    })
}

fn concat(state: &mut State, left: Value, right: Value) -> Result<Value, Error> {
    weigh(state, &left)?;
    weigh(state, &right)?;
    Ok(Value::from(print(&left) + &print(&right)))
}

fn slice(
    state: &mut State,
    value: Value,
    start: Value,
    stop: Value,
    step: Value,
) -> Result<Value, Error> {
    weigh_outside(state, &value)?;
    python::slice(&value, &start, &stop, &step)
}

/// Returns the value that a loop goes over. A text becomes its characters, so that the loop knows which is the
/// last.
fn looped(state: &mut State, value: Value) -> Result<Value, Error> {
    weigh_outside(state, &value)?;
    match value.as_str() {
        Some(text) => {
            charge(state, ITEM * text.len())?;
            Ok(text.chars().map(Value::from).collect())
        }
        None if value.is_none() => Err(python::not_iterable()),
        None => Ok(value),
    }
}
