//! Cases of the suite: optimizer steps, agreement of sampling and update, and a short run.

use burn::tensor::Device;
use firebrick_core::{
    Completion, Prompt, PromptSource, RewardScale, Score, Seed, Verdict, Verifier,
};
use firebrick_models::{Decoder, parameters};
use firebrick_rollout::{LocalEngine, SampleOn, generate};
use firebrick_train::{
    LocalLearner, OldLogprobs, Sample, Sampler, SamplerConfig, TrainConfig, Trainer,
    algorithm::{ClipRange, ConstantLr, Dapo, GroupNorm, Objective, PolicyLoss},
    learner::{AdamW, CrossEntropy, Moments, OptimConfig, Updater},
    sampler::{KeepAll, Task},
};

use super::{
    Array, Case,
    model::{VOCABULARY, WHOLE, failed, policy, samples, updater},
    sampling::{prompt, requests, sampling, silent},
    tensors::{in_f32, values},
};
use crate::{Failure, Precision, Tolerance};

pub(super) fn cases() -> Vec<Case> {
    vec![
        in_f32("training/steps", Tolerance::STEPS, steps),
        in_f32("training/steps_in_8_bits", Tolerance::STEPS, narrow_steps),
        in_f32("training/mismatch", Tolerance::FORWARD, mismatch),
        in_f32("training/learns", Tolerance::EXACT, learns),
    ]
}

/// Takes five optimizer steps on the same samples. The arrays are the losses, and the distance that each weight has
/// moved. It is small compared with the size of most weights.
fn steps(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut run = Run::new(device, Moments::F32)?;
    let initial = run.weights()?;

    let losses = (0..5).map(|_| run.step()).collect::<Result<_, _>>()?;
    let mut arrays = vec![Array::new("losses", losses)];

    for ((path, after), (_, initial)) in run.weights()?.into_iter().zip(initial) {
        let moved = after.iter().zip(initial).map(|(after, initial)| after - initial).collect();
        arrays.push(Array::new(path, moved));
    }
    Ok(arrays)
}

/// Computes the losses of five steps with moments in 8 bits. Weights are not compared, because a moment on the boundary
/// between two codes may be rounded to either.
fn narrow_steps(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    let mut run = Run::new(device, Moments::Int8)?;
    let losses = (0..5).map(|_| run.step()).collect::<Result<_, _>>()?;
    Ok(vec![Array::new("losses", losses)])
}

/// A run of optimizer steps over the same samples.
pub(super) struct Run {
    policy: Decoder,
    optimizer: AdamW,
}

impl Run {
    pub(super) fn new(device: &Device, moments: Moments) -> Result<Self, Failure> {
        let policy = policy(&device.clone().autodiff())?;
        // AdamW moves a weight by the sign of its gradient, however small the gradient is. An epsilon above the
        // gradients' rounding keeps the weight still if rounding alone decides the sign.
        let optim = OptimConfig { epsilon: 1e-6, moments, ..OptimConfig::default() };
        Ok(Run { policy, optimizer: AdamW::new(optim) })
    }

    fn weights(&self) -> Result<Vec<(String, Vec<f32>)>, Failure> {
        let all = parameters(&self.policy).into_iter();
        all.map(|parameter| Ok((parameter.path, values(parameter.values)?))).collect()
    }

    /// Takes a step and returns the loss.
    pub(super) fn step(&mut self) -> Result<f32, Failure> {
        let policy = self.policy.clone();
        let (policy, report, _) =
            updater(WHOLE).step(policy, &mut self.optimizer, &samples(), 1e-3).map_err(failed)?;
        self.policy = policy;
        Ok(report.loss as f32)
    }
}

/// Compares the log-probabilities recorded while sampling with those that the update computes for the same tokens, on
/// the same device. If they differ, the policy trains on probabilities that it did not sample with.
fn mismatch(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    const TEMPERATURE: f64 = 0.3;
    let policy = policy(&device.clone().autodiff())?;
    let requests = requests(&sampling(TEMPERATURE, 0, 1.0, 12), 7);
    let mut engine = LocalEngine::new(&policy, silent(), 64, 512, SampleOn::Device);
    let groups = generate(&mut engine, requests, &mut |_| {}).map_err(failed)?;

    // Samples carry the log-probabilities that the engine recorded.
    let mut samples = Vec::new();
    for group in &groups {
        let sample = |completion| Sample::new(&group.prompt.tokens, completion, group.draw);
        samples.extend(group.completions.iter().map(sample));
    }

    let updater = plain(Box::new(CrossEntropy), TEMPERATURE);
    let updated: Vec<f32> = updater.logprobs(&policy, &samples).map_err(failed)?.concat();
    let recorded: Vec<f32> =
        samples.iter().flat_map(|sample| sample.old_logprobs.iter().copied()).collect();

    let mean = |logprobs: &[f32]| {
        let sum: f64 = logprobs.iter().map(|&logprob| f64::from(logprob)).sum();
        vec![(sum / logprobs.len() as f64) as f32]
    };

    Ok(vec![
        Array::with_expected("mean", mean(&recorded), mean(&updated)),
        Array::with_expected("log-probs", recorded, updated),
    ])
}

