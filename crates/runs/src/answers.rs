//! Answers that judges have given in a run, in a file of its folder, so that a resumed run asks nothing twice.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};

/// Name of the file in a run's folder. Each of its lines is a JSON object.
const FILE: &str = "judge.jsonl";

/// Limit in bytes of a line. What is longer is damaged.
const LONGEST: u64 = 1 << 16;

/// Answers by their questions. A question has a name, such as its hash.
///
/// A run's folder is made after its judges were tried, so the file is opened as soon as it can be. If the disk refuses it,
/// answers are kept in memory alone, and a resumed run asks again.
#[derive(Debug, Default)]
pub struct AnswerLog {
    folder: Option<PathBuf>,
    content: Mutex<Content>,
}

#[derive(Debug, Default)]
struct Content {
    known: HashMap<String, String>,
    file: Option<File>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    question: String,
    answer: String,
}

impl AnswerLog {
    /// Takes the answers of the run in `folder`. Without a folder, they are kept in memory.
    pub fn new(folder: Option<PathBuf>) -> Self {
        AnswerLog { folder, content: Mutex::default() }
    }

    /// Returns the answer to a question.
    pub fn find(&self, question: &str) -> Option<String> {
        self.content().known.get(question).cloned()
    }

    /// Keeps an answer.
    pub fn keep(&self, question: &str, answer: &str) {
        let mut content = self.content();
        if let Some(file) = &mut content.file {
            write(file, question, answer);
        }
        content.known.insert(question.to_owned(), answer.to_owned());
    }

    fn content(&self) -> MutexGuard<'_, Content> {
        let mut content = self.content.lock().unwrap_or_else(PoisonError::into_inner);
        if content.file.is_none()
            && let Some((mut file, known)) = self.folder.as_deref().and_then(opened)
        {
            content.known.iter().for_each(|(question, answer)| write(&mut file, question, answer));
            content.known.extend(known);
            content.file = Some(file);
        }
        content
    }
}

/// Adds a line in one piece, so that a process that is killed leaves the lines before it whole.
fn write(file: &mut File, question: &str, answer: &str) {
    let line = Line { question: question.to_owned(), answer: answer.to_owned() };
    let mut text = serde_json::to_string(&line).unwrap_or_default();
    text.push('\n');
    // If the disk takes no more, a resumed run asks again.
    let _ = file.write_all(text.as_bytes());
}

/// Opens the file in `folder`, and reads what it has. `None` if there is no such folder, or the disk refuses it.
fn opened(folder: &Path) -> Option<(File, HashMap<String, String>)> {
    let mut file =
        OpenOptions::new().read(true).append(true).create(true).open(folder.join(FILE)).ok()?;

    let mut known = HashMap::new();
    let mut reader = BufReader::new(&file);
    let mut line = Vec::new();
    loop {
        line.clear();
        (&mut reader).take(LONGEST).read_until(b'\n', &mut line).ok()?;
        if line.is_empty() || (line.last() != Some(&b'\n') && (line.len() as u64) < LONGEST) {
            break;
        }
        // What was damaged is asked for again.
        if let Ok(Line { question, answer }) = serde_json::from_slice(&line) {
            known.insert(question, answer);
        }
    }

    // The process may have ended in the middle of a line.
    if !line.is_empty() {
        file.write_all(b"\n").ok()?;
    }
    Some((file, known))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn answers_are_there_again_whatever_broke_off() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("run");
        let open = || AnswerLog::new(Some(folder.clone()));
        let log = open();
        assert_eq!(log.find("a"), None);
        log.keep("a", "yes");
        // The folder is made later.
        fs::create_dir(&folder).unwrap();
        log.keep("b", "a\nsecond \"line\"");
        assert_eq!(open().find("b").as_deref(), Some("a\nsecond \"line\""));

        // The last line was written in part, and one before it is damaged.
        let path = folder.join(FILE);
        let text = fs::read_to_string(&path).unwrap().replacen("{\"question\":\"a\"", "{", 1);
        fs::write(&path, format!("{text}{{\"question\":\"c\",\"")).unwrap();
        let log = open();
        assert_eq!(["a", "c"].map(|question| log.find(question)), [None, None]);
        assert!(log.find("b").is_some());
        log.keep("c", "no");
        assert_eq!(open().find("c").as_deref(), Some("no"));
    }
}
