//! Changes that make a run fit, or let it sample more sequences at once.

use serde::Serialize;

use firebrick_device::Kind;
use firebrick_models::Compute;

use super::{Facts, Models, Moment, Plan, Work};
use crate::{
    model,
    recipe::{BaseType, Lora, Moments, Recipe, Recompute},
};

/// A key of the recipe to change.
#[derive(Clone, Debug, Serialize)]
pub struct Advice {
    /// Dotted key, such as `train.micro_batch_tokens`.
    pub key: &'static str,
    /// Current value.
    pub from: u128,
    /// Largest value, rounded down, with which the moments that it changes fit.
    pub to: u128,
    #[serde(skip)]
    set: fn(&mut Facts, u128),
}

impl Advice {
    /// Changes the facts of the run as the advice would.
    pub fn follow(&self, facts: &mut Facts) {
        (self.set)(facts, self.to);
    }
}

/// Finds the moments that are too large, and advises the key that makes each of them smaller. A key whose smallest
/// value does not help is left out. Engine and update may share a moment, so the engine's key leaves room for the
/// smallest micro-batch, and the update's key takes the remaining room.
pub(super) fn advice(plan: &Plan, memory: u64) -> Vec<Advice> {
    let work = plan.facts.work;
    let keys = [
        BatchKey {
            name: "rollout.max_sequences",
            moments: of_sampling(&work),
            from: work.sequences,
            least: 1,
            set: |facts, to| facts.work.sequences = to,
        },
        BatchKey {
            name: "train.micro_batch_tokens",
            moments: &[Moment::Head, Moment::Backward, Moment::Gradient],
            from: work.micro_batch_tokens,
            least: 1,
            set: |facts, to| facts.work.micro_batch_tokens = to,
        },
    ];

    let mut facts = plan.facts.clone();
    let mut advice = Vec::new();
    for (index, &BatchKey { name: key, moments, from, least, set }) in keys.iter().enumerate() {
        let fits = |to: u128| {
            let mut facts = facts.clone();
            // The later keys take the remaining room, so they count at their smallest values.
            keys[index + 1..].iter().for_each(|later| (later.set)(&mut facts, later.least));
            set(&mut facts, to);
            let changed = Plan::from_facts(facts);
            moments.iter().all(|&moment| changed.sum(moment) <= memory)
        };

        if fits(from) {
            continue;
        }
        if let Some(to) = largest(least, from, fits) {
            set(&mut facts, to);
            advice.push(Advice { key, from, to, set });
        }
    }

    advice
}

/// More sequences at once than the recipe allows, for which the device has memory.
#[derive(Clone, Debug)]
pub struct MoreSequences {
    /// Current value of `rollout.max_sequences`.
    pub from: u128,
    /// Value to which it may be raised, rounded down.
    pub to: u128,
    /// Plan of the run with that value.
    pub plan: Plan,
}

/// Limit of the sequences that are advised. A step's launches and weights take as long for many sequences as for few,
/// but the keys and values of 512 take half of its time or more (book, page on cards).
const MOST_SEQUENCES: u128 = 512;

pub(super) fn more_sequences(plan: &Plan, memory: u64) -> Option<MoreSequences> {
    let facts = &plan.facts;
    let work = facts.work;
    if work.on_host || work.elsewhere || !plan.fits(memory) {
        return None;
    }

    let with = |sequences: u128| {
        Plan::from_facts(Facts { work: Work { sequences, ..work }, ..facts.clone() })
    };
    // A run that has no memory while it samples ends, so this advice leaves a tenth to spare.
    let fits = |sequences: u128| {
        let plan = with(sequences);
        of_sampling(&work).iter().all(|&moment| plan.sum(moment) <= memory - memory / 10)
    };

    let from = work.sequences;
    let sampled =
        facts.evaluations.iter().map(|it| it.completions).fold(work.completions, u128::max);
    let most = sampled.min(MOST_SEQUENCES);
    let to = if fits(most) { most } else { largest(from, most, fits)? };
    // A change of less than a fifth is hardly worth it.
    (5 * to >= 6 * from).then(|| MoreSequences { from, to, plan: with(to) })
}

