//! Runs the phases of the bench under the clock: sampling, updates, complete steps and verification.

use std::sync::Arc;

use firebrick_core::{
    Completion, Detokenizer, FinishReason, Prompt, PromptSource, RewardScale, Score, Seed, TokenId,
    Verifier, score_each,
};
use firebrick_models::Decoder;
use firebrick_reward::math;
use firebrick_rollout::{GroupRequest, LocalEngine, SampleOn, Sampling, generate};
use firebrick_train::{
    LocalLearner, OldLogprobs, Sample, Sampler, SamplerConfig, TrainConfig, Trainer,
    algorithm::{ClipRange, ConstantLr, Dapo, GroupNorm, Objective},
    learner::{AdamW, MicroBatching, OptimConfig, Updater},
    sampler::{KeepAll, Task},
};

use super::{Phase, Shape, Sizes, clock::Clock};
use crate::{Error, Result, plan::ChunkPlan};

/// Number of prompts of [`Phase::Step`], the completions of each, and the tokens of both.
const STEP: [usize; 4] = [8, 8, 6, 64];

/// Work of all phases.
pub(super) struct Phases<'a> {
    shape: &'a Shape,
    policy: Option<Decoder>,
    chunks: ChunkPlan,
    sample_on: SampleOn,
    graphs: bool,
    seed: Seed,
    parts: Vec<(String, f64)>,
}

impl<'a> Phases<'a> {
    pub(super) fn new(
        shape: &'a Shape,
        policy: Decoder,
        chunks: ChunkPlan,
        sample_on: SampleOn,
        graphs: bool,
        seed: Seed,
    ) -> Self {
        Phases { shape, policy: Some(policy), chunks, sample_on, graphs, seed, parts: Vec::new() }
    }

    /// Does the work of a phase under the clock.
    pub(super) fn measure(
        &mut self,
        phase: Phase,
        sizes: Sizes,
        clock: &mut Clock<'_>,
    ) -> Result<()> {
        let Sizes { rows, completion, .. } = sizes;

        match phase {
            Phase::Rollout => self.rollout([rows, 1], sizes, |_| completion, clock),
            Phase::Groups => {
                self.rollout([(rows / 8).max(1), 8.min(rows)], sizes, |_| completion, clock)
            }
            Phase::Spread => {
                let least = (completion / 16).max(1);
                // Neighbours differ, so that no order of the rows is better than another.
                let length = |row: usize| {
                    least + (row * 37 % rows) * (completion - least) / (rows - 1).max(1)
                };
                self.rollout([rows, 1], sizes, length, clock)
            }
            Phase::Tail => {
                let length = |row: usize| {
                    if row.is_multiple_of(16) { completion } else { (completion / 32).max(1) }
                };
                self.rollout([rows, 1], sizes, length, clock)
            }
            Phase::Update => self.update(usize::MAX, sizes, clock),
            Phase::Recompute => self.update(0, sizes, clock),
            Phase::Step => self.step(clock),
            Phase::Verify => verify(clock),
        }
    }

    /// Draws the weights again if a phase that failed has lost them.
    pub(super) fn renew(&mut self, draw: impl Fn() -> Result<Decoder>) -> Result<()> {
        if self.policy.is_none() {
            self.policy = Some(draw()?);
        }
        Ok(())
    }

    /// Returns the trainer's times of the last step.
    pub(super) fn parts(&self, phase: Phase) -> Vec<(String, f64)> {
        if phase == Phase::Step { self.parts.clone() } else { Vec::new() }
    }

    fn policy(&self) -> &Decoder {
        self.policy.as_ref().expect("it is put back, or drawn again")
    }

