//! Data sets on this machine: their files, and the problems that are read from them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    csv::{self, CsvRows},
    error::DataError,
    folder,
    jsonl::JsonlRows,
    parquet::ParquetRows,
    part::{Part, data_files, splits},
    problem::{COLUMNS, ColumnNames, Problem},
    row::Row,
    unique::{Collector, ProblemSet},
};

/// How deep folders are searched. The Hub's data sets have two levels.
const DEPTH: usize = 32;

/// How many folders are searched. Links may make many of few.
const FOLDERS: usize = 1 << 14;

/// First bytes of a Parquet file.
const PARQUET: &[u8; 4] = b"PAR1";

/// First bytes of packed files, whatever they are called, and the endings that they should have.
const PACKED: [(&[u8], &str); 4] = [
    (&[0x1f, 0x8b], "gz"),
    (b"PK\x03\x04", "zip"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "zst"),
    (b"BZh", "bz2"),
];

/// Endings of common data files that are not read.
const OTHERS: [&str; 9] = ["arrow", "feather", "xlsx", "pkl", "gz", "zst", "zip", "tar", "bz2"];

/// Finds the files of a data set on this machine: a file, or the files of a folder, sorted. In a folder, a subset
/// or split selects its files. Without either, all data files are taken, and have to be of one split. If `path` is a
/// file, a subset or a split changes nothing.
///
/// # Errors
/// Fails if there is nothing there, or it is not clear which files are meant.
pub fn data_set_files(path: &Path, part: &Part) -> Result<Vec<PathBuf>, DataError> {
    let refused = |problem| DataError::Folder { path: path.to_owned(), problem };
    let read = |source| DataError::Read { path: path.to_owned(), source };
    let is_part_chosen = part.subset.is_some() || part.split.is_some();

    if !fs::metadata(path).map_err(read)?.is_dir() {
        return Ok(vec![path.to_owned()]);
    }

    let mut search = Search::default();
    search.walk(path, "", DEPTH).map_err(read)?;
    if let Some(problem) = search.incomplete {
        return Err(refused(problem));
    }

    search.files.sort_unstable();
    let names: Vec<&str> = search.files.iter().map(String::as_str).collect();

    let chosen = if is_part_chosen {
        part.choose(&names).map_err(refused)?
    } else {
        // A folder may have a .json for other reasons: a model's folder has some.
        let mut data = data_files(&names);
        data.retain(|file| !file.ends_with(".json"));
        match (data.len(), splits(&data)) {
            (0, _) => return Err(refused("it has no .parquet, .jsonl or .csv file".into())),
            (_, splits) if splits.len() > 1 => {
                let splits = splits.join(", ");
                let problem = format!(
                    "it has several splits ({splits}): name one of them, with data.split for training rows, \
                     data.heldout_split for held-out rows and sft.split for examples of SFT"
                );
                return Err(refused(problem));
            }
            _ => data,
        }
    };

    Ok(chosen.into_iter().map(|file| path.join(file)).collect())
}

/// Reads problems from JSON Lines, CSV and Parquet files, row by row. With `deduplicate`, rows with the same question
/// become one problem, and questions with different references are left out. Memory then holds only the problems
/// that are left: DAPO-Math-17k has each of its questions about a hundred times.
///
/// Columns that are not named are found by the layout of the first row.
///
/// # Errors
/// Fails if a file can't be read, a row does not hold what it should, or there are no rows.
pub fn read_problems(
    files: &[PathBuf],
    names: &ColumnNames,
    deduplicate: bool,
) -> Result<ProblemSet, DataError> {
    let mut columns = None;
    let mut collector = Collector::new(deduplicate);

    for (id, row) in (0..).zip(files.iter().flat_map(|file| rows(file))) {
        let row = row?;
        // The first row decides the columns. Later rows have to have them.
        let (columns, passed_over) = match &columns {
            Some(known) => known,
            None => {
                let found = names.find(&row)?;
                let passed_over = names.passed_over(&row, &found);
                columns.insert((found, passed_over))
            }
        };

        refuse_passed_over(&row, passed_over, COLUMNS)?;
        collector.add(Problem::from_row(&row, id, columns)?);
    }

    if let (None, Some(path)) = (&columns, files.first()) {
        return Err(DataError::NoRows { path: path.clone() });
    }

    let set = collector.finish();
    if set.problems.is_empty()
        && let (Some(path), Some(note)) = (files.first(), &set.note)
    {
        return Err(DataError::Folder {
            path: path.clone(),
            problem: format!("no row is left: {note}"),
        });
    }
    Ok(set)
}

