//! Chooses the files of a data set that belong to a subset and a split.

use std::collections::BTreeSet;

/// Part of a data set that is meant, if there are several.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Subset, which the Hub calls a configuration, such as `main` of `openai/gsm8k`.
    pub subset: Option<String>,
    /// Split that is asked for, such as `test`.
    pub split: Option<String>,
    /// Split that is meant if none is asked for.
    pub default_split: &'static str,
}

/// Words by which files tell their split. All words of a line mean the same split.
const SPLITS: [&[&str]; 3] =
    [&["train", "training"], &["test"], &["validation", "valid", "val", "dev", "eval"]];

/// How many files are named when a choice fails.
const SHOWN: usize = 12;

impl Part {
    /// Chooses the files of this part among all files of a data set, sorted. A split is a word of a file's name,
    /// or else of its folders' names. If there is only one data file, it counts as the default split.
    ///
    /// # Errors
    /// Says in words, with the names of the files, if it is not clear which are meant.
    pub(crate) fn choose<'f>(&self, files: &[&'f str]) -> Result<Vec<&'f str>, String> {
        let mut data = data_files(files);
        data.sort_unstable();
        if data.is_empty() {
            return Err(format!("it has no .parquet, .jsonl or .csv file; it has {}", list(files)));
        }

        // A subset is a folder, or else a word of the files' names.
        if let Some(subset) = &self.subset {
            let all_files = data.clone();
            data.retain(|file| folders(file).any(|folder| folder.eq_ignore_ascii_case(subset)));
            if data.is_empty() {
                data.extend(all_files.iter().filter(|file| has_words(file, subset)));
            }
            if data.is_empty() {
                return Err(format!("it has no subset {subset:?}; it has {}", list(&all_files)));
            }
        }

        let split = self.split.as_deref().unwrap_or(self.default_split);
        let files_with = |part: fn(&str) -> String| {
            let matching = data.iter().copied().filter(|file| has_words(&part(file), split));
            matching.collect::<Vec<_>>()
        };

        // A word of the file's name counts for more than one of its folders.
        let mut chosen = files_with(|file| name(file).to_owned());
        if chosen.is_empty() {
            chosen = files_with(|file| folders(file).collect::<Vec<_>>().join("/"));
        }

        // A single file whose name tells no split holds training rows.
        let may_be_unnamed = self.split.is_none() || split == "train";
        if let ([only], true, true) = (data.as_slice(), chosen.is_empty(), may_be_unnamed)
            && splits(std::slice::from_ref(only)).is_empty()
        {
            return Ok(vec![only]);
        }

        if chosen.is_empty() {
            return Err(format!("it has no split {split:?}; it has {}", list(&data)));
        }

        // One word may be in the names of several splits, such as `train_sft` and `train_gen`.
        let groups: BTreeSet<(String, String)> = chosen.iter().map(|file| group(file)).collect();
        if groups.len() > 1 {
            let exact: Vec<_> = groups.iter().filter(|(_, stem)| stem == split).collect();
            let [exact] = exact.as_slice() else {
                return Err(format!(
                    "it is not clear which files are the split {split:?}: name the subset, or the \
                     split in full; the candidates are {}",
                    list(&chosen)
                ));
            };
            chosen.retain(|file| group(file) == **exact);
        }

        // Without this check, a missing file would only make the data set smaller.
        match chosen.iter().find_map(|file| shard(name(file))) {
            Some((_, shards)) if shards != chosen.len() as u64 => Err(format!(
                "it has {} of the {shards} files of its split {split:?}: {}",
                chosen.len(),
                list(&chosen)
            )),
            _ => Ok(chosen),
        }
    }
}

/// Returns the files that hold rows: Parquet and JSON Lines, else CSV, which often has results next to them, else .json,
/// which may hold rows.
pub(crate) fn data_files<'f>(files: &[&'f str]) -> Vec<&'f str> {
    let ending = |endings: &[&str]| -> Vec<&'f str> {
        let of_kind = |file: &&&str| {
            let extension = name(file).rsplit_once('.').map(|(_, extension)| extension);
            !name(file).starts_with('.')
                && extension
                    .is_some_and(|is| endings.iter().any(|end| is.eq_ignore_ascii_case(end)))
        };
        files.iter().filter(of_kind).copied().collect()
    };

    let kinds: [&[&str]; 3] = [&["parquet", "jsonl", "ndjson"], &["csv", "tsv"], &["json"]];
    let mut data = kinds.map(ending).into_iter().find(|data| !data.is_empty()).unwrap_or_default();
    // The library datasets writes facts about a data set into such files.
    data.retain(|file| !name(file).starts_with("dataset_info") || !file.ends_with(".json"));
    data
}

/// Finds the splits of files, by the words in their paths.
pub(crate) fn splits(files: &[&str]) -> Vec<&'static str> {
    let of = |file: &str| {
        let of_name = SPLITS.iter().filter(|words| words.iter().any(|word| has_words(file, word)));
        of_name.map(|words| words[0]).collect::<Vec<_>>()
    };
    files.iter().flat_map(|file| of(file)).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns what files of one split have in common: their folder and kind, and their name without the
