//! LoRA adapters: which projections have one, and the matrices next to a projection.

use std::ops::Range;

use burn::{
    module::{Module, Param},
    tensor::{Device, Tensor, TensorData},
};
use firebrick_core::config::Family;
use firebrick_kernels::{self as ops, AdapterFactors, Compute};
use serde_json::Value;

use crate::{
    config::{DecoderConfig, Fused},
    gradient::{GradientSum, Piece},
    names::{self, TextPrefix},
    pattern::Pattern,
};

/// Adapters for a model (Hu et al. 2021).
///
/// A projection `x·W` with an adapter computes `x·W + scale · x·A·B`, where `A` is `[inputs, rank]` and `B` is
/// `[rank, outputs]`. `W` is frozen: it takes no gradient and has no state in the optimizer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lora {
    /// Width of the adapters; at least 1.
    pub rank: usize,
    /// See [`Lora::scale`].
    pub alpha: f64,
    /// Projections that have an adapter, such as `q_proj`.
    pub targets: Vec<String>,
    /// See [`Lora::scale`].
    pub rslora: bool,
    /// Other ranks for some projections. Each pattern is a regular expression, as in PEFT, that is matched against
    /// the end of a projection's name. The first match decides.
    pub rank_pattern: Vec<(String, usize)>,
    /// Other values of `alpha` for some projections, in the form of `rank_pattern`.
    pub alpha_pattern: Vec<(String, f64)>,
    /// Matrices of [`Lora::WHOLE`] that are trained in full in addition to the adapters and are kept with them. The
    /// model must have them.
    pub modules_to_save: Vec<String>,
    /// Modules that the adapter's file selects; `None` for new adapters, which `targets` selects.
    pub selection: Option<Selection>,
}

/// Fields of `adapter_config.json` that say which modules have an adapter, unchanged. An adapter that is saved again
/// keeps them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Selection {
    /// Prefix of the text model in the class that the adapter was made for, which the fields and the patterns of ranks
    /// are about.
    pub(crate) text_prefix: TextPrefix,
    /// A list of names, or one pattern.
    pub target_modules: Value,
    /// A list of names, or one pattern: modules that have no adapter even if they are targets.
    pub exclude_modules: Value,
    /// A layer's number, or a list: no other layer has an adapter.
    pub layers_to_transform: Value,
    /// What is before a layer's number in names, or a list of such strings.
    pub layers_pattern: Value,
}

impl Lora {
    /// Projections of a layer, by the last part of their names in a checkpoint.
    pub const PROJECTIONS: [&str; 7] =
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

    /// Matrices that may be trained in full: the embedding, and the head if it is not the embedding.
    pub const WHOLE: [&str; 2] = ["embed_tokens", "lm_head"];

    /// Other names of projections: of those that a family keeps in one matrix, those of a recurrence, and those around
    /// embeddings per layer.
    pub(crate) const OTHERS: [&str; 18] = [
        "qkv_proj",
        "gate_up_proj",
        "input_linear",
        "output_linear",
        "in_proj",
        "w1",
        "w2",
        "w3",
        "in_proj_qkvz",
        "in_proj_ba",
        "in_proj_qkv",
        "in_proj_z",
        "in_proj_b",
        "in_proj_a",
        "out_proj",
        "per_layer_input_gate",
        "per_layer_projection",
        "per_layer_model_projection",
    ];

    /// Adds or replaces targets to suit a model of these sizes. Projections that the model keeps in one matrix share
    /// one adapter. If layers have a recurrence instead of attention, the targets of the attention also stand for the
    /// recurrence's projections.
    pub(crate) fn named_in(mut self, config: &DecoderConfig) -> Self {
        if config.is_recurrent() {
            let has = |names: &[&str]| self.targets.iter().any(|it| names.contains(&it.as_str()));
            let qkv = has(&["q_proj", "k_proj", "v_proj"]);
            let output = has(&["o_proj"]);
            let names = match config.family {
                Family::Lfm2 => &["in_proj"][..],
                Family::Qwen3Next => &["in_proj_qkvz"],
                _ => &["in_proj_qkv", "in_proj_z"],
            };
            self.targets.extend(names.iter().filter(|_| qkv).map(ToString::to_string));
            self.targets.extend(output.then(|| "out_proj".into()));
            self.targets.sort();
            self.targets.dedup();
        }

        // One matrix takes one adapter, so the targets that it joins get its name.
        let before = self.targets.clone();
        for target in &mut self.targets {
            let usual = match target.as_str() {
                "q_proj" | "k_proj" | "v_proj" if config.fused == Fused::All => {
                    "self_attn.qkv_proj"
                }
                "gate_proj" | "up_proj" if config.fused != Fused::None => "mlp.gate_up_proj",
                "gate_proj" if config.squared_relu => "mlp.up_proj",
                "gate_proj" => "mlp.gate_proj",
                "up_proj" => "mlp.up_proj",
                "down_proj" => "mlp.down_proj",
                "o_proj" => "self_attn.o_proj",
                _ => continue,
            };
            let name = names::own(config.family, usual);
            *target = name.rsplit('.').next().unwrap_or(name).to_owned();
        }
        if self.targets != before {
            self.targets.sort();
            self.targets.dedup();
        }
        self
    }