/// Checks that a short run learns, and by the same curve as on the CPU. A token that is drawn differently because of
/// rounding leads to another run: weights moved by a thousandth, as much as TF32 rounds, moved the reward of a step by
/// up to 0.08.
fn learns(device: &Device, _: Precision) -> Result<Vec<Array>, Failure> {
    const APART: f32 = 0.15;
    const RISE: f32 = 0.2;

    let curve = rewards(device)?;
    let cpu = rewards(&Device::flex())?;

    // Only what exceeds the allowance counts, so that the case can demand exact zeros.
    let beyond = |(here, there): (&f32, &f32)| ((here - there).abs() - APART).max(0.0);
    let ends = curve.first().zip(curve.last());
    let rise = ends.map_or(0.0, |(first, last)| (last - first).min(RISE));

    Ok(vec![
        Array::with_expected("rise of the reward", vec![rise], vec![RISE]),
        Array::with_expected(
            format!("reward beyond the CPU's ± {APART}"),
            curve.iter().zip(&cpu).map(beyond).collect(),
            vec![0.0; curve.len()],
        ),
    ])
}

/// Returns the mean reward of each step of a run that is rewarded for tokens of the vocabulary's lower half.
fn rewards(device: &Device) -> Result<Vec<f32>, Failure> {
    let policy = policy(&device.clone().autodiff())?;
    let sampler = Sampler {
        engine: Box::new(LocalEngine::new(&policy, silent(), 64, 512, SampleOn::Device)),
        source: Box::new(Questions { drawn: 0 }),
        task: Task {
            verifier: Box::new(LowTokens),
            scale: RewardScale { right: 1.0, wrong: 0.0 },
            shapers: Vec::new(),
            filter: Box::new(KeepAll),
            advantage: Some(Box::new(GroupNorm::default())),
            spare_cores: 0,
        },
        config: SamplerConfig::new(8, 4, sampling(1.0, 0, 1.0, 4)),
    };

    let loss = Dapo { clip: ClipRange { low: 0.2, high: 0.28 }, dual_clip: None };
    let learner = LocalLearner::new(
        policy,
        plain(Box::new(loss), 1.0),
        Box::new(AdamW::new(OptimConfig::default())),
        Box::new(ConstantLr { lr: 1e-2 }),
    );

    let mut config = TrainConfig::default();
    config.mini_batch = 16;
    config.old_logprobs = OldLogprobs::Sampled;
    let mut trainer = Trainer::new(sampler, learner, config, Seed::run(8));

    (0..8)
        .map(|_| {
            let report = trainer.step(&mut ()).map_err(failed)?;

            let credit = report.metrics.get("reward/credit");
            credit.map(|reward| reward as f32).ok_or_else(|| Failure::new("a step has no reward"))
        })
        .collect()
}

/// A source of four prompts of the same length, repeated.
struct Questions {
    drawn: u64,
}

impl PromptSource for Questions {
    fn draw(&mut self) -> Prompt {
        self.drawn += 1;
        prompt(self.drawn % self.size(), 3)
    }

    fn cursor(&self) -> u64 {
        self.drawn
    }

    fn seek(&mut self, cursor: u64) {
        self.drawn = cursor;
    }

    fn size(&self) -> u64 {
        4
    }
}

/// Rewards each token of the vocabulary's lower half.
struct LowTokens;

impl Verifier for LowTokens {
    fn score(&self, _: &Prompt, completion: &Completion) -> Score {
        let tokens = &completion.tokens;
        let low = tokens.iter().filter(|&&token| (token as usize) < VOCABULARY / 2).count();
        let credit = low as f32 / tokens.len().max(1) as f32;
        Score::partial(Verdict::Right, credit, "")
    }
}

/// Makes an updater whose loss has no bonus and no penalty.
fn plain(policy: Box<dyn PolicyLoss>, temperature: f64) -> Updater {
    let mut updater = Updater::new(Objective::new(policy));
    updater.temperature = temperature;
    updater.micro_batching = WHOLE;
    updater
}