    fn rollout(
        &self,
        [prompts, group_size]: [usize; 2],
        sizes: Sizes,
        length: impl Fn(usize) -> usize,
        clock: &mut Clock<'_>,
    ) -> Result<()> {
        let engine = &mut self.engine(sizes.rows);
        let requests: Vec<GroupRequest> = (0..prompts)
            .flat_map(|row| {
                let prompt = (row as u64, self.prompt(row as u64, sizes.prompt));
                GroupRequest::of_prompts([prompt], group_size, &drawn(length(row)), self.seed)
            })
            .enumerate()
            .map(|(id, request)| GroupRequest { id: id as u64, ..request })
            .collect();

        let units = (0..prompts).map(length).sum::<usize>() * group_size;
        let mut draw = 0;
        clock.time(units, || {
            // Each run writes other texts, or the engine would look them up in those of the run before.
            draw += 1;
            let requests = requests.iter().cloned();
            let requests = requests.map(|request| GroupRequest { draw, ..request }).collect();
            generate(engine, requests, &mut |_| ()).map_err(failed).map(drop)
        })
    }

    fn update(
        &mut self,
        layers_without_recompute: usize,
        sizes: Sizes,
        clock: &mut Clock<'_>,
    ) -> Result<()> {
        let Sizes { rows, prompt, completion, .. } = sizes;
        let samples: Vec<Sample> = (0..rows as u64)
            .map(|row| {
                let tokens = self.prompt(rows as u64 + row, completion).tokens;
                let logprobs = vec![-(self.shape.config.vocab_size as f32).ln(); completion];
                let written = Completion::written(tokens, logprobs, FinishReason::Length);
                let advantage = if row % 2 == 0 { 1.0 } else { -1.0 };
                Sample::new(&self.prompt(row, prompt).tokens, &written, row)
                    .with_advantage(advantage)
            })
            .collect();

        let micro_batch_tokens = self.shape.micro_batch_rows * (prompt + completion);
        let updater = updater(MicroBatching {
            layers_without_recompute,
            ..self.micro_batching(micro_batch_tokens)
        });
        let mut optimizer = AdamW::new(OptimConfig::default());

        clock.time(rows * (prompt + completion), || {
            let policy = self.policy.take().expect("it was put back");
            let (policy, ..) =
                updater.step(policy, &mut optimizer, &samples, 1e-6).map_err(Error::Train)?;
            self.policy = Some(policy);
            Ok(())
        })
    }

    fn step(&mut self, clock: &mut Clock<'_>) -> Result<()> {
        let [prompts_per_step, group_size, prompt, length] = STEP;
        let policy = self.policy.take().expect("it was put back");
        let prompts =
            (0..256).map(|id| Phases::random(self.seed, self.shape, id, prompt)).collect();
        let rows = prompts_per_step * group_size;

        let engine =
            LocalEngine::new(&policy, Arc::new(SilentDetokenizer), rows, 2048, self.sample_on);
        let sampler = Sampler {
            engine: Box::new(engine),
            source: Box::new(CyclicSource { prompts, cursor: 0 }),
            task: Task {
                verifier: Box::new(ParityVerifier),
                scale: RewardScale { right: 1.0, wrong: -1.0 },
                shapers: Vec::new(),
                filter: Box::new(KeepAll),
                advantage: Some(Box::new(GroupNorm::default())),
                spare_cores: 0,
            },
            config: SamplerConfig::new(group_size, prompts_per_step, drawn(length)),
        };

        let learner = LocalLearner::new(
            policy,
            updater(self.micro_batching(2560)),
            Box::new(AdamW::new(OptimConfig::default())),
            Box::new(ConstantLr { lr: 1e-6 }),
        );
        let mut config = TrainConfig::default();
        config.old_logprobs = OldLogprobs::Sampled;
        let mut trainer = Trainer::new(sampler, learner, config, self.seed);

        let mut parts = Vec::new();
        let timed = clock.time(rows * length, || {
            let report = trainer.step(&mut ()).map_err(Error::Train)?;
            parts = report.metrics.0.into_iter().collect();
            Ok(())
        });

        self.policy = Some(trainer.learner.policy);
        timed?;
        parts.retain(|(name, _)| name.starts_with("time/"));
        self.parts = parts;
        Ok(())
    }

    /// Splits updates as a run does, with all activations of every layer kept.
    fn micro_batching(&self, micro_batch_tokens: usize) -> MicroBatching {
        let ChunkPlan { logits, waiting_logits, .. } = self.chunks;
        MicroBatching {
            micro_batch_tokens,
            max_logits: logits,
            max_saved_logits: waiting_logits,
            ..MicroBatching::default()
        }
    }

