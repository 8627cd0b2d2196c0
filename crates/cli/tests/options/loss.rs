//! Cases for the advantage and the loss.

use std::collections::BTreeMap;

use crate::{
    bench::{Bench, Case, LETTERS, case, default},
    made::{Completion, Run, assert_near, near},
};

#[test]
fn advantages_and_losses_are_what_their_options_say() {
    Bench::new().try_all(CASES);
}

/// One update on every group. The groups are pairs. If the rewards of a pair differ, they are 1 and −1, so that
/// they deviate from their mean of 0 by √2.
const PAIRS: &[&str] = &["rollout.group_size=2", "train.mini_batch=8", "sampling.dynamic=false"];

/// One update on every group, with advantages that are easily computed.
const ONE: &[&str] = &["advantage.kind=mean_only", "sampling.dynamic=false", "train.steps=1"];

/// Like `ONE`, but for a model with experts.
const EXPERTS: &[&str] = &[
    "model.new.family=qwen3_moe",
    "advantage.kind=mean_only",
    "sampling.dynamic=false",
    "train.steps=1",
];

/// One update on every group, in which every completion weighs the same.
const MEANS: &[&str] =
    &["loss.aggregation=sequence_mean", "sampling.dynamic=false", "train.steps=1"];

/// One update on every group, with a reward of two parts.
const PARTS: &[&str] = &[
    "reward={kind='weighted',parts=[\
     {name='left',weight=3,kind='regex',pattern='a',matches=true},\
     {name='right',weight=1,kind='regex',pattern='b',matches=true}]}",
    "sampling.dynamic=false",
    "train.steps=1",
];

/// Four large updates per step.
const FAR: &[&str] = &["train.mini_batch=4", "optim.lr=0.1", "sampling.dynamic=false"];
/// Steps that are sampled by the weights of the step before.
const STALE: &[&str] =
    &["loss.tis_cap=2.0", "rollout.max_staleness=1", "train.steps=4", "sampling.carry_over=false"];

