//! Turns bytes into formulas. Random bytes are almost never maths, so the bytes choose the steps of a small
//! machine that writes formulas instead.

/// Writes a text of pieces that answers are made of, chosen by `bytes`.
pub fn pieces(bytes: &[u8]) -> String {
    #[rustfmt::skip]
    const PIECES: [&str; 64] = [
        "\\boxed{", "}", "{", "$", "$$", "\\(", "\\)", "\\[", "\\]", "Answer: ", "**", "Final Answer",
        "the final answer is ", "#### ", "\n", "\n\n", " ", ".", ",", " and ", " or ", "\\frac", "\\frac{1}{2}",
        "\\sqrt", "\\text{", "\\left(", "\\right)", "(", ")", "[", "]", "\\{", "\\}", "|", "^", "_", "+", "-",
        "=", "<", "\\le ", "x", "y", "f(x)", "1", "42", "0.5", "1,234", "e", "i", "\\pi", "\\infty", "%", "\\%",
        "^\\circ", "!", "\\pm", ":", "\\cup", "</think>", "<|im_end|>", "答案：", "½", "\\\\",
    ];
    bytes.iter().map(|byte| PIECES[usize::from(*byte) % PIECES.len()]).collect()
}

/// Grows a well-formed formula from `bytes` with a stack machine.
pub fn formula(bytes: &[u8]) -> String {
    let mut stack: Vec<String> = vec![];
    for byte in bytes.iter().take(40) {
        let (operation, number) = (byte % 24, byte / 24);
        let mut pop = || stack.pop().unwrap_or_else(|| (number + 1).to_string());
        let text = match operation {
            0..=4 => u32::from(*byte).pow(1 + u32::from(number % 3)).to_string(),
            5 => "x".to_owned(),
            6 => "y".to_owned(),
            7 => ["\\pi", "e", "i", "\\infty", "n"][usize::from(number) % 5].to_owned(),
            8 => format!("{number}.{byte}"),
            9 | 10 => format!("({}+{})", pop(), pop()),
            11 => format!("({}-{})", pop(), pop()),
            12 | 13 => format!("{}\\cdot({})", pop(), pop()),
            14 => format!("\\frac{{{}}}{{{}}}", pop(), pop()),
            15 => format!("({})^{{{}}}", pop(), number % 5),
            16 => format!("({})^{{{}}}", pop(), pop()),
            17 => format!("\\sqrt{{{}}}", pop()),
            18 => format!("\\sqrt[3]{{{}}}", pop()),
            19 => format!(
                "\\{}({})",
                ["sin", "cos", "tan", "ln", "exp", "arctan", "log_2", "arcsin"]
                    [usize::from(number) % 8],
                pop()
            ),
            20 => format!("-{}", pop()),
            21 => format!("|{}|", pop()),
            22 => format!("({})!", pop()),
            _ => format!("\\sum_{{k=1}}^{{{}}}({}+k)", number + 1, pop()),
        };
        if text.len() > 400 {
            break;
        }
        stack.push(text);
    }
    stack.pop().unwrap_or_default()
}
