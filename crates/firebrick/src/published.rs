//! Sizes of published models, so that a plan needs no network.

use std::{collections::BTreeMap, sync::LazyLock};

use firebrick_data::HubName;
use firebrick_models::DecoderConfig;
use serde::Deserialize;
use serde_json::{Map, Value};

/// Returns the sizes of the model of that name, if it is one of those that are built in. Only the main branch is known.
pub(crate) fn sizes(name: &HubName) -> Option<DecoderConfig> {
    if name.revision() != "main" {
        return None;
    }

    let mut models = TABLE.models.iter();
    models.find_map(|model| model.sizes(*model.contexts.get(name.repository())?))
}

#[derive(Deserialize)]
struct Table {
    models: Vec<Published>,
}

/// Models that differ only in their weights and in the length of their context.
#[derive(Deserialize)]
struct Published {
    /// Limit of the positions of each model, by its name.
    contexts: BTreeMap<String, usize>,
    /// Published number of parameters.
    #[cfg_attr(not(test), expect(dead_code, reason = "tests hold the sizes to it"))]
    parameters: u64,
    /// Sizes, as fields of a `config.json`.
    config: Map<String, Value>,
}

impl Published {
    /// Reads the sizes as those of any model are read, so that a family's own rules apply.
    fn sizes(&self, context: usize) -> Option<DecoderConfig> {
        let mut config = self.config.clone();
        config.insert("max_position_embeddings".into(), context.into());
        DecoderConfig::from_json(&config).ok()
    }
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    serde_json::from_str(include_str!("published.json")).expect("a test reads the whole table")
});

#[cfg(test)]
mod tests {
    use super::*;

    /// A wrong size would have to be outweighed by another one to give the published count all the same.
    #[test]
    fn the_sizes_of_a_published_model_give_its_published_count() {
        let mut names = 0;
        for model in &TABLE.models {
            for (name, &context) in &model.contexts {
                let config = sizes(&HubName::parse(name).unwrap()).expect(name);
                assert_eq!(config.parameters().total, model.parameters, "{name}");
                assert_eq!(config.max_position_embeddings, context, "{name}");
                names += 1;
            }
        }
        let distinct = TABLE.models.iter().flat_map(|model| model.contexts.keys());
        assert_eq!(distinct.collect::<std::collections::BTreeSet<_>>().len(), names);

        for unknown in ["Qwen/Qwen3-0.6B@v2", "Qwen/Qwen4-1B", "qwen/qwen3-0.6b"] {
            assert!(sizes(&HubName::parse(unknown).unwrap()).is_none(), "{unknown}");
        }
    }
}
