//! Compares blocks of every type with the package gguf, bit for bit.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

use std::collections::BTreeMap;

use firebrick_gguf::BlockType;

fn bytes(hex: &str) -> Vec<u8> {
    hex.as_bytes()
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn blocks_are_what_the_package_gguf_makes_of_them() {
    let types: BTreeMap<String, BTreeMap<String, String>> =
        serde_json::from_str(include_str!("blocks.json")).unwrap();
    assert_eq!(types.len(), BlockType::ALL.len());

    for kind in BlockType::ALL {
        let known = &types[kind.name()];
        let mut values = Vec::new();
        kind.dequantise(&bytes(&known["bytes"]), &mut values);
        let bits: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();

        assert_eq!(bits, bytes(&known["values"]), "{}", kind.name());
        assert_eq!(bytes(&known["bytes"]).len() / kind.bytes() * kind.values(), values.len());
    }
}

/// The package computes as the reader does, so the numbers of the standard are here once more. The first value is in the
/// lower half of the first byte, and the 17th in the upper half.
#[test]
fn mxfp4_is_a_power_of_two_times_sixteen_numbers() {
    let read = |exponent: u8| {
        let codes = (0..16u8).map(|code| code | ((15 - code) << 4));
        let block: Vec<u8> = [exponent].into_iter().chain(codes).collect();
        let mut values = Vec::new();
        BlockType::MXFP4.dequantise(&block, &mut values);
        values
    };
    let positive = [0.0_f32, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    let numbers = [positive, positive.map(|number| -number)].concat();

    for (exponent, scale) in [
        (127, 1.0),
        (128, 2.0),
        (120, 1.0 / 128.0),
        (1, f32::MIN_POSITIVE),
        // Below it, an f32 loses bits, and these numbers have two.
        (0, f32::MIN_POSITIVE / 2.0),
        (252, 2f32.powi(125)),
    ] {
        let expected: Vec<f32> = numbers.iter().map(|number| scale * number).collect();
        let values = read(exponent);
        assert_eq!(&values[..16], &expected[..], "{exponent}");
        assert!(values[16..].iter().eq(expected.iter().rev()), "{exponent}");
    }

    // The largest scales leave the range of an f32, and whoever reads a weight that is infinite says so.
    let values = read(255);
    assert_eq!(&values[..3], &[0.0, 2f32.powi(127), f32::INFINITY]);
}