pub(crate) const CASES: &[Case] = &[
    default(&["advantage.kind=group_norm"], LETTERS, PAIRS, |run| {
        let of_mean = run.instead(&["advantage.kind=mean_only"]);
        assert_near(norm(run) * 2_f64.sqrt(), norm(&of_mean));
        run.assert_is(&run.without());
    }),
    case(&["advantage.kind=mean_only"], LETTERS, &["sampling.dynamic=false"], |run| {
        assert_near(run.first("loss/total"), loss(run, token_mean));
    }),
    case(&["advantage.kind=leave_one_out"], LETTERS, PAIRS, |run| {
        let of_mean = run.instead(&["advantage.kind=mean_only"]);
        assert_near(norm(run), 2.0 * norm(&of_mean));
    }),
    case(&["advantage.epsilon=1.0"], LETTERS, PAIRS, |run| {
        let root = 2_f64.sqrt();
        assert_near(norm(run) * (root + 1.0), norm(&run.without()) * root);
    }),
    // The rewards are the same, except for the number that they are divided by.
    case(&["advantage.kind=batch_norm"], LETTERS, PAIRS, |run| {
        let of_mean = run.instead(&["advantage.kind=mean_only"]);
        assert_near(norm(run) * deviation(run), norm(&of_mean));
    }),
    case(&["advantage.kind=batch_norm", "advantage.epsilon=1.0"], LETTERS, PAIRS, |run| {
        let of_mean = run.instead(&["advantage.kind=mean_only"]);
        assert_near(norm(run) * (deviation(run) + 1.0), norm(&of_mean));
    }),
    case(&["advantage.kind=reinforce_baseline"], LETTERS, MEANS, |run| {
        assert_near(run.first("loss/total"), -whitened(run));
        assert!(whitened(run).abs() > 1e-3);
    }),
    case(&["advantage.kind=gdpo"], LETTERS, PARTS, |run| {
        assert_near(run.first("loss/total"), gdpo(run, 1e-6));
    }),
    case(&["advantage.kind=gdpo", "advantage.epsilon=1.0"], LETTERS, PARTS, |run| {
        assert_near(run.first("loss/total"), gdpo(run, 1.0));
    }),
    default(&["loss.aggregation=token_mean"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), loss(run, token_mean));
    }),
    case(&["loss.aggregation=prompt_mean"], LETTERS, ONE, |run| {
        let of_groups = |groups: &[Group]| {
            let means = groups.iter().map(|group| token_mean(std::slice::from_ref(group)));
            means.sum::<f64>() / groups.len() as f64
        };
        assert_near(run.first("loss/total"), loss(run, of_groups));
        assert!(!near(run.first("loss/total"), loss(run, token_mean)));
    }),
    // The mean of the advantages is 0.
    case(&["loss.aggregation=sequence_mean"], LETTERS, ONE, |run| {
        assert!(run.first("loss/total").abs() < 1e-6);
        assert!(norm(run) > 1e-3 && !near(norm(run), norm(&run.without())));
    }),
    case(&["loss.aggregation=sequence_sum"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), loss(run, sequence_sum));
    }),
    // Every completion counts as the four tokens that it may have.
    case(&["loss.aggregation=constant"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), loss(run, sequence_sum) / 4.0);
    }),
    case(&["loss.aggregation=constant", "loss.constant_length=3"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), loss(run, sequence_sum) / 3.0);
    }),
    default(&["loss.kind=dapo"], LETTERS, FAR, |run| {
        assert_eq!(run.values("loss/dual_clip_fraction").len(), 2);
        run.assert_is(&run.without());
    }),
    // The gradient is the same while nothing has moved, and another one when something has.
    case(&["loss.kind=gspo"], LETTERS, FAR, |run| {
        assert!(run.values("loss/dual_clip_fraction").is_empty());
        assert!(!near(norm(run), norm(&run.without())));
        let [one, dapo] = ["gspo", "dapo"].map(|kind| first_norm(run, kind));
        assert_near(one, dapo);
    }),
    case(&["loss.kind=cispo"], LETTERS, FAR, |run| {
        assert!(run.values("loss/dual_clip_fraction").is_empty());
        let [one, dapo] = ["cispo", "dapo"].map(|kind| first_norm(run, kind));
        assert_near(one, dapo);
        assert!(!near(run.first("loss/policy"), run.without().first("loss/policy")));
        assert!(!run.is(&run.instead(&["loss.kind=gspo"])));
    }),
    case(&["loss.clip_ratio_low=0.0"], LETTERS, FAR, |run| {
        grows(run, "loss/clip_fraction_low");
    }),
    case(&["loss.clip_ratio_high=0.0"], LETTERS, FAR, |run| {
        grows(run, "loss/clip_fraction_high");
    }),
    case(&["loss.dual_clip=1.01"], LETTERS, FAR, |run| grows(run, "loss/dual_clip_fraction")),
    // A ratio of sequences hardly leaves 1. So bounds that are far away cut nothing, but the default bounds do.
    case(&["loss={kind='gspo',clip_ratio_low=1.0,clip_ratio_high=9.0}"], LETTERS, FAR, |run| {
        let cut = |run: &Run| -> f64 {
            let sides = ["loss/clip_fraction_low", "loss/clip_fraction_high"];
            sides.into_iter().flat_map(|metric| run.values(metric)).sum()
        };
        assert_eq!(cut(run), 0.0);
        assert!(cut(&run.instead(&["loss.kind=gspo"])) > 0.0);
        assert!(run.values("loss/dual_clip_fraction").is_empty());
    }),
    // By default there is no lower bound, so nothing is below it.
    case(&["loss={kind='cispo',clip_ratio_low=0.0,clip_ratio_high=0.0}"], LETTERS, FAR, |run| {
        let usual = run.instead(&["loss.kind=cispo"]);
        let [low, high] = ["low", "high"].map(|side| format!("loss/clip_fraction_{side}"));
        assert!(run.first(&low) > 0.0 && usual.first(&low) == 0.0);
        assert!(run.first(&high) > usual.first(&high));
        assert!(run.values("loss/dual_clip_fraction").is_empty());
    }),
    // Before anything has moved, these losses have the gradient of dapo.
    case(&["loss.kind=dppo_tv"], LETTERS, FAR, |run| first_like_dapo(run, "dppo_tv")),
    case(&["loss.kind=dppo_kl"], LETTERS, FAR, |run| first_like_dapo(run, "dppo_kl")),
    case(&["loss.kind=sapo"], LETTERS, FAR, |run| first_like_dapo(run, "sapo")),
    case(&["loss={kind='dppo_tv',delta_low=1e-6,delta_high=1.0}"], LETTERS, FAR, |run| {
        cuts_on_one_side(run, "loss={kind='dppo_tv',delta_low=1.0,delta_high=1e-6}");
    }),
    case(&["loss={kind='dppo_kl',delta_low=1e-9,delta_high=9.0}"], LETTERS, FAR, |run| {
        cuts_on_one_side(run, "loss={kind='dppo_kl',delta_low=9.0,delta_high=1e-9}");
    }),
    case(&["loss={kind='dppo_tv',ratio_cap=1.001}"], LETTERS, FAR, |run| {
        assert!(run.values("loss/dual_clip_fraction").is_empty());
        assert!(!run.is(&run.instead(&["loss.kind=dppo_tv"])));
    }),
    case(&["loss={kind='dppo_kl',ratio_cap=1.001}"], LETTERS, FAR, |run| {
        assert!(run.values("loss/dual_clip_fraction").is_empty());
        assert!(!run.is(&run.instead(&["loss.kind=dppo_kl"])));
    }),
    case(&["loss={kind='sapo',tau_pos=20.0}"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), loss(run, |groups| gated(groups, 20.0, 1.05)));
    }),
    case(&["loss={kind='sapo',tau_neg=20.0}"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), loss(run, |groups| gated(groups, 1.0, 20.0)));
    }),
    // The update starts from the policy that sampled, so all weights are 1. Here they are cut.
    case(&["loss.tis_cap=0.5"], LETTERS, ONE, |run| {
        assert_near(run.first("loss/total"), 0.5 * run.without().first("loss/total"));
        assert!(run.first("loss/total").abs() > 1e-3);
    }),
    case(&["loss.tis_mask=[0.99,1.01]"], LETTERS, STALE, |run| {
        let masked = run.values("rollout/tis_masked");
        // The first step is sampled by its own policy. A few updates of this size move the policy by more than a
        // hundredth.
        assert!(masked[0] == 0.0 && masked.iter().any(|share| *share > 0.2), "{masked:?}");
        assert!(run.without().values("rollout/tis_masked").is_empty());
        run.instead(&["loss.tis_mask=[2.0,0.5]"]).fails(2, "expected a number from 0 to below 1");
    }),
    case(&["loss.tis_gate={divergence='tv',level='token',max=0.002}"], LETTERS, STALE, |run| {
        let gated = run.values("rollout/tis_gated");
        assert!(gated[0] == 0.0 && gated.iter().any(|share| *share > 0.1), "{gated:?}");
        run.assert_is(&run.instead(&["loss.tis_gate={divergence='tv',max=0.002}"]));
    }),
    case(
        &["loss.tis_gate={divergence='binary_kl',level='sequence',max=0.000001}"],
        LETTERS,
        STALE,
        |run| {
            let gated = run.values("rollout/tis_gated");
            assert!(gated[0] == 0.0 && gated.iter().any(|share| *share > 0.1), "{gated:?}");
            let of_tokens =
                run.instead(&["loss.tis_gate={divergence='binary_kl',level='token',max=0.000001}"]);
            assert!(of_tokens.values("rollout/tis_gated") != gated);
        },
    ),
    case(&["loss.entropy_coef=0.5"], LETTERS, ONE, |run| {
        let entropy = run.first("loss/entropy");
        assert_near(run.first("loss/total"), run.first("loss/policy") - 0.5 * entropy);
        assert_near(run.without().first("loss/total"), run.without().first("loss/policy"));
    }),
    case(&["loss.router_aux_loss_coef=0.5"], LETTERS, EXPERTS, |run| {
        let aux = run.first("loss/router_aux");
        // Two of eight experts are chosen, so the loss is 2 if all loads are equal, and 8 at most.
        assert!((1.9..8.0).contains(&aux) && (1.0..=4.0).contains(&run.first("experts/load_max")));
        assert_near(run.first("loss/total"), run.first("loss/policy") + 0.5 * aux);
        assert!(run.without().values("loss/router_aux").is_empty());
        let dense = run.bench.run(LETTERS, &["loss.router_aux_loss_coef=0.5"], &[]);
        dense.fails(2, "is for models with experts");
    }),
    case(&["loss.top_entropy_quantile=0.25"], LETTERS, ONE, |run| {
        // The policy is the same, and three quarters of its tokens have no loss.
        assert_eq!(run.first("loss/entropy"), run.without().first("loss/entropy"));
        assert_ne!(run.first("loss/total"), run.without().first("loss/total"));
        run.instead(&["loss.top_entropy_quantile=0.0"]).fails(2, "expected above 0 and at most 1");
    }),
    // Without weight the estimators measure one and the same policy: |E d| is at most √(2 E d²/2), and the third
    // differs from the second by a term that is cubic in d.
    case(&["loss.kl={kind='k1',coef=0.0}"], LETTERS, &[], |run| {
        let [k1, k2] = [distance(run), distance(&weightless(run, "k2"))];
        assert!(k1.abs() <= (2.0 * k2).sqrt() && !near(k1, k2), "{k1} {k2}");
    }),
    case(&["loss.kl={kind='k2',coef=0.0}"], LETTERS, &[], |run| {
        let [k1, k2] = [distance(&weightless(run, "k1")), distance(run)];
        assert!(k2 > 0.0 && 2.0 * k2 >= k1 * k1, "{k1} {k2}");
    }),
    case(&["loss.kl={kind='k3',coef=0.0}"], LETTERS, &[], |run| {
        let [k2, k3] = [distance(&weightless(run, "k2")), distance(run)];
        assert!(k3 > 0.0 && k3 != k2 && (k3 - k2).abs() < 0.3 * k2, "{k2} {k3}");
    }),
    case(&["loss.kl={kind='abs',coef=0.0}"], LETTERS, &[], |run| {
        let [k1, abs] = [distance(&weightless(run, "k1")), distance(run)];
        assert!(abs > 0.0 && abs >= k1.abs(), "{k1} {abs}");
    }),
    case(&["loss.kl={kind='k3',coef=0.7}"], LETTERS, &[], |run| {
        let [kl, total, policy] =
            ["loss/kl", "loss/total", "loss/policy"].map(|m| run.values(m)[1]);
        assert!(kl > 1e-5);
        assert_near(total, policy + 0.7 * kl);
        assert!(run.without().values("loss/kl").is_empty());
    }),
];

