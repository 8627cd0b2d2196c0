//! The names of files and tests in the pages: every one of them is there, and the code map leaves no file out.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use firebrick_book::assert_current;

/// Compares the page with the first sentence of each source file, crate by crate.
#[test]
fn the_code_map_is_current() {
    let crates = fs::read_dir(repository().join("crates")).unwrap();
    let mut folders: Vec<_> =
        crates.map(|entry| format!("crates/{}", entry.unwrap().file_name().display())).collect();
    folders.sort();
    folders.extend(["models".to_owned(), "recipes".to_owned()]);

    let mut page = String::from(
        "<!-- Made from the first sentence of each source file; a change here is overwritten.\n     \
         FIREBRICK_UPDATE=1 cargo test --release --workspace --test pages --test names -->\n\n# The code map\n\n\
         This page has every source file, with the first sentence of its own documentation.\n",
    );

    for folder in folders {
        let sources = repository().join(&folder).join("src");
        let mut files = BTreeSet::new();
        source_files(&sources, &sources, &mut files);
        page += &format!("\n## {folder}\n\n| file | contents |\n|---|---|\n");

        for file in files {
            let sentence = first_sentence(&fs::read_to_string(sources.join(&file)).unwrap())
                .unwrap_or_else(|| panic!("{folder}/src/{file} does not begin with `//! …`"));
            page += &format!("| `{file}` | {} |\n", sentence.replace('|', "\\|"));
        }
    }

    let path = repository().join("book/src/inside/map.md");
    assert_current(&path, &page);
}

/// Returns the first sentence of a file's own documentation, without the marks of links.
fn first_sentence(source: &str) -> Option<String> {
    let lines = source.lines().map_while(|line| line.strip_prefix("//!")).map(str::trim);
    let text: Vec<&str> = lines.take_while(|line| !line.is_empty()).collect();
    let text = text.join(" ").replace("[`", "`").replace("`]", "`");
    // The dot of `et al.` ends no sentence.
    let ends = text.match_indices(". ").map(|(end, _)| end + 1);
    let end = ends.into_iter().find(|&end| !text[..end].ends_with(" al.")).unwrap_or(text.len());
    (!text.is_empty()).then(|| text[..end].to_owned())
}

/// A name of a file that is not there sends its reader nowhere. These are names of files and folders of
/// this repository:
///
/// - the target of a link that has no scheme, seen from its page's folder;
/// - in backticks, and in the commands of a fenced block, a path that begins with one of the
///   repository's own folders;
/// - in backticks, a name that ends as its sources and pages do ([`ENDINGS`]). It may be the end of a
///   path, as `build/reward.rs` is.
///
/// `*` stands for any name. A name in capitals is to be filled in (`models/src/NAME.rs`), and does not
/// count. Nor does a name that is [`ELSEWHERE`], or that a fenced block prints. The files of runs and
/// models have other endings: `config.json`, `run.db`.
#[test]
fn the_pages_name_no_file_that_is_not_there() {
    let files = Files::new();

    let mut missing = Vec::new();
    for page in files.pages() {
        let text = fs::read_to_string(repository().join(&page)).unwrap();
        let names = files.missing(&page, &text);
        missing.extend(names.into_iter().map(|name| format!("{page}: {name}")));
    }

    assert!(missing.is_empty(), "these are not in the repository: {missing:#?}");
}

#[test]
fn a_name_that_is_made_up_is_found() {
    let files = Files::new();
    let page = "book/src/parts/made-up.md";
    for text in [
        "`crates/core/src/nowhere.rs`",
        "`crates/nowhere`",
        "`core/src/nowhere.rs`",
        "`nowhere.rs`",
        "The command `python3 nowhere.py FOLDER`",
        "a span over two\nlines, `cargo run\nrecipes/nowhere.toml`, and more",
        "`tests/fixtures/*/nowhere.json`",
        "[a page](nowhere.md)",
        "[a page](rewards.md#top)",
        "```console\n$ tools/nowhere.sh --all\n```",
    ] {
        assert_eq!(files.missing(page, text).len(), 1, "{text}");
    }

    for text in [
        "`crates/core/src/lib.rs`, `crates/core/`, `core/src/lib.rs`, `lib.rs`",
        "`config.json`, `run.db`, `runs/NAME/recipe.toml`, `reward/credit`, `1.0`, `a.rs(b)`",
        "`models/src/NAME.rs`, `tests/fixtures/*/expected.json`, `.ci/run`",
        "[a page](../rewards.md#top), [a site](https://example.org/nowhere.md), [above](#nowhere)",
        "```text\ncrates/nowhere\n```",
        "nowhere.rs, crates/nowhere",
    ] {
        assert_eq!(files.missing(page, text), [""; 0], "{text}");
    }
}

