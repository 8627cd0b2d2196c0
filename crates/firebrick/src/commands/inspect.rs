use clap::Args;
/// The arguments of `firebrick inspect`.
#[derive(Args)]
pub struct Inspect {
    checkpoint: std::path::PathBuf,
}
impl Inspect {
    pub(super) fn run(self) -> Result<(), crate::ProgramError> {
        super::model_folder(&self.checkpoint).map(|_| ())
    }
}