/// Returns the deviation of all rewards of the first step.
fn deviation(run: &Run) -> f64 {
    let rewards: Vec<f64> = run.first_completions().iter().map(|done| done.reward).collect();
    spread(&rewards).1
}

/// Returns the mean and the unbiased deviation.
fn spread(numbers: &[f64]) -> (f64, f64) {
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0)).sqrt())
}

/// Returns the mean over completions of their whitened rewards. These are the rewards' deviations from their
/// group, scaled to mean 0 and variance 1 over tokens.
fn whitened(run: &Run) -> f64 {
    let done = run.first_completions();
    let of_group = |group: &[Completion]| -> Vec<(f64, f64)> {
        let mean = group.iter().map(|done| done.reward).sum::<f64>() / group.len() as f64;
        group.iter().map(|done| (done.tokens as f64, done.reward - mean)).collect()
    };

    let all: Vec<(f64, f64)> = done.chunks(4).flat_map(of_group).collect();
    let tokens: f64 = all.iter().map(|(tokens, _)| tokens).sum();
    let mean = all.iter().map(|(tokens, own)| tokens * own).sum::<f64>() / tokens;
    let squares: f64 = all.iter().map(|(tokens, own)| tokens * (own - mean).powi(2)).sum();

    let deviation = (squares / (tokens - 1.0)).sqrt();
    all.iter().map(|(_, own)| (own - mean) / deviation).sum::<f64>() / all.len() as f64
}

