use burn::tensor::{Device, Tensor};
use firebrick_tests::golden::{Case, Fields};
use firebrick_train::algorithm::{Kl, KlEstimator, LossInput, LossOutput, Objective, PolicyLoss};

use super::{
    policy_loss::{differentiate, scalar},
    tensor, values,
};

/// Checks the penalty alone, with the weights of a mean over tokens.
pub(crate) fn estimate(case: &Case) {
    let gradient_of_k2 = match case.config.text("gradient").as_str() {
        "of_estimator" => false,
        "of_k2" => true,
        other => panic!("no gradient is called \"{other}\""),
    };
    let kl = Kl { estimator: estimator(&case.config, "estimator"), gradient_of_k2, coef: 1.0 };

    let device = Device::flex().autodiff();
    let array = |name: &str| tensor::<2>(&case.inputs.array(name), &device);
    let logprobs = array("logp");
    let reference = array("ref_logp");
    let mask = array("mask");
    let advantages = mask.zeros_like();
    let leaf = logprobs.clone().require_grad();
    let mut input = LossInput::new(leaf, logprobs.clone(), advantages, mask.clone());
    input.ref_logprobs = Some(reference.clone());
    let mut objective = Objective::new(Box::new(Nothing));
    objective.kl = Some(kl);
    let (output, gradient) = differentiate(&objective, &input);

    case.check("token_mean", &[scalar(output.loss)]);
    case.check("grad_logp", &gradient);
    let hidden = mask.equal_elem(0.0);
    case.check("per_token", &values(kl.estimate(logprobs, reference).mask_fill(hidden, 0.0)));
}

/// Reads the estimator that the setting `name` names.
pub(crate) fn estimator(config: &Fields, name: &str) -> KlEstimator {
    match config.text(name).as_str() {
        "k1" => KlEstimator::K1,
        "k2" => KlEstimator::K2,
        "k3" => KlEstimator::K3,
        "abs" => KlEstimator::Abs,
        other => panic!("no estimator is called \"{other}\""),
    }
}

/// A policy loss of 0, so that only the penalty is left.
struct Nothing;

impl PolicyLoss for Nothing {
    fn loss(&self, input: &LossInput) -> LossOutput {
        let token_loss: Tensor<2> = input.mask.zeros_like();
        LossOutput { token_loss, metrics: Vec::new() }
    }
}
