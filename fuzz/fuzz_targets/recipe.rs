//! A recipe of any text is read or refused: as TOML, as YAML, as an override, and as a configuration of verl or
//! SkyRL.
#![no_main]

use std::path::Path;

use firebrick_recipe::Recipe;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let base = "[model]\npath = \"m\"\n[data]\ntrain = \"d\"\n";
    let toml = Path::new("run.toml");
    for (path, text, overrides) in [
        (toml, text, vec![]),
        (Path::new("run.yaml"), text, vec![]),
        (toml, base, text.lines().map(str::to_owned).collect()),
    ] {
        match Recipe::parse(path, text, &overrides) {
            // A recipe that was read can be written, and read again as the same recipe.
            Ok(loaded) => {
                let again = Recipe::parse(toml, &loaded.text, &[]).map(|loaded| loaded.recipe);
                assert_eq!(again.as_ref().ok(), Some(&loaded.recipe), "{}", loaded.text);
                let text = loaded.recipe.to_toml();
                let again = Recipe::parse(toml, &text, &[]).map(|loaded| loaded.recipe);
                assert_eq!(again.ok(), Some(loaded.recipe), "{text}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    for path in ["config.yaml", "run.sh"] {
        if let Err(error) = firebrick_import::import(Path::new(path), text, &[], None) {
            assert!(!error.to_string().is_empty());
        }
    }
});
