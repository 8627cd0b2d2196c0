//! A `tokenizer.json` of any bytes is read or refused, and what it makes of a text has a bound.
#![no_main]

use firebrick_core::Detokenizer;
use firebrick_data::Tokenizer;
use firebrick_fuzz::with_file;
use libfuzzer_sys::fuzz_target;

const NAMED: &[u8] = br#"{"eos_token": "<|endoftext|>", "bos_token": "a"}"#;

fuzz_target!(|bytes: &[u8]| {
    firebrick_fuzz::let_panics_be_caught();
    with_file("tokenizer_config.json", NAMED, |_| ());
    let tokenizer =
        with_file("tokenizer.json", bytes, |path| Tokenizer::from_folder(path.parent().unwrap()));
    match tokenizer {
        Ok(tokenizer) => {
            for text in ["hi <|endoftext|>", "2 + 2 = \u{ff14}\n\n"] {
                match tokenizer.encode(text, true) {
                    Ok(tokens) => drop(tokenizer.detokenize(&tokens)),
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