/// Returns the moments that hold the tensors of sampling.
fn of_sampling(work: &Work) -> &'static [Moment] {
    const ALL: &[Moment] = &Moment::ALL;
    if work.ahead { &ALL[..5] } else { &ALL[..1] }
}

/// Longest completions that fit, in tokens that the policy writes (`rollout.max_completion_tokens`). There is room next
/// to them for the longest text that an environment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Longest {
    /// Longest of a complete run: the smaller of `rollout` and `update`.
    pub completion: u128,
    /// Longest that can be sampled, if one is sampled at a time.
    pub rollout: u128,
    /// Longest that can be sampled if a whole group is sampled at a time, which is faster; 0 if not even a
    /// short one fits.
    pub group: u128,
    /// Longest that can be trained on, if an update has one completion at a time.
    pub update: u128,
    /// Longest that the model was made for.
    pub model: u128,
}

pub(super) fn longest(plan: &Plan, memory: u64) -> Option<Longest> {
    let observed = plan.facts.work.observed;
    let plan_of = |written: u128, sequences: u128| {
        let completion = written + observed;
        let least = least(plan);
        let work = Work { sequences, ..least.facts.work };
        let whole_layers = if work.recompute_auto { 0 } else { work.whole_layers };
        Plan::from_facts(Facts { work: Work { completion, whole_layers, ..work }, ..least.facts })
    };

    let model = plan.facts.work.room.saturating_sub(observed);
    if model == 0 {
        return None;
    }

    let fits = |moments: &[Moment], sequences: u128| {
        let fits = |completion: u128| {
            let plan = plan_of(completion, sequences);
            moments.iter().all(|&moment| plan.sum(moment) <= memory)
        };
        if fits(model) { Some(model) } else { largest(1, model, fits) }
    };

    let sampling = of_sampling(&plan.facts.work);
    let rollout = fits(sampling, 1)?;
    let group = fits(sampling, plan.facts.work.group_size).unwrap_or(0);
    // The moments that do not grow with a completion have to fit as well.
    let update = fits(&Moment::ALL[1..], 1)?;
    Some(Longest { completion: rollout.min(update), rollout, group, update, model })
}

