use std::time::Duration;

/// How a server fails at a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It answers after this time.
    Delay(Duration),
    /// It closes the connection without a word.
    Drop,
    /// It closes the connection in the middle of its answer.
    Half,
    /// It sends a part of a completion and says that it was aborted.
    Abort,
    /// It sends a part of a completion as if it were whole.
    Short,
    /// It answers with this status.
    Status(u16),
    /// It never answers, and keeps the connection.
    Hang,
    /// It sends one completion twice, and leaves another out.
    Duplicate,
    /// It sends one completion more than it was asked for.
    OneMore,
    /// It sends its answer a byte at a time.
    Trickle,
    /// It never ends its answer.
    Endless,
    /// A token is not in the vocabulary.
    ForeignToken,
    /// A log-probability is not a number.
    NotANumber,
    /// A log-probability is above 0.
    Positive,
    /// It continues behind a stop token.
    PastTheEnd,
    /// Its answer is no JSON.
    Nonsense,
    /// It names weights that nobody gave it.
    OtherVersion,
}

impl Fault {
    /// All faults. The delay is 200 ms.
    pub const ALL: [Fault; 19] = [
        Fault::Delay(Duration::from_millis(200)),
        Fault::Drop,
        Fault::Half,
        Fault::Abort,
        Fault::Short,
        Fault::Status(500),
        Fault::Status(503),
        Fault::Hang,
        Fault::Duplicate,
        Fault::OneMore,
        Fault::Trickle,
        Fault::Endless,
        Fault::ForeignToken,
        Fault::NotANumber,
        Fault::Positive,
        Fault::PastTheEnd,
        Fault::Nonsense,
        Fault::OtherVersion,
        Fault::Status(429),
    ];
}
