//! Tests of extraction: tables of texts and their answers.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const MODES: [Extraction; 6] = [
    Extraction::Auto,
    Extraction::Boxed,
    Extraction::AfterThinking,
    Extraction::Bare,
    Extraction::Latex,
    Extraction::Plain,
];

fn check(extraction: Extraction, cases: &[(&str, Option<&str>)]) {
    let mut failures = vec![];

    for &(text, expected) in cases {
        let found = extract(text, extraction).map(|answer| answer.span.text);
        if found.as_deref() != expected {
            failures.push(format!("{text:?}: {found:?}, not {expected:?}"));
        }
    }

    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn the_last_box_wins() {
    check(
        Extraction::Auto,
        &[
            (r"So it is \boxed{42}, after all. Answer: 41", Some("42")),
            (r"first \boxed{1}, and later we find that \fbox{2} is right", Some("2")),
            (r"\boxed{42} is wrong. The correct value is \boxed{43}", Some("43")),
            (r"$\boxed{\frac{1}{2}}$.", Some(r"\frac{1}{2}")),
            (r"$\boxed{\{1, 2\}}$", Some(r"\{1, 2\}")),
            (r"\boxed{\left\{ 1 \right\}} or so", Some(r"\left\{ 1 \right\}")),
            (r"\\boxed{840} is in a string", Some("840")),
            (r"\boxed {5}", Some("5")),
            (r"$\boxed 5$", Some("5")),
            (r"$\boxed\frac12$", Some(r"\frac12")),
            (r"$\boxed 17$ apples", Some("17")),
            (r"\[ x = \boxed 9 \]", Some("9")),
            (r"x = 4 + 5 = \boxed 9 as asked", Some("9")),
            ("Thus\n\\boxed\\frac12\nas asked", Some(r"\frac12")),
            (r"\framebox[2cm]{7}", Some("7")),
            (r"\boxed{\boxed{\fbox{9}}}", Some("9")),
            (r"\boxed{x = \boxed{3}}", Some("x = {3}")),
            (r"thus $\boxed{W = 1", Some("W = 1")),
            (r"\[ \boxed{5 \] and the rest", Some("5")),
            ("\\boxed{12\nand so on", Some("12")),
            (r"\boxed{3} and then the text breaks off \boxed{4", Some("3")),
            (r"\boxed{8.}", Some("8")),
            (r"\boxed{$5$}", Some("5")),
            (r"\boxed{**5**}", Some("5")),
            (r"Put it into \boxed{}. Answer: 6", Some("6")),
            (r"\boxed{4} } }", Some("4")),
            (r"{ { \boxed{4}", Some("4")),
            (r"\boxed{}", None),
            (r"It is 31. (The form $\boxed{}$ was asked for.)", Some("31")),
            (r"It is 31. (The form $\boxed{\ }$ was asked for.)", Some("31")),
            (r"It is $31$. (The form \(\boxed{...}\) was asked for.)", Some("31")),
            (r"It is 31. (The form $$\boxed{\text{answer}}.$$ was asked for.)", Some("31")),
            (r"It is 31. (The form \[x = \boxed{\_\_}\] was asked for.)", Some("31")),
            (r"It is 31. (The form $\fbox{}$ was asked for.)", Some("31")),
            (r"We fill in $5+\boxed{}=8$", Some(r"5+\boxed{}=8")),
            (r"We fill in $x=3\boxed{}$", Some(r"x=3\boxed{}")),
            (r"\boxed", None),
            (r"the boxed 5 is here: 7", Some("7")),
            // In prose the command is a word, and a box that waits for an answer is a form.
            (r"It is \boxed{31}. I used \boxed as asked.", Some("31")),
            (r"The answer is 31, and I used \boxed 2 times.", Some("31")),
            (r"I used \boxed a lot", None),
            (r"The \fbox command. The answer is $4$.", Some("4")),
            ("Answer: 4\n\\boxed is for answers", Some("4")),
            (r"\boxed{31} is in the form \boxed{...}", Some("31")),
            (r"\boxed{31} is in \boxed{\text{answer}}, as asked", Some("31")),
            (r"\boxed{31}, not \boxed{\ } or \boxed{?}", Some("31")),
            (r"\boxed{31} fills \boxed{\underline{\hspace{1cm}}}", Some("31")),
            (r"The sign is \boxed{<}", Some("<")),
        ],
    );
}

#[test]
fn neighbouring_boxes_are_one_answer_only_if_joined() {
    check(
        Extraction::Boxed,
        &[
            (r"$\boxed{3}, \boxed{4}$", Some("3, 4")),
            (r"\(\boxed{3}\) or \(\boxed{4}\)", Some("3, 4")),
            (r"$\boxed{x=3} \quad \text{and} \quad \boxed{y=4}$", Some("x=3, y=4")),
            (r"\boxed{3} dogs and \boxed{4} cats", Some("3, 4")),
            (r"\boxed{3}\quad\boxed{4}", Some("3, 4")),
            (r"\boxed{3}. \boxed{4}", Some("4")),
            (r"\boxed{3} yes yes yes yes \boxed{4}", Some("4")),
            (r"\boxed{3}, no wait, \boxed{4}", Some("4")),
            (r"\boxed{3}, so the final answer is \boxed{4}", Some("4")),
            (r"\boxed{3}+\boxed{4}", Some("4")),
            (r"\boxed{3}\boxed{3}", Some("3")),
            ("\\boxed{3}\n\n, and \\boxed{4}", Some("4")),
            (r"no box: 3", None),
        ],
    );
}

#[test]
fn a_percent_belongs_to_the_answer() {
    check(
        Extraction::Auto,
        &[
            (r"$\boxed{28}$ pct", Some(r"28 \%")),
            (r"\boxed{20}$ percent.", Some(r"20 \%")),
            (r"\boxed{20\%}$ percent.", Some(r"20\%")),
            (r"\boxed{20} percentiles", Some("20")),
            (r"It is $28$ percent", Some(r"28 \%")),
            (r"The answer is 12 per cent of it.", Some(r"12 \%")),
            (r"Answer: 30%", Some("30%")),
        ],
    );
}

#[test]
fn a_marker_gives_one_answer() {
    check(
        Extraction::Auto,
        &[
            ("Answer: 41 at first.\nAnswer: 42\n\nI hope this helps!", Some("42")),
            ("**Answer:** 372", Some("372")),
            ("**Answer**: 372<|im_end|>", Some("372")),
            ("the ANSWER : +7", Some("+7")),
            ("The final answer is **96**", Some("96")),
            ("The answer is therefore 12.", Some("12")),
            ("Final answer is 8", Some("8")),
            ("The answer to the problem is $8$.", Some("8")),
            ("### Final Answer\n\n$\\frac{1}{2}$\n", Some("\\frac{1}{2}")),
            ("**Final Answer**\n12 apples", Some("12")),
            (r"\textbf{Answer:} 5", Some("5")),
            (r"$\text{Answer: } 5$", Some("5")),
            ("Answer:\n-306 \\text{ cm}", Some("-306 \\text{ cm}")),
            ("Answer: \n\n836\t", Some("836")),
            ("Answer:\n$$\n\\frac{3}{4}\n$$\nDone 5", Some("\\frac{3}{4}")),
            ("The final answer is:\n\\[ 7 \\]", Some("7")),
            ("Answer: the value is\n\n$7$", Some("7")),
            ("Final Answer: The final answer is $(0, 1)$. I hope it is correct.", Some("(0, 1)")),
            ("Final Answer: The volume of $ABC$ is 120. I hope it is correct.", Some("120")),
            ("Answer: The largest $n$ is 34.", Some("34")),
            ("The answer is $5$ for all $n$.", Some("5")),
            ("Answer: $5$ is the smallest", Some("5")),
            ("Answer: $n = 5$, because $2n = 10$", Some("n = 5")),
            ("Answer: $x=3$ and $y=4$", Some("x=3, y=4")),
            ("Answer: $21,16$ or $11$", Some("21,16, 11")),
            ("Answer: x = 5 or x = 7", Some("x = 5 or x = 7")),
            ("Answer: (1, 2)", Some("(1, 2)")),
            ("Answer: [0, 1)", Some("[0, 1)")),
            ("Answer: 3/4", Some("3/4")),
            ("Answer: $18 per day", Some("18")),
            ("Answer: $1,234.50", Some("1,234.50")),
            ("Answer: $5 and not $6", Some("5")),
            ("Answer: 5.5", Some("5.5")),
            ("The answer is 5. I hope this helps!", Some("5")),
            ("The answer is 0.333...", Some("0.333...")),
            ("the answer is 42 apples.", Some("42")),
            ("Answer: 42 (as 6*7 = 42)", Some("42")),
            ("Answer: 5cm", Some("5")),
            ("Answer: 3x", Some("3x")),
            ("Answer: 25 cm^2", Some("25")),
            ("Answer: 12 hours 30 minutes", Some("12 hours 30 minutes")),
            ("Answer: 12 hours after 5", Some("12")),
            ("Answer: $5$ of $10$", Some("5")),
            ("Answer -> 5", Some("5")),
            ("<answer> $5$ </answer>", Some("5")),
            ("<answer>42</answer>", Some("42")),
            ("Answer: x in (0, 1)", Some("x in (0, 1)")),
            (r"Answer: 5\;", Some("5")),
            ("Answer: 2 million people", Some(r"2 \cdot 10^{6}")),
            ("Answer: It takes 5 days.", Some("5")),
            (r"Answer: 2\,041\,820", Some(r"2\,041\,820")),
            (r"Answer: \displaystyle -265", Some(r"\displaystyle -265")),
            (r"Answer: \text{3,\!421}", Some(r"\text{3,\!421}")),
            (
                "Answer: \\begin{array}1\\\\\n2\\end{array}\nend",
                Some("\\begin{array}1\\\\\n2\\end{array}"),
            ),
            ("Answer: there is no solution.", Some("no solution")),
            ("Answer: Yes, since $n$ is odd", Some("Yes")),
            ("答案：$7$。", Some("7")),
            ("最终答案是 42。", Some("42")),
            ("Answer：42", Some("42")),
            ("\u{feff}Answer: 4\u{200b}2\u{0}", Some("42")),
            ("Answer: \u{1b}[1m42\u{1b}[0m", Some("42")),
            ("Answer: 42😀", Some("42")),
            ("9 + 9 = 18\n#### 18", Some("18")),
            ("#### $1,000", Some("1,000")),
            ("#### 2. Compute the area\nIt is 7", Some("7")),
            ("The answer is not clear. We get 5", Some("5")),
            ("We answered 3 questions, of 5", Some("5")),
            ("So 5 it is.\nAnswer:", None),
            ("Answer: 5<|im_end|>\n<|im_start|>user\nAnswer: 6", Some("5")),
            ("<think>Answer: 4</think>The answer is 5", Some("5")),
            ("<think>Answer: 4</think>", None),
            ("<think>Answer: 4", None),
            (r"<think>Perhaps \boxed{7}, but let me check", None),
            (r"\boxed{7} <think>or 8?", None),
            (r"<think>a</think> \boxed{7} <think>No, it is \boxed{8}", None),
            (r"a</think> \boxed{7}", Some("7")),
            (r"[THINK]\boxed{4}[/THINK] \boxed{7}", Some("7")),
            (r"[THINK]Perhaps \boxed{7}, but", None),
            ("<thinking>Answer: 4</thinking>\nIt is 7.", Some("7")),
            ("<thinking>Answer: 4", None),
            ("<|begin_of_thought|>4<|end_of_thought|> It is 7.", Some("7")),
            ("<|begin_of_thought|>Answer: 4", None),
            ("<seed:think>4</seed:think>It is 7.", Some("7")),
            ("<seed:think>It is 4.", None),
            ("<thought>It is 4.</thought>It is 7.", Some("7")),
            ("<thought>It is 4.", None),
            (r"<think>A </thought> is \boxed{4}", None),
            (r"<think>a<think>b</think> \boxed{7}", Some("7")),
        ],
    );
}

#[test]
fn a_value_that_words_change_is_not_read_alone() {
    check(
        Extraction::Auto,
        &[
            ("The answer is not 5.", Some("The answer is not 5")),
            ("We try it. The answer cannot be 5.", Some("The answer cannot be 5")),
            ("So x is not equal to $5$.", Some("So x is not equal to 5")),
            ("It isn’t\n5", Some("It isn’t\n5")),
            ("The answer would not be 5", Some("The answer would not be 5")),
            ("The answer can't be 5", Some("The answer can't be 5")),
            ("The answer is incorrect: 5", Some("The answer is incorrect: 5")),
            ("The answer is definitely not 5. Why?", Some("definitely not 5")),
            ("Answer: not 5", Some("not 5")),
            ("**Answer:** not $5$", Some("not 5")),
            ("Answer: anything but 5", Some("anything but 5")),
            ("Answer: minus **5**", Some("minus 5")),
            ("Answer: negative $5$", Some("negative 5")),
            ("Answer: half of 5", Some("half of 5")),
            ("Answer: one third of the 5 apples", Some("one third of the 5 apples")),
            ("Answer: at least 5", Some("at least 5")),
            ("Answer: The value is less than $5$.", Some("The value is less than 5")),
            ("Answer: the square root of 5", Some("the square root of 5")),
            ("Answer: five plus 5", Some("five plus 5")),
            ("Answer: neither 4 nor 5", Some("neither 4 nor 5")),
            // These texts do give the value.
            ("The answer is not 5. The answer is 6.", Some("6")),
            ("The answer is not 5. It is 6.", Some("6")),
            ("The answer is not 5 but 6", Some("6")),
            ("Answer: not 5 but 6", Some("6")),
            ("Answer: She needs 5 more apples", Some("5")),
            ("Answer: 5, not 6", Some("5")),
            ("Answer: twice as many, 5", Some("5")),
            ("Answer: The square root is 5", Some("5")),
            ("Answer: twice $x$ is $10$", Some("10")),
            ("Answer: a total of exactly 5", Some("5")),
            ("Answer: It scored in the third quarter 5 goals", Some("5")),
            ("Answer: This is less: 5", Some("5")),
            ("That was wrong. 5", Some("5")),
            ("That was wrong\n\n5", Some("5")),
            ("In the end it takes at least 5", Some("5")),
        ],
    );

    check(
        Extraction::Latex,
        &[
            ("It is not $5$", Some("It is not 5")),
            ("Answer: minus $5$", Some("minus 5")),
            ("It is minus $5$", Some("5")),
        ],
    );
}

#[test]
fn without_box_and_marker_the_last_mathematics_counts() {
    check(
        Extraction::Auto,
        &[
            ("We get $x = 3$.", Some("x = 3")),
            ("We get $1$, and then 2 apples", Some("2")),
            ("so $a$ and $b$", Some("a, b")),
            (r"Hence \(5\) or \[7\]", Some("5, 7")),
            ("It costs $5 now and $6 later", Some("6")),
            ("the product AZYUK2A is good for all", None),
            ("came 2nd of 14", Some("14")),
            ("in total 1,000.99€", Some("1,000.99")),
            ("Thus x = 3/4", Some("x = 3/4")),
            ("The value (see above) is 7).", Some("7")),
            (r"\left(3,\frac\pi2\right)", Some(r"\left(3,\frac\pi2\right)")),
            ("3*x-1*y+13=0", Some("3*x-1*y+13=0")),
            ("f(x) = 0", Some("f(x) = 0")),
            ("W(x)=1orW(x)=-1", Some("W(x)=1orW(x)=-1")),
            (r"4\sqrt(2)", Some(r"4\sqrt(2)")),
            (r"\forall x>0, f(x) = 0", Some(r"\forall x>0, f(x) = 0")),
            (r"It is \begin{bmatrix}1\end{bmatrix}.", Some(r"\begin{bmatrix}1\end{bmatrix}")),
            (r"So $f(x)=2x$ for all $x \in \mathbb{R}$.", Some("f(x)=2x")),
            (r"Hence $f(n)=n+1$, for every integer $n\ge1$, where $n$ is odd.", Some("f(n)=n+1")),
            (r"We get $2x+c$ where $c$ is a constant.", Some("2x+c")),
            ("It holds for all $x>3$.", Some("x>3")),
            ("We pay $5$ for all $3$", Some("3")),
            ("no solution", Some("no solution")),
            ("this is a text that says nothing at all", None),
            ("?", None),
            ("", None),
        ],
    );
}

#[test]
fn each_mode_has_its_own_rule() {
    check(
        Extraction::AfterThinking,
        &[
            (r"<think>\boxed{4}</think> \boxed{5}", Some("5")),
            (r"###Response \boxed{5}", Some("5")),
            (r"<think>\boxed{4}</think> 5", None),
            (r"[THINK]\boxed{4}[/THINK] \boxed{5}", Some("5")),
            (r"[THINK]\boxed{4} \boxed{5}", None),
            (r"a</think> \boxed{5} <think>or \boxed{6}", None),
            (r"\boxed{5}", None),
        ],
    );

    check(Extraction::Boxed, &[(r"<think>\boxed{4}</think> 5", None), (r"<think>\boxed{4}", None)]);
    check(
        Extraction::Bare,
        &[
            (" x^2 + 1 \n", Some("x^2 + 1")),
            ("$x^2$", Some("x^2")),
            (r"$\boxed{7}$", Some("7")),
            ("**7**<|im_end|>", Some("7")),
            ("", None),
        ],
    );

    check(
        Extraction::Latex,
        &[
            ("We get $x$, so 5", Some("x")),
            ("so 5", None),
            ("Answer \\[\n9\n\\]", Some("9")),
            ("Answer $\n9\n$", None),
            ("Therefore $x <= 2$ is our answer.", Some("x <= 2")),
        ],
    );

    check(
        Extraction::Plain,
        &[
            ("Prix : 3,49 $ a..", Some("3.49")),
            ("it is not 10 but 2,000.50€", Some("2,000.50")),
            ("about 1.5e-3", Some("1.5e-3")),
            ("-3/4", Some("-3/4")),
            ("8 %", Some(r"8 \%")),
            ("12 345", Some("12 345")),
            ("0,125", Some("0.125")),
            (".5", Some(".5")),
            ("−5", Some("−5")),
            ("AZYUK2A", None),
            ("1/2/3", None),
        ],
    );
}

#[test]
fn spans_are_where_the_answer_stands() {
    for (text, expected) in [
        (r"Ünder $x = \boxed{ 5. }$", "5"),
        (r"Answer: **$\frac12$**.", r"\frac12"),
        (r"\boxed{3} and \boxed{4}", r"3} and \boxed{4"),
        ("é 7 percent", "7"),
    ] {
        let span = extract(text, Extraction::Auto).unwrap().span;
        assert_eq!(&text[span.range], expected);
    }
}

/// Pieces of awkward texts.
const PIECES: [&str; 58] = [
    "$",
    "$$",
    "\\boxed{",
    "\\boxed ",
    "\\fbox",
    "\\framebox[",
    "\\",
    "\\\\",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    "\\(",
    "\\)",
    "\\[",
    "\\]",
    "\\{",
    "Answer: ",
    "final answer is ",
    "#### ",
    "答案",
    "答案：",
    "**",
    "*",
    "_",
    "`",
    "😀",
    "é",
    "４",
    "−",
    "\u{301}",
    "\u{200b}",
    "\u{1b}[",
    "\u{0}",
    "1",
    "1,",
    "1.",
    "1/",
    "1e",
    " 000",
    "%",
    " percent",
    "x",
    "A ",
    "and ",
    " or ",
    "is ",
    "\n",
    "\n\n",
    " ",
    "<|",
    "|>",
    "</think>",
    "\\begin{array}",
    "\\end{array}",
    "\\text{",
];

proptest! {
    #[test]
    fn any_text_has_its_answer_inside_or_none(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24),
        noise in ".{0,8}",
        more in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..24),
    ) {
        let text = pieces.concat() + &noise + &more.concat();
        for extraction in MODES {
            if let Some(answer) = extract(&text, extraction) {
                prop_assert!(text.get(answer.span.range).is_some());
                prop_assert!(!answer.span.text.is_empty());
            }
        }
    }
}

