//! Divergences of a policy and its teacher.

use burn::tensor::{Device, Tensor, TensorData};
use firebrick_kernels::{Compute, HeadStates, KlDirection, LmHead, head_kl};
use serde_json::Value;

/// Compares divergences, and gradients of hidden states and head, with those of the peers.
pub(crate) fn check(golden: &Value) {
    let states = |hidden: &str, head: &str| HeadStates {
        hidden: matrix(&golden[hidden]),
        head: LmHead::from(matrix(&golden[head])),
    };
    let policy = states("hidden", "head");
    let teacher = states("teacher_hidden", "teacher_head");
    let weights = vector(&golden["weights"]);
    let vocab = policy.head.matrix.dims()[0];

    for case in golden["cases"].as_array().expect("a list of cases") {
        let direction = match case["direction"].as_str() {
            Some("forward") => KlDirection::Forward,
            _ => KlDirection::Reverse,
        };
        // All tokens of the vocabulary in one block, five at a time, and one after the other.
        for logits in [1 << 20, 6 * 5 * 7, 1] {
            let temperature = case["temperature"].as_f64().expect("a number");
            let kl = |trains_head| {
                let compute = Compute::F32;
                head_kl(
                    direction,
                    &policy,
                    &teacher,
                    &weights,
                    temperature,
                    logits,
                    compute,
                    trains_head,
                )
            };
            let found = kl(true);
            let own = match direction {
                KlDirection::Forward => found.forward,
                KlDirection::Reverse => found.reverse,
            };
            assert_near(own, &vector(&case["kl"]));
            assert_near(found.d_hidden, &matrix(&case["d_hidden"]));
            let d_head = found.d_head.expect("a head that trains");
            assert_eq!(d_head.dims()[0], vocab);
            assert_near(d_head, &matrix(&case["d_head"]));
            assert!(kl(false).d_head.is_none());
        }
    }
}

fn matrix(rows: &Value) -> Tensor<2> {
    let rows: Vec<Vec<f32>> = serde_json::from_value(rows.clone()).expect("rows of numbers");
    let shape = [rows.len(), rows[0].len()];
    Tensor::from_data(TensorData::new(rows.concat(), shape), &Device::flex())
}

fn vector(numbers: &Value) -> Tensor<1> {
    let numbers: Vec<f32> = serde_json::from_value(numbers.clone()).expect("numbers");
    let count = numbers.len();
    Tensor::from_data(TensorData::new(numbers, [count]), &Device::flex())
}

#[track_caller]
fn assert_near<const D: usize>(actual: Tensor<D>, expected: &Tensor<D>) {
    let largest = expected.clone().abs().max().into_scalar::<f32>();
    let off = (actual - expected.clone()).abs().max().into_scalar::<f32>();
    assert!(off <= 1e-5 * largest, "off by {off} of {largest}");
}