    /// Maximum number of patterns of a kind.
    pub(crate) const PATTERNS: usize = 1024;

    /// Maximum rank.
    pub(crate) const RANK: usize = 1 << 20;

    /// Maximum absolute value of `alpha`.
    pub(crate) const ALPHA: f64 = 1e9;

    /// Returns the rank of the adapter for the projection of that name, such as `model.layers.0.self_attn.q_proj`.
    pub fn rank(&self, name: &str) -> usize {
        first_match(&self.rank_pattern, &self.text_prefix().name(name)).unwrap_or(self.rank)
    }

    /// Returns the factor that multiplies the output of that adapter: `alpha / rank`, or `alpha / √rank` with
    /// `rslora` (Kalajdzievski 2023).
    pub fn scale(&self, name: &str) -> f64 {
        let alpha = first_match(&self.alpha_pattern, &self.text_prefix().name(name));
        self.scale_of(self.rank(name), alpha.unwrap_or(self.alpha))
    }

    /// Returns the factor of an adapter of that rank and `alpha`.
    pub(crate) fn scale_of(&self, rank: usize, alpha: f64) -> f64 {
        let rank = rank as f64;
        alpha / if self.rslora { rank.sqrt() } else { rank }
    }

    /// Returns where the class keeps the text model whose names the patterns are about.
    fn text_prefix(&self) -> TextPrefix {
        self.selection.as_ref().map(|fields| fields.text_prefix).unwrap_or_default()
    }

    /// Checks that a model of these sizes can have these adapters. The error says why it can't.
    pub fn fits(&self, config: &DecoderConfig) -> Result<(), String> {
        self.check_modules()?;
        match self.modules_to_save.first().filter(|_| config.tied) {
            None => Ok(()),
            Some(module) => Err(format!(
                "modules_to_save has {module:?}, and this model's head is its embedding, which is not implemented; \
                 expected none"
            )),
        }
    }

    /// Checks that all [`Lora::modules_to_save`] may be trained in full, in a model that has them.
    pub(crate) fn check_modules(&self) -> Result<(), String> {
        let unknown = |module: &&String| !Lora::WHOLE.contains(&module.as_str());
        match self.modules_to_save.iter().find(unknown) {
            None => Ok(()),
            Some(module) => {
                let known = Lora::WHOLE.join(" and ");
                Err(format!("modules_to_save has {module:?}, expected {known}"))
            }
        }
    }
}

/// Returns the value of the first pattern that matches the end of a name. The matched end begins after a dot or at
/// the name's beginning.
fn first_match<T: Copy>(patterns: &[(String, T)], name: &str) -> Option<T> {
    let matches =
        |pattern: &str| Pattern::end(pattern).is_ok_and(|it| it.matches(name) == Ok(true));
    patterns.iter().find(|(pattern, _)| matches(pattern)).map(|(_, value)| *value)
}

/// Two thin matrices next to a projection.
#[derive(Module, Debug)]
pub(crate) struct Adapter {
    pub(crate) a: Param<Tensor<2>>, // [inputs, rank]
    pub(crate) b: Param<Tensor<2>>, // [rank, outputs]
    #[module(skip)]
    scale: f64,
}

impl Adapter {
    /// Makes an adapter from the values of both matrices, row-major.
    pub(crate) fn new(
        [inputs, rank, outputs]: [usize; 3],
        scale: f64,
        (a, b): (Vec<f32>, Vec<f32>),
        device: &Device,
    ) -> Self {
        Adapter {
            a: Param::from_data(TensorData::new(a, [inputs, rank]), device),
            b: Param::from_data(TensorData::new(b, [rank, outputs]), device),
            scale,
        }
    }

    /// Computes `scale · A·B`, `[inputs, outputs]`.
    pub(crate) fn product(&self) -> Tensor<2> {
        self.a.val().matmul(self.b.val()).mul_scalar(self.scale)
    }
}

/// Adapters of maps of the same input, joined: `x · a · b` has the outputs of all maps side by side. All of them take
/// two thin matmuls, and no tensor of the weight's size is made.
#[derive(Clone, Debug)]
pub(crate) struct JoinedAdapters {
    /// All matrices `A` side by side, `[inputs, ranks]`.
    a: Tensor<2>,
    /// All matrices `B` times their scales, `[ranks, outputs]`, each in its own rows and columns. The rest is 0.
    b: Tensor<2>,
    /// The same two matrices in the layout in which the transposed ones are read fastest: a backward pass multiplies by
    /// these. A copy for sampling has none of its own.
    a_in_rows: Tensor<2>,
    b_in_rows: Tensor<2>,
}

