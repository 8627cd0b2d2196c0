//! Tells the program which commit it is built from, so that a report names it.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A build to find a bug would be made anew after each commit, for nobody.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && let Some(commit) = of_package().or_else(of_clone)
    {
        println!("cargo::rustc-env=FIREBRICK_COMMIT={commit}");
    }
}

/// The commit that cargo packed.
fn of_package() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, hash) = text.split_once("\"sha1\": \"")?;
    let hash = hash.get(..12)?;
    hash.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| hash.to_owned())
}

/// The commit of the clone around this package. What was changed since then is not looked for: cargo would
/// not ask again when it changes.
fn of_clone() -> Option<String> {
    let root = Path::new("../..");
    // Without this, a package that was unpacked inside of somebody's repository had that one's commit.
    if !root.join("recipes/quickstart.toml").is_file() {
        return None;
    }
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={}", root.join(log).display());
    Some(commit)
}
