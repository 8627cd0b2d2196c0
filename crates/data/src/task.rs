//! Generators of problems, with training and held-out problems kept apart.

mod arithmetic;
mod countdown;
mod functions;
mod words;

use std::{cmp::Ordering, collections::HashSet};

use firebrick_core::Seed;
use rand::{Rng, RngExt};
use serde::{Deserialize, Serialize};

use crate::{DataError, Problem, Question};

/// Share of all problems that training never sees.
const HELDOUT_SHARE: f64 = 0.1;

/// How many draws in a row may give nothing new. Then drawing stops: the task has no more.
const MAX_MISSES: u32 = 10_000;

/// A generator of problems with known answers, for runs that need no data set.
///
/// Every problem belongs either to training or to the held-out tenth. Its split follows from the problem alone,
/// whatever the seed, the settings and the order of drawing. It is the same for `47+85=` and `85+47=`, so no
/// held-out answer can be learnt from its twin.
///
/// The characters of the task's texts are [`Task::alphabet`]. The worked solutions announce their answer with
/// [`Task::marker`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Task {
    /// Additions such as `47+85=`, to be answered with `132`. A worked solution goes column by column from the
    /// right, with the carry as third summand and sums of two digits: `7+5+0=12,4+8+1=13;132`.
    Addition {
        /// The maximum number of digits of a summand, 1 to 18. Every number of digits is equally likely.
        digits: u32,
        /// True if a solution shows its working before the answer.
        #[serde(default)]
        worked: bool,
        /// The share of worked solutions, in `[0, 1]`, that are worked twice. `?` stands between the two workings.
        /// In half of these solutions the first working has a slip.
        #[serde(default)]
        second_look: f64,
    },
    /// Multiplications such as `47*85=`, to be answered with `3995`. A worked solution goes digit by digit of the
    /// right factor from its right, with the running sum: `47*5=235,47*80=3760,235+3760=3995;3995`.
    Multiplication {
        /// The maximum number of digits of a factor, 1 to 9. Every number of digits is equally likely.
        digits: u32,
        /// True if a solution shows its working before the answer.
        #[serde(default)]
        worked: bool,
    },
    /// The numbers game, such as `3 7 25:96=`, to be answered with an expression of all the numbers, such as
    /// `(7+25)*3`. The reference is `3 7 25 : 96`. Numbers are sorted. There is always a solution in which every
    /// intermediate result is whole and between 1 and `max_target`.
    Countdown {
        /// The number of given numbers, 2 to 16.
        numbers: u32,
        /// The largest given number, from 1.
        max_number: u64,
        /// The largest target, from `max_number` to 10⁹.
        max_target: u64,
    },
    /// Questions such as `What is 70 + 41?`, to be answered in any words. The worked solution is `70 + 41 = 111.`
    Sums {
        /// The digits of each number, 1 to 9.
        digits: u32,
        /// True if half of the problems are differences instead, such as `What is 83 - 27?`, never below 0.
        #[serde(default)]
        differences: bool,
    },
    /// Stories about somebody's things, such as
    /// `Mia has 14 apples. She buys 3 bags with 6 apples in each. How many apples does Mia have now?`.
    /// The worked solution is `3 * 6 = 18, 14 + 18 = 32. The answer is 32.`
    ///
    /// Stories with the same numbers in the same order, about other people and things, are in the same split.
    WordProblems {
        /// The number of operations that an answer takes, 1 to 10.
        steps: u32,
        /// The minimum number of operations that an answer takes, 1 to `steps`. If set, every number of operations from
        /// here to `steps` is equally likely.
        #[serde(default)]
        fewest_steps: Option<u32>,
    },
    /// Functions of a whole number, such as `add 3, square:`, to be written in Python: `def f(x): return (x+3)**2`. The
    /// reference has tests, for a verifier that runs programs.
    Functions {
        /// The largest number of operations, 1 to 4. Every number of them is equally likely.
        operations: u32,
    },
    /// Games such as `2-7:`, in which a number from 2 to 7 is to be guessed in several turns. The reference is the
    /// number. The worked solution is the middle of the numbers that are left, and the reply to it, turn by turn:
    /// `4>6`. A range and its number are one problem, and the range alone tells nothing.
    Guessing {
        /// The count of possible numbers, 2 to 10. They begin at 0.
        numbers: u32,
    },
}

