//! Counts of a decoder's parameters, from its sizes alone.

use crate::{DecoderConfig, LayerKind, Lora, PerLayerSizes, RouterScores, names, selection::Rules};

/// Numbers of parameters, known before any parameter is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParameterCount {
    /// All parameters.
    pub total: u64,
    /// Those in the embedding, and in the head if it is not the embedding.
    pub embedding: u64,
    /// Those in all layers.
    pub layers: u64,
    /// Those that one token goes through: of the experts, only the chosen ones are counted, and nothing of the table of
    /// embeddings per layer.
    pub active: u64,
    /// Size of the largest parameter.
    pub largest: u64,
    /// Size of the largest parameter in a layer.
    pub largest_in_layer: u64,
}

/// Numbers of parameters in one part of a model.
#[derive(Clone, Copy, Default)]
struct Part {
    total: u64,
    active: u64,
    largest: u64,
}

impl Part {
    fn of(matrices: &[[usize; 2]], vectors: usize) -> Self {
        let size = |[rows, columns]: &[usize; 2]| *rows as u64 * *columns as u64;
        let total = matrices.iter().map(size).sum::<u64>() + vectors as u64;
        Part { total, active: total, largest: matrices.iter().map(size).max().unwrap_or(0) }
    }

    fn and(self, other: Part) -> Self {
        Part {
            total: self.total + other.total,
            active: self.active + other.active,
            largest: self.largest.max(other.largest),
        }
    }

    /// Makes `count` copies of the part, of which a token uses `used`.
    fn times(self, count: usize, used: usize) -> Self {
        Part { total: count as u64 * self.total, active: used as u64 * self.active, ..self }
    }
}

impl DecoderConfig {
    /// Counts the parameters of a decoder of these sizes as the decoder holds them: q, k and v are one parameter, and
    /// so are the MLP's gate and up.
    pub fn parameters(&self) -> ParameterCount {
        let norms =
            usize::from(self.norms.has_pre_norm()) + usize::from(self.norms.has_post_norm());
        // Each of the two sublayers has these norms, and a layer's output may have a factor.
        let vectors = 2 * norms * self.hidden_size + usize::from(self.layer_scale);
        let vectors = Part::of(&[], vectors);

        let layer = |kind: &LayerKind| {
            vectors.and(self.mixer(kind)).and(self.inner(kind)).and(self.per_layer_sublayer())
        };
        let layers = self.kinds.iter().map(layer).fold(Part::default(), Part::and);

        let lookup = self.vocab_size as u64 * self.hidden_size as u64;
        let embedding = if self.tied { lookup } else { 2 * lookup };
        let per_layer = self.per_layer_inputs();
        let outside_layers = embedding + self.hidden_size as u64;

        ParameterCount {
            total: outside_layers + per_layer.total + layers.total,
            embedding,
            layers: layers.total,
            active: outside_layers + per_layer.active + layers.active,
            largest: lookup.max(per_layer.largest).max(layers.largest),
            largest_in_layer: layers.largest,
        }
    }

    /// Counts the parameters of the sublayer in which tokens see each other.
    fn mixer(&self, kind: &LayerKind) -> Part {
        let hidden = self.hidden_size;

        if let Some(delta) = self.delta.filter(|_| kind.recurrent) {
            let input = delta.channels() + delta.values() + 2 * delta.value_heads;
            let matrices = [[hidden, input], [delta.values(), hidden]];
            // The convolution, a decay and its bias for each head, and the norm.
            let others = delta.channels() * delta.kernel + 2 * delta.value_heads + delta.value_dim;
            return Part::of(&matrices, others);
        }

        if let Some(tokens) = self.convolution.filter(|_| kind.recurrent) {
            return Part::of(&[[hidden, 3 * hidden], [hidden, hidden]], hidden * tokens);
        }

        let qkv = self.query_outputs(*kind) + self.kv_maps(*kind) * self.key_width(*kind);
        let biases = usize::from(self.biases.qkv) * qkv + usize::from(self.biases.output) * hidden;
        let norms = self.qk_norm_widths(*kind).iter().sum::<usize>();
        let sinks = usize::from(self.sinks) * self.heads;
        Part::of(&[[hidden, qkv], [self.query_width(*kind), hidden]], biases + norms + sinks)
    }

