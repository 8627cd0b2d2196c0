//! Which part of a text is its answer.
use super::{Extraction, Span};
pub(crate) struct Answer { pub(crate) span: Span, pub(crate) why: &'static str }
pub(crate) fn extract(text: &str, extraction: Extraction, _choices: &[String]) -> Option<Answer> {
    let mut t = text;
    if extraction != Extraction::Bare { if let Some(at) = t.rfind("nswer:") { t = &t[at + 6..]; } }
    if let Some(at) = t.rfind("\\boxed{") { let rest = &t[at + 7..]; let mut d = 1; let mut esc = false; for (i, c) in rest.char_indices() { if esc { esc = false; continue } if c == '\\' { esc = true } if c == '{' { d += 1 } if c == '}' { d -= 1; if d == 0 { t = &rest[..i]; break } } } }
    let t = t.trim().trim_matches('*');
    (!t.is_empty()).then(|| Answer { span: Span { range: 0..0, text: t.to_owned() }, why: "x" })
}
