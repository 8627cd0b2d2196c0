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

// ANCHOR: sampler
/// A line to the child: its number, a model folder, and the request. The child reads a new folder again, and
/// answers with a line of the number and the completions.
type Line = (u64, PathBuf, GroupRequest);

/// The child, its input and output, and the number of lines that it was told.
struct Sampler(Child, ChildStdin, BufReader<ChildStdout>, u64);

impl Sampler {
    fn start(command: &mut Command) -> io::Result<Self> {
        println!("starting a sampler");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let pipes = child.stdin.take().zip(child.stdout.take());
        let (lines, answers) = pipes.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(Sampler(child, lines, BufReader::new(answers), 0))
    }

    fn ask(&mut self, line: &Line) -> Result<Vec<Completion>, RolloutError> {
        let (mut answer, text) = (Vec::new(), serde_json::to_string(line).map_err(lasting)?);
        let asked = writeln!(self.1, "{text}");
        let read =
            asked.and_then(|()| self.2.by_ref().take(1 << 28).read_until(b'\n', &mut answer));
        if !answer.ends_with(b"\n") {
            // Another child may be asked for the same group.
            return Err(RolloutError::engine(format!("the sampler is gone: {read:?}"), true));
        }
        match serde_json::from_slice::<(u64, Vec<_>)>(&answer) {
            Ok((number, completions)) if number == line.0 => Ok(completions),
            other => {
                let begin = String::from_utf8_lossy(&answer[..answer.len().min(60)]);
                let why = other.err().map_or("it has another number".into(), |it| it.to_string());
                let problem = format!("answer {} of the sampler is {begin:?}: {why}", line.0);
                Err(RolloutError::engine(problem, false))
            }
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
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
        let (policy, folder) = (policy.clone().merged(), tempfile::tempdir().map_err(lasting)?);
        let config = policy.config().to_json(Some(self.tokenizer.pad()), self.tokenizer.eos());
        save(&policy, &config, folder.path(), &SaveOptions::default()).map_err(lasting)?;
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
        let child = self.child.take().map_or_else(|| Sampler::start(&mut self.command), Ok);
        let mut child = child.map_err(lasting)?;
        child.3 += 1;
        let completions = child.ask(&(child.3, folder.path().into(), request.clone()))?.into_iter();
        (self.child, self.asked) = (Some(child), asked);
        finished(completions.len());
        Ok(vec![request.into_group(completions.map(|it| it.with_version(*version)).collect())])
    }
}

fn lasting(error: impl Error + Send + Sync + 'static) -> RolloutError {
    RolloutError::engine(error, false)
}
// ANCHOR_END: engine

// ANCHOR: child
/// Runs the child. Any program that answers such lines would do.
fn serve() -> Result<(), Box<dyn Error>> {
    let mut engine: Option<(PathBuf, LocalEngine<Decoder>)> = None;
    for line in io::stdin().lines() {
        let (number, weights, request): Line = serde_json::from_str(&line?)?;
        if engine.as_ref().is_none_or(|(read, _)| *read != weights) {
            let tokenizer = Arc::new(Tokenizer::from_folder(&weights)?);
            let policy = load(&weights, &Device::flex())?;
            engine = Some((weights, LocalEngine::new(&policy, tokenizer, 64, 64, SampleOn::Host)));
        }
        let (_, local) = engine.as_mut().ok_or(RolloutError::NoWeights)?;
        let groups = generate(local, vec![request], &mut |_| {})?;
        println!("{}", serde_json::to_string(&(number, &groups[0].completions))?);
    }
    Ok(())
}
// ANCHOR_END: child

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
        recipe.loss.tis_cap = Some(2.0); // The child may compute otherwise.
        (recipe.sft.steps, recipe.train.steps) = (100, 5);
    });
    println!("{:?}", session.run()?.summary.heldout);
    Ok(())
}