/// Returns the loss of the first update for `PARTS`. The credits of each part are normalised in their group and
/// multiplied by the part's share of the weights. Their sums are normalised over the step.
fn gdpo(run: &Run, epsilon: f64) -> f64 {
    let norm = |numbers: Vec<f64>| -> Vec<f64> {
        let (mean, deviation) = spread(&numbers);
        let normed = |number: f64| match deviation {
            0.0 => 0.0,
            deviation => (number - mean) / (deviation + epsilon),
        };
        numbers.into_iter().map(normed).collect()
    };

    let done = run.first_completions();
    let mut sums = vec![0.0; done.len()];
    for (letter, share) in [('a', 0.75), ('b', 0.25)] {
        for group in 0..done.len() / 4 {
            // A group is four completions in a row.
            let span = group * 4..(group + 1) * 4;
            let credits = done[span.clone()].iter().map(|done| done.text.contains(letter));
            let credits: Vec<f64> = credits.map(|has| f64::from(u8::from(has))).collect();
            for (sum, part) in sums[span].iter_mut().zip(norm(credits)) {
                *sum += share * part;
            }
        }
    }

    let all: Vec<(f64, f64)> = done
        .iter()
        .zip(norm(sums))
        .map(|(done, advantage)| (done.tokens as f64, -advantage))
        .collect();

    token_mean(&[all])
}

