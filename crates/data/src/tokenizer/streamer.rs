//! Turns tokens into text one by one, as they are sampled.

use firebrick_core::TokenId;
use serde_json::json;

use super::Tokenizer;

/// Turns tokens into text one by one, without those that begin, end or fill up a text.
///
/// A token is not always a piece of text: a character may be spread over several tokens, and some decoders take a
/// space off the very first token. So a streamer emits only text that can no longer change, and holds the rest back.
/// Its pieces, joined, are the text that [`firebrick_core::Detokenizer::detokenize`] makes of all tokens.
///
/// ```
/// use firebrick_data::Tokenizer;
///
/// let tokenizer = Tokenizer::characters("0123456789+=")?;
/// let mut streamer = tokenizer.streamer();
/// assert_eq!(streamer.push(3), "1");
/// assert_eq!(streamer.push(12), "+");
/// assert_eq!(streamer.push(tokenizer.eos()), "");
/// assert_eq!(streamer.finish(), "");
/// # Ok::<(), firebrick_data::DataError>(())
/// ```
pub struct Streamer<'a> {
    tokenizer: &'a Tokenizer,
    decoder: Decoder,
    /// Tokens of the piece that was emitted last, then those whose text is still held back. A decoder treats the
    /// first token of a text differently, so there is always a token in front.
    window: Vec<TokenId>,
    /// How many tokens of the window are emitted, and how many bytes their text has.
    emitted: (usize, usize),
}

impl Tokenizer {
    /// Makes a streamer, which emits the text of tokens as they come.
    pub fn streamer(&self) -> Streamer<'_> {
        let decoder = Decoder::of(&self.inner);
        Streamer { tokenizer: self, decoder, window: Vec::new(), emitted: (0, 0) }
    }
}

impl Streamer<'_> {
    /// Takes the next token, and returns the text that is certain since the last call. It is often empty.
    ///
    /// Tokens that begin, end or fill up a text, and ids outside the vocabulary, have no text.
    pub fn push(&mut self, token: TokenId) -> String {
        let inner = &self.tokenizer.inner;
        let Some(text) = inner.id_to_token(token) else { return String::new() };
        if self.tokenizer.wordless.contains(&token) {
            return String::new();
        }

        self.window.push(token);
        let open = match self.decoder {
            Decoder::AtTheEnd => true,
            // A run of bytes is text as a whole, or not at all.
            Decoder::Bytes => is_byte(&text),
            Decoder::Plain => false,
        };
        if open {
            return String::new();
        }

        let (tokens, bytes) = self.emitted;
        let mut text = self.tokenizer.decode(&self.window, false);
        // An unfinished character looks like the replacement character.
        if text.len() <= bytes || text.ends_with(char::REPLACEMENT_CHARACTER) {
            return String::new();
        }

        // The tokens of the previous piece are removed. Those of this piece stay, to precede the next one.
        self.window.drain(..tokens);
        let bytes_of_piece = self.tokenizer.decode(&self.window, false).len();
        self.emitted = (self.window.len(), bytes_of_piece);
        text.split_off(bytes)
    }

    /// Returns the text that was still held back.
    pub fn finish(self) -> String {
        self.tokenizer.decode(&self.window, false).split_off(self.emitted.1)
    }
}

/// How far a decoder's text depends on later tokens.
#[derive(Clone, Copy)]
enum Decoder {
    /// Not at all, except for characters that are not complete.
    Plain,
    /// Within a run of byte tokens, as sentencepiece writes characters outside the vocabulary. A run that is not text
    /// loses even those of its bytes that were text.
    Bytes,
    /// Up to the end: the decoder may join or clean up text across any tokens, so nothing is certain before. No
    /// family of causal language models has such a decoder.
    AtTheEnd,
}

