//! Version of this program.

use std::sync::LazyLock;

use firebrick_device::{Kind, compiled};

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = commit().map(|commit| format!("commit {commit}, ")).unwrap_or_default();
    format!("{} ({commit}built with {})", env!("CARGO_PKG_VERSION"), features().join(", "))
});

/// Returns the version, the commit if it is known, and the features that were built in.
pub(crate) fn version() -> &'static str {
    &VERSION
}

/// Returns the commit; `None` in a debug build, or in a build from sources without their history.
pub(crate) fn commit() -> Option<&'static str> {
    option_env!("FIREBRICK_COMMIT")
}

/// Returns the features that were built in: the kinds of device, `spirv` and `hub`.
pub(crate) fn features() -> Vec<&'static str> {
    let also = [("spirv", cfg!(feature = "spirv")), ("hub", cfg!(feature = "hub"))];
    let also = also.into_iter().filter(|(_, on)| *on).map(|(name, _)| name);
    compiled().into_iter().map(Kind::name).chain(also).collect()
}