/// Returns the norm of the first step's gradient.
fn norm(run: &Run) -> f64 {
    run.first("update/grad_norm")
}

/// Returns the norm of the gradient of a run like `FAR` that makes one update of a step.
fn first_norm(run: &Run, kind: &str) -> f64 {
    let kind = format!("loss.kind={kind}");
    norm(&run.bench.run(LETTERS, &["sampling.dynamic=false", "train.steps=1"], &[&kind]))
}

#[track_caller]
fn first_like_dapo(run: &Run, kind: &str) {
    assert!(run.values("loss/dual_clip_fraction").is_empty());
    assert!(!run.is(&run.without()));
    let [one, dapo] = [kind, "dapo"].map(|kind| first_norm(run, kind));
    assert_near(one, dapo);
}

/// Checks that this run cuts gradients of tokens that become less likely, and the `other` run those of tokens that
/// become more likely.
#[track_caller]
fn cuts_on_one_side(run: &Run, other: &str) {
    let fractions =
        |run: &Run| ["low", "high"].map(|side| run.first(&format!("loss/clip_fraction_{side}")));
    let [this, other] = [fractions(run), fractions(&run.instead(&[other]))];
    assert!(
        this[0] > 0.0 && this[1] == 0.0 && other[0] == 0.0 && other[1] > 0.0,
        "{this:?} {other:?}"
    );
}

/// Returns the loss of tokens whose gates are open: 2/τ instead of 1, with the τ of the advantage's sign.
fn gated(groups: &[Group], tau_pos: f64, tau_neg: f64) -> f64 {
    let open = |cost: f64| cost * 2.0 / if cost < 0.0 { tau_pos } else { tau_neg };
    let of_group =
        |group: &Group| group.iter().map(|&(tokens, cost)| (tokens, open(cost))).collect();
    token_mean(&groups.iter().map(of_group).collect::<Vec<Group>>())
}

#[track_caller]
fn grows(run: &Run, metric: &str) {
    let (now, before) = (run.first(metric), run.without().first(metric));
    assert!(now > before, "{metric} is {now}, and was {before}");
}

/// Returns the run with another estimator of weight 0.
fn weightless<'r>(run: &'r Run, kind: &str) -> Run<'r> {
    run.instead(&[&format!("loss.kl={{kind='{kind}',coef=0.0}}")])
}

/// Returns the distance from the first policy after a step. Before the step there is none.
fn distance(run: &Run) -> f64 {
    assert_near(run.first("loss/total"), run.first("loss/policy"));
    assert!(run.first("loss/kl").abs() < 1e-6);
    run.values("loss/kl")[1]
}

/// A prompt's completions, each with its number of tokens and the cost of one token.
type Group = Vec<(f64, f64)>;

/// Returns the loss of the first update. There every ratio is 1, and every token costs the negative advantage of
/// its completion. `of` makes one number of the groups.
fn loss(run: &Run, of: fn(&[Group]) -> f64) -> f64 {
    let mut groups = BTreeMap::<u64, Vec<Completion>>::new();
    for done in run.first_completions() {
        groups.entry(done.draw).or_default().push(done);
    }
    let cost = |group: &Vec<Completion>| {
        let mean = group.iter().map(|done| done.reward).sum::<f64>() / group.len() as f64;
        group.iter().map(|done| (done.tokens as f64, mean - done.reward)).collect()
    };

    of(&groups.values().map(cost).collect::<Vec<_>>())
}

fn token_mean(groups: &[Group]) -> f64 {
    let all = || groups.iter().flatten();
    all().map(|(tokens, cost)| tokens * cost).sum::<f64>()
        / all().map(|(tokens, _)| tokens).sum::<f64>()
}

/// Returns the mean over completions of the sum over their tokens.
fn sequence_sum(groups: &[Group]) -> f64 {
    let all = || groups.iter().flatten();
    all().map(|(tokens, cost)| tokens * cost).sum::<f64>() / all().count() as f64
}
