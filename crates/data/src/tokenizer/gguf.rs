//! A tokenizer as a GGUF file holds it.

use firebrick_gguf::Vocabulary;

use super::Tokenizer;
use crate::{ChatTemplate, DataError};

/// Texts on which two tokenizers have to agree: digits, cases, blanks and ends of lines, punctuation, code, and scripts
/// with and without blanks between their words. Their characters are composed, since llama.cpp composes none.
const SAMPLES: [&str; 8] = [
    "What is 17 + 25? It's 42, isn't it: 1234567 < 12345678.",
    "The quick brown FOX jumps OverTheLazy dog's back; don't you'll SEE?!",
    "  two  blanks,\ta tab,\n\n\na line\r\nand   some at the end   ",
    "fn main() {\n    println!(\"{}\", x_1 != y[0] && !done); // why?\n}",
    "naïve café, Ångström, „Größe“ – Привет, мир! γειά σου",
    "我有３个苹果。日本語のテキスト、한국어 문장, สวัสดี, नमस्ते, שלום, مرحبا",
    "😀👍🏽 ½ ² Ⅳ ∑ x² ≤ 10⁻³ … <b>bold</b> https://example.org/a?b=c#d",
    "<0x0A> [PAD0] ▁ <unk> </s>",
];

impl Tokenizer {
    /// Returns what a GGUF file says of the tokenizer and of the chat template.
    pub fn vocabulary<'a>(&'a self, template: Option<&'a ChatTemplate>) -> Vocabulary<'a> {
        // An empty text has only the tokens that are put around every text.
        let around = self.encode("", true).unwrap_or_default();
        let begins = self.bos.is_some() && around.first() == self.bos.as_ref();
        Vocabulary {
            tokenizer: self.files.get("tokenizer.json").map_or(&[], Vec::as_slice),
            template: template.map(ChatTemplate::source),
            bos: self.bos,
            adds_bos: begins,
            adds_eos: around.len() > usize::from(begins) && around.last() == Some(&self.eos),
            pad: Some(self.pad).filter(|pad| *pad != self.eos),
            ends: &self.stop,
        }
    }

    /// Checks that `other`, which was read from a GGUF file of this tokenizer, makes the same tokens of sample texts,
    /// and ends them at the same tokens.
    ///
    /// # Errors
    /// Fails if it does not.
    pub fn check_written(&self, other: &Tokenizer) -> Result<(), DataError> {
        let failed = |problem| {
            let origin = "the tokenizer as GGUF".to_owned();
            Err(DataError::Tokenizer { origin, problem })
        };

        let ends = self.stop.iter().filter_map(|&end| self.inner.id_to_token(end));
        let between = ends.map(|end| format!("one{end}two"));
        for text in SAMPLES.into_iter().map(str::to_owned).chain(between) {
            // A text that the vocabulary can't write needs no tokens in a file either.
            let Ok(ours) = self.encode(&text, true) else { continue };
            let theirs = other.encode(&text, true)?;
            if ours != theirs {
                return failed(format!(
                    "{text:?} becomes {ours:?} in the model's folder and would become {theirs:?} in the file, which has \
                     no words for the difference"
                ));
            }
        }

        match self.stop.iter().find(|end| !other.stop.contains(end)) {
            Some(end) => failed(format!("the file does not say that the token {end} ends a text")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use firebrick_gguf::{FileType, GgufError, NewGguf, NewModel};
    use serde_json::json;

    use super::*;

    const LLAMA: &str = "../../tests/fixtures/llama3-f32-scaled";
    const QWEN: &str = "../../tests/fixtures/qwen2-f32";

    /// Writes a model of nothing but a tokenizer and an embedding of zeros.
    fn write(tokenizer: &Tokenizer, path: &Path) -> Result<(), GgufError> {
        let rows = tokenizer.rows() + 3;
        let config = json!({
            "model_type": "llama", "vocab_size": rows, "hidden_size": 8, "intermediate_size": 8,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4,
            "max_position_embeddings": 16, "rms_norm_eps": 1e-6, "rope_theta": 10_000.0,
        });
        let model = NewModel {
            name: "tiny",
            config: &config,
            tensors: vec![("model.embed_tokens.weight".into(), vec![rows, 8])],
            vocabulary: tokenizer.vocabulary(None),
        };
        NewGguf::create(path, &model, FileType::F32).map(drop)
    }

    #[test]
    fn a_written_tokenizer_makes_the_same_tokens() {
        let folder = tempfile::tempdir().unwrap();
        let [llama, qwen] = [LLAMA, QWEN].map(|name| {
            let ours = Tokenizer::from_folder(name).unwrap();
            let path = folder.path().join(format!("{}.gguf", ours.eos()));
            write(&ours, &path).unwrap();
            let theirs = Tokenizer::from_folder(&path).unwrap();
            ours.check_written(&theirs).unwrap();

            assert_eq!(theirs.bos(), ours.bos());
            assert_eq!((theirs.eos(), theirs.pad()), (ours.eos(), ours.pad()));
            ours
        });

        let characters = Tokenizer::characters("0123456789+=").unwrap();
        let path = folder.path().join("characters.gguf");
        let problem = write(&characters, &path).unwrap_err().to_string();
        assert!(problem.contains("cuts texts by rules that have no name"), "{problem}");

        // The one puts a token before every text, and the other doesn't.
        let problem = llama.check_written(&qwen).unwrap_err().to_string();
        assert!(problem.contains("What is 17 + 25?"), "{problem}");
    }

    #[test]
    fn a_file_names_three_ends_at_most() {
        let folder = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(QWEN).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap();
            if name.to_string_lossy().starts_with("tokenizer") {
                fs::copy(&file, folder.path().join(name)).unwrap();
            }
        }

        let ends = |ids: &[u32]| {
            let generation = json!({"eos_token_id": ids}).to_string();
            fs::write(folder.path().join("generation_config.json"), generation).unwrap();
            let ours = Tokenizer::from_folder(folder.path()).unwrap();
            let path = folder.path().join(format!("{}.gguf", ids.len()));
            write(&ours, &path).map(|()| {
                let theirs = Tokenizer::from_folder(&path).unwrap();
                ours.check_written(&theirs).unwrap();
            })
        };
        ends(&[10, 11]).unwrap();
        let problem = ends(&[10, 11, 12]).unwrap_err().to_string();
        assert!(problem.contains("3 tokens besides its own end a text"), "{problem}");
    }
}
