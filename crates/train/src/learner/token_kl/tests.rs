use burn::tensor::{Device, TensorData};
use serde_json::Value;

use super::*;

/// `l_distillation.json` was made by TRL's function, with which verl's agrees.
#[test]
fn a_divergence_and_its_gradients_are_those_of_the_peers() {
    let text = include_str!("../../../../../tests/golden/l_distillation.json");
    let golden: Value = serde_json::from_str(text).unwrap();
    let [hidden, taught, teacher] =
        ["hidden", "teacher_hidden", "teacher_head"].map(|name| matrix(&golden[name]));
    let weights = vector(&golden["weights"]);

    for case in golden["cases"].as_array().unwrap() {
        let direction = match case["direction"].as_str() {
            Some("forward") => Direction::Forward,
            _ => Direction::Reverse,
        };
        // All tokens in one block, three at a time, and one after the other.
        for logits in [1 << 20, 13 * TENSORS * 3, 1] {
            let trained = Param::from_tensor(Tensor::from_inner(matrix(&golden["head"])));
            let mut sum = GradientSum::default();
            let kl = TokenKl::backward(
                direction,
                [&hidden, &taught],
                &trained,
                &teacher,
                &weights,
                case["temperature"].as_f64().unwrap(),
                logits,
                Compute::F32,
                &mut sum,
            );

            let own = match direction {
                Direction::Forward => kl.forward,
                Direction::Reverse => kl.reverse,
            };
            assert_near(own, &vector(&case["kl"]));
            assert_near(kl.d_hidden, &matrix(&case["d_hidden"]));
            let d_head = sum.finish().remove::<2>(trained.id).unwrap();
            assert_near(d_head, &matrix(&case["d_head"]));
        }
    }
}

fn matrix(rows: &Value) -> Tensor<2> {
    let rows: Vec<Vec<f32>> = serde_json::from_value(rows.clone()).unwrap();
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape), &Device::flex())
}

fn vector(numbers: &Value) -> Tensor<1> {
    let numbers: Vec<f32> = serde_json::from_value(numbers.clone()).unwrap();
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), &Device::flex())
}

#[track_caller]
fn assert_near<const D: usize>(actual: Tensor<D>, expected: &Tensor<D>) {
    let largest = expected.clone().abs().max().into_scalar::<f32>();
    let off = (actual - expected.clone()).abs().max().into_scalar::<f32>();
    assert!(off <= 1e-5 * largest, "off by {off} of {largest}");
}