/// Names of four words or more in these pages are names of tests.
#[test]
fn the_tests_that_the_pages_name_are_there() {
    let files = Files::new();
    let sources: String = files
        .paths
        .iter()
        .filter(|path| path.ends_with(".rs"))
        .map(|path| fs::read_to_string(repository().join(path)).unwrap())
        .collect();

    let mut named = 0;
    let inside = ["inside/invariants.md", "inside/update.md", "inside/disk.md", "gamed.md"];
    let pages = inside.map(|page| format!("book/src/{page}"));
    for page in
        ["ARCHITECTURE.md", "CONTRIBUTING.md"].into_iter().chain(pages.iter().map(|it| &**it))
    {
        let text = Page::read(&fs::read_to_string(repository().join(page)).unwrap());
        for name in text.spans.iter().filter(|span| span.matches('_').count() >= 3) {
            let function = format!("fn {name}(");
            assert!(sources.contains(&function), "{page} names a test `{name}`, and there is none");
            named += 1;
        }
    }

    assert!(named > 30, "only {named} tests were found: are they written otherwise?");
}

/// Endings of names that only the repository's own files have.
const ENDINGS: [&str; 5] = [".rs", ".md", ".sh", ".py", ".toml"];

/// Files of runs, of readers, and of other projects.
const ELSEWHERE: [&str; 10] = [
    "convert_hf_to_gguf.py",
    "good.toml",
    "my.toml",
    "recipe.toml",
    "log_format.md",
    "modeling_llama.py",
    "multi_level/definition/blueprint.rs",
    "verl/trainer/ppo/core_algos.py",
    "main_dapo.py",
    "skyrl/train/config/config.py",
];

/// Files and folders of the repository.
struct Files {
    /// Paths from the repository's root, separated by `/`.
    paths: BTreeSet<String>,
}

impl Files {
    fn new() -> Self {
        let mut files = Files { paths: BTreeSet::new() };
        files.look_into(&repository(), "");
        files
    }

