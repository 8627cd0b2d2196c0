//! Tests of both optimizers: resumed, reset, refused, and compared with their formulas.

use std::{
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::{
        AdamWConfig, AdamWState, AdaptiveMomentumState, AdjustLrFn, GradientsParams,
        MuonConfig as RuleConfig, Optimizer as _, decay::WeightDecayConfig,
    },
    tensor::{Device, Tensor, TensorData},
};
use firebrick_core::{Seed, SftExample, config::Moments};
use firebrick_models::{Decoder, DecoderConfig, Family, Sizes, parameters, random};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{
    AdamW, Muon, MuonConfig, OptimConfig, Optimizer, fingerprint, hidden_matrix,
    narrow::{Kind, Narrow},
    read,
};
use crate::learner::{micro_batch::MicroBatching, sft::sft_step};

/// A model with a parameter of every kind.
#[derive(Module, Debug)]
struct Model {
    embedding: Param<Tensor<2>>,
    layers: Vec<Layer>,
    norm: Param<Tensor<1>>,
    value: Param<Tensor<2>>,
}

#[derive(Module, Debug)]
struct Layer {
    tall: Param<Tensor<2>>,
    wide: Param<Tensor<2>>,
    column: Param<Tensor<2>>,
    bias: Param<Tensor<1>>,
}

impl Model {
    fn new() -> Self {
        let device = Device::flex().autodiff();
        let matrix = |rows: usize, columns: usize| {
            let values = numbers(rows * columns, (10 * rows + columns) as f32);
            Param::from_data(TensorData::new(values, [rows, columns]), &device)
        };
        let vector = |size: usize| {
            Param::from_data(TensorData::new(numbers(size, size as f32), [size]), &device)
        };

        let layer = || Layer {
            tall: matrix(4, 3),
            wide: matrix(2, 3),
            column: matrix(3, 1),
            bias: vector(3),
        };

        Model {
            embedding: matrix(6, 4),
            layers: vec![layer(), layer()],
            norm: vector(4),
            value: matrix(4, 1),
        }
    }

    /// Makes some gradients, other ones for every step.
    fn gradients(&self, step: usize) -> GradientsParams {
        struct Register {
            step: usize,
            found: usize,
            gradients: GradientsParams,
        }
        impl ModuleVisitor for Register {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.found += 1;
                let shape = param.dims();
                let start = (17 * self.step + 3 * self.found) as f32;

                let values = numbers(shape.iter().product(), start);
                let values =
                    Tensor::<D>::from_data(TensorData::new(values, shape), &Device::flex());
                self.gradients.register(param.id, values);
            }
        }

        let mut register = Register { step, found: 0, gradients: GradientsParams::new() };
        self.visit(&mut register);
        register.gradients
    }

    /// Takes `steps` steps with the gradients of their numbers.
    fn trained(self, optimizer: &mut dyn Optimizer<Self>, steps: std::ops::Range<usize>) -> Self {
        steps.fold(self, |model, step| {
            let gradients = model.gradients(step);
            let (model, outcome) = optimizer.step(model, gradients, 0.05).unwrap();
            assert!(!outcome.skipped);
            model
        })
    }

    /// Returns the bits of every parameter, with its path.
    fn bits(&self) -> Vec<(String, Vec<u32>)> {
        let bits = |values| read(values).unwrap().into_iter().map(f32::to_bits).collect();
        let all = parameters(self).into_iter();
        all.map(|parameter| (parameter.path, bits(parameter.values))).collect()
    }
}

/// Returns numbers of both signs without a pattern.
fn numbers(count: usize, start: f32) -> Vec<f32> {
    (0..count).map(|at| (start + 1.7 * at as f32).sin()).collect()
}

type New = fn() -> Box<dyn Optimizer<Model>>;

const OPTIMIZERS: [New; 4] = [
    || Box::new(AdamW::new(OptimConfig::default())),
    || Box::new(Muon::new(MuonConfig::default())),
    || Box::new(AdamW::new(NARROW)),
    || Box::new(Muon::new(MuonConfig { momentum: 0.95, adamw: NARROW })),
];

/// AdamW with moments in 8 bits.
const NARROW: OptimConfig = OptimConfig { moments: Moments::Int8, ..PLAIN };

/// AdamW without clipping and decay.
const PLAIN: OptimConfig = OptimConfig {
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-8,
    weight_decay: 0.0,
    decay_vectors: false,
    max_grad_norm: f64::INFINITY,
    moments: Moments::F32,
};

