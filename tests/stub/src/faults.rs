use std::time::Duration;

/// A way in which a server fails at a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fault {
    /// It answers after so long.
    Delay(Duration),
    /// It closes the connection without a word.
    Drop,
    /// It closes the connection in the middle of its answer.
    Half,
    /// It says of a part of a completion that it was aborted.
    Abort,
    /// It says that a part of a completion is all of it.
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
    /// A token is none of the vocabulary.
    ForeignToken,
    /// A log-probability is not a number.
    NotANumber,
    /// A log-probability is above 0.
    Positive,
    /// It goes on behind a stop token.
    PastTheEnd,
    /// Its answer is no JSON.
    Nonsense,
    /// It names weights that nobody gave it.
    OtherVersion,
}

impl Fault {
    /// All of them; a delay is one of 200 ms.
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
