use firebrick_core::Seed;
use firebrick_tests::golden::Case;
use firebrick_train::sampler::{PromptRecord, Selection, VarianceRule};
use serde_json::json;

pub(crate) fn select(case: &Case) {
    let rule = VarianceRule {
        min_variance: case.config.number("min_variance"),
        skip_fraction_trigger: case.config.number("skip_fraction_trigger"),
        refill_fraction: case.config.number("refill_fraction"),
        expire: 0,
    };
    let table = case.inputs.value("variance_table");
    let prompts = case.inputs.list("prompts");
    let record = |prompt: &serde_json::Value| {
        let variance = table.get(prompt.as_str().expect("a prompt's name"))?.as_f64()? as f32;
        Some(PromptRecord { variance, ..PromptRecord::default() })
    };
    let records: Vec<Option<PromptRecord>> = prompts.iter().map(record).collect();

    let selection = Selection::new(&rule, &records, 1, Seed::run(0));
    case.check_exact("always_selected", selection.selected.clone());
    case.check_exact("skipped", selection.skipped.clone());
    case.check_exact("skipped_reported", selection.skipped.len());
    case.check_exact("refill_count", selection.put_back.len());
    case.check_exact("selected_total", selection.selected.len() + selection.put_back.len());

    // Any of the skipped prompts may come back, but none twice, and no other prompt.
    let mut put_back = selection.put_back;
    put_back.sort_unstable();
    put_back.dedup();
    put_back.retain(|index| selection.skipped.contains(index));
    case.check_exact("refill_count", json!(put_back.len()));
}