impl Decoder {
    fn of(tokenizer: &tokenizers::Tokenizer) -> Self {
        let json = serde_json::to_value(tokenizer.get_decoder()).unwrap_or_default();
        if matches!(json["type"].as_str(), Some("ByteLevel" | "Metaspace")) || json.is_null() {
            return Decoder::Plain;
        }

        // The chains of decoders that converted sentencepiece models have.
        let spaces = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
        let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
        let bytes = json!({"type": "ByteFallback"});
        let fuse = json!({"type": "Fuse"});

        match json["decoders"].as_array().map(Vec::as_slice) {
            Some([a, b, c]) if [a, b, c] == [&spaces, &bytes, &fuse] => Decoder::Bytes,
            Some([a, b, c, d]) if [a, b, c, d] == [&spaces, &bytes, &fuse, &strip] => {
                Decoder::Bytes
            }
            _ => Decoder::AtTheEnd,
        }
    }
}

/// Tells whether a token stands for one byte, as `<0x0A>` does.
fn is_byte(token: &str) -> bool {
    token.len() == 6 && token.starts_with("<0x") && token.ends_with('>')
}

#[cfg(test)]
mod tests {
    use std::fs;

    use firebrick_core::Detokenizer as _;
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// Makes a tokenizer with bytes and words in the ways of the usual decoders, and with two special tokens in
    /// front.
    fn tokenizer(decoder: Value) -> Tokenizer {
        let words = ["▁", "▁a", "b", "é", "�", " .", "##s", "", "<0x", "Ġ", "ð", "Ł", "ĺ", "Ģ"];
        let bytes = [0x41, 0x0a, 0xe2, 0x82, 0xac, 0xff].map(|byte: u8| format!("<0x{byte:02X}>"));
        let tokens = ["<pad>", "<eos>"].into_iter().chain(words).map(String::from).chain(bytes);
        let vocabulary: serde_json::Map<String, Value> =
            tokens.enumerate().map(|(id, token)| (token, id.into())).collect();

        let folder = tempfile::tempdir().unwrap();
        Tokenizer::characters("x").unwrap().save(folder.path()).unwrap();

        let path = folder.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        json["decoder"] = decoder;
        json["model"]["vocab"] = vocabulary.into();
        fs::write(path, json.to_string()).unwrap();
        Tokenizer::from_folder(folder.path()).unwrap()
    }

    fn sentencepiece(strip: bool) -> Value {
        let mut decoders = vec![
            json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
            json!({"type": "ByteFallback"}),
            json!({"type": "Fuse"}),
        ];
        if strip {
            decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
        }
        json!({"type": "Sequence", "decoders": decoders})
    }

    fn byte_level() -> Value {
        json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": true,
        })
    }

    fn decoders() -> impl Strategy<Value = Value> {
        prop::sample::select(vec![
            byte_level(),
            sentencepiece(true),
            sentencepiece(false),
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true}),
            json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
            Value::Null,
        ])
    }

    proptest! {
        #[test]
        fn what_is_streamed_is_what_is_decoded(
            decoder in decoders(),
            tokens in prop::collection::vec(0_u32..24, 0..24),
        ) {
            let tokenizer = tokenizer(decoder);
            let mut streamer = tokenizer.streamer();
            let mut text: String = tokens.iter().map(|&token| streamer.push(token)).collect();
            text += &streamer.finish();
            prop_assert_eq!(text, tokenizer.detokenize(&tokens));
        }
    }

    #[test]
    fn text_comes_as_soon_as_it_is_certain() {
        let pieces = |decoder, tokens: &[&str]| {
            let tokenizer = tokenizer(decoder);
            let mut streamer = tokenizer.streamer();
            let ids = tokens.iter().map(|token| tokenizer.inner.token_to_id(token).unwrap());
            let mut pieces: Vec<String> = ids.map(|id| streamer.push(id)).collect();
            pieces.push(streamer.finish());
            pieces
        };

        let smile = ["b", "ð", "Ł", "ĺ", "Ģ", "<eos>", "b", "ð"];
        assert_eq!(pieces(byte_level(), &smile), ["b", "", "", "", "😀", "", "b", "", "\u{fffd}"]);

        let euro = ["▁a", "▁a", "<0xE2>", "<0x82>", "<0xAC>", "b", "<0x0A>"];
        let expected = ["a", " a", "", "", "", "€b", "", "\n"];
        assert_eq!(pieces(sentencepiece(true), &euro), expected);
    }
}
