//! Names of metrics in verl, for those that mean the same.

/// Metrics by Firebrick's name and by verl's, if both mean the same, sorted. The book's page of metrics has these
/// pairs, and also pairs that are only similar.
const VERL: &[(&str, &str)] = &[
    ("critic/clip_fraction", "critic/vf_clipfrac"),
    ("critic/explained_variance", "critic/vf_explained_var"),
    ("critic/grad_norm", "critic/grad_norm"),
    ("critic/loss", "critic/vf_loss"),
    ("critic/lr", "critic/lr"),
    ("critic/return_mean", "critic/returns/mean"),
    ("critic/value_mean", "critic/values/mean"),
    ("loss/approx_kl", "actor/ppo_kl"),
    ("loss/dual_clip_fraction", "actor/pg_clipfrac_lower"),
    ("loss/entropy", "actor/entropy"),
    ("loss/kl", "actor/kl_loss"),
    ("loss/policy", "actor/pg_loss"),
    ("reward/mean", "critic/score/mean"),
    ("rollout/length_max", "response_length/max"),
    ("rollout/length_mean", "response_length/mean"),
    ("rollout/tis_weight_mean", "rollout_corr/rollout_is_mean"),
    ("rollout/truncated", "response_length/clip_ratio"),
    ("sampling/rounds", "train/num_gen_batches"),
    ("time/reward", "timing_s/reward"),
    ("time/rollout", "timing_s/gen"),
    ("time/step", "timing_s/step"),
    ("time/update", "timing_s/update_actor"),
    ("update/grad_norm", "actor/grad_norm"),
    ("update/lr", "actor/lr"),
];

/// Returns verl's name of a metric, if verl has the metric.
pub(crate) fn verl_name(name: &str) -> Option<&'static str> {
    let found = VERL.binary_search_by_key(&name, |(ours, _)| ours).ok()?;
    Some(VERL[found].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_are_sorted_and_those_of_the_book() {
        assert!(VERL.is_sorted());
        let page = include_str!("../../../book/src/metrics.md");
        for (ours, verl) in VERL {
            let row = page.lines().find(|line| line.starts_with(&format!("| `{ours}` |")));
            let row = row.unwrap_or_else(|| panic!("{ours} is not in the book"));
            assert!(row.contains(&format!("`{verl}`")), "{row}");
        }
    }
}
