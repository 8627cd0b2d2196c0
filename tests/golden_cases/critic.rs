use burn::tensor::Device;
use firebrick_tests::golden::Case;
use firebrick_train::algorithm::{Gae, ValueInput, ValueLoss, whiten};

use super::{
    policy_loss::{Update, scalar},
    tensor, values,
};

pub(crate) fn gae(case: &Case) {
    let gae = Gae {
        gamma: case.config.number("gamma"),
        lambda: case.config.number("lambda"),
        normalise: false,
    };

    let mask = case.inputs.array("mask");
    let width = mask.shape[1];
    let mask: Vec<bool> = mask.values.iter().map(|&counts| counts != 0.0).collect();
    let rewards = case.inputs.array("token_rewards").f32();
    let values = case.inputs.array("values").f32();

    let mut advantages = vec![0.0; mask.len()];
    let mut returns = advantages.clone();
    for row in 0..mask.len() / width {
        // A completion has no holes here, so masked tokens are taken out, and their numbers stay 0.
        let counted: Vec<usize> =
            (row * width..(row + 1) * width).filter(|&token| mask[token]).collect();
        let of =
            |numbers: &[f32]| -> Vec<f32> { counted.iter().map(|&token| numbers[token]).collect() };

        let (of_advantages, of_returns) = gae.estimate(&of(&rewards), &of(&values));
        for (index, &token) in counted.iter().enumerate() {
            advantages[token] = of_advantages[index];
            returns[token] = of_returns[index];
        }
    }

    case.check("advantages_raw", &advantages);
    case.check("returns", &returns);

    // Whitening counts no masked token.
    let counted = advantages.iter_mut().zip(&mask).filter(|(_, counts)| **counts);
    whiten(counted.map(|(advantage, _)| advantage));
    case.check("advantages_whitened", &advantages);
}

pub(crate) fn value_loss(case: &Case) {
    let device = Device::flex().autodiff();
    let of_case = |name: &str| tensor::<2>(&case.inputs.array(name), &device);
    let [mask, weights, shares] = Update::new(case).of_tokens(&device);

    let current = of_case("values").require_grad();
    let output = ValueLoss { clip: case.config.optional("value_clip") }.evaluate(&ValueInput {
        values: current.clone(),
        old_values: of_case("old_values"),
        returns: of_case("returns"),
        mask,
        loss_weights: weights,
        metric_weights: shares,
    });

    case.check("loss", &[scalar(output.loss.clone())]);
    case.check("clip_frac", &[output.clip_fraction.map_or(0.0, scalar)]);

    let gradients = output.loss.backward();
    case.check("grad_values", &values(current.grad(&gradients).expect("the loss has a gradient")));
}