/// A change of a recipe that makes its run fit.
#[derive(Clone, Debug)]
pub struct Remedy {
    /// Keys and their values, as TOML.
    pub settings: Vec<(&'static str, String)>,
    /// Plan of the changed run.
    pub plan: Plan,
}

/// Finds the cheapest change with which the run of `recipe` fits into `memory` bytes, for runs that smaller batches
/// alone do not help. The answer is `None` if these changes are not enough. The first changes cost only time, the next
/// ones round the optimizer's moments, the next train less, and the last ones round the frozen weights. A new model has
/// no weights to put adapters next to. As for [`Plan::new`], `compute` is the matmul precision.
pub fn remedy(models: &Models, recipe: &Recipe, compute: Compute, memory: u64) -> Option<Remedy> {
    use RemedyStep::{Adapters, Base, Layers, Moments, Offload};
    // None of them keeps all activations of any layer.
    let mut ladder = vec![vec![Layers], vec![Layers, Offload]];
    let bases: &[BaseType] = match recipe.model.path {
        Some(_) => &[BaseType::Int8, BaseType::Int4],
        None => &[],
    };

    if models.lora.is_none() {
        ladder.extend([vec![Layers, Moments], vec![Layers, Moments, Offload]]);
        if recipe.model.path.is_some() {
            ladder.extend([vec![Layers, Adapters], vec![Layers, Adapters, Offload]]);
        }
    }

    for &base in bases {
        let steps = vec![Layers, Adapters, Base(base)];
        ladder.extend([steps.clone(), [steps, vec![Offload]].concat()]);
    }

    ladder.into_iter().find_map(|steps| {
        let mut recipe = recipe.clone();
        let mut models = models.clone();
        let mut settings = Vec::new();
        for step in steps {
            settings.extend(step.apply(&mut recipe, &mut models));
        }

        if settings.is_empty() {
            return None;
        }

        // Batches are reduced only as far as necessary with these changes.
        let mut plan = Plan::new(&models, &recipe, compute, Some(memory));
        let mut facts = plan.facts.clone();
        for advice in plan.advice(memory) {
            advice.follow(&mut facts);
            settings.push((advice.key, advice.to.to_string()));
        }

        plan = Plan::from_facts(facts);
        plan.fits(memory).then_some(Remedy { settings, plan })
    })
}

/// A change that is not a smaller batch.
#[derive(Clone, Copy)]
enum RemedyStep {
    Layers,
    Offload,
    Moments,
    Base(BaseType),
    Adapters,
}

/// Rank of the adapters that are advised.
const RANK: usize = 16;

impl RemedyStep {
    /// Changes the recipe, if there is something to change, and returns the keys to set.
    fn apply(self, recipe: &mut Recipe, models: &mut Models) -> Vec<(&'static str, String)> {
        match self {
            RemedyStep::Layers if recipe.train.recompute == Recompute::None => {
                recipe.train.recompute = Recompute::Layers;
                vec![("train.recompute", "\"layers\"".into())]
            }

            RemedyStep::Offload if !recipe.train.offload && recipe.device.kind != Kind::Cpu => {
                recipe.train.offload = true;
                vec![("train.offload", "true".into())]
            }

            RemedyStep::Moments if recipe.optim.moments != Moments::Int8 => {
                recipe.optim.moments = Moments::Int8;
                vec![("optim.moments", "\"int8\"".into())]
            }

            RemedyStep::Base(base) if base != recipe.model.base => {
                recipe.model.base = base;
                let name = if base == BaseType::Int8 { "int8" } else { "int4" };
                vec![("model.base", format!("{name:?}"))]
            }

            RemedyStep::Adapters if models.lora.is_none() => {
                let lora = Lora::of_rank(RANK);
                models.lora = Some(model::adapters(&lora));
                recipe.model.lora = Some(lora);
                let mut settings = vec![("model.lora", format!("{{ rank = {RANK} }}"))];
                // Adapters learn at ten times the rate.
                settings.extend(
                    recipe.optim.lr.map(|lr| ("optim.lr", format!("{:e}", (10.0 * lr) as f32))),
                );
                settings
            }

            _ => Vec::new(),
        }
    }
}

/// A key that makes batches smaller.
struct BatchKey {
    name: &'static str,
    /// Moments that hold the tensors which the key changes.
    moments: &'static [Moment],
    from: u128,
    least: u128,
    set: fn(&mut Facts, u128),
}

/// Plans the same run with the smallest batches that there can be, and with packed weights that stay packed.
pub(super) fn least(plan: &Plan) -> Plan {
    let mut facts = plan.facts.clone();
    facts.work.sequences = 1;
    facts.work.micro_batch_tokens = 1;
    facts.unpacks_once = false;
    Plan::from_facts(facts)
}

/// Finds the largest number in `[least, limit)` that fits, rounded down to two digits. More digits would look more
/// exact than an estimate is.
fn largest(least: u128, limit: u128, fits: impl Fn(u128) -> bool) -> Option<u128> {
    let mut low = least;
    let mut high = limit;
    if low >= high || !fits(low) {
        return None;
    }

    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if fits(middle) { low = middle } else { high = middle }
    }

    // A step is one in the second digit.
    let step = 10u128.pow(low.checked_ilog10().unwrap_or(0).saturating_sub(1));
    Some((low / step * step).max(least))
}
