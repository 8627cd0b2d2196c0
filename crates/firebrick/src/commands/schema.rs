use std::io::Write;

use crate::{ProgramError, recipe::Recipe};

/// Prints the schema as it stands in `recipes/recipe.schema.json`.
pub(super) fn run() -> Result<(), ProgramError> {
    let text = format!("{:#}\n", Recipe::schema());
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|source| ProgramError::File { path: "standard output".into(), source })
}
