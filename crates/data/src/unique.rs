//! A set of problems without repeated questions, and without questions with conflicting references.

use std::{
    collections::{HashMap, HashSet},
    hash::{BuildHasher as _, RandomState},
};

use crate::{problem::Problem, row::Origin};

/// How many conflicts are shown to a person.
const SHOWN: usize = 3;

/// How many characters of a question or a reference are shown.
const CLIP: usize = 60;

/// Problems of a data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProblemSet {
    /// Problems to use, in the order of the files. An id is a row's index among all rows.
    pub problems: Vec<Problem>,
    /// Rows left out because an earlier row has the same question and the same reference.
    pub duplicates: usize,
    /// Rows left out because another row has the same question and another reference.
    pub conflicting: usize,
    /// A message for a person about the conflicting rows, with the first of them.
    pub note: Option<String>,
}

/// Counts the problems of `others` whose question is also one of `problems`, however either of them writes it.
pub fn shared_questions(problems: &[impl AsRef<Problem>], others: &[Problem]) -> usize {
    // Hashes take less memory than a second copy of all questions, and hardly ever count one too many.
    let hasher = RandomState::new();
    let hash = |problem: &Problem| hasher.hash_one(problem.question.asked());

    let questions: HashSet<u64> = problems.iter().map(|problem| hash(problem.as_ref())).collect();
    others.iter().filter(|other| questions.contains(&hash(other))).count()
}

/// Collects problems. It keeps the first problem of each question and nothing of the rest, so a data set with few
/// questions may be far larger than memory.
pub(crate) struct Collector {
    deduplicate: bool,
    kept: Vec<Kept>,
    /// Indices in `kept` by the hash of the question. A hash nearly always has one index.
    indices: HashMap<u64, Vec<usize>>,
    hasher: RandomState,
    conflicts: Vec<Conflict>,
}

struct Kept {
    problem: Problem,
    /// Number of rows with this question.
    rows: usize,
    conflicting: bool,
}

/// A conflict between a question's first reference and a row with another reference.
struct Conflict {
    kept: usize,
    origin: Option<Origin>,
    reference: String,
}

impl Collector {
    pub(crate) fn new(deduplicate: bool) -> Self {
        Collector {
            deduplicate,
            kept: Vec::new(),
            indices: HashMap::new(),
            hasher: RandomState::new(),
            conflicts: Vec::new(),
        }
    }

    /// Adds a problem, or counts it if its question is known.
    pub(crate) fn add(&mut self, problem: Problem) {
        if let Some(index) = self.earlier(&problem) {
            let kept = &mut self.kept[index];
            kept.rows += 1;
            // The first conflict of a question is enough for the note.
            if !kept.conflicting && kept.problem.reference != problem.reference {
                kept.conflicting = true;
                let Problem { reference, origin, .. } = problem;
                self.conflicts.push(Conflict { kept: index, origin, reference });
            }
            return;
        }
        self.kept.push(Kept { problem, rows: 1, conflicting: false });
    }

    /// Finds the index of a kept problem with the same question. If there is none, remembers the index that this
    /// problem is going to have.
    fn earlier(&mut self, problem: &Problem) -> Option<usize> {
        if !self.deduplicate {
            return None;
        }

        let question = problem.question.text();
        let indices = self.indices.entry(self.hasher.hash_one(&question)).or_default();
        // Two questions may share a hash, so the texts are compared as well.
        let same = |index: &usize| self.kept[*index].problem.question.text() == question;
        let earlier = indices.iter().copied().find(same);

        if earlier.is_none() {
            indices.push(self.kept.len());
        }
        earlier
    }

    pub(crate) fn finish(self) -> ProblemSet {
        let note = self.note();

        let mut set = ProblemSet { note, ..ProblemSet::default() };
        for kept in self.kept {
            if kept.conflicting {
                set.conflicting += kept.rows;
            } else {
                set.duplicates += kept.rows - 1;
                set.problems.push(kept.problem);
            }
        }
        set
    }

