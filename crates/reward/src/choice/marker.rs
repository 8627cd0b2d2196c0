//! Words that announce the letter of an answer, in several languages.

use std::sync::LazyLock;

use regex::Regex;

/// Matches the words that announce an answer, with the words that link them to it.
///
/// The languages are those of the multilingual multiple-choice sets. Every part has a bounded length, apart from white
/// space and emphasis, so that a search takes linear time.
static MARKER: LazyLock<Regex> = LazyLock::new(|| {
    let words = [
        r"answers?(?:\s[^.:\n]{0,40}?)?",
        r"(?:choice|option)",
        r"(?:antwort|respuesta|réponse|resposta|risposta|jawaban|jibu|cevap|ответ)",
        r"(?:idahun|ìdáhùn|idáhùn|àmọ̀nà|àdáhùn|ànúgọ|àṣàyàn)",
        r"(?:答案|答え|答复|答曰|回答|解答|答|정답|답변|답안|답)",
        r"(?:উত্তর|उत्तर)",
        r"(?:الإجابة|الجواب|إجابة)(?:\s(?:النهائية|النهائي|الصحيحة|الصحيح))?",
    ]
    .join("|");

    let link = r"(?:[:=：ঃ]|(?:is|are|was|be)(?-u:\b)|是|为|為|は|هي|هو)";
    Regex::new(&format!(r"(?i)(?:{words})[\s*_]*{link}|[故应應该該][选選]择?|答案选"))
        .expect("the pattern is a constant")
});

/// Finds the positions after the markers, where an answer is announced.
pub(super) fn ends(text: &str) -> impl Iterator<Item = usize> {
    MARKER.find_iter(text).map(|found| found.end())
}

/// Returns a text without the markup and the words that models write before a letter.
pub(super) fn without_markup(text: &str) -> &str {
    const WORDS: [&str; 8] =
        ["option", "choice", "letter", "therefore", "thus", "clearly", "the ", "选项"];
    let mut bare = without_dress(text);

    // At most four words are removed, so that a text full of them costs no more than any other.
    for _ in 0..4 {
        let rest = WORDS.iter().find_map(|word| {
            let (head, rest) = bare.split_at_checked(word.len())?;
            head.eq_ignore_ascii_case(word).then_some(rest)
        });
        bare = rest.map_or(bare, without_dress);
    }

    bare
}

fn without_dress(text: &str) -> &str {
    const COMMANDS: [&str; 18] = [
        r"\boxed{",
        r"\fbox{",
        r"\text{",
        r"\textbf{",
        r"\textit{",
        r"\textrm{",
        r"\textsf{",
        r"\texttt{",
        r"\mathbf{",
        r"\mathit{",
        r"\mathrm{",
        r"\mathsf{",
        r"\underline{",
        r"\emph{",
        r"\left",
        r"\(",
        r"\[",
        r"\ ",
    ];

    let mut bare = text;
    loop {
        bare = bare.trim_start_matches(|c: char| {
            c.is_whitespace() || "*_$([{<>#\"'`:：（【「“‘".contains(c)
        });
        match COMMANDS.iter().find_map(|command| bare.strip_prefix(command)) {
            Some(rest) => bare = rest,
            None => return bare,
        }
    }
}
