//! The family of a checkpoint, by its `config.json`.

pub use firebrick_core::config::Family;
use serde_json::Value;

use crate::fields::{ConfigError, Fields};

/// Finds the family of a model with the head that `architecture` names.
pub(crate) fn of(
    fields: &Fields,
    architecture: fn(Family) -> String,
) -> Result<Family, ConfigError> {
    let model_type = fields.text("model_type")?;
    let named = fields.0.get("architectures").and_then(|list| list.get(0));
    let family = Family::ALL.into_iter().find(|family| family.model_type() == model_type);

    // Old files name no architecture, and such a model may be opened as any.
    match (family, named.map(Value::as_str)) {
        (Some(family), None) => Ok(family),
        (Some(family), Some(Some(named))) if named == architecture(family) => Ok(family),
        (_, named) => Err(ConfigError::Family {
            model_type: model_type.to_owned(),
            architecture: named.flatten().unwrap_or("unknown").to_owned(),
            known: Family::ALL.map(architecture).join(", "),
        }),
    }
}
