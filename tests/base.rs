//! Frozen weights in fewer bits give the same results as their values in f32.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use burn::tensor::Device;
use firebrick_core::Seed;
use firebrick_models::{
    Compute, Decoder, FrozenFormat, Lora, Padding, SaveOptions, WeightDtype, load, load_config,
    load_noting, parameters, save,
};
use firebrick_tests::{
    computed::{logits, named_gradients, real, sample, updater},
    expected::{Logits, unpad},
    fixture::{Fixture, for_each_checkpoint},
};
use firebrick_train::learner::CrossEntropy;

const BASES: [FrozenFormat; 4] =
    [FrozenFormat::F32, FrozenFormat::Bf16, FrozenFormat::Int8, FrozenFormat::Int4];

/// Inputs that share a scale, at most.
const RUN: usize = 32;

#[test]
fn weights_are_as_near_as_their_bits_allow() {
    for_each_checkpoint("logits", |fixture, _: Logits| {
        let whole = matrices(&fixture.decoder(&Device::flex()));
        for base in BASES {
            let kept = matrices(&adapted(fixture, base, &Device::flex()).merged());
            let mut off = 0f32;
            for (path, (inputs, values)) in &whole {
                let outputs = values.len() / inputs;

                // A run is the largest divisor of `inputs` that fills whole integers.
                let in_word = if base == FrozenFormat::Int8 { 4 } else { 8 };
                let fits = |run: &usize| run.is_multiple_of(in_word) && inputs.is_multiple_of(*run);
                let run = (in_word..=RUN).rev().find(fits).unwrap_or(1);
                let lookup = path == "embedding" || path == "head";

                for (at, (&value, &came)) in values.iter().zip(&kept[path].1).enumerate() {
                    // Find the values that share a scale with this one.
                    let first = at / outputs / run * run;
                    let output = at % outputs;
                    let largest = (first..first + run)
                        .map(|input| values[input * outputs + output].abs())
                        .fold(0f32, f32::max);

                    let bound = match base {
                        FrozenFormat::F32 => 0.0,
                        _ if lookup || base == FrozenFormat::Bf16 => value.abs() / 256.0,
                        // The scale is rounded too.
                        FrozenFormat::Int8 => largest / 254.0 + largest / 256.0,
                        // The bound is half a step, but a quarter of the largest value where a value is cut
                        // off.
                        FrozenFormat::Int4 | FrozenFormat::Bf16 => largest / 4.0,
                    };

                    assert!((value - came).abs() <= bound * 1.0001, "{base:?} {path}[{at}]");
                    off = off.max((value - came).abs());
                }
            }

            assert_eq!(
                off == 0.0,
                base == FrozenFormat::F32
                    || fixture.name.contains("bf16") && base == FrozenFormat::Bf16
            );
        }
    });
}

#[test]
fn an_update_beside_a_packed_base_is_that_beside_its_values() {
    for_each_checkpoint("logits", |fixture, expected: Logits| {
        let rows = unpad(&expected.right.input_ids, &expected.right.attention_mask);
        let samples: Vec<_> =
            rows.iter().map(|row| sample(row[..1].to_vec(), row[1..].to_vec())).collect();

        for base in BASES {
            let device = Device::flex().autodiff();
            let policy = adapted(fixture, base, &device);

            // The adapters add nothing yet, so the merged policy is the base alone.
            let folder = tempfile::tempdir().unwrap();
            let (_, config) = load_config(&fixture.folder).unwrap();
            let options = SaveOptions { dtype: WeightDtype::F32, ..SaveOptions::default() };
            save(&policy.clone().merged(), &config, folder.path(), &options).unwrap();
            let twin = load(folder.path(), &device).unwrap().with_lora(lora(), Seed::run(1));

            for compute in [Compute::F32, Compute::Bf16] {
                let of = |policy: &Decoder| {
                    let policy = policy.clone().with_compute(compute);
                    let report = updater(CrossEntropy, 1.0).gradients(&policy, &samples).unwrap();
                    (report.loss, named_gradients(&policy, &report.gradients))
                };

                let ((loss, gradients), (expected, of_twin)) = (of(&policy), of(&twin));
                assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "{base:?} {compute:?}");
                assert!(gradients.keys().eq(of_twin.keys()));
                for (name, expected) in &of_twin {
                    assert!(name.contains(".lora_"), "{name} is frozen");
                    let largest = expected.iter().fold(0f32, |most, value| most.max(value.abs()));
                    for (value, expected) in gradients[name].iter().zip(expected) {
                        assert!((value - expected).abs() <= 1e-5 * largest, "{base:?} {name}");
                    }
                }
            }

            let of = |decoder: &Decoder| {
                let logits = logits(decoder, &expected.right, Padding::Right);
                real(&logits, &expected.right.attention_mask).concat()
            };
            use firebrick_models::PolicyModel as _;
            for (came, expected) in of(&policy.sampler()).iter().zip(of(&twin.sampler())) {
                assert!((came - expected).abs() <= 1e-4, "{base:?}: {came}, expected {expected}");
            }

            // Weights that are unpacked once take as much room as in 16 bits, and change no bit of a sampler.
            let narrow = policy.clone().with_compute(Compute::Bf16);
            let unpacked = narrow.clone().with_unpacked_sampler(true).sampler();
            assert_eq!(of(&unpacked), of(&narrow.sampler()), "{base:?}");
            if matches!(base, FrozenFormat::Int8 | FrozenFormat::Int4) {
                let wide = adapted(fixture, FrozenFormat::Bf16, &device);
                let wide = wide.with_compute(Compute::Bf16).sampler();
                assert_eq!(unpacked.weight_bytes(), wide.weight_bytes(), "{base:?}");
            }
        }
    });
}

fn lora() -> Lora {
    let targets = Lora::PROJECTIONS.map(str::to_owned).to_vec();
    Lora { rank: 4, alpha: 8.0, targets, ..Lora::default() }
}

fn adapted(fixture: &Fixture, base: FrozenFormat, device: &Device) -> Decoder {
    let loaded = load_noting(&fixture.folder, base, device).unwrap();
    loaded.decoder.with_lora(lora(), Seed::run(1))
}

/// Reads each matrix by its path, with its number of rows.
fn matrices(decoder: &Decoder) -> BTreeMap<String, (usize, Vec<f32>)> {
    let matrices = parameters(decoder).into_iter().filter(|parameter| parameter.shape.len() == 2);
    matrices
        .map(|it| (it.path, (it.shape[0], it.values.try_into_vec_as::<f32>().unwrap())))
        .collect()
}