    fn look_into(&mut self, folder: &Path, prefix: &str) {
        for entry in fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{prefix}{}", entry.file_name().display());
            // These are the folders of git, of cargo's builds, of runs, and of the rendered book.
            let of_examples = path.starts_with("book/examples/") && path.ends_with("/runs");
            let made = [".git", "runs", "book/book"].contains(&path.as_str())
                || entry.file_name() == "target"
                || of_examples;

            if entry.path().is_dir() && !made {
                self.look_into(&entry.path(), &format!("{path}/"));
            }
            if !made {
                self.paths.insert(path);
            }
        }
    }

    /// Lists the pages whose names of files are checked.
    fn pages(&self) -> Vec<String> {
        let pages = ["ARCHITECTURE.md", "CONTRIBUTING.md", "README.md"].map(String::from);
        let of_book = |path: &&String| path.starts_with("book/src/") && path.ends_with(".md");
        let pages: Vec<_> =
            pages.into_iter().chain(self.paths.iter().filter(of_book).cloned()).collect();
        assert!(pages.len() > 20, "the book has lost its pages");
        pages
    }

    /// Lists the names of files that are not there, in `text`, the page at the path `page`.
    fn missing(&self, page: &str, text: &str) -> Vec<String> {
        let text = Page::read(text);
        let mut missing = Vec::new();

        for link in text.links() {
            let target = link.split('#').next().unwrap_or_default();
            if !link.contains("://") && !target.is_empty() && !self.is_target(page, target) {
                missing.push(link.to_owned());
            }
        }

        let spans = text.spans.iter().map(|span| (span, true));
        let commands = text.commands.iter().map(|command| (command, false));
        for (code, is_span) in spans.chain(commands) {
            for word in code.split_whitespace() {
                let word = word.trim_end_matches(['/', ',', ';', ':']);
                let rooted = word.split_once('/').is_some_and(|(top, _)| self.has(top, true));
                let ends = ENDINGS.iter().any(|ending| word.ends_with(ending));
                let named = word.chars().all(|c| c.is_ascii_alphanumeric() || "_./*-".contains(c));

                // A name without a folder counts only in backticks, and only with an ending of ours.
                let counts = named && (rooted || is_span && ends) && !is_elsewhere(word);
                if counts && !self.has(word, rooted) {
                    missing.push(word.to_owned());
                }
            }
        }

        missing
    }

    fn is_target(&self, page: &str, target: &str) -> bool {
        let mut path: Vec<&str> = page.split('/').collect();
        path.pop();
        for part in target.split('/') {
            match part {
                ".." => drop(path.pop()),
                part => path.push(part),
            }
        }
        self.paths.contains(&path.join("/"))
    }

    /// Tells whether there is a path like this, or one that ends so if the name is not `whole`.
    fn has(&self, name: &str, whole: bool) -> bool {
        let name: Vec<&str> = name.split('/').collect();
        self.paths.iter().any(|path| {
            let path: Vec<&str> = path.split('/').collect();
            let start = path.len().checked_sub(name.len()).filter(|start| !whole || *start == 0);
            start.is_some_and(|start| path[start..].iter().zip(&name).all(|(a, b)| is_like(a, b)))
        })
    }
}

/// Tells whether a file's name fits a pattern with at most one `*`.
fn is_like(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => {
            name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
        }
    }
}

/// Tells whether a name is of a file elsewhere, or has a part to be filled in.
fn is_elsewhere(name: &str) -> bool {
    let capitals = |part: &str| part.len() > 1 && part.bytes().all(|b| b.is_ascii_uppercase());
    let file = name.rsplit('/').next().unwrap_or(name);
    let stem = file.split('.').next().unwrap_or(file);
    let known = ["README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SUMMARY"].contains(&stem);
    !known && name.split(['/', '.', '_', '-']).any(capitals)
        || ELSEWHERE.iter().any(|elsewhere| {
            name.strip_suffix(elsewhere).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
        })
}

/// A page of Markdown, taken apart.
#[derive(Default)]
struct Page {
    /// Texts in backticks, outside of fenced blocks.
    spans: Vec<String>,
    /// Commands in fenced blocks, which follow a `$ `.
    commands: Vec<String>,
    /// All other text.
    prose: String,
}

impl Page {
    fn read(text: &str) -> Self {
        let mut page = Page::default();
        let mut fenced = false;
        let mut unfenced = String::new();

        for line in text.lines() {
            if line.trim_start().starts_with("```") {
                fenced = !fenced;
            } else if !fenced {
                unfenced += line;
                unfenced.push('\n');
            } else if let Some(command) = line.strip_prefix("$ ") {
                page.commands.push(command.to_owned());
            }
        }

        // A span may cross lines but no blank line, and ends with as many backticks as it begins with.
        for mut rest in unfenced.split("\n\n") {
            while let Some(start) = rest.find('`') {
                let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
                let before = &rest[..start];
                let after = &rest[start + ticks..];
                page.prose += before;
                rest = match after.split_once(&rest[start..start + ticks]) {
                    Some((span, after)) => {
                        page.spans.push(span.to_owned());
                        after
                    }
                    None => after,
                };
            }
            page.prose += rest;
            page.prose.push('\n');
        }
        page
    }

    fn links(&self) -> impl Iterator<Item = &str> {
        self.prose.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next())
    }
}

fn source_files(folder: &Path, root: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            source_files(&path, root, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
            found.insert(name);
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
