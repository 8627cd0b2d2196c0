//! The Rust of the book.
//!
//! Programs are in `examples/`, and the chapters show parts of them. Short blocks stand in the chapters
//! themselves; the modules here make documentation tests of them. `tests/` compares the generated pages and the
//! tables with the program.

/// Makes modules of chapters for the tests alone, because their links are the book's and not rustdoc's.
macro_rules! chapters {
    ($($name:ident = $file:literal;)*) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../src/", $file))]
            mod $name {}
        )*
    };
}

chapters! {
    introduction = "introduction.md";
    quickstart = "quickstart.md";
    how_dapo_works = "how-dapo-works.md";
    first_verifier = "first-verifier.md";
    rewards = "rewards.md";
    recipes = "recipes.md";
    models = "models.md";
    lora = "lora.md";
    data = "data.md";
    memory = "memory.md";
    adding_a_family = "adding-a-family.md";
    metrics = "metrics.md";
    glossary = "glossary.md";
    speed = "speed.md";
    learning = "learning.md";
}

/// Holds a file of the book against what the program makes of it now. With `FIREBRICK_UPDATE` it writes the file anew
/// first.
///
/// # Panics
/// When the file is another text, or can't be written.
pub fn assert_current(path: &std::path::Path, made: &str) {
    if std::env::var_os("FIREBRICK_UPDATE").is_some() {
        let written = std::fs::write(path, made);
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        stored.replace("\r\n", "\n") == made,
        "{} is not what the program makes now; make it anew with\n\
         FIREBRICK_UPDATE=1 cargo test --release -p firebrick-book",
        path.display()
    );
}
