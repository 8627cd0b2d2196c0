//! Policies of stubs.

use std::{
    error::Error,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use firebrick_core::{Prompt, Seed, TokenId, Version};
use firebrick_rollout::{GroupRequest, Sampling};
use firebrick_servers::{Dialect, Settings, Weights, WeightsKind};

/// A model that samples and scores for a stub.
pub trait StubModel: Send {
    /// Takes the weights in a folder.
    ///
    /// # Errors
    /// If the folder has none.
    fn load(&mut self, folder: &Path) -> Result<(), String>;

    /// Writes completions of a prompt.
    fn write(&mut self, prompt: &[TokenId], wanted: &Wanted) -> Vec<Written>;

    /// Computes the log-probabilities of all tokens except the first, at temperature 1.
    fn score(&mut self, tokens: &[TokenId]) -> Vec<f32>;
}

/// A group that a stub is asked for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// A seed for each completion.
    pub seeds: Vec<u64>,
    /// Number that divides the logits.
    pub temperature: f64,
    /// Number of tokens after which a completion is cut off.
    pub most: usize,
    /// Tokens that end a completion.
    pub stop: Vec<TokenId>,
}

/// A completion of a stub.
#[derive(Clone, Debug)]
pub struct Written {
    /// Its tokens.
    pub tokens: Vec<TokenId>,
    /// Their log-probabilities at the temperature.
    pub logprobs: Vec<f32>,
    /// True if a stop token ended it.
    pub stopped: bool,
}

/// A policy whose weights are one number. A token's logit follows from that number, the token before it and the
/// token itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Hashed {
    /// Its weights.
    pub weights: f64,
    /// Number of tokens, which all ids are below.
    pub vocabulary: usize,
}

/// File that holds a [`Hashed`]'s weights.
const FILE: &str = "weights.txt";

impl Hashed {
    /// Makes a policy of 32 tokens.
    pub fn new(weights: f64) -> Self {
        Hashed { weights, vocabulary: 32 }
    }

    /// Computes the log-probabilities of all tokens behind `last`.
    fn logprobs(&self, last: TokenId, temperature: f64) -> Vec<f64> {
        let logit = |token: usize| {
            let fixed = mix(u64::from(last) * 1009 + token as u64);
            // Each token has a wave of its own over the weights, so that a small step changes all of them a little.
            let wave = (self.weights * (1.0 + unit(fixed)) + 7.0 * unit(mix(fixed))).sin();
            2.0 * wave / temperature
        };
        let logits: Vec<f64> = (0..self.vocabulary).map(logit).collect();
        let most = logits.iter().copied().fold(f64::MIN, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
        logits.into_iter().map(|logit| logit - most - sum.ln()).collect()
    }

    /// Computes the log-probabilities of all of `tokens` except the first.
    pub fn of(&self, tokens: &[TokenId]) -> Vec<f32> {
        let pairs = tokens.windows(2);
        pairs.map(|pair| self.logprobs(pair[0], 1.0)[pair[1] as usize] as f32).collect()
    }
}

impl StubModel for Hashed {
    fn load(&mut self, folder: &Path) -> Result<(), String> {
        let text = fs::read_to_string(folder.join(FILE)).map_err(|error| error.to_string())?;
        self.weights = text.parse().map_err(|_| "no number".to_owned())?;
        Ok(())
    }

    fn write(&mut self, prompt: &[TokenId], wanted: &Wanted) -> Vec<Written> {
        let one = |&seed: &u64| {
            let mut last = prompt.last().copied().unwrap_or(0);
            let mut written = Written { tokens: Vec::new(), logprobs: Vec::new(), stopped: false };

            while written.tokens.len() < wanted.most && !written.stopped {
                let logprobs = self.logprobs(last, wanted.temperature);
                // The seed and the position fix the number at which the distribution is inverted.
                let mut left = unit(mix(seed ^ mix(written.tokens.len() as u64)));
                let drawn = logprobs.iter().position(|logprob| {
                    left -= logprob.exp();
                    left < 0.0
                });

                last = drawn.unwrap_or(self.vocabulary - 1) as TokenId;
                written.tokens.push(last);
                written.logprobs.push(logprobs[last as usize] as f32);
                written.stopped = wanted.stop.contains(&last);
            }

            written
        };
        wanted.seeds.iter().map(one).collect()
    }

