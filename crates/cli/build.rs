//! Tells the program which commit it is built from, so that a report can name the commit.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // With a commit in it, a debug build would be made again after each commit, for nobody.
    if env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && let Some(commit) = of_package().or_else(of_clone)
    {
        println!("cargo::rustc-env=FIREBRICK_COMMIT={commit}");
    }
}

/// Returns the commit that cargo packed.
fn of_package() -> Option<String> {
    let text = fs::read_to_string(".cargo_vcs_info.json").ok()?;
    let (_, hash) = text.split_once("\"sha1\": \"")?;
    let hash = hash.get(..12)?;
    hash.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| hash.to_owned())
}

/// Returns the commit of the clone around this package. Changes since that commit are not looked for, because
/// cargo would not run this script again after a change.
fn of_clone() -> Option<String> {
    let root = Path::new("../..");
    // Without this check, a package that was unpacked inside another repository would get that repository's
    // commit.
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
