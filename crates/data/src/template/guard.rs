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

/// Limit on a template, in bytes. Published templates have up to some 20 kB.
const MAX_SOURCE: usize = 256 << 10;
/// Limit on the tokens of one tag, and on the tags that continue an `if`. Both nest in the compiler, which recurses:
/// a sum of 100,000 terms overflowed its stack.
const MAX_TOKENS: usize = 500;
/// Limit on a number that a constant is multiplied with, and on the size of all such products together.
const MAX_FACTOR: u64 = 1000;
const MAX_PRODUCTS: u64 = 64 << 20;

/// Refuses a source that could harm the parser or the compiler, which know no limits of their own.
pub(super) fn check_source(source: &str, syntax: SyntaxConfig) -> Result<(), Error> {
    let refuse = |problem: &'static str| Err(Error::new(ErrorKind::SyntaxError, problem));
    if source.len() > MAX_SOURCE {
        return refuse("the template is longer than 256 KiB");
    }

    let mut tokens = 0;
    let mut branches = 0;
    let mut products = 0_u32;
    let mut all_products = 0_u64;
    let mut characters = 0_u64;
    let mut largest = 0_u64;

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
                    return refuse("the template multiplies by large numbers");
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
/// Fuel bounds how many instructions run, although one instruction can double a text, and forty of those fill any
/// memory. The interpreter has no hook at its operators, so each instruction that can make or read something large
/// is put between two filters that weigh it. No template can write the names of these filters. An instruction
/// makes nothing larger than its inputs, except for a product (which the interpreter ends at 100 MB) and a few
/// filters, whose [`growth`] is computed beforehand.
pub(super) fn guarded<'a>(program: &Instructions<'a>) -> Result<Instructions<'a>, Error> {
    let mut steps: Vec<(Vec<Instruction<'a>>, usize)> = Vec::new();
    let mut length: u32 = 0;
    // The index of each instruction in the new program, for the jumps to it.
    let mut starts = Vec::new();

    while let Some(instruction) = program.get(steps.len() as u32) {
        starts.push(length);
        let expanded = expand(instruction)?;
        length += expanded.len() as u32;
        let line = program.get_line(steps.len() as u32).unwrap_or_default();
        steps.push((expanded, line));
    }
    starts.push(length);

    let mut guarded = Instructions::new(program.name(), program.source());
    for (expanded, line) in steps {
        for mut instruction in expanded {
            match &mut instruction {
                Instruction::Jump(target)
                | Instruction::JumpIfFalse(target)
                | Instruction::JumpIfFalseOrPop(target)
                | Instruction::JumpIfTrueOrPop(target)
                | Instruction::Iterate(target)
                | Instruction::BuildMacro(_, target, _) => *target = starts[*target as usize],
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
    let named_call = |what, name: &'a str, arguments: u16| {
        vec![I::LoadConst(Value::from(name)), filter(what, arguments + 1), weigh()]
    };
    let original = instruction.clone();

    Ok(match instruction {
        // Text that the template itself writes also goes through the formatter.
        I::EmitRaw(text) => vec![I::LoadConst(Value::from(*text)), I::Emit],
        I::GetItem => vec![I::Swap, filter("<outside>", 1), I::Swap, original],
        I::SetAttr(_) => vec![I::Swap, filter("<keep>", 1), I::Swap, original],
        I::PushLoop(_) => vec![filter("<loop>", 1), original],
        I::Slice => vec![filter("<slice>", 4), weigh()],
        I::StringConcat => vec![filter("<concat>", 2), weigh()],
        I::Add | I::Sub | I::Mul | I::Div | I::IntDiv | I::Rem | I::Pow => {
            vec![weigh(), I::Swap, weigh(), I::Swap, original, weigh()]
        }
        I::Eq | I::Ne | I::CompareAndPreserve(_) => {
            vec![weigh(), I::Swap, weigh(), I::Swap, original]
        }

        I::Lt => named_call("<compare>", "<", 2),
        I::Lte => named_call("<compare>", "<=", 2),
        I::Gt => named_call("<compare>", ">", 2),
        I::Gte => named_call("<compare>", ">=", 2),
        I::In => named_call("<compare>", "in", 2),
        I::ApplyFilter(name, Some(arguments), _) => named_call("<filter>", name, *arguments),
        I::PerformTest(name, Some(arguments), _) => named_call("<test>", name, *arguments),
        I::CallMethod(name, Some(arguments)) => named_call("<method>", name, *arguments),

        I::BuildMap(_)
        | I::BuildList(_)
        | I::BuildTuple(_)
        | I::CallFunction(_, Some(_))
        | I::CallObject(Some(_))
        | I::EndCapture => vec![original, weigh()],

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
        _ => vec![original],
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
        let (operator, sides) = unpack_call(state, &all)?;
        python::compare(state, operator, sides)
    });

    // The value is weighed as a list's item, which refuses a namespace inside a namespace.
    environment.add_filter("<keep>", |state: &mut State, value: Value| {
        weigh(state, &Value::from(vec![value.clone()])).map(|()| value)
    });
    environment.add_filter("<concat>", concat);
    environment.add_filter("<slice>", slice);

    environment.add_filter("<filter>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (name, arguments) = unpack_call(state, &all)?;
        let mut arguments = arguments.to_vec();
        let is_alone = !arguments.iter().any(Value::is_kwargs);
        if let Some(first) = arguments.first_mut() {
            *first = python::received(name, first, is_alone)?;
        }
        state.apply_filter(name, &arguments)
    });

    environment.add_filter("<test>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (name, arguments) = unpack_call(state, &all)?;
        state.perform_test(name, arguments)
    });

    environment.add_filter("<method>", |state: &mut State, all: Rest<ValueOrKwargs>| {
        let all = all.into_values();
        let (name, arguments) = unpack_call(state, &all)?;
        let [receiver, arguments @ ..] = arguments else { return Err(too_much()) };
        receiver.call_method(state, name, arguments)
    });
}

/// Returns the name and the arguments of a call, weighed.
fn unpack_call<'a>(
    state: &mut State,
    stacked: &'a [Value],
) -> Result<(&'a str, &'a [Value]), Error> {
    let Some((name, arguments)) = stacked.split_last() else { return Err(too_much()) };
    let name = name.as_str().unwrap_or_default();
    // These tests look at a value's kind alone, however large the value is.
    let harmless = ["defined", "undefined", "none", "string", "mapping", "iterable", "number"];
    if !harmless.contains(&name) {
        for argument in arguments {
            weigh(state, argument)?;
        }
    }

    charge(state, growth(name, arguments)?)?;
    Ok((name, arguments))
}

/// Returns how much a call may make beyond the size of its arguments.
fn growth(name: &str, arguments: &[Value]) -> Result<usize, Error> {
    let text = |index: usize| arguments.get(index).and_then(Value::as_str).unwrap_or_default();
    let total_length: usize = arguments.iter().map(length).sum();

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
            let gaps = text(0).bytes().filter(|byte| b"{%".contains(byte)).count();
            // A width could be any number.
            if text(0).bytes().any(|byte| byte.is_ascii_digit() || b"*:".contains(&byte)) {
                return Err(unsupported("format with a width"));
            }
            // Each gap may take the longest argument.
            gaps.saturating_mul(total_length)
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

/// Returns the value that a loop goes over. A text becomes a list of its characters, so that the loop knows the last.
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
