//! A checkpoint's file of any bytes is read or refused, next to other files that are good. The bytes are the
//! weights, or, if they begin as JSON, the configuration and then the index of the shards.
#![no_main]

use std::fs;

use firebrick_fuzz::{of_project, with_file};
use firebrick_models::{inventory, load};
use libfuzzer_sys::fuzz_target;

const CONFIG: &str = "config.json";
const WEIGHTS: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";

fuzz_target!(|bytes: &[u8]| {
    let whole = |name: &str| fs::read(of_project("tests/fixtures/qwen2-f32").join(name)).unwrap();
    let device = Default::default();
    let names: &[&str] = if bytes.first() == Some(&b'{') { &[CONFIG, INDEX] } else { &[WEIGHTS] };
    for &name in names {
        with_file(CONFIG, &whole(CONFIG), |_| ());
        with_file(WEIGHTS, &whole(WEIGHTS), |_| ());
        with_file(INDEX, b"{}", |path| fs::remove_file(path).unwrap());
        with_file(name, bytes, |path| {
            let folder = path.parent().unwrap();
            if name == INDEX {
                // The index is read only if there is no single file.
                fs::rename(folder.join(WEIGHTS), folder.join("model-1.safetensors")).unwrap();
            }
            if let Ok(inventory) = inventory(folder) {
                inventory.types();
            }
            if let Err(error) = load(folder, &device) {
                assert!(!error.to_string().is_empty());
            }
        });
    }
});
