//! An optimizer of one's own, Lion, with a schedule of one's own. A resumed run continues from its state.

use std::{error::Error, fs, io, path::Path};

use firebrick::{
    LrSchedule, Optimizer, Recipe, Result, Session, Summary,
    burn::{module::Module, optim::GradientsParams, tensor::Device},
    train::{
        TrainError,
        learner::{NamedState, Part, StepOutcome, clipped_step},
    },
};

// ANCHOR: lion
/// Lion takes steps of one size, in the direction of a momentum's sign (Chen et al. 2023): w ← w − lr·(sign(β₁m
/// + (1 − β₁)g) + λw), then m ← β₂m + (1 − β₂)g.
#[derive(Default)]
struct Lion {
    state: NamedState,
}

const BETA_1: f64 = 0.9;
const BETA_2: f64 = 0.99;
const DECAY: f64 = 0.01;
const MOMENTUM: &str = "momentum";

impl<M: Module> Optimizer<M> for Lion {
    fn step(
        &mut self,
        module: M,
        gradients: GradientsParams,
        lr: f64,
    ) -> Result<(M, StepOutcome), TrainError> {
        clipped_step(module, gradients, 1.0, |parameter| {
            let (values, gradient) = (parameter.values, parameter.gradient);
            let momentum = self.state.take(parameter.path, MOMENTUM);
            let momentum = momentum.unwrap_or_else(|| gradient.zeros_like());
            let mixed = momentum.clone() * BETA_1 + gradient.clone() * (1.0 - BETA_1);
            let next = momentum * BETA_2 + gradient * (1.0 - BETA_2);
            self.state.put(parameter.path, MOMENTUM, next);
            values.clone() - (mixed.sign() + values * DECAY) * lr
        })
    }

    fn save(&self, path: &Path) -> Result<(), TrainError> {
        self.state.save(path)
    }

    fn load(&mut self, module: &M, path: &Path, device: &Device) -> Result<(), TrainError> {
        self.state = NamedState::load(module, path, device, |_| &[Part::Values(MOMENTUM)])?;
        Ok(())
    }

    fn reset(&mut self) {
        *self = Lion::default();
    }
}
// ANCHOR_END: lion

// ANCHOR: schedule
/// The rate falls with the square root of the step, counted from 1.
struct InverseRoot(f64);

impl LrSchedule for InverseRoot {
    fn lr(&self, step: u64) -> f64 {
        self.0 / (1.0 + step as f64).sqrt()
    }
}
// ANCHOR_END: schedule

// ANCHOR: main
/// Runs up to step `steps`. With `resume` it continues from where the run of that name ended.
fn train(runs: &Path, name: &str, steps: u64, resume: bool) -> Result<Summary> {
    let recipe = Recipe::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../addition.toml"))?;
    let session =
        Session::new(recipe).name(name).runs(runs).resume(resume).optimizer(Lion::default());
    let session = session.schedule(InverseRoot(1e-4)).settings(|recipe| {
        (recipe.sft.steps, recipe.sft.lr) = (40, Some(1e-3));
        (recipe.train.steps, recipe.sft.stop_at) = (steps, None);
        recipe.sampling.dynamic = firebrick::recipe::Dynamic::Off;
    });
    Ok(session.run()?.summary)
}

/// Reads the weights and the optimizer's state that a run ended with.
fn ended_with(summary: &Summary) -> io::Result<[Vec<u8>; 2]> {
    let checkpoint = summary.checkpoint.as_deref().unwrap_or(Path::new(""));
    let state = fs::read(checkpoint.join("trainer/optimizer.safetensors"))?;
    Ok([fs::read(checkpoint.join("model.safetensors"))?, state])
}

fn main() -> Result<(), Box<dyn Error>> {
    let runs = Path::new("runs");
    let whole = train(runs, "whole", 8, false)?;
    train(runs, "halves", 4, false)?;
    let halves = train(runs, "halves", 8, true)?;
    let same = ended_with(&halves)? == ended_with(&whole)?;
    println!("4 steps and 4 more are 8 steps, bit for bit: {same}");
    if same { Ok(()) } else { Err("the resumed run ended elsewhere".into()) }
}
// ANCHOR_END: main

#[cfg(test)]
mod tests {
    use super::*;
    use firebrick::burn::{module::Param, tensor::Tensor};

    #[test]
    fn steps_are_those_of_the_formula() {
        let device = Device::flex();
        let at = device.clone().autodiff();
        let mut module = vec![Param::<Tensor<1>>::from_data([1.0f32, -2.0], &at)];
        let mut lion = Lion::default();
        // The first momentum is 0, and the second is a hundredth of (0.6, -0.8). Against 0.9 of that, a tenth
        // of the second gradient decides the sign of the first number, and not of the second.
        for (gradient, expected) in
            [([0.6f32, -0.8], [0.899, -1.898]), ([-0.6, 0.01], [0.9981, -1.7961])]
        {
            let mut gradients = GradientsParams::new();
            gradients.register(module[0].id, Tensor::<1>::from_data(gradient, &device));
            module = lion.step(module, gradients, 0.1).unwrap().0;
            let values = module[0].val().inner().try_into_vec_as::<f32>().unwrap();
            let near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3;
            assert!(values.iter().zip(&expected).all(near), "{values:?}, expected {expected:?}");
        }
    }

    #[test]
    fn a_resumed_run_ends_with_the_bits_of_one_that_was_not_ended() {
        let place = tempfile::tempdir().unwrap();
        let whole = train(place.path(), "whole", 8, false).unwrap();
        let begun = train(place.path(), "halves", 4, false).unwrap();
        let halves = train(place.path(), "halves", 8, true).unwrap();
        assert_eq!((begun.steps, halves.steps), (4, 8));
        let [begun, whole, halves] = [&begun, &whole, &halves].map(|run| ended_with(run).unwrap());
        assert!(halves == whole && begun != whole);
    }
}
