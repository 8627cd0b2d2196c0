//! A chat template of any text is refused, or ends within its budget.
#![no_main]

use firebrick_data::ChatTemplate;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, json};

fuzz_target!(|text: &str| {
    let tokens = Map::from_iter([("bos_token".to_owned(), json!("<s>"))]);
    let Ok(template) = ChatTemplate::new(text, tokens) else { return };
    template.variables();
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "What is 6 * 7?"},
        {"role": "assistant", "content": "<think>\n6 sevens\n</think>\n42", "tool_calls": []},
        {"role": "user", "content": "And 7 * 6?"},
    ]);
    let kwargs = Map::from_iter([("enable_thinking".to_owned(), json!(true))]);
    for asked in [false, true] {
        if let Err(error) = template.render(&messages, asked, &kwargs) {
            assert!(!error.to_string().is_empty());
        }
    }
    let _ = template.render_unfinished(&messages, &kwargs);
});
