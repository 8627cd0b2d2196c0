//! Messages of `wandb_internal.proto`, with the fields that a run of numbers has.

use prost::Message;

/// A record. It has one of its messages, which exclude each other.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Record {
    #[prost(int64, tag = "1")]
    pub(super) num: i64,
    #[prost(message, optional, tag = "2")]
    pub(super) history: Option<History>,
    #[prost(message, optional, tag = "3")]
    pub(super) summary: Option<Summary>,
    #[prost(message, optional, tag = "17")]
    pub(super) run: Option<Run>,
    #[prost(message, optional, tag = "18")]
    pub(super) exit: Option<Exit>,
    #[prost(message, optional, tag = "21")]
    pub(super) header: Option<Header>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Header {
    #[prost(message, optional, tag = "1")]
    pub(super) version_info: Option<VersionInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct VersionInfo {
    #[prost(string, tag = "1")]
    pub(super) producer: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Run {
    #[prost(string, tag = "1")]
    pub(super) run_id: String,
    #[prost(string, tag = "3")]
    pub(super) project: String,
    #[prost(message, optional, tag = "4")]
    pub(super) config: Option<Config>,
    #[prost(string, tag = "8")]
    pub(super) display_name: String,
    #[prost(message, optional, tag = "17")]
    pub(super) start_time: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Config {
    #[prost(message, repeated, tag = "1")]
    pub(super) update: Vec<Item>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct History {
    #[prost(message, repeated, tag = "1")]
    pub(super) item: Vec<Item>,
    #[prost(message, optional, tag = "2")]
    pub(super) step: Option<Step>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Step {
    #[prost(int64, tag = "1")]
    pub(super) num: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) update: Vec<Item>,
}

/// An item of a configuration, a history or a summary. W&B has three messages for these, with the same fields.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Item {
    #[prost(string, tag = "1")]
    pub(super) key: String,
    #[prost(string, repeated, tag = "2")]
    pub(super) nested_key: Vec<String>,
    #[prost(string, tag = "16")]
    pub(super) value_json: String,
}

impl Item {
    /// Makes an item as configurations have them.
    pub(super) fn plain(key: &str, value_json: String) -> Self {
        Self { key: key.to_owned(), nested_key: Vec::new(), value_json }
    }

    /// Makes an item as the SDK writes those of histories and summaries: with the parts of its name. The name of a
    /// metric has one part.
    pub(super) fn nested<const N: usize>(key: [&str; N], value_json: String) -> Self {
        Self { key: String::new(), nested_key: key.map(str::to_owned).into(), value_json }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exit {
    #[prost(int32, tag = "1")]
    pub(super) exit_code: i32,
    /// Duration of the run, in seconds.
    #[prost(int32, tag = "2")]
    pub(super) runtime: i32,
}

/// A message of `timestamp.proto`: a time since 1970.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub(super) seconds: i64,
    #[prost(int32, tag = "2")]
    pub(super) nanos: i32,
}
