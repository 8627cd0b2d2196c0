//! LoRA adapters: added to a decoder, and merged into its weights.

use std::ops::Range;

use burn::{
    module::{Module, Param},
    tensor::{DType, Device, Tensor, TensorData},
};
use firebrick_core::Seed;

use firebrick_kernels as ops;

use crate::{
    Compute, Decoder, DecoderConfig, GradientSum, PolicyModel, Selection, gradient::Piece, names,
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

impl Lora {
    /// Projections of a layer, by the last part of their names in a checkpoint.
    pub const PROJECTIONS: [&str; 7] =
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];

    /// Matrices that may be trained in full: the embedding, and the head if it is not the embedding.
    pub const WHOLE: [&str; 2] = ["embed_tokens", "lm_head"];

    /// Other names of projections: of those that a family keeps in one matrix, and those of a recurrence.
    pub(crate) const OTHERS: [&str; 7] = [
        "qkv_proj",
        "gate_up_proj",
        "in_proj_qkv",
        "in_proj_z",
        "in_proj_b",
        "in_proj_a",
        "out_proj",
    ];

    /// Adds or replaces targets to suit a model of these sizes. Projections that the model keeps in one matrix share
    /// one adapter. If layers have a recurrence instead of attention, the targets of the attention also stand for the
    /// recurrence's projections.
    pub(crate) fn named_in(mut self, config: &DecoderConfig) -> Self {
        if config.delta.is_some() {
            let has = |names: &[&str]| self.targets.iter().any(|it| names.contains(&it.as_str()));
            let qkv = has(&["q_proj", "k_proj", "v_proj"]);
            let output = has(&["o_proj"]);
            self.targets.extend(qkv.then(|| "in_proj_qkv".into()));
            self.targets.extend(qkv.then(|| "in_proj_z".into()));
            self.targets.extend(output.then(|| "out_proj".into()));
            self.targets.sort();
            self.targets.dedup();
        }

        // One matrix takes one adapter, so the targets that it joins get its name.
        if config.fused {
            for target in &mut self.targets {
                match target.as_str() {
                    "q_proj" | "k_proj" | "v_proj" => *target = "qkv_proj".into(),
                    "gate_proj" | "up_proj" => *target = "gate_up_proj".into(),
                    _ => {}
                }
            }
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
    fn text_prefix(&self) -> names::TextPrefix {
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
}

impl JoinedAdapters {
    /// Joins the adapters of maps with these numbers of outputs, in the matmul precision. `None` if no map has one.
    pub(crate) fn new(
        adapters: &[Option<Adapter>],
        widths: &[usize],
        compute: Compute,
    ) -> Option<Self> {
        let outputs: usize = widths.iter().sum();
        let mut a = Vec::new();
        let mut b = Vec::new();

        for (adapter, columns) in with_columns(adapters, widths) {
            let scaled = adapter.b.val().cast(DType::F32).mul_scalar(adapter.scale);
            let [rank, _] = scaled.dims();
            // Block-diagonal: the numbers left and right of the adapter's columns are 0.
            let zeros = |width| Tensor::zeros([rank, width], &scaled.device());
            let row = [zeros(columns.start), scaled.clone(), zeros(outputs - columns.end)];
            // Not every device takes an empty tensor.
            let row = row.into_iter().filter(|part| part.dims()[1] > 0);
            b.push(Tensor::cat(row.collect(), 1));
            a.push(adapter.a.val());
        }

        let format = compute.dtype();
        (!a.is_empty()).then(|| JoinedAdapters {
            a: ops::cast_in_columns(Tensor::cat(a, 1), format),
            b: ops::cast_in_columns(Tensor::cat(b, 0), format),
        })
    }

    /// Returns the same without autodiff.
    pub(crate) fn inner(self) -> Self {
        if !self.a.is_autodiff() {
            return self;
        }
        JoinedAdapters { a: self.a.inner(), b: self.b.inner() }
    }

    /// Returns `x · a` and `b`, whose product is what the adapters add.
    pub(crate) fn factors(&self, x: Tensor<2>, compute: Compute) -> [Tensor<2>; 2] {
        [ops::factor(x, self.a.clone(), compute), self.b.clone()]
    }

    /// Computes the gradient of `x · a`, given the gradient of the output.
    pub(crate) fn d_inner(&self, d_y: Tensor<2>, compute: Compute) -> Tensor<2> {
        ops::factor(d_y, self.b.clone().transpose(), compute)
    }

    /// Returns `aᵀ`, which the gradient of `x · a` is multiplied by.
    pub(crate) fn a_transposed(&self) -> Tensor<2> {
        self.a.clone().transpose()
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

impl Decoder {
    /// Adds new adapters, which change nothing yet: `A` is uniform in ±1/√inputs and `B` is 0, as in PEFT.
    /// Every other weight is frozen, except the matrices in `modules_to_save`.
    ///
    /// Each matrix has its own seed, so its values do not depend on the other adapters.
    ///
    /// # Panics
    /// Panics if the adapters don't [fit](Lora::fits) the model.
    pub fn with_lora(self, lora: Lora, seed: Seed) -> Decoder {
        let lora = lora.named_in(self.config());
        self.adapted(&lora, |name, [inputs, outputs], device| {
            let target = name.rsplit('.').next().unwrap_or(name);
            if !lora.targets.iter().any(|wanted| wanted == target) {
                return Ok::<_, std::convert::Infallible>(None);
            }

            let rank = lora.rank(name);
            let scale = lora.scale(name);
            let mut stream = seed.derive(name, &[]).stream();
            let bound = 1.0 / (inputs as f64).sqrt();
            let a = (0..(inputs * rank) as u64)
                .map(|position| ((2.0 * stream.uniform_at(position) - 1.0) * bound) as f32);
            let values = (a.collect(), vec![0.0; rank * outputs]);
            Ok(Some(Adapter::new([inputs, rank, outputs], scale, values, device)))
        })
        .unwrap_or_else(|never| match never {})
    }

    /// Replaces the model's adapters by those that `make` returns, given the name of a projection in the checkpoint
    /// and its shape.
    pub(crate) fn adapted<E>(
        self,
        lora: &Lora,
        mut make: impl FnMut(&str, [usize; 2], &Device) -> Result<Option<Adapter>, E>,
    ) -> Result<Decoder, E> {
        let mut decoder = self.no_grad();
        let device = decoder.device();

        for (name, projection) in decoder.projections_mut() {
            let [inputs, _] = projection.dims();
            let adapters = name
                .iter()
                .zip(&projection.widths)
                .map(|(name, &outputs)| make(name, [inputs, outputs], &device))
                .collect::<Result<Vec<Option<Adapter>>, E>>()?;

            let some = adapters.iter().any(Option::is_some);
            projection.adapters = if some { adapters } else { Vec::new() };
            projection.joined = None;
        }

        for module in &lora.modules_to_save {
            let matrix = decoder.full_matrix_mut(module);
            let matrix = matrix.expect("a model has the matrices that its adapters come with");
            // A matrix that is trained in full is kept in f32, whatever the format of the frozen weights.
            *matrix = matrix.clone().map(|values| values.cast(DType::F32)).set_require_grad(true);
        }

        decoder.set_lora(Some(lora.clone()));
        Ok(decoder)
    }

    /// Adds the adapters into the weights, so that the model can be saved or sampled from. The result is without
    /// autodiff, and frozen weights stay frozen.
    pub fn merged(self) -> Decoder {
        let mut decoder = self.valid();
        for (_, projection) in decoder.projections_mut() {
            projection.merge();
        }
        for projection in decoder.experts_mut() {
            projection.merge();
        }
        decoder.set_lora(None);
        decoder
    }
}
