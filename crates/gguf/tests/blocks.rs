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
