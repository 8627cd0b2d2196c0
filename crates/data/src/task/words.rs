//! Generates sums in words, and stories that take several operations to count.

use rand::{Rng, RngExt};

use super::Sketch;

/// Makes a sum in words. With `differences`, half of the problems are differences that are not below 0. Each
/// number has `digits` digits.
pub(super) fn sum(rng: &mut impl Rng, digits: u32, differences: bool) -> Sketch {
    let lowest = if digits == 1 { 0 } else { 10u64.pow(digits - 1) };
    let mut number = || rng.random_range(lowest..10u64.pow(digits));
    let a = number();
    let b = number();

    let larger = a.max(b);
    let smaller = a.min(b);
    let (text, answer, key) = if !differences || rng.random::<bool>() {
        (format!("{a} + {b}"), a + b, 0)
    } else {
        (format!("{larger} - {smaller}"), larger - smaller, 1)
    };

    Sketch {
        key: vec![key, larger, smaller],
        prompt: format!("What is {text}?"),
        reference: answer.to_string(),
        worked: format!("{text} = {answer}."),
    }
}

/// Makes a story about somebody's things, which takes exactly `steps` operations to count.
///
/// Its key is the events with their numbers: other people or other things don't make it another problem.
pub(super) fn story(rng: &mut impl Rng, steps: u32) -> Sketch {
    let (name, pronoun) = NAMES[rng.random_range(0..NAMES.len())];
    let things = THINGS[rng.random_range(0..THINGS.len())];
    let mut count = rng.random_range(5..=40);
    let mut text = format!("{name} has {count} {things}.");
    let mut question = format!("How many {things} does {name} have now?");
    let mut key = vec![count];
    let mut working = Vec::new();

    let mut steps_left = steps;
    while steps_left > 0 {
        let event = Event::draw(rng, count, steps_left);
        steps_left -= event.steps();
        key.extend(event.key());

        let sentence = event.sentence(things);
        match event {
            // At the end, a story may ask for something other than the number of things.
            Event::Shares { .. } | Event::Sells { .. } => {
                question = sentence.replace("{name}", name)
            }
            _ => {
                text.push(' ');
                text.push_str(&sentence.replace("{who}", pronoun));
            }
        }

        count = event.work(count, &mut working);
    }

    Sketch {
        key,
        prompt: format!("{text} {question}"),
        reference: count.to_string(),
        worked: format!("{}. The answer is {count}.", working.join(", ")),
    }
}

/// Limit on the things that anybody has, so that the numbers stay those of a story.
const MOST: u64 = 200;

const NAMES: [(&str, &str); 12] = [
    ("Mia", "She"),
    ("Tom", "He"),
    ("Sara", "She"),
    ("Ben", "He"),
    ("Lena", "She"),
    ("Omar", "He"),
    ("Ruth", "She"),
    ("Ivan", "He"),
    ("Nina", "She"),
    ("Paul", "He"),
    ("Aisha", "She"),
    ("Leo", "He"),
];

const THINGS: [&str; 12] = [
    "apples", "beads", "books", "buttons", "cards", "coins", "cookies", "marbles", "pencils",
    "shells", "stamps", "stickers",
];

/// An event that changes somebody's things.
#[derive(Clone, Copy)]
enum Event {
    Finds {
        more: u64,
    },
    Gives {
        away: u64,
    },
    Buys {
        bags: u64,
        each: u64,
    },
    Doubles,
    Halves,
    /// Ends a story: the things are shared among friends.
    Shares {
        friends: u64,
    },
    /// Ends a story: each thing is sold at this price.
    Sells {
        price: u64,
    },
}

impl Event {
    /// Draws an event that `count` things allow, of at most `steps_left` operations.
    fn draw(rng: &mut impl Rng, count: u64, steps_left: u32) -> Event {
        // This ends, because some things can always be found, or given away if there are very many.
        loop {
            let event = match rng.random_range(0..7) {
                0 => Event::Finds { more: rng.random_range(2..=30) },
                1 => Event::Gives { away: rng.random_range(2..=30) },
                2 => Event::Buys { bags: rng.random_range(2..=6), each: rng.random_range(3..=12) },
                3 => Event::Doubles,
                4 => Event::Halves,
                5 => Event::Shares { friends: rng.random_range(2..=6) },
                _ => Event::Sells { price: rng.random_range(2..=5) },
            };

            if event.possible(count, steps_left) {
                return event;
            }
        }
    }

