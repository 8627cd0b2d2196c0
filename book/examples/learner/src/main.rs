//! A learner of one's own: a table of logits, which is trained on the host.

use std::{array, error::Error};

use firebrick::{
    rollout::*,
    train::{
        algorithm::GroupNorm,
        learner::{Applied, Update},
        sampler::{KeepAll, Task},
        *,
    },
    *,
};

const DIGITS: usize = 10;

// ANCHOR: learner
/// The policy: for each digit that is asked, the logits of the digits that may be answered.
#[derive(Clone, Default)]
struct Table([[f32; DIGITS]; DIGITS]);

impl Table {
    fn logprobs(&self, asked: usize) -> [f32; DIGITS] {
        let all: f32 = self.0[asked].iter().map(|logit| logit.exp()).sum();
        self.0[asked].map(|logit| logit - all.ln())
    }
}

/// Trains a table. The flag is true in the middle of a step.
#[derive(Default)]
struct TableLearner(Table, bool);

const RATE: f64 = 20.0;

impl Learner for TableLearner {
    type Policy = Table;
    type Gradient = Table;

    fn policy(&self) -> &Table {
        &self.0
    }

    fn vocab(&self) -> usize {
        DIGITS
    }

    fn begin_step(&mut self, _: Step) -> Result<f64, TrainError> {
        Ok(RATE)
    }

    fn logprobs(&mut self, samples: &[Sample]) -> Result<Vec<Vec<f32>>, TrainError> {
        let logprobs = |sample: &Sample| {
            let table = self.0.logprobs(sample.prompt[0] as usize);
            let tokens = sample.completion.iter().zip(&sample.mask);
            tokens.map(|(&token, &own)| if own { table[token as usize] } else { 0.0 }).collect()
        };
        Ok(samples.iter().map(logprobs).collect())
    }

    /// Computes the gradient of DAPO's loss, −min(r·A, clip(r)·A) in the mean, where r = p / p_old.
    fn gradient(&mut self, samples: &[Sample]) -> Result<Update<Table>, TrainError> {
        let tokens: usize = samples.iter().map(Sample::loss_tokens).sum();
        let mut gradient = Table::default();

        for sample in samples.iter().filter(|sample| sample.in_loss) {
            let asked = sample.prompt[0] as usize;
            let logprobs = self.0.logprobs(asked);
            for place in sample.policy_tokens() {
                let token = sample.completion[place];
                let advantage = sample.advantages[place];
                let ratio = (logprobs[token as usize] - sample.old_logprobs[place]).exp();
                let clipped = if advantage > 0.0 { ratio > 1.28 } else { ratio < 0.8 };
                if !clipped {
                    let tis_weight = sample.importance.get(place).unwrap_or(&1.0);
                    let weight = tis_weight * advantage * ratio / tokens as f32;
                    for (digit, d) in gradient.0[asked].iter_mut().enumerate() {
                        let drawn = f32::from(digit == token as usize);
                        *d -= weight * (drawn - logprobs[digit].exp());
                    }
                }
            }
        }
        Ok(Update { tokens, gradient, ..Update::default() })
    }

    fn apply(
        &mut self,
        update: Update<Table>,
        samples: &[Sample],
        _: bool,
    ) -> Result<Applied, TrainError> {
        let (update, gradient) = update.take_gradient();
        self.1 = true;
        for (logits, d_logits) in self.0.0.iter_mut().zip(gradient.0) {
            logits.iter_mut().zip(d_logits).for_each(|(logit, d)| *logit -= RATE as f32 * d);
        }
        let trained = samples.iter().map(Sample::trained).collect();
        Ok(Applied { update, trained, ..Applied::default() })
    }

    fn end_step(&mut self, done: bool) {
        self.1 &= !done;
    }

    fn is_mid_step(&self) -> bool {
        self.1
    }
}
// ANCHOR_END: learner

// ANCHOR: engine
/// An engine that draws from the table.
#[derive(Default)]
struct Drawing(Table, Version, Vec<GroupRequest>);

impl RolloutEngine<Table> for Drawing {
    fn publish(&mut self, policy: &Table, version: Version) -> Result<(), RolloutError> {
        (self.0, self.1) = (policy.clone(), version);
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.2.extend(requests);
        Ok(())
    }

    fn poll(
        &mut self,
        _: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        let answer = |request: GroupRequest| {
            finished(request.group_size);
            let logprobs = self.0.logprobs(request.prompt.tokens[0] as usize);
            let drawn = |index| {
                let mut rest = request.completion_seed(index).stream().uniform_at(0) as f32;
                let reached = |logprob: &f32| {
                    rest -= logprob.exp();
                    rest < 0.0
                };
                let digit = logprobs.iter().position(reached).unwrap_or(DIGITS - 1);
                let (tokens, logprobs) = (vec![digit as TokenId], vec![logprobs[digit]]);
                Completion::written(tokens, logprobs, FinishReason::Stop).with_version(self.1)
            };
            let completions = (0..request.group_size).map(drawn).collect();
            request.into_group(completions)
        };
        Ok(self.2.drain(..).map(answer).collect())
    }
}
// ANCHOR_END: engine

/// Asks for each digit in turn.
struct Digits(u64);

impl PromptSource for Digits {
    fn draw(&mut self) -> Prompt {
        let id = self.0 % DIGITS as u64;
        self.0 += 1;
        Prompt { id, tokens: vec![id as TokenId], ..Prompt::default() }
    }

    fn cursor(&self) -> u64 {
        self.0
    }

    fn seek(&mut self, cursor: u64) {
        self.0 = cursor;
    }

    fn size(&self) -> u64 {
        DIGITS as u64
    }
}

/// Calls the next digit right.
struct Next;

impl Verifier for Next {
    fn score(&self, prompt: &Prompt, completion: &Completion) -> Score {
        let next = (prompt.tokens[0] + 1) % DIGITS as TokenId;
        if completion.tokens == [next] { Score::right("next") } else { Score::wrong("another") }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let sampling = Sampling {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: 1,
        stop: Vec::new(),
    };
    // ANCHOR: main
    let sampler = Sampler {
        engine: Box::new(Drawing::default()),
        source: Box::new(Digits(0)),
        task: Task {
            verifier: Box::new(Next),
            scale: RewardScale { right: 1.0, wrong: -1.0 },
            shapers: Vec::new(),
            filter: Box::new(KeepAll),
            advantage: Some(Box::new(GroupNorm::default())),
            spare_cores: 0,
        },
        config: SamplerConfig::new(16, 10, sampling),
    };
    let mut config = TrainConfig::default();
    config.mini_batch = 40;
    let mut trainer = Trainer::new(sampler, TableLearner::default(), config, Seed::run(1));

    let mut credits = Vec::new();
    for _ in 0..30 {
        let report = trainer.step(&mut ())?;
        credits.extend(report.metrics.get("reward/credit"));
    }
    // ANCHOR_END: main
    println!("right at first: {:.2}; after 30 steps: {:.2}", credits[0], credits[29]);
    assert!(credits[29] > 0.9, "{credits:?}");

    let learnt: [usize; DIGITS] = array::from_fn(|asked| {
        let logprobs = trainer.learner.policy().logprobs(asked);
        (0..DIGITS).max_by(|&a, &b| logprobs[a].total_cmp(&logprobs[b])).unwrap_or_default()
    });
    println!("after 0 to 9 come {learnt:?}");
    Ok(())
}
