use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::GradientsParams,
    tensor::{Device, Tensor},
};
use firebrick_tests::golden::{Array, Case, Tolerance};
use firebrick_train::{
    algorithm::{ConstantLr, LrSchedule as _, LrWarmup, constant_with_warmup},
    learner::{AdamW, OptimConfig, Optimizer as _, global_norm},
};
use serde_json::Value;

use super::{tensor, values};

pub(crate) fn schedule(case: &Case) {
    let lr = case.config.number("base_lr");
    let warmup = case.config.whole("warmup_steps");
    let steps = case.inputs.array("schedule_steps").values;
    let verls = LrWarmup { steps: warmup, from_zero: true, then: ConstantLr { lr } };
    let got: Vec<f64> = steps.iter().map(|&step| verls.lr(step as u64)).collect();

    // Our first step has the rate of verl's second.
    let ours = LrWarmup { from_zero: false, ..verls };
    for &step in &steps {
        let later = constant_with_warmup(lr, warmup, step as u64 + 1);
        assert_eq!(ours.lr(step as u64).to_bits(), later.to_bits());
    }

    // Rates are f64 in training, and some of them smaller than the f32 tolerance.
    case.compare(
        "lr",
        &got,
        &case.expected.array("lr").values,
        Tolerance { atol: 0.0, ..case.f64 },
    );
}

pub(crate) fn steps(case: &Case) {
    let config = &case.config;
    let mut optimizer = AdamW::new(OptimConfig {
        beta1: config.number("beta1"),
        beta2: config.number("beta2"),
        epsilon: config.number("eps"),
        weight_decay: config.number("weight_decay"),
        decay_vectors: true,
        max_grad_norm: config.optional("max_grad_norm").unwrap_or(f64::INFINITY),
        ..OptimConfig::default()
    });
    let lr = config.number("lr");
    let lr_per_step = config.has("lr_per_step").then(|| config.array("lr_per_step").values);

    let mut module = Arrays::new(&case.inputs.list("params"));
    let gradients = case.inputs.list("grads");
    let expected = case.expected.list("params_after_each_step");
    assert_eq!(gradients.len(), expected.len());

    let mut norms = Vec::new();
    let mut scales = Vec::new();
    let mut skipped = Vec::new();
    for (step, (gradients, expected)) in gradients.iter().zip(&expected).enumerate() {
        let gradients = module.gradients(gradients.as_array().expect("a gradient for each array"));
        norms.push(global_norm(&module, &gradients).expect("the CPU gives its values back"));
        let lr = lr_per_step.as_ref().map_or(lr, |rates| rates[step]);
        let (stepped, outcome) =
            optimizer.step(module, gradients, lr).expect("the CPU gives its values back");
        module = stepped;
        assert_eq!(norms[step].to_bits(), outcome.grad_norm.to_bits());
        // The files say "none" for the scale of a step that did not happen.
        scales.push(if outcome.skipped { f64::NAN } else { outcome.grad_scale });
        skipped.push(outcome.skipped);

        let expected = expected.as_array().expect("each array after the step");
        // The file states this tolerance for parameters.
        let tolerance = Tolerance { rtol: 1e-5, atol: 1e-7 };
        for (index, (got, want)) in module.values().iter().zip(expected).enumerate() {
            let got: Vec<f64> = got.iter().map(|&value| f64::from(value)).collect();
            let field = format!("params_after_each_step[{step}][{index}]");
            case.compare(&field, &got, &Array::new(want).values, tolerance);
        }
        assert_eq!(module.values().len(), expected.len());
    }

    case.compare("grad_norm", &norms, &case.expected.array("grad_norm").values, case.f32);
    case.compare("grad_scale", &scales, &case.expected.array("grad_scale").values, case.f32);
    case.check_exact("step_skipped", skipped);
}

/// Arrays of a case as a module.
#[derive(Module, Debug)]
struct Arrays {
    arrays: Vec<OneArray>,
}

/// An array in its own number of dimensions. A list of tensors cannot mix ranks, so one of these fields is set.
#[derive(Module, Debug)]
struct OneArray {
    vector: Option<Param<Tensor<1>>>,
    matrix: Option<Param<Tensor<2>>>,
    cube: Option<Param<Tensor<3>>>,
}

impl Arrays {
    fn new(params: &[Value]) -> Self {
        let device = Device::flex().autodiff();
        let array = |param: &Value| {
            let param = Array::new(param);
            let rank = param.shape.len();
            assert!((1..=3).contains(&rank), "an array of {rank} dimensions");
            OneArray {
                vector: (rank == 1).then(|| Param::from_tensor(tensor(&param, &device))),
                matrix: (rank == 2).then(|| Param::from_tensor(tensor(&param, &device))),
                cube: (rank == 3).then(|| Param::from_tensor(tensor(&param, &device))),
            }
        };
        Arrays { arrays: params.iter().map(array).collect() }
    }

    fn gradients(&self, of_arrays: &[Value]) -> GradientsParams {
        struct Register<'a> {
            left: std::slice::Iter<'a, Value>,
            gradients: GradientsParams,
        }
        impl ModuleVisitor for Register<'_> {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let gradient = Array::new(self.left.next().expect("a gradient for each array"));
                let gradient = tensor::<D>(&gradient, &Device::flex());
                self.gradients.register(param.id, gradient);
            }
        }

        let mut register = Register { left: of_arrays.iter(), gradients: GradientsParams::new() };
        self.visit(&mut register);
        assert!(register.left.next().is_none(), "more gradients than arrays");
        register.gradients
    }

    fn values(&self) -> Vec<Vec<f32>> {
        struct Collect(Vec<Vec<f32>>);
        impl ModuleVisitor for Collect {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.push(values(param.val()));
            }
        }
        let mut collect = Collect(Vec::new());
        self.visit(&mut collect);
        collect.0
    }
}