/// Parameters in a list, at the paths `0`, `1`, ….
type List<const D: usize> = Vec<Param<Tensor<D>>>;

fn one<const D: usize>(values: TensorData) -> List<D> {
    vec![Param::from_data(values, &Device::flex().autodiff())]
}

/// Returns the values after a step with this gradient at a learning rate of 0.1.
fn step<const D: usize>(
    optimizer: &mut dyn Optimizer<List<D>>,
    list: List<D>,
    gradient: TensorData,
) -> (List<D>, Vec<f32>) {
    let mut gradients = GradientsParams::new();
    gradients.register(list[0].id, Tensor::<D>::from_data(gradient, &Device::flex()));
    let (list, _) = optimizer.step(list, gradients, LR).unwrap();
    let values = read(parameters(&list).remove(0).values).unwrap();
    (list, values)
}

const LR: f64 = 0.1;

fn close(got: &[f32], expected: &[f64]) {
    let near = |(&got, &expected): (&f32, &f64)| (f64::from(got) - expected).abs() < 1e-5;
    assert!(got.iter().zip(expected).all(near), "{got:?}, expected {expected:?}");
    assert_eq!(got.len(), expected.len());
}

fn names(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut names: Vec<String> = file.names().into_iter().map(|name| name.to_string()).collect();
    names.sort();
    names
}

/// Writes a file of flat tensors.
fn write(path: &Path, tensors: &[(&str, Dtype, Vec<u8>)]) {
    let views = tensors.iter().map(|(name, dtype, bytes)| {
        let count = bytes.len() / (dtype.bitsize() / 8);
        (name, TensorView::new(*dtype, vec![count], bytes).unwrap())
    });
    safetensors::serialize_to_file(views, None, path).unwrap();
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

#[test]
fn a_resumed_optimizer_continues_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    for new in OPTIMIZERS {
        let mut whole = new();
        let mut first = new();
        let mut second = new();
        let model = Model::new();
        let expected = model.clone().trained(&mut *whole, 0..4);
        let stopped = model.trained(&mut *first, 0..2);

        first.save(&path).unwrap();
        second.load(&stopped, &path, &Device::flex()).unwrap();
        assert_eq!(stopped.clone().trained(&mut *second, 2..4).bits(), expected.bits());

        // The state makes the difference.
        assert_ne!(stopped.trained(&mut *new(), 2..4).bits(), expected.bits());
    }
}

#[test]
fn an_optimizer_that_was_reset_is_a_new_one() {
    for new in OPTIMIZERS {
        let mut used = new();
        let model = Model::new().trained(&mut *used, 0..2);
        used.reset();
        let expected = model.clone().trained(&mut *new(), 2..4);
        assert_eq!(model.trained(&mut *used, 2..4).bits(), expected.bits());
    }
}

#[test]
fn a_gradient_that_is_not_finite_moves_neither_weights_nor_state() {
    for new in OPTIMIZERS {
        let mut calm = new();
        let mut hit = new();
        let model = Model::new().trained(&mut *calm, 0..2);
        let same = Model::new().trained(&mut *hit, 0..2);
        let mut gradients = same.gradients(2);
        gradients.register(same.norm.id, Tensor::<1>::full([4], f32::NAN, &Device::flex()));

        let (same, outcome) = hit.step(same, gradients, 0.05).unwrap();
        assert!(outcome.skipped && outcome.grad_scale == 0.0 && outcome.grad_norm.is_nan());
        assert_eq!(same.bits(), model.bits());
        assert_eq!(same.trained(&mut *hit, 3..4).bits(), model.trained(&mut *calm, 3..4).bits());
    }
}