#[test]
fn time_is_linear_in_the_text() {
    let repeats = [
        "$1$ and ",
        "\\boxed{1} ",
        "\\boxed 1 ",
        "\\(\n",
        "$$\n",
        "\\[ ",
        "1 0001",
        "Answer: \n",
        "$1$, ",
        "\\text{a ",
        "A B ",
        "\\begin{array}\n",
        "<|a",
        "5 is ",
        "word ",
        "1 ",
        "(1) ",
        "not the 5 ",
    ];

    for piece in PIECES.iter().chain(&repeats) {
        let mut text = piece.repeat((1 << 20) / piece.len());
        for end in ["", " Answer: $5$", "}"] {
            let length = text.len();
            text.push_str(end);
            for extraction in [Extraction::Auto, Extraction::Plain] {
                let start = Instant::now();
                extract(&text, extraction);
                let taken = start.elapsed();
                assert!(
                    taken < Duration::from_secs(1),
                    "{piece:?} {end:?} {extraction:?}: {taken:?}"
                );
            }
            text.truncate(length);
        }
    }

    // A marker before 60 KiB on one line, and a box around a megabyte.
    for piece in PIECES.iter().chain(&repeats) {
        let text = format!("Answer: {}", piece.repeat((60 << 10) / piece.len()));
        let start = Instant::now();
        extract(&text, Extraction::Auto);
        assert!(start.elapsed() < Duration::from_secs(1), "{piece:?} after a marker");

        let text = format!("\\boxed{{{}}}", piece.repeat((1 << 20) / piece.len()));
        let start = Instant::now();
        extract(&text, Extraction::Auto);
        assert!(start.elapsed() < Duration::from_secs(1), "{piece:?} in a box");
    }
}
