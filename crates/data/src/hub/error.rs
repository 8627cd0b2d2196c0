//! Errors of downloads from the Hugging Face Hub.

use std::{io, path::PathBuf};

use super::HubName;

/// Why something is not available from the Hub, and the way out.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The program was built without downloads.
    #[error(
        "{name} is not in the cache, and this build can't download it: build with the feature `hub`, \
         or download it with Python's `hf download` and name the folder"
    )]
    NotBuilt {
        /// Name that was asked for.
        name: HubName,
    },
    /// Connections are forbidden.
    #[error(
        "{name} is missing or incomplete in the cache {}, and HF_HUB_OFFLINE forbids downloads: unset \
         HF_HUB_OFFLINE once, or download {name} on a machine with a network and copy the cache",
        cache.display()
    )]
    Offline {
        /// Name that was asked for.
        name: HubName,
        /// Cache that was searched.
        cache: PathBuf,
    },
    /// The Hub gave no answer.
    #[error("can't reach {url}: {problem}; check the network, HF_ENDPOINT and HTTPS_PROXY")]
    Unreachable {
        /// Address that was asked, without a token.
        url: String,
        /// Reason of the last attempt.
        problem: String,
    },
    /// The repository is there, but not for everyone.
    #[error(
        "{name} is gated: accept its licence at {page}, and set HF_TOKEN to a token of your account \
         from https://huggingface.co/settings/tokens ({})",
        if *token { "the token that is set may not read it" } else { "no token is set" }
    )]
    Gated {
        /// Name that was asked for.
        name: HubName,
        /// Page of the repository.
        page: String,
        /// True if a token was sent.
        token: bool,
    },
    /// There is no such name, or not for this account.
    #[error(
        "the Hub has no {name}, or it is private: look at {page}, or set HF_TOKEN to a token that may \
         read it ({})",
        if *token { "the token that is set may not" } else { "no token is set" }
    )]
    NotFound {
        /// Name that was asked for.
        name: HubName,
        /// Page that the repository would have.
        page: String,
        /// True if a token was sent.
        token: bool,
    },
    /// There is no such branch, tag or commit, or no such file in it.
    #[error("{name} has no {what}: look at {page}")]
    NoSuch {
        /// Name that was asked for.
        name: HubName,
        /// Revision or file that the repository lacks.
        what: String,
        /// Page of the repository.
        page: String,
    },
    /// The answer is not of the Hub's form.
    #[error("{url}: {problem}; is HF_ENDPOINT right?")]
    Answer {
        /// Address that was asked, without a token.
        url: String,
        /// Problem, in words.
        problem: String,
    },
    /// It is not clear which files are meant, or the files are not a model.
    #[error("{name}: {problem}")]
    Choice {
        /// Name that was asked for.
        name: HubName,
        /// Files that were looked for, and files that there are.
        problem: String,
    },
    /// The cache can't be written.
    #[error(
        "can't write {}: {source}; check the space left, or set HF_HOME to another folder",
        path.display()
    )]
    Disk {
        /// Path of the file.
        path: PathBuf,
        /// Reason that the system gives.
        source: io::Error,
    },
}
