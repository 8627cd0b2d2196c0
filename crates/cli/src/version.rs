//! Which program this is.

use std::sync::LazyLock;

use firebrick_device::{Kind, compiled};

static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = commit().map(|commit| format!("commit {commit}, ")).unwrap_or_default();
    format!("{} ({commit}built with {})", env!("CARGO_PKG_VERSION"), features().join(", "))
});

/// The version, the commit where it is known, and what was built in.
pub(crate) fn version() -> &'static str {
    &VERSION
}

/// The commit; none in a build to try things, or from sources without their history.
pub(crate) fn commit() -> Option<&'static str> {
    option_env!("FIREBRICK_COMMIT")
}

/// The kinds of device, and what else the program can or computes otherwise with.
pub(crate) fn features() -> Vec<&'static str> {
    let also = [("spirv", cfg!(feature = "spirv")), ("hub", cfg!(feature = "hub"))];
    let also = also.into_iter().filter(|(_, on)| *on).map(|(name, _)| name);
    compiled().into_iter().map(Kind::name).chain(also).collect()
}