/// Refuses a row with a value in a column that was passed over, because it was null in the first row.
///
/// # Errors
/// Fails with the `setting` that would name the columns.
pub(crate) fn refuse_passed_over(
    row: &Row,
    passed_over: &[&str],
    setting: &str,
) -> Result<(), DataError> {
    let Some(name) = passed_over.iter().find(|name| row.get(name).is_some()) else { return Ok(()) };
    let problem = format!(
        "column `{name}` has a value, and is null in the first row, whose other columns were taken; name the \
         columns: {setting}"
    );
    Err(DataError::Row { path: row.file.to_path_buf(), position: row.position, problem })
}

/// Reads the rows of a file. The file's name or its beginning tells its kind.
pub(crate) fn rows(path: &Path) -> Box<dyn Iterator<Item = Result<Row, DataError>>> {
    match open(path) {
        Ok(rows) => rows,
        Err(error) => Box::new(std::iter::once(Err(error))),
    }
}

fn open(path: &Path) -> Result<Box<dyn Iterator<Item = Result<Row, DataError>>>, DataError> {
    let extension = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    let start = beginning(path);
    if extension == "parquet" || start == *PARQUET {
        return Ok(Box::new(ParquetRows::open(path)?));
    }

    // A name may lie, so the first bytes tell a packed file.
    let packed = PACKED.iter().find(|(bytes, _)| start.starts_with(bytes));
    let extension = packed.map_or(extension, |(_, extension)| (*extension).to_owned());
    if OTHERS.contains(&extension.as_str()) {
        Err(DataError::Kind { path: path.to_owned(), extension })
    } else if let Some(separator) = csv::separator(path) {
        Ok(Box::new(CsvRows::open(path, separator)?))
    } else {
        Ok(Box::new(JsonlRows::open(path)?))
    }
}

/// Returns the first four bytes of a file, or zeros if it has fewer.
fn beginning(path: &Path) -> [u8; 4] {
    let mut start = [0; 4];
    let read = folder::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut start));
    if read.is_ok() { start } else { [0; 4] }
}

/// Files below a folder. Hidden files and folders are skipped.
#[derive(Default)]
struct Search {
    /// Files, as paths from the folder with `/`.
    files: Vec<String>,
    /// Folders above the one that is searched. A link may lead back to one of them.
    ancestors: Vec<PathBuf>,
    /// Number of folders that were searched.
    folders: usize,
    /// Why not all was searched, if there is a reason.
    incomplete: Option<String>,
}

impl Search {
    fn walk(&mut self, folder: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        // A link that leads back up has another path, but the same real one.
        let real = folder.canonicalize()?;
        if self.ancestors.contains(&real) || self.incomplete.is_some() {
            return Ok(());
        }
        self.folders += 1;
        if depth == 0 || self.folders > FOLDERS {
            self.incomplete = Some(format!(
                "{prefix} in it is {DEPTH} folders deep, or there are more than {FOLDERS}; name a folder below"
            ));
            return Ok(());
        }

        self.ancestors.push(real);
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with('.') {
                continue;
            }
            // This follows symbolic links, which the cache of the Hub is made of.
            if fs::metadata(entry.path())?.is_dir() {
                self.walk(&entry.path(), &format!("{prefix}{name}/"), depth - 1)?;
            } else {
                self.files.push(format!("{prefix}{name}"));
            }
        }
        self.ancestors.pop();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Question;