impl JoinedAdapters {
    /// Joins the adapters of maps with these numbers of outputs, in the matmul precision. `None` if no map has one.
    pub(crate) fn new(
        adapters: &[Option<Adapter>],
        widths: &[usize],
        compute: Compute,
    ) -> Option<Self> {
        JoinedAdapters::of(adapters, widths, compute, Param::val)
    }

    /// Does the same for all passes of an update or a rollout. The result is without autodiff.
    pub(crate) fn prepared(
        adapters: &[Option<Adapter>],
        widths: &[usize],
        compute: Compute,
    ) -> Option<Self> {
        JoinedAdapters::of(adapters, widths, compute, |matrix| {
            let values = matrix.val();
            if values.is_autodiff() { values.inner() } else { values }
        })
    }

    fn of(
        adapters: &[Option<Adapter>],
        widths: &[usize],
        compute: Compute,
        values: impl Fn(&Param<Tensor<2>>) -> Tensor<2>,
    ) -> Option<Self> {
        let factors = with_columns(adapters, widths).map(|(adapter, columns)| AdapterFactors {
            a: values(&adapter.a),
            b: values(&adapter.b),
            scale: adapter.scale,
            first_output: columns.start,
        });
        let factors: Vec<AdapterFactors> = factors.collect();
        if factors.is_empty() {
            return None;
        }

        let outputs = widths.iter().sum();
        let for_backward = adapters.iter().flatten().any(|adapter| adapter.a.val().is_autodiff());
        let [[a, a_in_rows], [b, b_in_rows]] =
            ops::join_adapters(&factors, outputs, compute, for_backward);
        Some(JoinedAdapters { a, b, a_in_rows, b_in_rows })
    }

    /// Returns `x · a` and `b`, whose product is what the adapters add.
    pub(crate) fn factors(&self, x: Tensor<2>, compute: Compute) -> [Tensor<2>; 2] {
        [ops::factor(x, self.a.clone(), compute), self.b.clone()]
    }

    /// Computes the gradient of `x · a`, given the gradient of the output.
    pub(crate) fn d_inner(&self, d_y: Tensor<2>, compute: Compute) -> Tensor<2> {
        ops::factor(d_y, self.b_in_rows.clone().transpose(), compute)
    }

    /// Returns `aᵀ`, which the gradient of `x · a` is multiplied by.
    pub(crate) fn a_transposed(&self) -> Tensor<2> {
        self.a_in_rows.clone().transpose()
    }

    /// Adds the gradients of the adapters to `sum`, given the gradients of `x · a` and of the output.
    pub(crate) fn backward_weights(
        &self,
        (adapters, widths): (&[Option<Adapter>], &[usize]),
        x: &Tensor<2>,
        [d_inner, d_y]: [Tensor<2>; 2],
        compute: Compute,
        sum: &mut GradientSum,
    ) {
        let inputs = self.a.dims()[0];
        let mut of_a = Vec::new();
        let mut of_b = Vec::new();
        let mut rank = 0;

        for (adapter, columns) in with_columns(adapters, widths) {
            let ranks = rank..rank + adapter.a.dims()[1];
            rank = ranks.end;
            if adapter.a.is_require_grad() {
                let slice = [0..inputs, ranks.clone()];
                of_a.push(Piece { parameter: adapter.a.id, slice, scale: 1.0 });
            }
            if adapter.b.is_require_grad() {
                let slice = [ranks, columns];
                of_b.push(Piece { parameter: adapter.b.id, slice, scale: adapter.scale });
            }
        }

        if !of_a.is_empty() {
            sum.add_joined(of_a, x.clone().transpose(), d_inner, compute);
        }
        if !of_b.is_empty() {
            // `x·A` has few columns, so computing it again is cheaper than keeping it.
            let inner = ops::factor(x.clone(), self.a.clone(), compute);
            sum.add_joined(of_b, inner.transpose(), d_y, compute);
        }
    }
}

/// Returns the adapters of the maps that have one, each with the columns of its map.
fn with_columns<'a>(
    adapters: &'a [Option<Adapter>],
    widths: &'a [usize],
) -> impl Iterator<Item = (&'a Adapter, Range<usize>)> {
    let columns = widths.iter().scan(0, |first, &width| {
        let start = std::mem::replace(first, *first + width);
        Some(start..*first)
    });
    adapters.iter().zip(columns).filter_map(|(adapter, columns)| Some((adapter.as_ref()?, columns)))
}
