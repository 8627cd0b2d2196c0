//! A policy of one's own, a gated linear recurrence, which learns to add.

use std::{iter::zip, path::Path};

use firebrick::burn::{self, module::*, prelude::*, tensor::activation::*, tensor::module::*};
use firebrick::{
    DecodeCache, OwnPolicy, PolicyModel, Result, Seed, Session, Summary, data::*, models::*,
    reward::Integer,
};

const LAYERS: usize = 3;
const WIDTH: usize = 96;

/// A layer makes zₜ, vₜ and oₜ of its input, divided by its size, and adds W(hₜ·silu(oₜ)) to the input. Its
/// memory is hₜ = (1 − gₜ)·hₜ₋₁ + gₜ·vₜ with gₜ = σ(zₜ − 1), which is long at first. Padding is zeros, which
/// every layer leaves as they are: before the first token h stays 0.
#[derive(Module, Debug)]
pub struct Recurrent {
    embedding: Param<Tensor<2>>,    // [tokens, WIDTH]; the head as well
    inputs: Vec<Param<Tensor<2>>>,  // [WIDTH, 3 · WIDTH], to z, v and o
    outputs: Vec<Param<Tensor<2>>>, // W, [WIDTH, WIDTH]
}

impl Recurrent {
    pub fn new(tokens: usize, seed: u64, device: &Device) -> Self {
        let matrix = |number: usize, shape: [usize; 2]| {
            let mut stream = Seed::run(seed).derive("weights", &[number as u64]).stream();
            let value = |at: usize| 0.4 * (stream.uniform_at(at as u64) as f32 - 0.5);
            let values: Vec<f32> = (0..shape[0] * shape[1]).map(value).collect();
            Param::from_data(TensorData::new(values, shape), device)
        };
        let inputs = (0..LAYERS).map(|layer| matrix(1 + layer, [WIDTH, 3 * WIDTH])).collect();
        let outputs = (0..LAYERS).map(|layer| matrix(101 + layer, [WIDTH, WIDTH])).collect();
        Recurrent { embedding: matrix(0, [tokens, WIDTH]), inputs, outputs }
    }

    /// Runs a layer on `x`, `[rows, tokens, WIDTH]`. `h`, `[rows, 1, WIDTH]`, goes from before it to behind it.
    fn pass(&self, layer: usize, x: Tensor<3>, h: &mut Tensor<3>) -> Tensor<3> {
        let length = x.dims()[1];
        let all = linear(self.finish(x.clone()), self.inputs[layer].val(), None).chunk(3, 2);
        let gate = sigmoid(all[0].clone() - 1.0);
        let (kept, taken) = (-gate.clone() + 1.0, gate * all[1].clone());
        let mut states = Vec::new();
        for (kept, taken) in zip(kept.chunk(length, 1), taken.chunk(length, 1)) {
            *h = kept * h.clone() + taken;
            states.push(h.clone());
        }
        let read = Tensor::cat(states, 1) * silu(all[2].clone());
        x + linear(read, self.outputs[layer].val(), None)
    }

    /// Runs all layers on `x` and gives the hidden state of the last token, `[rows, WIDTH]`.
    fn read(&self, mut x: Tensor<3>, memory: &mut Memory) -> Tensor<2> {
        for (layer, h) in memory.0.iter_mut().enumerate() {
            x = self.pass(layer, x, h);
        }
        self.finish(x.slice_dim(1, -1..)).squeeze_dim(1)
    }
}

impl PolicyModel for Recurrent {
    type Cache = Memory;
    type Context = ();

    fn device(&self) -> Device {
        self.embedding.device()
    }

    fn context(&self, _: &TokenBatch) {}

    fn embed(&self, batch: &TokenBatch) -> Tensor<3> {
        let present = batch.token_mask().unsqueeze_dim(2);
        embedding(self.embedding.val(), batch.tokens.clone()) * present
    }

    fn layers(&self) -> usize {
        LAYERS
    }

    fn layer(&self, index: usize, x: Tensor<3>, _: &()) -> Tensor<3> {
        self.pass(index, x.clone(), &mut x.slice_dim(1, ..1).zeros_like())
    }

    fn finish(&self, x: Tensor<3>) -> Tensor<3> {
        x.clone() / x.square().mean_dim(2).add_scalar(1e-6).sqrt()
    }

    fn prefill(&self, batch: &TokenBatch) -> (Tensor<2>, Memory) {
        let x = self.embed(batch);
        let mut memory = Memory(vec![x.clone().slice_dim(1, ..1).zeros_like(); LAYERS]);
        (self.read(x, &mut memory), memory)
    }

    fn decode(&self, tokens: Tensor<1, Int>, memory: &mut Memory) -> Tensor<2> {
        self.read(embedding(self.embedding.val(), tokens.unsqueeze_dim(1)), memory)
    }

    fn head(&self) -> &Param<Tensor<2>> {
        &self.embedding
    }
}

#[derive(Clone)]
pub struct Memory(Vec<Tensor<3>>); // h of each layer, behind the last token

impl DecodeCache for Memory {
    fn rows(&self) -> usize {
        self.0[0].dims()[0]
    }

    fn room(&self) -> usize {
        usize::MAX
    }

    fn arrange(self, keep: &[usize], newcomers: Option<(&Self, &[usize])>, _: usize) -> Self {
        let layer = |(layer, h): (usize, Tensor<3>)| {
            arrange_rows(h, keep, newcomers.map(|(new, join)| (new.0[layer].clone(), join)))
        };
        Memory(self.0.into_iter().enumerate().map(layer).collect())
    }
}

pub fn train(runs: &Path, seed: u64, steps: u64, resume: bool) -> Result<Summary> {
    let task = Task::Addition { digits: 2, worked: true, second_look: 0.0 };
    let tokenizer = Tokenizer::characters(task.alphabet())?;
    let format = PromptFormat::default();
    let preparation = Preparation::new(&tokenizer, &format);
    let problems = task.train(Seed::run(seed), 5_000)?;
    let heldout = preparation.prompts(&task.heldout(500)?)?.0;
    let (sft_examples, prompts): (Vec<_>, Vec<_>) =
        preparation.sft_examples(&problems)?.0.into_iter().unzip();
    let source = Prompts::new(prompts, Seed::run(seed))?;
    let policy = Recurrent::new(tokenizer.rows(), seed, &Device::flex().autodiff());
    let own = OwnPolicy::new(policy, tokenizer);
    let session = Session::with_policy(own, source, Integer { marker: Some(";".into()) });
    let session = session.heldout(heldout).sft_examples(sft_examples).runs(runs).resume(resume);
    let session = session.name(format!("seed-{seed}")).settings(|recipe| {
        (recipe.seed, recipe.train.steps, recipe.optim.lr) = (seed, steps, Some(3e-4));
        (recipe.sft.steps, recipe.sft.lr, recipe.sft.stop_at) = (400, Some(4e-3), Some(0.3));
        (recipe.rollout.group_size, recipe.rollout.max_completion_tokens) = (8, 32);
    });
    Ok(session.run()?.summary)
}

fn main() -> Result<()> {
    for seed in [1, 2] {
        train(Path::new("runs"), seed, 10, false)?;
        let Summary { heldout, seconds, .. } = train(Path::new("runs"), seed, 40, true)?;
        println!("seed {seed}: {heldout:?}, {seconds:?}");
    }
    Ok(())
}