/// The file is as it was before there was a second optimizer, so that the checkpoints of older runs continue.
#[test]
fn the_state_file_of_adamw_has_moments_and_time_by_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let expected = folder.path().join("b");
    let state = |moment_1: &[f32], moment_2: &[f32], time: u64| {
        [
            ("0.moment_1", Dtype::F32, floats(moment_1)),
            ("0.moment_2", Dtype::F32, floats(moment_2)),
            ("0.time", Dtype::U64, time.to_le_bytes().to_vec()),
        ]
    };
    let moment_1 = [0.5f32, -0.25];
    let moment_2 = [0.125f32, 2.0];
    let gradient = [0.3f32, -0.7];
    write(&path, &state(&moment_1, &moment_2, 3));

    let mut optimizer = AdamW::new(PLAIN);
    let list = one::<1>(TensorData::from([1.0f32, 2.0]));
    optimizer.load(&list, &path, &Device::flex()).unwrap();
    let (_, values) = step(&mut optimizer, list, TensorData::from(gradient));

    let tensor = |values: [f32; 2]| Tensor::<1>::from_data(values, &Device::flex());
    let momentum = AdaptiveMomentumState {
        time: 3,
        moment_1: tensor(moment_1),
        moment_2: tensor(moment_2),
        max_moment_2: None,
    };
    let rule = AdamWConfig::new().with_beta_2(0.99).with_epsilon(1e-8).with_weight_decay(0.0);
    let state_before = Some(AdamWState { momentum });
    let (after, state_after) =
        rule.build().step(LR, tensor([1.0, 2.0]), tensor(gradient), state_before);

    // Both round, and may differ in the last digit.
    for (value, after) in values.iter().zip(read(after).unwrap()) {
        assert!((value - after).abs() <= 2.0 * f32::EPSILON * after.abs(), "{value} and {after}");
    }

    let momentum = state_after.unwrap().momentum;
    let [moment_1, moment_2] = [momentum.moment_1, momentum.moment_2].map(|m| read(m).unwrap());
    write(&expected, &state(&moment_1, &moment_2, 4));
    Optimizer::<List<1>>::save(&optimizer, &path).unwrap();
    assert_eq!(std::fs::read(path).unwrap(), std::fs::read(expected).unwrap());
}

#[test]
fn a_state_file_that_does_not_fit_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let time = ("0.time", Dtype::U64, 1u64.to_le_bytes().to_vec());
    let moment_1 = ("0.moment_1", Dtype::F32, floats(&[1.0, 2.0]));
    let moment_2 = ("0.moment_2", Dtype::F32, floats(&[1.0, 2.0]));
    let good = [moment_1.clone(), moment_2.clone(), time.clone()];
    let with = |change: (&'static str, Dtype, Vec<u8>)| {
        let kept = good.iter().filter(|(name, ..)| *name != change.0).cloned();
        kept.chain([change.clone()]).collect::<Vec<_>>()
    };

    let list = one::<1>(TensorData::from([1.0f32, 2.0]));
    let refuse = |optimizer: &mut dyn Optimizer<List<1>>, problem: &str| {
        let error = optimizer.load(&list, &path, &Device::flex()).unwrap_err().to_string();
        assert!(error.starts_with(path.to_str().unwrap()) && error.contains(problem), "{error}");
    };

    for (file, problem) in [
        (vec![moment_1.clone(), time.clone()], "has no \"0.moment_2\""),
        (vec![moment_1.clone(), moment_2.clone()], "has no \"0.time\""),
        (with(("1.time", Dtype::U64, time.2.clone())), "which the model lacks"),
        (with(("time", Dtype::U64, time.2.clone())), "which the model lacks"),
        (with(("0.velocity", Dtype::F32, floats(&[1.0, 2.0]))), "another optimizer's"),
        (with(("0.moment_1", Dtype::F32, floats(&[1.0]))), "has 4 bytes for \"0.moment_1\""),
        (with(("0.moment_1", Dtype::F64, vec![0; 8])), "has F64 as \"0.moment_1\", expected F32"),
        (with(("0.time", Dtype::F32, vec![0; 8])), "has F32 as \"0.time\", expected U64"),
        (with(("0.moment_2", Dtype::F32, floats(&[1.0, f32::NAN]))), "holds NaN"),
        (with(("0.time", Dtype::U64, vec![255; 8])), "expected at most 2147483647"),
    ] {
        write(&path, &file);
        refuse(&mut AdamW::new(PLAIN), problem);
    }

    write(&path, &good);
    AdamW::new(PLAIN).load(&list, &path, &Device::flex()).unwrap();

    // A file cut short anywhere is refused, too.
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        refuse(&mut AdamW::new(PLAIN), "is not an intact safetensors file");
    }

    std::fs::remove_file(&path).unwrap();
    refuse(&mut AdamW::new(PLAIN), "cannot be read");
}

