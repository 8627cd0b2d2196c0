//! Reward models: their scores against the reference implementation, and the texts that they refuse.

#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc::channel,
};

use burn::tensor::Device;
use firebrick_core::{Completion, FinishReason, Prompt, TokenId, Verdict, Verifier};
use firebrick_data::ChatTemplate;
use firebrick_models::{ModelVerifier, RewardModel, Transform, load};
use firebrick_tests::{
    close::{Tolerance, pairs},
    expected::unpad,
    fixture::for_each_tokenizer,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

const SCORES: Tolerance = Tolerance { absolute: 1e-4, relative: 0.0 };
const OTHER_BATCHES: Tolerance = Tolerance { absolute: 1e-5, relative: 0.0 };

#[derive(Deserialize)]
struct Facts {
    right: Side,
    left: Side,
    unpadded: Vec<f32>,
    rendered: Vec<String>,
    /// Conversations that `rendered` was made from. Only the tests' own folder has them.
    #[serde(default)]
    messages: Vec<Value>,
    pads_only: Option<f32>,
}

#[derive(Deserialize)]
struct Side {
    input_ids: Vec<Vec<TokenId>>,
    attention_mask: Vec<Vec<u8>>,
    scores: Vec<f32>,
}

fn scores(model: &RewardModel, rows: &[Vec<TokenId>]) -> Vec<f32> {
    model.scores(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>())
}

#[test]
fn fixtures_reward() {
    for_each_tokenizer("reward", |fixture, expected: Facts| {
        let model = RewardModel::load(&fixture.folder, &Device::flex()).unwrap();
        let rows = unpad(&expected.right.input_ids, &expected.right.attention_mask);
        assert_eq!(rows, unpad(&expected.left.input_ids, &expected.left.attention_mask));
        let alone = scores(&model, &rows);
        let padded = scores(&model, &expected.right.input_ids);

        for (name, came, reference) in [
            ("right", &padded, &expected.right.scores),
            ("left", &alone, &expected.left.scores),
            ("unpadded", &alone, &expected.unpadded),
        ] {
            let pairs = pairs(came, reference);
            SCORES.check(&format!("{}, {name}", fixture.name), pairs);
        }

        let tokenizer = fixture.tokenizer();
        let last = rows.len() - 1;
        assert_eq!(
            rows[last].last(),
            Some(&tokenizer.pad()),
            "the last row's text ends in padding"
        );

        if let Some(score) = expected.pads_only {
            let pads = scores(&model, &[vec![tokenizer.pad(); 3]]);
            SCORES.check("padding alone", pairs(&pads, &[score]));
        }

        for text in &expected.rendered {
            assert!(rows.contains(&tokenizer.encode(text, false).unwrap()), "{text:?}");
        }
        let template = ChatTemplate::from_folder(&fixture.folder).unwrap().unwrap();
        for (messages, text) in expected.messages.iter().zip(&expected.rendered) {
            assert_eq!(&template.render(messages, false, &Map::new()).unwrap(), text);
        }

        // Score each text alone, and then all of them in one batch, in another order.
        let mut model = model.with_batch_tokens(1);
        let one_by_one = scores(&model, &rows);
        OTHER_BATCHES.check("one by one", pairs(&one_by_one, &alone));
        model = model.with_batch_tokens(1 << 20);
        let mut turned = scores(&model, &rows.iter().rev().cloned().collect::<Vec<_>>());
        turned.reverse();
        OTHER_BATCHES.check("at once, turned", pairs(&turned, &alone));
    });
}

#[test]
fn what_cannot_be_scored_is_an_error_and_told_once() {
    let model = RewardModel::load(&fixture("reward-qwen2-f32"), &Device::flex()).unwrap();
    // The text of a completion is the list of its tokens.
    let conversation = |_: &Prompt, completion: &Completion| match completion.text.as_str() {
        "refused" => Err("the template says no".to_owned()),
        "long" => Ok(vec![1; 32_769]),
        tokens => Ok(tokens.split_terminator(' ').map(|token| token.parse().unwrap()).collect()),
    };

    let (sender, notes) = channel();
    let transform = Transform { scale: 1.0, offset: 0.0, sigmoid: true };
    let say = move |note: &str| sender.send(note.to_owned()).unwrap();
    let verifier = ModelVerifier::new(model, Box::new(conversation), transform, 0.9, say);

    let completions = ["22 7", "refused", "7 22 5", "long", "", "640", "22 7"].map(|text| {
        let tokens = vec![];
        let logprobs = vec![];
        Completion::written(tokens, logprobs, FinishReason::Stop).with_text(text)
    });

    let prompt = Prompt::default();
    let asked: Vec<_> = completions.iter().map(|completion| (&prompt, completion)).collect();
    let scores = verifier.score_all(&asked).unwrap();

    for (index, score) in scores.iter().enumerate() {
        if [0, 2, 6].contains(&index) {
            let credit = 1.0 / (1.0 + (-score.parts[0].1).exp());
            assert!((score.credit - credit).abs() < 1e-6, "{score:?}");
            assert_eq!(score.verdict == Verdict::Right, score.credit >= 0.9, "{score:?}");
        } else {
            assert_eq!((score.verdict, score.credit), (Verdict::Error, 0.0), "{index}");
            assert!(score.parts.is_empty());
        }
    }

    assert_ne!(scores[0], scores[2]);
    assert_eq!(scores[0], scores[6]);
    let notes: Vec<String> = notes.try_iter().collect();
    assert!(notes.len() == 1 && notes[0].contains("the template says no"), "{notes:?}");
}

#[test]
fn what_is_no_reward_model_is_refused_by_name() {
    let error = |change: &dyn Fn(&mut Value)| {
        let folder = tempfile::tempdir().unwrap();
        let source = fixture("reward-qwen2-f32");
        let config = fs::read(source.join("config.json")).unwrap();
        let mut config = serde_json::from_slice(&config).unwrap();
        change(&mut config);
        fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
        let weights = "model.safetensors";
        fs::copy(source.join(weights), folder.path().join(weights)).unwrap();
        RewardModel::load(folder.path(), &Device::flex()).unwrap_err().to_string()
    };

    let two = error(&|config| config["id2label"] = json!({"0": "bad", "1": "good"}));
    assert!(two.contains("2 labels"), "{two}");
    let silent = error(&|config| drop(config.as_object_mut().unwrap().remove("id2label")));
    assert!(silent.contains("2 labels"), "{silent}");
    let wider = error(&|config| config["intermediate_size"] = json!(161));
    assert!(wider.contains("[161, 64]"), "{wider}");

    let causal = "Qwen2ForCausalLM";
    let classifier = "Qwen2ForSequenceClassification";
    let no_score = RewardModel::load(&fixture("qwen2-f32"), &Device::flex()).unwrap_err();
    let no_logits = load(&fixture("reward-qwen2-f32"), &Device::flex()).unwrap_err();
    for (error, came) in [(no_score.to_string(), causal), (no_logits.to_string(), classifier)] {
        assert!(error.contains(&format!("architecture \"{came}\"")), "{error}");
        assert!(error.contains(causal) && error.contains(classifier), "{error}");
    }

    let untyped = tempfile::tempdir().unwrap();
    let config = fs::read_to_string(fixture("qwen2-f32").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&config).unwrap();
    config["architectures"] = Value::Null;
    config["num_labels"] = json!(1);
    fs::write(untyped.path().join("config.json"), config.to_string()).unwrap();
    let weights = "model.safetensors";
    fs::copy(fixture("qwen2-f32").join(weights), untyped.path().join(weights)).unwrap();
    let headless = RewardModel::load(untyped.path(), &Device::flex()).unwrap_err().to_string();
    assert!(headless.contains("no tensor \"score.weight\""), "{headless}");
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures").join(name)
}
