//! An engine of one's own: a child process that samples and speaks JSON lines.

use std::{
    collections::VecDeque,
    error::Error,
    io::{self, BufRead, BufReader, Read, Write},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::Arc,
};

use firebrick::{
    Completion, Group, Recipe, RolloutEngine, Session, Version, burn::tensor::Device,
    data::Tokenizer, models::*, rollout::*,
};
use serde::{Deserialize, Serialize};

// ANCHOR: sampler
/// A line to the child, which answers with a line: the completions.
#[derive(Serialize, Deserialize)]
struct Line {
    weights: PathBuf, // a model folder; another one is read anew
    request: GroupRequest,
}

/// The child, and how many lines it was told. It ends when they end.
struct Sampler(Child, ChildStdin, BufReader<ChildStdout>, usize);

impl Sampler {
    fn start(command: &mut Command) -> io::Result<Self> {
        println!("starting a sampler");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(lines), Some(answers)) => Ok(Sampler(child, lines, BufReader::new(answers), 0)),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn ask(&mut self, line: &Line) -> Result<Vec<Completion>, RolloutError> {
        const LONGEST: u64 = 1 << 24;
        let Sampler(child, lines, answers, number) = self;
        *number += 1;
        let mut answer = Vec::new();
        let asked = serde_json::to_string(line).map_err(io::Error::from);
        let asked = asked.and_then(|line| writeln!(lines, "{line}"));
        let read = asked.and_then(|()| answers.take(LONGEST).read_until(b'\n', &mut answer));
        if read.is_ok() && (answer.ends_with(b"\n") || answer.len() as u64 == LONGEST) {
            return serde_json::from_slice(&answer).map_err(|error| {
                let begin = String::from_utf8_lossy(&answer[..answer.len().min(60)]);
                let problem = format!("answer {number} of the sampler is {begin:?}: {error}");
                RolloutError::engine(problem, false)
            });
        }
        let end = child.kill().and_then(|()| child.wait());
        let end = end.map_or_else(|error| error.to_string(), |status| status.to_string());
        // Nothing is wrong with the request, and another child may be asked.
        Err(RolloutError::engine(format!("the sampler ended with {end}"), true))
    }
}
// ANCHOR_END: sampler

// ANCHOR: engine
/// One child at a time, which is asked for one group at a time.
struct Elsewhere {
    command: Command,
    child: Option<Sampler>,
    tokenizer: Tokenizer,
    weights: Option<(tempfile::TempDir, Version)>,
    asked: VecDeque<GroupRequest>,
}

impl RolloutEngine<Decoder> for Elsewhere {
    fn publish(&mut self, policy: &Decoder, version: Version) -> Result<(), RolloutError> {
        let folder = tempfile::tempdir().map_err(lasting)?;
        let config = policy.config().to_json(Some(self.tokenizer.pad()), self.tokenizer.eos());
        save(policy, &config, folder.path(), &SaveOptions::default()).map_err(lasting)?;
        self.tokenizer.save(folder.path()).map_err(lasting)?;
        self.weights = Some((folder, version));
        Ok(())
    }

    fn submit(&mut self, requests: Vec<GroupRequest>) -> Result<(), RolloutError> {
        self.asked.extend(requests);
        Ok(())
    }

    fn poll(
        &mut self,
        _: Wait,
        finished: &mut dyn FnMut(usize),
    ) -> Result<Vec<(RequestId, Group)>, RolloutError> {
        // Both are taken, so that a failure leaves nothing in flight and no child that has failed.
        let mut asked = std::mem::take(&mut self.asked);
        let Some(request) = asked.pop_front() else { return Ok(Vec::new()) };
        let (folder, version) = self.weights.as_ref().ok_or(RolloutError::NoWeights)?;
        let line = Line { weights: folder.path().into(), request: request.clone() };
        let child = self.child.take().map_or_else(|| Sampler::start(&mut self.command), Ok);
        let mut child = child.map_err(lasting)?;
        let completions = child.ask(&line)?.into_iter();
        (self.child, self.asked) = (Some(child), asked);
        finished(completions.len());
        Ok(vec![request.answer(completions.map(|it| it.with_version(*version)).collect())])
    }
}

fn lasting(error: impl Error + Send + Sync + 'static) -> RolloutError {
    RolloutError::engine(error, false)
}
// ANCHOR_END: engine

// ANCHOR: child
/// The child. Any program that answers such lines would do.
fn serve() -> Result<(), Box<dyn Error>> {
    let mut engine: Option<(PathBuf, LocalEngine<Decoder>)> = None;
    for line in io::stdin().lines() {
        let Line { weights, request } = serde_json::from_str(&line?)?;
        if engine.as_ref().is_none_or(|(read, _)| *read != weights) {
            let tokenizer = Arc::new(Tokenizer::from_folder(&weights)?);
            let policy = load(&weights, &Device::flex())?;
            engine = Some((weights, LocalEngine::new(&policy, tokenizer, 64, 64, SampleOn::Host)));
        }
        let (_, local) = engine.as_mut().ok_or(RolloutError::NoWeights)?;
        let groups = generate(local, vec![request], &mut |_| {})?;
        println!("{}", serde_json::to_string(&groups[0].completions)?);
    }
    Ok(())
}
// ANCHOR_END: child

// ANCHOR: main
fn main() -> Result<(), Box<dyn Error>> {
    let mut sampler: Vec<_> = std::env::args_os().skip(1).collect();
    if sampler == ["serve"] {
        return serve();
    } else if sampler.is_empty() {
        sampler = vec![std::env::current_exe()?.into(), "serve".into()];
    }
    let mut command = Command::new(&sampler[0]);
    command.args(&sampler[1..]);
    let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../addition.toml"))?;
    let tokenizer = Tokenizer::characters("0123456789+=,;")?;
    let engine = Elsewhere { command, child: None, tokenizer, weights: None, asked: [].into() };
    let session = Session::new(recipe).name("elsewhere").engine(engine).settings(|recipe| {
        recipe.loss.importance_cap = Some(2.0); // The child may compute otherwise.
        (recipe.warmup.steps, recipe.train.steps) = (100, 5);
    });
    println!("{:?}", session.run()?.heldout);
    Ok(())
}
// ANCHOR_END: main