#[test]
fn numbers_in_8_bits_are_near_and_right_in_the_mean() {
    const TURNS: u64 = 512;
    // The values have several orders of magnitude, reach over the end of a run, and have zeros among them.
    let values: Vec<f32> = numbers(300, 1.0).iter().map(|value| value.powi(5)).collect();
    let values: Vec<f32> =
        values.iter().enumerate().map(|(at, v)| if at % 7 == 0 { 0.0 } else { *v }).collect();

    for kind in Kind::ALL {
        let squares = kind == Kind::Squares;
        let exact: Vec<f32> = values.iter().map(|v| if squares { v * v } else { *v }).collect();

        let mut sums = vec![0f64; exact.len()];
        for turn in 0..TURNS {
            let tensor = Tensor::<1>::from_floats(exact.as_slice(), &Device::flex());
            let actual = read(Narrow::new(tensor, kind, turn).values()).unwrap();

            for ((run, actual), exact) in actual.chunks(64).enumerate().zip(exact.chunks(64)) {
                let root = |v: f32| if squares { v.sqrt() } else { v };
                let largest = exact.iter().fold(0f32, |max, v| max.max(root(*v).abs()));
                let scale = largest / if squares { 255.0 } else { 127.0 };

                for (index, (&actual, &exact)) in actual.iter().zip(exact).enumerate() {
                    assert!((root(actual) - root(exact)).abs() < scale * 1.001, "{actual} {exact}");
                    assert!((actual == 0.0) == (exact == 0.0) || !squares, "{actual} {exact}");
                    // The errors are added up as fractions of the largest error allowed.
                    let larger = !squares || root(exact) > scale;
                    let error = f64::from((root(actual) - root(exact)) / scale);
                    sums[run * 64 + index] += if larger { error } else { 0.0 };
                }
            }
        }

        let worst = sums.iter().fold(0f64, |worst, sum| worst.max(sum.abs())) / TURNS as f64;
        assert!(worst < 0.01, "{kind:?}: {worst}");
    }
}

/// If it were rounded to the nearest code, a moment would not change at all: a thousandth is less than half a
/// code.
#[test]
fn a_moment_in_8_bits_decays() {
    // The neighbouring value stays, so that the scale does not become smaller.
    let mut values = Tensor::<1>::from_floats([1.0, 0.25], &Device::flex());
    let decay = Tensor::<1>::from_floats([1.0, 0.999], &Device::flex());

    for turn in 0..1000 {
        values = Narrow::new(values * decay.clone(), Kind::Squares, turn).values();
    }

    let decayed = read(values).unwrap();
    let expected = 0.25 * 0.999f32.powi(1000);
    assert!(
        decayed[0] == 1.0 && (decayed[1] / expected - 1.0).abs() < 0.05,
        "{decayed:?}, {expected}"
    );
}

#[test]
fn an_optimizer_does_not_continue_from_anothers_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let [adamw, muon, ..] = OPTIMIZERS;
    for [new, other] in [[adamw, muon], [muon, adamw]] {
        let mut optimizer = new();
        let model = Model::new().trained(&mut *optimizer, 0..1);
        optimizer.save(&path).unwrap();
        let error = other().load(&model, &path, &Device::flex()).unwrap_err().to_string();
        assert!(error.contains("another optimizer's"), "{error}");
    }
}

#[test]
fn muon_moves_hidden_matrices_and_adamw_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    let [mut adamw, mut muon, ..] = OPTIMIZERS.map(|new| new());
    let by_adamw = Model::new().trained(&mut *adamw, 0..3).bits();
    let by_muon = Model::new().trained(&mut *muon, 0..3).bits();

    for ((path, one), (_, other)) in by_adamw.iter().zip(&by_muon) {
        let hidden = path.ends_with("tall") || path.ends_with("wide");
        assert_eq!(one != other, hidden, "{path}");
    }

    muon.save(&path).unwrap();
    let mut expected: Vec<String> = Vec::new();
    for layer in 0..2 {
        expected.extend(["tall", "wide"].map(|name| format!("layers.{layer}.{name}.velocity")));
    }

    let others =
        ["embedding", "norm", "value", "layers.0.bias", "layers.0.column", "layers.1.bias"];
    for path in others.into_iter().chain(["layers.1.column"]) {
        expected.extend(["moment_1", "moment_2", "time"].map(|part| format!("{path}.{part}")));
    }

    expected.sort();
    assert_eq!(names(&path), expected);
}