    /// Counts the parameters of the sublayer that works token by token.
    fn inner(&self, kind: &LayerKind) -> Part {
        let hidden = self.hidden_size;
        let mlp = |inner: usize, bias: bool| {
            // The projection to the inner layer has a gate next to it, or not.
            let first = if self.squared_relu { inner } else { 2 * inner };
            let biases = usize::from(bias) * (first + hidden);
            Part::of(&[[hidden, first], [inner, hidden]], biases)
        };

        match self.experts.filter(|_| kind.sparse) {
            Some(experts) => {
                let corrected = experts.scores != RouterScores::Softmax;
                let vectors = usize::from(experts.biases) + usize::from(corrected);
                let router = Part::of(&[[hidden, experts.count]], vectors * experts.count);

                let shared = experts.shared.map_or(Part::default(), |shared| {
                    let gate = Part::of(&[[hidden, usize::from(shared.gated)]], 0);
                    mlp(shared.inner, experts.biases).and(gate)
                });
                router
                    .and(mlp(experts.inner, experts.biases).times(experts.count, experts.chosen))
                    .and(shared)
            }
            None => mlp(self.mlp_width(*kind), self.biases.mlp),
        }
    }

    /// Counts the parameters of a layer that mix its own embedding into the residual stream.
    fn per_layer_sublayer(&self) -> Part {
        let hidden = self.hidden_size;
        match self.per_layer {
            Some(PerLayerSizes { width, .. }) => {
                Part::of(&[[hidden, width], [width, hidden]], hidden)
            }
            None => Part::default(),
        }
    }

    /// Counts the parameters that make the embeddings of all layers.
    fn per_layer_inputs(&self) -> Part {
        let Some(PerLayerSizes { vocab_size, width }) = self.per_layer else {
            return Part::default();
        };
        let all = self.per_layer_width();
        // A token only looks a row of the table up.
        let table = Part { active: 0, ..Part::of(&[[vocab_size, all]], 0) };
        table.and(Part::of(&[[self.hidden_size, all]], width))
    }

    /// Counts the parameters of such adapters, and the largest of them. The adapter of a projection from `inputs` to
    /// `outputs` has `rank · (inputs + outputs)` parameters. Matrices that are trained in full in addition to the
    /// adapters count as the model's.
    pub fn adapter_parameters(&self, lora: &Lora) -> (u64, u64) {
        let sizes = self.adapter_sizes(lora).into_iter().flatten();
        let sizes = sizes.flat_map(|(rank, sides)| sides.map(|side| side * rank));
        sizes.fold((0, 0), |(sum, largest), size| (sum + size, size.max(largest)))
    }

    /// Counts the numbers of such adapters in a copy for sampling or an update. Those of maps of the same input are
    /// joined there, with zeros at the outputs of the other maps.
    pub fn joined_adapter_parameters(&self, lora: &Lora) -> u64 {
        let of_projection = |maps: Vec<(u64, [u64; 2])>| {
            let ranks: u64 = maps.iter().map(|(rank, _)| rank).sum();
            let inputs = maps.first().map_or(0, |(_, [inputs, _])| *inputs);
            let outputs: u64 = maps.iter().map(|(_, [_, outputs])| outputs).sum();
            ranks * (inputs + outputs)
        };
        self.adapter_sizes(lora).into_iter().map(of_projection).sum()
    }