impl Task {
    /// Returns every character of the task's texts, for [`Tokenizer::characters`](crate::Tokenizer).
    pub fn alphabet(&self) -> &'static str {
        match self {
            Task::Addition { second_look, .. } if *second_look > 0.0 => "0123456789+=,;?",
            Task::Addition { .. } => "0123456789+=,;",
            Task::Multiplication { .. } => "0123456789*+=,;",
            Task::Countdown { .. } => "0123456789+-*/()=: ",
            Task::Sums { .. } => "0123456789+-= Whatis?.",
            Task::Functions { .. } => "0123456789+-*/()=:, abcdefilmnpqrstuvxy",
            Task::Guessing { .. } => "0123456789-:<>",
            Task::WordProblems { .. } => {
                "0123456789+-*/= .,?abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
            }
        }
    }

    /// Returns the marker that announces the answer in a solution, for the verifier to look for. Returns `None` if
    /// the whole completion is the answer.
    pub fn marker(&self) -> Option<&'static str> {
        match self {
            Task::Addition { worked: true, .. } | Task::Multiplication { worked: true, .. } => {
                Some(";")
            }
            _ => None,
        }
    }

    /// Makes up to `count` different problems for training, in an order that `seed` gives. There are fewer if the
    /// task has no more.
    ///
    /// # Errors
    /// Fails if the task's settings are out of their ranges, or leave no problem.
    pub fn train(&self, seed: Seed, count: usize) -> Result<Vec<Problem>, DataError> {
        self.distinct(seed.derive("train problems", &[]), count, |share| share >= HELDOUT_SHARE)
    }

    /// Makes up to `count` different problems that training never sees. They are always the same problems, so that
    /// runs can be compared.
    ///
    /// # Errors
    /// Fails as [`Task::train`] does.
    pub fn heldout(&self, count: usize) -> Result<Vec<Problem>, DataError> {
        let seed = Seed::run(0).derive("held-out problems", &[]);
        self.distinct(seed, count, |share| share < HELDOUT_SHARE)
    }

    fn distinct(
        &self,
        seed: Seed,
        count: usize,
        belongs: impl Fn(f64) -> bool,
    ) -> Result<Vec<Problem>, DataError> {
        self.check()?;

        let mut problems = Vec::new();
        let mut seen_ids = HashSet::new();
        let mut misses = 0;

        for draw in 0.. {
            if problems.len() >= count || misses >= MAX_MISSES {
                break;
            }
            let sketch = self.sketch(seed.derive("problem", &[draw]));
            let key = Seed::run(0).derive(self.name(), &sketch.key);

            // A hidden number is not part of the prompt.
            let words = match self {
                Task::Guessing { .. } => &sketch.key[..],
                _ => &[],
            };

            // The id tells a prompt, while the key tells its problem: `47+85=` and `85+47=` share one key.
            let id = Seed::run(0).derive(&sketch.prompt, words).rng().next_u64();
            if belongs(key.stream().uniform_at(0)) && seen_ids.insert(id) {
                misses = 0;
                problems.push(Problem {
                    reference: sketch.reference,
                    worked: Some(sketch.worked),
                    ..Problem::new(id, Question::Text(sketch.prompt))
                });
            } else {
                misses += 1;
            }
        }

        if problems.is_empty() && count > 0 {
            let problem =
                "its settings give no problem for this split; choose settings with more problems"
                    .to_owned();
            return Err(DataError::Task { task: self.name(), problem });
        }

        Ok(problems)
    }

    fn sketch(&self, seed: Seed) -> Sketch {
        let mut rng = seed.rng();
        match *self {
            Task::Addition { digits, worked, second_look } => {
                let chain = worked.then_some(second_look);
                arithmetic::addition(&mut rng, digits, chain)
            }
            Task::Multiplication { digits, worked } => {
                arithmetic::multiplication(&mut rng, digits, worked)
            }
            Task::Countdown { numbers, max_number, max_target } => {
                countdown::countdown(&mut rng, numbers, max_number, max_target)
            }
            Task::Sums { digits, differences } => words::sum(&mut rng, digits, differences),
            Task::WordProblems { steps, fewest_steps } => {
                let steps = rng.random_range(fewest_steps.unwrap_or(steps)..=steps);
                words::story(&mut rng, steps)
            }
            Task::Functions { operations } => functions::function(&mut rng, operations),
            Task::Guessing { numbers } => guessing(&mut rng, numbers),
        }
    }

    fn check(&self) -> Result<(), DataError> {
        let problem = match *self {
            Task::Addition { digits, .. } if !(1..=18).contains(&digits) => {
                format!("`digits` is {digits}, and should be 1 to 18")
            }
            Task::Addition { second_look, worked, .. }
                if !(0.0..=1.0).contains(&second_look) || (second_look > 0.0 && !worked) =>
            {
                format!(
                    "`second_look` is {second_look}, and should be 0 to 1, and 0 unless `worked` is \
                     true"
                )
            }
            Task::Multiplication { digits, .. } | Task::Sums { digits, .. }
                if !(1..=9).contains(&digits) =>
            {
                format!("`digits` is {digits}, and should be 1 to 9")
            }
            Task::Functions { operations } if !(1..=4).contains(&operations) => {
                format!("`operations` is {operations}, and should be 1 to 4")
            }
            Task::Guessing { numbers } if !(2..=10).contains(&numbers) => {
                format!("`numbers` is {numbers}, and should be 2 to 10")
            }
            Task::WordProblems { steps, .. } if !(1..=10).contains(&steps) => {
                format!("`steps` is {steps}, and should be 1 to 10")
            }
            Task::WordProblems { steps, fewest_steps: Some(fewest) }
                if !(1..=steps).contains(&fewest) =>
            {
                format!("`fewest_steps` is {fewest}, and should be 1 to `steps`, which is {steps}")
            }
            Task::Countdown { numbers, .. } if !(2..=16).contains(&numbers) => {
                format!("`numbers` is {numbers}, and should be 2 to 16")
            }
            Task::Countdown { max_number, max_target, .. }
                if max_number < 1
                    || max_target < max_number.max(2)
                    || max_target > 1_000_000_000 =>
            {
                format!(
                    "`max_number` is {max_number}, and should be at least 1; `max_target` is \
                     {max_target}, and should be at least 2 and `max_number`, at most 1000000000"
                )
            }
            _ => return Ok(()),
        };

        Err(DataError::Task { task: self.name(), problem })
    }

    fn name(&self) -> &'static str {
        match self {
            Task::Addition { .. } => "addition",
            Task::Multiplication { .. } => "multiplication",
            Task::Countdown { .. } => "countdown",
            Task::Sums { .. } => "sums",
            Task::WordProblems { .. } => "word_problems",
            Task::Functions { .. } => "functions",
            Task::Guessing { .. } => "guessing",
        }
    }
}