#[test]
fn a_decoder_learns_by_muon_within_its_layers() {
    let sizes = Sizes {
        vocab_size: 16,
        hidden_size: 16,
        layers: 2,
        heads: 2,
        kv_heads: 1,
        head_dim: 8,
        intermediate_size: 24,
        max_position_embeddings: 32,
        rope_theta: 10000.0,
        tied: false,
    };

    let device = Device::flex().autodiff();
    let config = DecoderConfig::new(Family::Qwen2, sizes);
    let mut policy = random(&config, Seed::run(1), &device).unwrap();
    let examples = [SftExample::new(vec![1, 2], vec![3, 4, 5])];
    let micro_batching = MicroBatching { micro_batch_tokens: 64, ..MicroBatching::default() };

    let mut muon = Muon::new(MuonConfig::default());
    let mut losses = Vec::new();
    for _ in 0..10 {
        let (moved, loss, _) =
            sft_step(policy, &mut muon, &examples, 0.05, micro_batching).unwrap();
        policy = moved;
        losses.push(loss);
    }

    assert!(losses[9] < 0.1 * losses[0], "{losses:?}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    Optimizer::<Decoder>::save(&muon, &path).unwrap();
    let names = names(&path);
    let by_muon = |path: &str| names.contains(&format!("{path}.velocity"));

    for parameter in parameters(&policy) {
        let hidden = parameter.shape.len() == 2 && parameter.path.starts_with("layers.");
        assert_eq!(by_muon(&parameter.path), hidden, "{}", parameter.path);
    }

    // Queries, keys and values are one matrix, and gate and up are one matrix.
    assert_eq!(names.iter().filter(|name| name.ends_with("velocity")).count(), 2 * 4);
}

#[test]
fn which_matrices_are_muons_can_be_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("optimizer.safetensors");
    // If Muon asked about all parameters, this rule would name vectors, too.
    let mut muon = Muon::with_matrices(MuonConfig::default(), |path, _| !path.contains("layers"));

    Model::new().trained(&mut muon, 0..1);
    Optimizer::<Model>::save(&muon, &path).unwrap();
    let names = names(&path).into_iter();
    let velocities: Vec<String> = names.filter(|name| name.ends_with("velocity")).collect();
    assert_eq!(velocities, ["embedding.velocity", "value.velocity"]);
}

#[test]
fn hidden_matrices_are_known_by_path_and_shape() {
    for (path, shape, hidden) in [
        ("layers.0.attention.qkv.weight", &[64, 192][..], true),
        ("trunk.layers.11.down.weight", &[256, 64], true),
        ("layers.0.attention.qkv.adapters.2.a", &[64, 4], true),
        ("embedding", &[512, 64], false),
        ("head", &[512, 64], false),
        ("head.weight", &[64, 1], false),
        ("layers.0.gate", &[1, 64], false),
        ("layers.0.norm", &[64], false),
        ("layers.0.kernel", &[4, 64, 64], false),
        ("layer1.weight", &[64, 64], false),
    ] {
        assert_eq!(hidden_matrix(path, shape), hidden, "{path}");
    }
}

/// Runs five Newton–Schulz steps on a singular value.
fn newton_schulz(value: f64) -> f64 {
    let step = |value: f64| 3.4445 * value - 4.775 * value.powi(3) + 2.0315 * value.powi(5);
    (0..5).fold(value, |value, _| step(value))
}

/// A diagonal matrix has its entries as singular values, without their signs.
#[test]
fn muon_is_its_formula_where_that_can_be_worked_out_by_hand() {
    let move_by = |direction: [f64; 2]| {
        let norm = direction[0].hypot(direction[1]);
        direction.map(|entry| LR * 0.2 * 2f64.sqrt() * newton_schulz(entry / norm))
    };

    let mut muon = Muon::new(MuonConfig { momentum: 0.5, adamw: PLAIN });
    let list = one::<2>(TensorData::from([[1.0f32, 0.25], [-0.25, 1.0]]));
    let (list, values) = step(&mut muon, list, TensorData::from([[3.0f32, 0.0], [0.0, 4.0]]));

    // V = G, and G + V / 2 has its direction: 3 / 5 and 4 / 5.
    let [a, b] = move_by([3.0, 4.0]);
    close(&values, &[1.0 - a, 0.25, -0.25, 1.0 - b]);

    // V = (3, 4) / 2 + (1, −6) = (2.5, −4), and (1, −6) + V / 2 = (2.25, −8).
    let (_, values) = step(&mut muon, list, TensorData::from([[1.0f32, 0.0], [0.0, -6.0]]));
    let [c, d] = move_by([2.25, -8.0]);
    close(&values, &[1.0 - a - c, 0.25, -0.25, 1.0 - b - d]);
}