    fn note(&self) -> Option<String> {
        let count = self.conflicts.len();
        if count == 0 {
            return None;
        }

        let examples = self.conflicts.iter().take(SHOWN).map(|conflict| {
            let kept = &self.kept[conflict.kept];
            let question = clip(&kept.problem.question.text());
            let first_reference = clip(&kept.problem.reference);
            let other_reference = clip(&conflict.reference);
            let position = |origin: &Option<Origin>| match origin {
                Some(Origin { file, position }) => {
                    format!("{}, {position}", file.file_name().unwrap_or_default().display())
                }
                None => "a problem without a file".into(),
            };

            let first_position = position(&kept.problem.origin);
            let other_position = position(&conflict.origin);
            format!("\n  {question}: {first_reference} in {first_position}; {other_reference} in {other_position}")
        });

        let questions =
            if count == 1 { "1 question comes" } else { &format!("{count} questions come") };
        let heading = format!("{questions} with different reference answers, and are left out");
        let heading = if count == 1 { heading.replace("are left", "is left") } else { heading };
        let introduction = if count > SHOWN { "; the first:" } else { ":" };

        Some(heading + introduction + &examples.collect::<String>())
    }
}

/// Puts a text on one line, cut, without characters that would move a terminal's cursor.
fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(CLIP).flat_map(char::escape_debug).collect();
    if text.chars().nth(CLIP).is_some() {
        clipped.push('…');
    }
    format!("\"{clipped}\"")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{Position, Question};

    fn collect(rows: &[(&str, &str)], deduplicate: bool) -> ProblemSet {
        let mut collector = Collector::new(deduplicate);
        for ((question, reference), id) in rows.iter().zip(0..) {
            let question = Question::Text(question.to_string());
            let reference = reference.to_string();
            let file = Path::new("data/set.parquet").into();
            let origin = Some(Origin { file, position: Position::Row(id + 1) });
            collector.add(Problem { reference, origin, ..Problem::new(id, question) });
        }
        collector.finish()
    }

    /// Rows that differ only in their notation are different rows, and yet the same question.
    #[test]
    fn a_question_is_shared_in_any_notation() {
        let problem = |line: &str| {
            let fields = crate::number::parse(line.as_bytes()).unwrap();
            let file = Path::new("set.jsonl").into();
            let row = crate::Row { file, position: Position::Line(1), fields };
            let columns = crate::ColumnNames::default().find(&row).unwrap();
            [Problem::from_row(&row, 0, &columns).unwrap()]
        };

        let asked = problem(r#"{"prompt": "Is \u00e9\nnear 2?", "answer": 1}"#);
        for same in [
            r#"{"prompt": "  Is \u00E9   near\t2?\r\n", "answer": 1}"#,
            r#"{"prompt": "Is e\u0301 near 2?", "answer": 1}"#,
            r#"{"prompt": [{"role": "user", "content": "Is \u00e9 near 2?"}], "answer": 1}"#,
            r#"{"prompt": [{"content": [{"type": "text", "text": "Is \u00e9 near 2?"}], "role": "user"}], "answer": 1}"#,
            r#"{"prompt": "[{\"role\": \"user\", \"content\": \"Is \\u00E9 near 2?\"}]", "answer": 1}"#,
            r#"{"prompt": [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Is \u00e9 near 2?"}, {"role": "assistant", "content": "It"}], "answer": 1}"#,
        ] {
            let other = problem(same);
            assert_eq!(shared_questions(&asked, &other), 1, "{same}");
            assert_eq!(shared_questions(&other, &asked), 1, "{same}");
        }

        for another in [
            r#"{"prompt": "Is \u00e9 near 2\u00b2?", "answer": 1}"#,
            r#"{"prompt": "Is \u00e9near 2?", "answer": 1}"#,
            r#"{"prompt": "is \u00e9 near 2?", "answer": 1}"#,
            r#"{"prompt": [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": "Is \u00e9 near 2?"}], "answer": 1}"#,
            r#"{"prompt": [{"role": "system", "content": "Is \u00e9 near 2?"}], "answer": 1}"#,
        ] {
            assert_eq!(shared_questions(&asked, &problem(another)), 0, "{another}");
        }
    }

    #[test]
    fn a_question_is_kept_once_and_a_contradiction_not_at_all() {
        let rows = [("a", "1"), ("b", "2"), ("a", "1"), ("c\n", "3"), ("c\n", "4"), ("c\n", "3")];
        let set = collect(&rows, true);
        assert_eq!(set.problems.iter().map(|problem| problem.id).collect::<Vec<_>>(), [0, 1]);

        assert_eq!((set.duplicates, set.conflicting), (1, 3));
        assert_eq!(
            set.note.unwrap(),
            "1 question comes with different reference answers, and is left out:\n  \"c\\n\": \"3\" \
             in set.parquet, row 4; \"4\" in set.parquet, row 5"
        );

        let all = collect(&rows, false);
        assert_eq!((all.problems.len(), all.duplicates, all.conflicting), (6, 0, 0));
        assert_eq!(all.note, None);
    }
}