    fn possible(self, count: u64, steps_left: u32) -> bool {
        self.steps() <= steps_left
            && match self {
                Event::Finds { more } => count + more <= MOST,
                Event::Gives { away } => away < count,
                Event::Buys { bags, each } => count + bags * each <= MOST,
                Event::Doubles => 2 * count <= MOST,
                Event::Halves => count >= 4 && count.is_multiple_of(2),
                Event::Shares { friends } => {
                    steps_left == 1 && count >= 2 * friends && count.is_multiple_of(friends)
                }
                Event::Sells { .. } => steps_left == 1,
            }
    }

    /// Returns the number of operations that the event takes.
    fn steps(self) -> u32 {
        if matches!(self, Event::Buys { .. }) { 2 } else { 1 }
    }

    fn key(self) -> [u64; 3] {
        match self {
            Event::Finds { more } => [0, more, 0],
            Event::Gives { away } => [1, away, 0],
            Event::Buys { bags, each } => [2, bags, each],
            Event::Doubles => [3, 0, 0],
            Event::Halves => [4, 0, 0],
            Event::Shares { friends } => [5, friends, 0],
            Event::Sells { price } => [6, price, 0],
        }
    }

    /// Returns the event as a sentence about `{who}` or, in a question, about `{name}`.
    fn sentence(self, things: &str) -> String {
        match self {
            Event::Finds { more } => format!("{{who}} finds {more} more {things}."),
            Event::Gives { away } => format!("{{who}} gives {away} {things} away."),
            Event::Buys { bags, each } => {
                format!("{{who}} buys {bags} bags with {each} {things} in each.")
            }
            Event::Doubles => format!("{{who}} is given as many {things} again."),
            Event::Halves => format!("{{who}} loses half of the {things}."),
            Event::Shares { friends } => format!(
                "{{name}} shares all the {things} equally among {friends} friends. How many {things} does \
                 each friend get?"
            ),
            Event::Sells { price } => format!(
                "{{name}} sells all the {things} for {price} dollars each. How many dollars does {{name}} \
                 get?"
            ),
        }
    }

    /// Writes the event's operations down, and returns their result.
    fn work(self, count: u64, working: &mut Vec<String>) -> u64 {
        let mut step = |a: u64, operator: char, b: u64, result: u64| {
            working.push(format!("{a} {operator} {b} = {result}"));
            result
        };

        match self {
            Event::Finds { more } => step(count, '+', more, count + more),
            Event::Gives { away } => step(count, '-', away, count - away),
            Event::Buys { bags, each } => {
                let bought = step(bags, '*', each, bags * each);
                step(count, '+', bought, count + bought)
            }
            Event::Doubles => step(count, '*', 2, 2 * count),
            Event::Halves => step(count, '/', 2, count / 2),
            Event::Shares { friends } => step(count, '/', friends, count / friends),
            Event::Sells { price } => step(count, '*', price, count * price),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that stories are worked by their own numbers, in order, with as many operations as were asked for.
    #[test]
    fn a_story_takes_the_steps_asked_for() {
        let mut rng = firebrick_core::Seed::run(7).rng();
        for steps in 1..=6 {
            for _ in 0..300 {
                let sketch = story(&mut rng, steps);
                let (working, answer) = sketch.worked.split_once(". The answer is ").unwrap();
                assert_eq!(working.split(", ").count(), steps as usize, "{}", sketch.worked);

                let result = working.rsplit_once("= ").unwrap().1;
                assert_eq!((result, answer), (&*sketch.reference, &*format!("{result}.")));
                assert!(!sketch.prompt.contains(['{', '}']), "{}", sketch.prompt);
            }
        }
    }

    #[test]
    fn sums_have_the_digits_asked_for() {
        let mut rng = firebrick_core::Seed::run(7).rng();
        let mut signs = [0; 2];
        for _ in 0..500 {
            let sketch = sum(&mut rng, 2, true);
            let text = sketch.prompt.strip_prefix("What is ").unwrap().strip_suffix('?').unwrap();

            let plus = text.contains('+');
            let (a, b) = text.split_once(if plus { " + " } else { " - " }).unwrap();
            let (a, b): (u64, u64) = (a.parse().unwrap(), b.parse().unwrap());

            assert!((10..100).contains(&a) && (10..100).contains(&b), "{text}");
            let answer = if plus { a + b } else { a - b };
            assert_eq!(answer.to_string(), sketch.reference);

            signs[usize::from(plus)] += 1;
        }

        assert!(signs.into_iter().all(|count| count > 200), "{signs:?}");
    }
}