/// number.
fn group(file: &str) -> (String, String) {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    let (stem, extension) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem = match shard(name) {
        Some((stem, _)) => stem,
        None => {
            let number = stem.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
            let numbered = number.len() >= 3 && number.starts_with('0');
            let stem_end = if numbered { stem.len() - number.len() } else { stem.len() };
            stem[..stem_end].trim_end_matches(['-', '_', '.'])
        }
    };

    (format!("{folder}/*.{extension}"), stem.to_ascii_lowercase())
}

/// Reads `train` and 2 from `train-00000-of-00002.parquet`, also with a hash after it.
fn shard(name: &str) -> Option<(&str, u64)> {
    let (prefix, suffix) = name.split_once("-of-")?;
    let count = suffix.split(['-', '.']).next()?.parse().ok()?;
    let (stem, number) = prefix.rsplit_once('-').unwrap_or(("", prefix));
    number.chars().all(|c| c.is_ascii_digit()).then_some((stem, count))
}

fn name(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

fn folders(file: &str) -> impl Iterator<Item = &str> {
    file.rsplit_once('/').map_or("", |(folders, _)| folders).split('/')
}

/// Tells whether a text contains `wanted`, in capitals or not, with no letter or digit next to it.
fn has_words(text: &str, wanted: &str) -> bool {
    let text = text.to_ascii_lowercase();
    let wanted = wanted.to_ascii_lowercase();
    let is_boundary = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    !wanted.is_empty()
        && text.match_indices(&wanted).any(|(at, _)| {
            is_boundary(text[..at].chars().next_back())
                && is_boundary(text[at + wanted.len()..].chars().next())
        })
}

fn list(files: &[&str]) -> String {
    let shown: Vec<&str> = files.iter().take(SHOWN).copied().collect();
    match files.len().saturating_sub(SHOWN) {
        0 if files.is_empty() => "no file".into(),
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(files: &[&str], subset: &str, split: &str) -> Result<String, String> {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let part = Part { subset: given(subset), split: given(split), default_split: "train" };
        part.choose(files).map(|files| files.join(" "))
    }

    #[test]
    fn the_layouts_of_the_hub_are_understood() {
        let gsm8k = [
            "README.md",
            "main/test-00000-of-00001.parquet",
            "main/train-00000-of-00001.parquet",
            "socratic/train-00000-of-00001.parquet",
        ];
        let train = "main/train-00000-of-00001.parquet";
        assert_eq!(choose(&gsm8k, "main", "").unwrap(), train);
        assert_eq!(choose(&gsm8k, "main", "test").unwrap(), "main/test-00000-of-00001.parquet");

        let unclear = choose(&gsm8k, "", "").unwrap_err();
        assert!(unclear.contains("main/train-00000-of-00001.parquet, socratic/"), "{unclear}");
        assert!(choose(&gsm8k, "mains", "").unwrap_err().contains("no subset \"mains\""));
        assert!(choose(&gsm8k, "main", "dev").unwrap_err().contains("no split \"dev\""));

        let two =
            ["data/TRAIN-00001-of-00002-ab12.parquet", "data/TRAIN-00000-of-00002-cd34.parquet"];
        assert_eq!(choose(&two, "", "").unwrap(), [two[1], two[0]].join(" "));
        assert!(choose(&two[..1], "", "").unwrap_err().contains("of the 2 files"));

        assert_eq!(choose(&["train.jsonl", "test.jsonl", "a.py"], "", "").unwrap(), "train.jsonl");
        let by_folder = ["c/train/0000.parquet", "c/train/0001.parquet", "c/test/0000.parquet"];
        assert_eq!(choose(&by_folder, "c", "train").unwrap(), by_folder[..2].join(" "));
        let named = ["data/train_gen.parquet", "data/train_sft.parquet", "data/train.parquet"];
        assert_eq!(choose(&named, "", "").unwrap(), "data/train.parquet");
        assert_eq!(choose(&named, "", "train_sft").unwrap(), "data/train_sft.parquet");
        assert!(choose(&named[..2], "", "").unwrap_err().contains("not clear"));
    }

    #[test]
    fn the_only_file_is_the_training_split_unless_it_says_otherwise() {
        let only = ["README.md", "data/dapo-math-17k.parquet"];
        assert_eq!(choose(&only, "", "").unwrap(), only[1]);
        assert_eq!(choose(&only, "", "train").unwrap(), only[1]);
        assert!(choose(&only, "", "test").is_err());
        assert!(choose(&["constraints.jsonl"], "", "").is_ok());
        assert!(choose(&["test-00000-of-00001.parquet"], "", "").is_err());
        assert!(choose(&["README.md"], "", "").unwrap_err().contains("it has README.md"));

        // CSV is data if there is no JSON Lines and no Parquet, and .json is if there is no CSV either.
        assert_eq!(choose(&["config.json", "train.csv", "test.tsv"], "", "").unwrap(), "train.csv");
        assert_eq!(choose(&["train.jsonl", "train.csv"], "", "").unwrap(), "train.jsonl");
        assert_eq!(choose(&["train.json", "dataset_infos.json"], "", "").unwrap(), "train.json");
    }
}
