//! The program's own policy and run, taken from its source.

#[allow(dead_code)]
#[path = "../src/main.rs"]
mod program;

use std::{fs, iter::zip, sync::Arc};

use firebrick::{
    PolicyModel, Prompt, Seed,
    burn::tensor::{Device, Tensor},
    data::Tokenizer,
    models::{Padding, TokenBatch, head_logprobs},
    rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate},
};
use program::{Recurrent, train};

/// Sampling and training compute log-probabilities in two ways. Two prompts are read together, so that the
/// shorter one is padded, and the third joins them later.
#[test]
fn what_is_sampled_has_the_log_probabilities_of_the_forward_pass() {
    let tokenizer = Tokenizer::characters("0123456789+=,;").unwrap();
    let policy = Recurrent::new(tokenizer.rows(), 3, &Device::flex());
    let prompts = ["1+2=", "98+76=", "5+43="].map(|text| tokenizer.encode(text, false).unwrap());
    let prompt = |(id, tokens)| (id, Prompt { id, tokens, ..Prompt::default() });
    let sampling = Sampling { temperature: 1.0, ..Sampling::greedy(20, vec![tokenizer.eos()]) };
    let prompts = (0..).zip(prompts).map(prompt);
    let requests = GroupRequest::of_prompts(prompts, 3, &sampling, Seed::run(5));
    let mut engine = LocalEngine::new(&policy, Arc::new(tokenizer), 6, 64, SampleOn::Host);
    for group in generate(&mut engine, requests, &mut |_| {}).unwrap() {
        let before = group.prompt.tokens.len();
        for completion in &group.completions {
            let text = [&group.prompt.tokens[..], &completion.tokens].concat();
            let batch = TokenBatch::new(&[&text, &[1; 40]], Padding::Right, &policy.device());
            let count = completion.tokens.len();
            let hidden = policy.hidden(&batch).slice_dim(0, 0..1).narrow(1, before - 1, count);
            let labels: Vec<i32> = completion.tokens.iter().map(|&token| token as i32).collect();
            let forward = head_logprobs(
                &hidden.squeeze_dim(0),
                &policy.lm_head(),
                &Tensor::from_ints(labels.as_slice(), &policy.device()),
                1.0,
                1000,
            );
            let forward = forward.logprobs.try_into_vec_as::<f32>().unwrap();
            for (forward, sampled) in zip(forward, &completion.logprobs) {
                assert!((forward - sampled).abs() < 1e-4, "{forward} and {sampled}");
            }
        }
    }
}

#[test]
fn it_learns_and_a_resumed_run_ends_as_one_that_was_not_ended() {
    let ended = |first: Option<u64>| {
        let place = tempfile::tempdir().unwrap();
        if let Some(steps) = first {
            train(place.path(), 1, steps, false).unwrap();
        }
        let run = train(place.path(), 1, 3, first.is_some()).unwrap();
        let weights = run.checkpoint.unwrap().join("policy.safetensors");
        (fs::read(weights).unwrap(), run.heldout.after_sft)
    };
    let (whole, accuracy) = ended(None);
    assert!(accuracy.unwrap() > 0.3, "{accuracy:?}");
    assert!(ended(Some(1)).0 == whole, "the resumed run ended elsewhere");
}