    fn score(&mut self, tokens: &[TokenId]) -> Vec<f32> {
        self.of(tokens)
    }
}

/// Asks for groups of four completions of up to 24 tokens, which token 3 ends, from a [`Hashed`] of 32 tokens.
pub fn requests(count: u64) -> Vec<GroupRequest> {
    let prompt = |id| (id, Prompt { id, tokens: tokens(id, 5), ..Prompt::default() });
    let sampling = Sampling {
        temperature: 1.0,
        top_k: 0,
        top_p: 1.0,
        max_completion_tokens: 24,
        stop: vec![3],
    };
    GroupRequest::of_prompts((0..count).map(prompt), 4, &sampling, Seed::run(5))
}

/// Makes settings with short waits for a pool of such servers.
pub fn settings(dialect: Dialect, servers: Vec<String>) -> Settings {
    Settings {
        dialect,
        servers,
        key: None,
        at_once: 32,
        deadline: Duration::from_secs(3),
        load_deadline: Duration::from_secs(10),
        patience: Duration::from_secs(20),
        silence: Duration::from_millis(300),
        pause: Duration::from_millis(50),
        tolerance: 1e-3,
        probes: (0..2).map(|seed| tokens(100 + seed, 24)).collect(),
        tempered: false,
        vocabulary: 32,
    }
}

/// Draws tokens of such a policy.
fn tokens(seed: u64, count: u64) -> Vec<TokenId> {
    let mut stream = Seed::run(seed).stream();
    (0..count).map(|at| (stream.uniform_at(at) * 32.0) as TokenId).collect()
}

/// Scrambles a number (SplitMix64).
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Maps a number to [0, 1).
fn unit(number: u64) -> f64 {
    (number >> 11) as f64 / (1u64 << 53) as f64
}

/// Trainer's side of [`Hashed`] policies.
pub struct HashedWeights {
    folder: PathBuf,
    kind: WeightsKind,
    written: u64,
}

impl HashedWeights {
    /// Makes weights that are written below `folder`, which has to exist.
    pub fn new(folder: &Path, kind: WeightsKind) -> Self {
        HashedWeights { folder: folder.to_owned(), kind, written: 0 }
    }
}

impl Weights<Hashed> for HashedWeights {
    fn fingerprint(&mut self, policy: &Hashed) -> Option<[u8; 32]> {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&policy.weights.to_le_bytes());
        Some(bytes)
    }

    fn write(
        &mut self,
        policy: &Hashed,
        version: Version,
    ) -> Result<PathBuf, Box<dyn Error + Send + Sync>> {
        self.written += 1;
        let folder = self.folder.join(format!("v{version}-{}", self.written));
        fs::create_dir(&folder)?;
        fs::write(folder.join(FILE), policy.weights.to_string())?;
        Ok(folder)
    }

    fn keep_only(&mut self, in_use: &[PathBuf]) {
        let folders = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        for folder in folders.map(|entry| entry.path()).filter(|path| !in_use.contains(path)) {
            drop(fs::remove_dir_all(folder));
        }
    }

    fn kind(&self) -> WeightsKind {
        self.kind
    }

    fn logprobs(
        &mut self,
        policy: &Hashed,
        prompt: &[TokenId],
        completion: &[TokenId],
    ) -> Result<Vec<f32>, Box<dyn Error + Send + Sync>> {
        let mut logprobs = policy.of(&[prompt, completion].concat());
        Ok(logprobs.split_off(prompt.len() - 1))
    }
}