    /// Returns the rank of each map's adapter, and the numbers of the map's inputs and outputs, by projection. The rank
    /// is 0 if the map has no adapter.
    fn adapter_sizes(&self, lora: &Lora) -> Vec<Vec<(u64, [u64; 2])>> {
        let lora = lora.clone().named_in(self);
        // Rules that can't be read are refused when the adapter is.
        let Ok(rules) = Rules::of(&lora) else { return Vec::new() };

        let wanted = |name: &str| {
            lora.targets.iter().any(|target| name.ends_with(&format!(".{target}")))
                && rules.selects(name) == Ok(true)
        };

        let size = |(name, sides): (String, [usize; 2])| {
            let rank = if wanted(&name) { rules.rank(&name).unwrap_or(lora.rank) } else { 0 };
            (rank as u64, sides.map(|side| side as u64))
        };
        names::adaptable_projections(self)
            .map(|maps| maps.into_iter().map(size).collect::<Vec<_>>())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;
    use firebrick_core::Seed;

    use super::*;
    use crate::{Biases, Family, Sizes, parameters, random};

    #[test]
    fn counts_are_those_of_a_decoder() {
        let sizes = Sizes {
            vocab_size: 11,
            hidden_size: 12,
            layers: 3,
            heads: 3,
            kv_heads: 1,
            head_dim: 6,
            intermediate_size: 7,
            max_position_embeddings: 32,
            rope_theta: 10_000.0,
            tied: true,
        };

        let config = DecoderConfig::new(Family::Qwen2, sizes.clone());
        let variants = [
            DecoderConfig { tied: false, vocab_size: 40, ..config.clone() },
            DecoderConfig { biases: Biases { qkv: false, output: true, mlp: true }, ..config },
        ];
        let families = Family::ALL.map(|family| DecoderConfig::new(family, sizes.clone()));
        let mut small = DecoderConfig {
            per_layer: Some(PerLayerSizes { vocab_size: 13, width: 5 }),
            double_wide_mlp: true,
            ..DecoderConfig::new(Family::Gemma4, sizes.clone())
        };
        // The last layer sees everything, and so does the first, whose keys and values it takes.
        small.kinds[0] = small.kinds[2];
        small.share_kv(1);
        let lora = Lora {
            rank: 2,
            alpha: 4.0,
            targets: ["k_proj", "o_proj", "down_proj", "per_layer_input_gate"]
                .map(String::from)
                .to_vec(),
            rank_pattern: vec![("1.self_attn.k_proj".into(), 3)],
            ..Lora::default()
        };

        let variants: Vec<_> = variants.into_iter().chain(families).chain([small]).collect();
        for config in &variants {
            let decoder = random(config, Seed::run(1), &Device::flex()).unwrap();
            let adapted = parameters(&decoder.with_lora(lora.clone(), Seed::run(1))).into_iter();
            let adapters: Vec<u64> = adapted
                .filter(|found| found.path.contains("adapters"))
                .map(|found| found.shape.iter().product::<usize>() as u64)
                .collect();

            let expected = (adapters.iter().sum(), *adapters.iter().max().unwrap());
            assert_eq!(config.adapter_parameters(&lora), expected, "{config:?}");
        }

        for config in variants {
            let decoder = random(&config, Seed::run(1), &Device::flex()).unwrap();
            let sizes: Vec<(String, u64)> = parameters(&decoder)
                .iter()
                .map(|found| (found.path.clone(), found.shape.iter().product::<usize>() as u64))
                .collect();

            let sum = |wanted: &dyn Fn(&str) -> bool| -> u64 {
                sizes.iter().filter(|(path, _)| wanted(path)).map(|(_, size)| size).sum()
            };
            let largest = |wanted: &dyn Fn(&str) -> bool| -> u64 {
                let sizes = sizes.iter().filter(|(path, _)| wanted(path)).map(|(_, size)| *size);
                sizes.max().unwrap()
            };
            let in_layer = |path: &str| path.starts_with("layers.");

            let expected = ParameterCount {
                total: sum(&|_| true),
                embedding: sum(&|path| matches!(path, "embedding" | "head")),
                layers: sum(&in_layer),
                active: sum(&|path| match path.split_once(".each.") {
                    // A token goes through this many experts, no matter which: all have the same size.
                    Some((_, expert)) => {
                        let number: usize = expert.split('.').next().unwrap().parse().unwrap();
                        number < config.experts.unwrap().chosen
                    }
                    None => path != "per_layer.table",
                }),
                largest: largest(&|_| true),
                largest_in_layer: largest(&in_layer),
            };
            assert_eq!(config.parameters(), expected, "{config:?}");
        }
    }
}
