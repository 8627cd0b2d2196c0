//! `firebrick schema`: prints the JSON schema of recipes.

use firebrick::recipe::Recipe;

use crate::ProgramError;

/// Prints the schema as it is in `recipes/recipe.schema.json`.
pub(super) fn run() -> Result<(), ProgramError> {
    let text = format!("{:#}\n", Recipe::schema());
    super::print(&text)
}
