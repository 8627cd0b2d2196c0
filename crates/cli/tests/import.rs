//! `firebrick recipes import`: its exit codes, and the streams that it writes to. Tests in `crates/import` cover the
//! translation of each key.

#![allow(clippy::unwrap_used, reason = "a test that unwraps fails as it should")]

mod scratch;

use firebrick::recipe::Recipe;
use scratch::Scratch;

#[test]
fn what_can_not_be_imported_is_refused() {
    let scratch = Scratch::new();
    for (name, text, words) in [
        ("none.yaml", "a: {b: 1}", "the file has no key of verl or SkyRL"),
        ("empty.yaml", "# nothing", "the file has no key of verl or SkyRL"),
        ("broken.yaml", "actor_rollout_ref:\n\trollout: 1", "a tab, expected spaces"),
        ("text.yaml", "text", "the file is one value"),
    ] {
        scratch.write(name, text);
        let outcome = scratch.run(&["recipes", "import", name]);
        assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(2), ""), "{name}");
        assert!(outcome.stderr.contains(words), "{name}: {}", outcome.stderr);
    }

    assert_eq!(scratch.run(&["recipes", "import", "absent.yaml"]).code, Some(1));
}

#[test]
fn what_no_recipe_has_stays_behind_with_a_remark() {
    let scratch = Scratch::new();
    for (name, text, words) in [
        (
            "word.yaml",
            "generator: {sampling_params: {temperature: hot}}",
            "rollout.temperature is a string",
        ),
        ("range.yaml", "generator: {sampling_params: {top_p: 2}}", "rollout.top_p is 2"),
        (
            "agree.yaml",
            "trainer: {policy_mini_batch_size: 64, train_batch_size: 32}\ngenerator: {batched: true}",
            "the recipe makes\n#     one update of a step",
        ),
    ] {
        scratch.write(name, text);
        let outcome = scratch.succeed(&["recipes", "import", name]);
        assert!(outcome.stdout.contains(words), "{name}: {}", outcome.stdout);
        let recipe = scratch.path(name).with_extension("toml");
        std::fs::write(&recipe, &outcome.stdout).unwrap();
        Recipe::load(&recipe, &[]).unwrap();
    }

    scratch.write("good.yaml", "generator: {n_samples_per_prompt: 4, unheard_of: 1}");
    let outcome = scratch.succeed(&["recipes", "import", "good.yaml", "trainer.seed=3"]);
    scratch.write("good.toml", &outcome.stdout);
    assert!(outcome.stderr.contains("unknown: 1"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("#   generator.unheard_of = 1"), "{}", outcome.stdout);
    assert_eq!(Recipe::load(&scratch.path("good.toml"), &[]).unwrap().recipe.seed, 3);
}
