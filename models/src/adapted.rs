//! A decoder with LoRA adapters: they are added to it, and merged into its weights.

use burn::{
    module::Module,
    tensor::{DType, Device},
};
use firebrick_core::Seed;

use crate::{
    decoder::Decoder,
    lora::{Adapter, Lora},
    policy::PolicyModel,
};

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
    ///
    /// # Panics
    /// If this is a copy for sampling ([`PolicyModel::sampler`]) of a decoder with adapters.
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