    fn engine(&self, rows: usize) -> LocalEngine<Decoder> {
        LocalEngine::new(
            self.policy(),
            Arc::new(SilentDetokenizer),
            rows,
            usize::MAX,
            self.sample_on,
        )
        .graphs(self.graphs)
    }

    fn prompt(&self, id: u64, length: usize) -> Prompt {
        Phases::random(self.seed, self.shape, id, length)
    }

    fn random(seed: Seed, shape: &Shape, id: u64, length: usize) -> Prompt {
        let mut stream = seed.derive("prompt", &[id]).stream();
        let vocab = shape.config.vocab_size as f64;
        let tokens = (0..length as u64).map(|at| (stream.uniform_at(at) * vocab) as TokenId);
        Prompt { id, tokens: tokens.collect(), ..Prompt::default() }
    }
}

/// Judges answers such as an exam has, a hundred of each.
fn verify(clock: &mut Clock<'_>) -> Result<()> {
    const ANSWERS: [[&str; 2]; 6] = [
        ["so the answer is \\boxed{\\frac{3}{4}}.", "0.75"],
        ["Therefore $x = 2\\sqrt{3}$, and \\boxed{2\\sqrt{3}}", "\\sqrt{12}"],
        ["We get \\boxed{x^2+2x+1}", "(x+1)^2"],
        ["The final answer is $\\boxed{42}$", "43"],
        ["Answer: 1,024", "1024"],
        ["I do not know.", "7"],
    ];

    let verifier = math::Verifier::default();
    let completions: Vec<(Prompt, Completion)> = (0..600)
        .map(|index| {
            let [text, reference] = ANSWERS[index % ANSWERS.len()];
            let prompt = Prompt { reference: reference.into(), ..Prompt::default() };
            let written = Completion::written(Vec::new(), Vec::new(), FinishReason::Stop);
            (prompt, written.with_text(text))
        })
        .collect();

    let pairs: Vec<(&Prompt, &Completion)> = completions.iter().map(|(x, y)| (x, y)).collect();
    clock.time(pairs.len(), || {
        score_each(&verifier, &pairs);
        Ok(())
    })
}

/// Makes DAPO's update, without entropy and KL.
fn updater(micro_batching: MicroBatching) -> Updater {
    let clip = ClipRange { low: 0.2, high: 0.28 };
    let mut updater = Updater::new(Objective::new(Box::new(Dapo { clip, dual_clip: None })));
    updater.micro_batching = micro_batching;
    updater
}

fn drawn(max_completion_tokens: usize) -> Sampling {
    Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, max_completion_tokens, stop: Vec::new() }
}

fn failed(error: firebrick_rollout::RolloutError) -> Error {
    Error::Train(error.into())
}

/// A detokenizer without text, because text is not timed.
struct SilentDetokenizer;

impl Detokenizer for SilentDetokenizer {
    fn detokenize(&self, _: &[TokenId]) -> String {
        String::new()
    }
}

/// A verifier that calls an even first token right, so that groups have a spread, whatever the weights.
struct ParityVerifier;

impl Verifier for ParityVerifier {
    fn score(&self, _: &Prompt, completion: &Completion) -> Score {
        match completion.tokens.first() {
            Some(token) if token % 2 == 0 => Score::right("even"),
            _ => Score::wrong("odd"),
        }
    }
}

struct CyclicSource {
    prompts: Vec<Prompt>,
    cursor: u64,
}

impl PromptSource for CyclicSource {
    fn draw(&mut self) -> Prompt {
        self.cursor += 1;
        self.prompts[(self.cursor - 1) as usize % self.prompts.len()].clone()
    }

    fn cursor(&self) -> u64 {
        self.cursor
    }

    fn seek(&mut self, cursor: u64) {
        self.cursor = cursor;
    }

    fn size(&self) -> u64 {
        self.prompts.len() as u64
    }
}
