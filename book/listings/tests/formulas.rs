//! The formulas of the book: each `.tex` in `book/src/formulas` has its MathML next to it, which pages include.
//!
//! `FIREBRICK_UPDATE=1 cargo test --release --workspace --test formulas` renders them again.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::{fs, path::Path};

use firebrick_book::assert_current;
use pulldown_latex::{Parser, RenderConfig, Storage, config::DisplayMode, mathml::push_mathml};

#[test]
fn formulas_are_rendered_as_they_are_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/formulas");
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let source = entry.unwrap().path();
        if source.extension().is_none_or(|ending| ending != "tex") {
            continue;
        }
        count += 1;

        let rendered = render(&fs::read_to_string(&source).unwrap());
        assert!(!rendered.contains("merror"), "{}: {rendered}", source.display());
        let page = source.with_extension("html");
        assert_current(&page, &rendered);
    }

    assert!(count > 5, "the book has lost its formulas");
}

/// Renders a formula as a block that Markdown leaves alone.
fn render(source: &str) -> String {
    let storage = Storage::new();
    let config = RenderConfig { display_mode: DisplayMode::Block, ..RenderConfig::default() };
    let mut html = String::from("<div class=\"formula\">\n");
    push_mathml(&mut html, Parser::new(source, &storage), config).unwrap();
    html + "\n</div>\n"
}
