//! The thoughts of a response, between tags such as `<think>` and `</think>`.

/// Tags that open and close thoughts, as the published models that use them write them.
pub const TAGS: [(&str, &str); 6] = [
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<seed:think>", "</seed:think>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
];

/// Where the thoughts of a text end, if it has any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Thoughts {
    /// End of the last tag that closes thoughts, in bytes.
    pub end: Option<usize>,
    /// True if the text breaks off within thoughts.
    pub are_open: bool,
}

impl Thoughts {
    /// Finds the thoughts of a text that continues `before`, which may open them at its end.
    ///
    /// Thoughts end at the tag that belongs to the one that opened them. Any other tag within them is only text. If a
    /// tag closes what nothing opened, the template opened those thoughts.
    pub fn of(before: &str, text: &str) -> Thoughts {
        let before = before.trim_end();
        let mut open_tag = TAGS.iter().position(|(tag, _)| before.ends_with(tag));
        let mut end = None;

        for at in memchr::memchr2_iter(b'<', b'[', text.as_bytes()) {
            let rest = &text[at..];
            if let Some(tag) = TAGS.iter().position(|(tag, _)| rest.starts_with(tag)) {
                open_tag = open_tag.or(Some(tag));
            } else if let Some(tag) = TAGS.iter().position(|(_, tag)| rest.starts_with(tag))
                && open_tag.is_none_or(|open_tag| open_tag == tag)
            {
                open_tag = None;
                end = Some(at + TAGS[tag].1.len());
            }
        }

        Thoughts { end, are_open: open_tag.is_some() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thoughts_end_at_their_own_tag() {
        for (open, close) in TAGS {
            let ended = |text: &str| Thoughts { end: text.rfind('7'), are_open: false };

            for text in
                [format!("{open}a{close}7"), format!("a{close}7"), format!("{open}{open}{close}7")]
            {
                assert_eq!(Thoughts::of("", &text), ended(&text), "{text}");
            }

            for text in [format!("{open}a"), format!("7{open}"), format!("a{close}7{open}b")] {
                assert!(Thoughts::of("", &text).are_open, "{text}");
            }

            let template = format!("Why?{open}\n");
            assert!(Thoughts::of(&template, "a").are_open, "{template}");
            let text = format!("a{close}7");
            assert_eq!(Thoughts::of(&template, &text), ended(&text), "{template}");

            for (other, end) in TAGS.iter().filter(|(other, _)| *other != open) {
                let text = format!("{open}a{end}7");
                assert!(Thoughts::of("", &text).are_open, "{text}");
                let text = format!("{open}a{other}b{close}7");
                assert_eq!(Thoughts::of("", &text), ended(&text), "{text}");
            }
        }

        assert_eq!(Thoughts::of("", "a < b, [1, 2]"), Thoughts::default());
    }
}