#[test]
fn muon_is_burns_with_its_momentum_where_it_can_be_named() {
    for (rows, columns) in [(4, 3), (3, 4)] {
        let matrix = |start: f32| TensorData::new(numbers(rows * columns, start), [rows, columns]);
        let config = OptimConfig { weight_decay: 0.25, ..PLAIN };
        let mut ours = Muon::new(MuonConfig { momentum: 0.95, adamw: config });

        let burns = RuleConfig::new()
            .with_weight_decay(Some(WeightDecayConfig::new(0.25)))
            .with_adjust_lr_fn(AdjustLrFn::MatchRmsAdamW)
            .build();

        let mut list = one::<2>(matrix(1.0));
        let tensor = |start: f32| Tensor::<2>::from_data(matrix(start), &Device::flex());
        let mut weights = tensor(1.0);
        let mut state = None;
        for start in [20.0, 30.0, 40.0] {
            let (moved, values) = step(&mut ours, list, matrix(start));
            list = moved;
            (weights, state) = burns.step(LR, weights, tensor(start), state);
            let expected = read(weights.clone().reshape([rows * columns])).unwrap();
            assert_eq!(values, expected, "{rows}×{columns}");
        }
    }
}

/// A gradient whose directions differ 200 times in size moves the matrix equally far in all of them.
#[test]
fn muon_moves_equally_far_in_every_direction_of_the_gradient() {
    let gradient = [[10.0f32, 0.0, 1.0], [9.9, 0.1, 1.0]];
    let mut muon = Muon::new(MuonConfig { momentum: 0.95, adamw: PLAIN });
    let list = one::<2>(TensorData::zeros::<f32, _>([2, 3]));
    let (_, values) = step(&mut muon, list, TensorData::from(gradient));

    // √3 stands for the longer side.
    let scale = -LR * 0.2 * 3f64.sqrt();
    let entries: Vec<f64> = values.iter().map(|&value| f64::from(value) / scale).collect();
    let rows: Vec<&[f64]> = entries.chunks(3).collect();
    let dot =
        |one: &[f64], other: &[f64]| -> f64 { one.iter().zip(other).map(|(a, b)| a * b).sum() };
    let gradient = gradient.map(|row| row.map(f64::from));

    let singular_values = |rows: [&[f64]; 2]| {
        // The singular values are the roots of the eigenvalues of [[a, b], [b, c]], which is the matrix times
        // its transpose.
        let (a, b, c) = (dot(rows[0], rows[0]), dot(rows[0], rows[1]), dot(rows[1], rows[1]));
        let (middle, apart) = ((a + c) / 2.0, ((a - c) / 2.0).hypot(b));
        [(middle + apart).sqrt(), (middle - apart).sqrt()]
    };

    let [large, small] = singular_values([&gradient[0], &gradient[1]]);
    assert!(large / small > 100.0, "{large} and {small}");
    let moved = singular_values([rows[0], rows[1]]);
    assert!(moved.iter().all(|value| (0.68..1.21).contains(value)), "{moved:?}");

    let expected = [large, small].map(|value| newton_schulz(value / large.hypot(small)));
    let expected = [expected[0].max(expected[1]), expected[0].min(expected[1])];
    for (moved, expected) in moved.iter().zip(expected) {
        assert!((moved - expected).abs() < 1e-3, "{moved}, expected {expected}");
    }

    // The directions stay: if the singular vectors are the same, O·Gᵀ is symmetric.
    let one = dot(rows[0], &gradient[1]);
    let other = dot(rows[1], &gradient[0]);
    assert!((one - other).abs() < 1e-3 * one.abs(), "{one} and {other}");
}

#[test]
fn the_same_weights_have_the_same_fingerprint() {
    let mut model = Model::new();

    // The matrix is larger than the part that one thread adds up, and other threads have work meanwhile.
    let device = Device::flex().autodiff();
    let (rows, columns) = (9000, 500);
    let large = |nudge: f32| {
        let mut values = numbers(rows * columns, 7.0);
        values[rows * columns / 2] += nudge;
        Param::from_data(TensorData::new(values, [rows, columns]), &device)
    };

    model.embedding = large(0.0);
    let one = fingerprint(&model).unwrap();

    let busy = AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while busy.load(Ordering::Relaxed) {
                rayon::join(|| std::hint::black_box(numbers(1000, 1.0)), || ());
            }
        });
        (0..20).for_each(|_| assert_eq!(fingerprint(&model).unwrap(), one));
        busy.store(false, Ordering::Relaxed);
    });

    model.embedding = large(1e-3);
    assert_ne!(fingerprint(&model).unwrap(), one);
}