    fn part(split: &str) -> Part {
        let split = (!split.is_empty()).then(|| split.to_owned());
        Part { subset: None, split, default_split: "train" }
    }

    #[test]
    fn a_folder_is_its_files_of_one_split() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };

        write("b/train-2.jsonl", "{\"prompt\": \"c\", \"answer\": 3}\n");
        write(
            "a/train-1.jsonl",
            "{\"prompt\": \"a\", \"answer\": 1}\n\n{\"prompt\": \"b\", \"answer\": 2}\n",
        );
        write("README.md", "no rows");
        write(".hidden.jsonl", "no rows");

        let files = data_set_files(folder.path(), &part("")).unwrap();
        let set = read_problems(&files, &ColumnNames::default(), true).unwrap();
        let read: Vec<_> = set.problems.iter().map(|p| (p.id, p.reference.as_str())).collect();
        assert_eq!(read, [(0, "1"), (1, "2"), (2, "3")]);

        write("test.jsonl", "{\"prompt\": \"d\", \"answer\": 4}\n");
        let mixed = data_set_files(folder.path(), &part("")).unwrap_err().to_string();
        assert!(
            mixed.contains("it has several splits (test, train): name one of them, with"),
            "{mixed}"
        );

        let test = data_set_files(folder.path(), &part("test")).unwrap();
        assert_eq!(test, [folder.path().join("test.jsonl")]);
        let file = folder.path().join("test.jsonl");
        assert_eq!(data_set_files(&file, &part("train")).unwrap(), [file]);
    }

    #[test]
    fn a_folder_is_looked_into_whole_or_refused() {
        let folder = tempfile::tempdir().unwrap();
        let mut path = folder.path().to_owned();
        for depth in 1..=34 {
            path.push("below");
            fs::create_dir(&path).unwrap();
            if depth == 31 {
                fs::write(path.join("rows.jsonl"), "{}").unwrap();
                let found = data_set_files(folder.path(), &part("")).unwrap();
                assert_eq!(found, [path.join("rows.jsonl")]);
            }
        }

        let error = data_set_files(folder.path(), &part("")).unwrap_err().to_string();
        assert!(error.contains("in it is 32 folders deep, or there are more"), "{error}");

        // A link back up is not a further folder.
        #[cfg(unix)]
        {
            let below = folder.path().join("below");
            fs::remove_dir_all(below.join("below")).unwrap();
            fs::write(below.join("rows.jsonl"), "{}").unwrap();
            std::os::unix::fs::symlink(folder.path(), below.join("up")).unwrap();
            let found = data_set_files(folder.path(), &part("")).unwrap();
            assert_eq!(found, [below.join("rows.jsonl")]);

            // A link to a folder next to it is one more name of that folder.
            fs::remove_file(below.join("up")).unwrap();
            std::os::unix::fs::symlink(&below, folder.path().join("again")).unwrap();
            let found = data_set_files(folder.path(), &part("")).unwrap();
            let again = folder.path().join("again/rows.jsonl");
            assert_eq!(found, [again, below.join("rows.jsonl")]);
        }
    }

    #[test]
    fn the_kind_of_a_file_is_its_name_or_its_beginning() {
        let read = |path: &Path| read_problems(&[path.to_owned()], &ColumnNames::default(), false);
        let folder = tempfile::tempdir().unwrap();
        let parquet = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parquet/zstd.parquet");
        let unnamed = folder.path().join("blob");
        fs::copy(&parquet, &unnamed).unwrap();
        let problems = |path: &Path| {
            let problems = read(path).unwrap().problems;
            problems
                .into_iter()
                .map(|problem| Problem { origin: None, ..problem })
                .collect::<Vec<_>>()
        };

        assert_eq!(problems(&parquet), problems(&unnamed));
        assert_eq!(problems(&parquet), problems(&parquet.with_file_name("plain.jsonl")));

        let arrow = folder.path().join("set.arrow");
        fs::write(&arrow, "ARROW1").unwrap();
        let error = read(&arrow).unwrap_err().to_string();
        assert!(error.contains("set.arrow is a .arrow file; expected JSON Lines"), "{error}");

        let csv = folder.path().join("set.CSV");
        fs::write(&csv, "prompt,answer\n\"1,000+1\",1001\n").unwrap();
        assert_eq!(read(&csv).unwrap().problems[0].question, Question::Text("1,000+1".into()));
        fs::write(&csv, b"\x1f\x8b\x08\x00").unwrap();
        assert!(read(&csv).unwrap_err().to_string().contains("set.CSV is a .gz file; expected"));

        let empty = folder.path().join("empty.jsonl");
        fs::write(&empty, "\n").unwrap();
        assert!(
            read(&empty).unwrap_err().to_string().ends_with("has no rows; is this the right file?")
        );
    }

    /// Columns are chosen by the first row, although one that is null there could be the right one.
    #[test]
    fn a_column_that_is_null_in_the_first_row_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.jsonl");
        let read = |rows: &str, reference: Option<&str>| {
            fs::write(&path, rows).unwrap();
            let reference = reference.map(str::to_owned);
            let names = ColumnNames { reference, ..ColumnNames::default() };
            read_problems(std::slice::from_ref(&path), &names, false)
        };
        let row = |answer: &str| {
            format!("{{\"problem\": \"?\", \"solution\": \"Long.\", \"answer\": {answer}}}\n")
        };

        let rows = row("null") + &row("8.0");
        let error = read(&rows, None).unwrap_err().to_string();
        assert!(
            error.contains("set.jsonl, line 2: column `answer` has a value, and is null in"),
            "{error}"
        );

        let error = read(&rows, Some("answer")).unwrap_err().to_string();
        assert!(error.contains("set.jsonl, line 1: column `answer` is null"), "{error}");

        // In a union of layouts a column may be null in every row.
        let references = read(&(row("null") + &row("null")), None).unwrap().problems;
        assert!(references.iter().all(|problem| problem.reference == "Long."));
    }

    /// CSV has no null, so an empty field stands for one. Without a header, its first row would name the columns.
    #[test]
    fn the_columns_of_csv_are_found_as_those_of_json_lines() {
        let folder = tempfile::tempdir().unwrap();
        let read = |rows: &str| {
            let path = folder.path().join("set.csv");
            fs::write(&path, rows).unwrap();
            read_problems(&[path], &ColumnNames::default(), true)
        };

        let set = read("reward_model.ground_truth,solution,problem\n,Long.,?\n,Wide.,!\n").unwrap();
        let read_references = set.problems.iter().map(|problem| problem.reference.as_str());
        assert_eq!(read_references.collect::<Vec<_>>(), ["Long.", "Wide."]);

        for (rows, expected) in [
            (
                "answer,solution,problem\n,Long.,?\n4,Long.,!\n",
                "line 3: column `answer` has a value, and is null",
            ),
            (
                "question,answer\n2+2?,4\n3+3?,\n",
                "line 3: column `answer` is null, and was expected",
            ),
            ("question,answer\n,4\n", "line 2: column `question` is null, and was expected"),
            (
                "question\n2+2?\n",
                "line 2: no column for the reference (reward_model.ground_truth, ",
            ),
            (
                "2+2?,4\n3+3?,6\n",
                "line 2: no column for the prompt (prompt, question, problem) in the first line, which names the \
                 columns; the row has the columns 2+2?, 4: set",
            ),
            ("question,answer\n", "set.csv has no rows; is this the right file?"),
        ] {
            let error = read(rows).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_row_of_a_table_is_named() {
        let parquet = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/parquet/snappy.parquet");
        let names = ColumnNames { reference: Some("level".into()), ..ColumnNames::default() };
        let error = read_problems(&[parquet], &names, true).unwrap_err().to_string();
        let expected =
            "snappy.parquet, row 4: column `level` is null, and was expected to have a value";
        assert!(error.contains(expected), "{error}");
    }
}
