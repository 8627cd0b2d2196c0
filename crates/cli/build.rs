//! Tells the program which commit it is built from, so that a report names it.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A build to try things would be made anew after each commit, for nobody.
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

/// The commit of the clone around this package.
fn of_clone() -> Option<String> {
    let root = Path::new("../..");
    let head = root.join(".git/logs/HEAD");
    if !head.is_file() {
        return None;
    }
    println!("cargo::rerun-if-changed={}", head.display());
    let git = |arguments: &[&str]| {
        let output = Command::new("git").arg("-C").arg(root).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    let changed = git(&["status", "--porcelain", "--untracked-files=no"])?;
    Some(if changed.is_empty() { commit } else { format!("{commit} with changes") })
}