/// A problem as a generator makes it.
struct Sketch {
    /// Problems that give each other away have the same key.
    key: Vec<u64>,
    prompt: String,
    reference: String,
    worked: String,
}

/// Makes a range and a number in it, with the halving that finds the number.
fn guessing(rng: &mut impl Rng, numbers: u32) -> Sketch {
    let low = rng.random_range(0..numbers - 1);
    let high = rng.random_range(low + 1..numbers);
    let secret = rng.random_range(low..=high);

    let mut min_guess = low;
    let mut max_guess = high;
    let mut worked = String::new();
    loop {
        let guess = min_guess.midpoint(max_guess);
        worked += &guess.to_string();
        match secret.cmp(&guess) {
            Ordering::Equal => break,
            Ordering::Less => (max_guess, worked) = (guess - 1, worked + "<"),
            Ordering::Greater => (min_guess, worked) = (guess + 1, worked + ">"),
        }
    }

    Sketch {
        key: [low, high, secret].map(u64::from).to_vec(),
        prompt: format!("{low}-{high}:"),
        reference: secret.to_string(),
        worked,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tokenizer;

    fn tasks() -> Vec<Task> {
        vec![
            Task::Addition { digits: 2, worked: true, second_look: 0.0 },
            Task::Addition { digits: 3, worked: true, second_look: 0.5 },
            Task::Addition { digits: 18, worked: false, second_look: 0.0 },
            Task::Multiplication { digits: 9, worked: true },
            Task::Countdown { numbers: 3, max_number: 9, max_target: 99 },
            Task::Sums { digits: 2, differences: true },
            Task::WordProblems { steps: 3, fewest_steps: Some(1) },
            Task::Functions { operations: 3 },
        ]
    }

    fn text(problem: &Problem) -> &str {
        match &problem.question {
            Question::Text(text) => text,
            Question::Messages(_) => panic!("a task asks in plain text"),
        }
    }

    #[test]
    fn splits_share_no_problem_and_no_twin() {
        let task = Task::Addition { digits: 2, worked: false, second_look: 0.0 };
        let heldout = task.heldout(100_000).unwrap();
        let mut unseen: HashSet<String> = heldout.iter().map(|p| text(p).to_owned()).collect();
        for problem in &heldout {
            let (a, b) = text(problem).trim_end_matches('=').split_once('+').unwrap();
            unseen.insert(format!("{b}+{a}="));
        }

        let train = task.train(Seed::run(7), 100_000).unwrap();
        assert!(train.iter().all(|problem| !unseen.contains(text(problem))));

        // Nearly all of the ten thousand were found, a tenth of them held out.
        assert!((800..1200).contains(&heldout.len()), "{}", heldout.len());
        assert!((8500..9200).contains(&train.len()), "{}", train.len());
    }

    #[test]
    fn problems_are_distinct_and_written_in_the_alphabet() {
        for task in tasks() {
            let tokenizer = Tokenizer::characters(task.alphabet()).unwrap();
            let train = task.train(Seed::run(7), 500).unwrap();
            assert_eq!(train.len(), 500);
            assert_eq!(train.iter().map(|p| p.id).collect::<HashSet<_>>().len(), 500);

            for problem in &train {
                tokenizer.encode(text(problem), false).unwrap();
                tokenizer.encode(problem.solution(), false).unwrap();
                if task.marker() == Some(";") {
                    let (_, answer) = problem.solution().rsplit_once(';').unwrap();
                    assert_eq!(answer, problem.reference);
                }
            }

            assert_eq!(task.train(Seed::run(7), 500).unwrap(), train);
            assert_ne!(task.train(Seed::run(8), 500).unwrap(), train);
        }
    }

    #[test]
    fn a_hidden_number_is_in_its_range_and_found_by_halving() {
        let task = Task::Guessing { numbers: 10 };
        let problems =
            [task.train(Seed::run(7), 1000).unwrap(), task.heldout(1000).unwrap()].concat();
        // The problems are every range of two numbers or more, with every number in it.
        assert_eq!(problems.len(), (2..=10).map(|width| width * (11 - width)).sum::<usize>());
        for problem in &problems {
            let range = text(problem).trim_end_matches(':').split_once('-').unwrap();
            let [low, high, secret] =
                [range.0, range.1, &problem.reference].map(|it| it.parse::<u32>().unwrap());

            assert!(
                (low..=high).contains(&secret) && problem.solution().ends_with(&problem.reference)
            );
            assert!(problem.solution().len() <= 7, "{}", problem.solution());
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        for task in [
            Task::Addition { digits: 0, worked: true, second_look: 0.0 },
            Task::Addition { digits: 2, worked: true, second_look: 1.5 },
            Task::Addition { digits: 2, worked: true, second_look: f64::NAN },
            Task::Addition { digits: 2, worked: false, second_look: 0.5 },
            Task::Multiplication { digits: 10, worked: true },
            Task::Sums { digits: 10, differences: false },
            Task::Functions { operations: 5 },
            Task::Guessing { numbers: 11 },
            Task::WordProblems { steps: 0, fewest_steps: None },
            Task::WordProblems { steps: 2, fewest_steps: Some(3) },
            Task::Countdown { numbers: 1, max_number: 9, max_target: 99 },
            Task::Countdown { numbers: 3, max_number: 0, max_target: 99 },
            Task::Countdown { numbers: 3, max_number: 9, max_target: 8 },
            Task::Countdown { numbers: 16, max_number: 1, max_target: u64::MAX },
        ] {
            assert!(matches!(task.train(Seed::run(7), 1), Err(DataError::Task { .. })), "{task:?}");
        }
    }
}
