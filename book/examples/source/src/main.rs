//! A data source of one's own, and a run without a recipe's file: the model sorts the digits of a number.

use std::path::Path;

use firebrick::{
    OwnPolicy, Prompt, PromptSource, Result, Seed, Session, SftExample, Summary, TokenId,
    burn::tensor::Device,
    data::Tokenizer,
    models::{Decoder, DecoderConfig, Family, Sizes, random},
    reward::Exact,
};

// ANCHOR: digits
/// Numbers of four digits: `3142=` asks for `1234`.
struct Digits {
    tokenizer: Tokenizer,
    seed: Seed,
    cursor: u64,
    numbers: Vec<u64>,
}

impl PromptSource for Digits {
    fn draw(&mut self) -> Prompt {
        let uniform = self.seed.derive("number", &[self.cursor]).stream().uniform_at(0);
        self.cursor += 1;
        self.prompt(self.numbers[(uniform * self.numbers.len() as f64) as usize])
    }

    fn cursor(&self) -> u64 {
        self.cursor
    }

    fn seek(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    fn size(&self) -> u64 {
        self.numbers.len() as u64
    }
}
// ANCHOR_END: digits

impl Digits {
    fn new(seed: u64) -> Result<Self> {
        let tokenizer = Tokenizer::characters("0123456789=")?;
        let numbers = (0..10_000).filter(|&number| !held_out(number)).collect();
        Ok(Digits { tokenizer, seed: Seed::run(seed), cursor: 0, numbers })
    }

    fn prompt(&self, number: u64) -> Prompt {
        let text = format!("{number:04}=");
        let mut digits: Vec<char> = text[..4].chars().collect();
        digits.sort_unstable();
        let (tokens, reference) = (self.encode(&text), String::from_iter(digits));
        Prompt { id: number, text, tokens, reference, ..Prompt::default() }
    }

    fn sft_example(&self, number: u64) -> SftExample {
        let Prompt { tokens, reference, .. } = self.prompt(number);
        let completion = [self.encode(&reference), vec![self.tokenizer.eos()]].concat();
        SftExample::new(tokens, completion)
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.tokenizer.encode(text, false).expect("digits and = are in its alphabet")
    }
}

/// Tells whether a number is kept for evaluation. So is then every other number of the same digits, because
/// their answers are the same.
fn held_out(number: u64) -> bool {
    let digits = [number / 1000, number / 100 % 10, number / 10 % 10, number % 10];
    digits.iter().sum::<u64>().is_multiple_of(7)
}

// ANCHOR: main
fn policy(tokens: usize, seed: u64) -> Result<Decoder> {
    let sizes = Sizes {
        vocab_size: tokens,
        hidden_size: 64,
        layers: 2,
        heads: 4,
        kv_heads: 2,
        head_dim: 16,
        intermediate_size: 128,
        max_position_embeddings: 16,
        rope_theta: 10_000.0,
        tied: true,
    };
    let config = DecoderConfig::new(Family::Qwen2, sizes);
    Ok(random(&config, Seed::run(seed), &Device::flex().autodiff())?)
}

fn train(runs: &Path, sft: u64, steps: u64) -> Result<Summary> {
    let source = Digits::new(1)?;
    let tokenizer = source.tokenizer.clone();
    let policy = policy(tokenizer.rows(), 1)?;
    let heldout = (0..10_000).filter(|&number| held_out(number)).step_by(5);
    let heldout = heldout.map(|number| source.prompt(number)).collect();
    let sft_examples = source.numbers.iter().map(|&number| source.sft_example(number)).collect();
    let own = OwnPolicy::new(policy, tokenizer).context(16);
    let session = Session::with_policy(own, source, Exact::default())
        .heldout(heldout)
        .sft_examples(sft_examples)
        .runs(runs)
        .name("digits")
        .settings(|recipe| {
            (recipe.sft.steps, recipe.sft.lr) = (sft, Some(3e-3));
            (recipe.rollout.group_size, recipe.rollout.max_completion_tokens) = (8, 8);
            recipe.sampling.prompts_per_step = 32;
            (recipe.optim.lr, recipe.optim.warmup_steps) = (Some(5e-4), 0);
            (recipe.train.steps, recipe.train.mini_batch) = (steps, 128);
        });
    Ok(session.run()?.summary)
}

fn main() -> Result<()> {
    let heldout = train(Path::new("runs"), 150, 30)?.heldout;
    println!("sorted right before training {:?}", heldout.initial);
    println!("after SFT                    {:?}", heldout.after_sft);
    println!("after DAPO                   {:?}", heldout.r#final);
    Ok(())
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_finds_its_place_again_and_gives_nothing_that_is_held_out() {
        let mut source = Digits::new(1).unwrap();
        let drawn: Vec<Prompt> = (0..500).map(|_| source.draw()).collect();
        assert!(drawn.iter().all(|prompt| !held_out(prompt.id)));
        source.seek(123);
        assert_eq!((source.draw(), source.cursor()), (drawn[123].clone(), 124));
        assert_eq!(source.prompt(3142).reference, "1234");
    }
}
