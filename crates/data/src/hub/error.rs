use std::{io, path::PathBuf};

use super::HubName;

/// Why something can't be had from the Hub, and what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The program was built without downloads.
    #[error(
        "{name} is not in the cache, and this build can't download it: build with the feature `hub`, \
         or download it with Python's `hf download` and name the folder"
    )]
    NotBuilt {
        /// What was asked for.
        name: HubName,
    },
    /// Connections are forbidden.
    #[error(
        "{name} is not, or not whole, in the cache {}, and HF_HUB_OFFLINE forbids to download it: \
         unset it once, or download it on a machine with a network and copy the cache",
        cache.display()
    )]
    Offline {
        /// What was asked for.
        name: HubName,
        /// Where it was looked for.
        cache: PathBuf,
    },
    /// No answer.
    #[error("can't reach {url}: {problem}; check the network, HF_ENDPOINT and HTTPS_PROXY")]
    Unreachable {
        /// What was asked, without a token.
        url: String,
        /// The reason, after some attempts.
        problem: String,
    },
    /// It is there, but not for everyone.
    #[error(
        "{name} is gated: accept its licence at {page}, and set HF_TOKEN to a token of your account \
         from https://huggingface.co/settings/tokens ({})",
        if *token { "the one that is set may not read it" } else { "none is set" }
    )]
    Gated {
        /// What was asked for.
        name: HubName,
        /// Its page.
        page: String,
        /// Whether a token was sent.
        token: bool,
    },
    /// No such name, or not for this account.
    #[error(
        "the Hub has no {name}, or it is private: look at {page}, or set HF_TOKEN to a token that may \
         read it ({})",
        if *token { "the one that is set may not" } else { "none is set" }
    )]
    NotFound {
        /// What was asked for.
        name: HubName,
        /// What its page would be.
        page: String,
        /// Whether a token was sent.
        token: bool,
    },
    /// No such branch, tag or commit, or no such file in it.
    #[error("{name} has no {what}: look at {page}")]
    NoSuch {
        /// What was asked for.
        name: HubName,
        /// What it lacks.
        what: String,
        /// Its page.
        page: String,
    },
    /// An answer that is not what the Hub answers.
    #[error("{url}: {problem}; is HF_ENDPOINT right?")]
    Answer {
        /// What was asked, without a token.
        url: String,
        /// What came.
        problem: String,
    },
    /// It is not clear which files are meant, or they are not those of a model.
    #[error("{name}: {problem}")]
    Choice {
        /// What was asked for.
        name: HubName,
        /// What was looked for, and what there is.
        problem: String,
    },
    /// The cache can't be written.
    #[error(
        "can't write {}: {source}; check the space left, or set HF_HOME to another folder",
        path.display()
    )]
    Disk {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}
