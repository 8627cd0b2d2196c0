//! Days and times of day.

/// A day or a time of day. A year, or the half of the day, matters only if both sides state it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    Day {
        year: Option<u32>,
        month: u32,
        day: Option<u32>,
    },
    Time {
        /// Hour as it is written, from 0 to 24.
        hour: u32,
        /// Seconds after the hour.
        seconds: u32,
        /// True if the time is after noon; `None` if nothing says so.
        afternoon: Option<bool>,
    },
}

impl Moment {
    /// Builds a time of day from an hour, minutes and seconds. Returns `None` if no clock shows them.
    pub(crate) fn time(parts: &[u32], afternoon: Option<bool>) -> Option<Moment> {
        let (&hour, after) = parts.split_first()?;
        let fits = after.len() <= 2 && after.iter().all(|part| *part < 60);
        // With `am` or `pm`, the clock has only twelve hours.
        let latest = if afternoon.is_some() { 12 } else { 24 };

        // An hour of 13 or more, and 0 or 24, says by itself which half of the day it is in.
        let afternoon = afternoon.or(match hour {
            0 | 24 => Some(false),
            13.. => Some(true),
            _ => None,
        });
        let seconds = after.iter().zip([60, 1]).map(|(part, seconds)| part * seconds).sum();

        (fits && hour <= latest).then_some(Moment::Time { hour, seconds, afternoon })
    }

    /// Tells whether two moments agree in everything that both of them state.
    pub(crate) fn agrees(self, other: Moment) -> bool {
        fn both<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }

        match (self, other) {
            (
                Moment::Day { year, month, day },
                Moment::Day { year: other_year, month: other_month, day: other_day },
            ) => month == other_month && day == other_day && both(year, other_year),
            (
                Moment::Time { hour, seconds, afternoon },
                Moment::Time { hour: other_hour, seconds: other_seconds, afternoon: other_half },
            ) => {
                hour % 12 == other_hour % 12
                    && seconds == other_seconds
                    && both(afternoon, other_half)
            }
            _ => false,
        }
    }

    /// Writes the moment in canonical form.
    pub(crate) fn canonical(self) -> String {
        match self {
            Moment::Day { year, month, day } => {
                let month = month_name(month.into()).unwrap_or_default();
                let day = day.map_or(String::new(), |day| format!(" {day}"));
                let year = year.map_or(String::new(), |year| format!(" {year}"));
                format!("{month}{day}{year}")
            }

            Moment::Time { hour, seconds, afternoon } => {
                let half = match afternoon {
                    Some(true) => " pm",
                    Some(false) => " am",
                    None => "",
                };

                // On a clock of twelve hours, 0 and 12 are both 12.
                let hour = if afternoon.is_some() { (hour + 11) % 12 + 1 } else { hour };
                let minutes = seconds / 60;
                let seconds = seconds % 60;
                let seconds = if seconds == 0 { String::new() } else { format!(":{seconds:02}") };
                format!("{hour}:{minutes:02}{seconds}{half}")
            }
        }
    }
}

/// Returns the month, counted from 1, that a word names in full or by its first three letters. It must begin with
/// a capital, because `may` and `march` are words of other kinds too.
pub(crate) fn month(word: &str) -> Option<u32> {
    let named = |name: &str| {
        let whole = if word.len() == 3 { &name[..3] } else { name };
        word.eq_ignore_ascii_case(whole) || word == "Sept" && name == "September"
    };

    let capital = word.starts_with(|c: char| c.is_ascii_uppercase());
    let at = MONTHS.iter().position(|name| named(name)).filter(|_| capital)?;
    u32::try_from(at + 1).ok()
}

/// Returns the name of a month, counted from 1.
pub(crate) fn month_name(month: u64) -> Option<&'static str> {
    MONTHS.get(usize::try_from(month).ok()?.checked_sub(1)?).copied()
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Tells which half of the day a word names: `pm`, `morning`. Returns `None` if it names none.
pub(crate) fn is_afternoon(word: &str) -> Option<bool> {
    let is = |words: &[&str]| words.iter().any(|known| word.eq_ignore_ascii_case(known));

    if is(&["pm", "noon", "afternoon", "evening"]) {
        Some(true)
    } else if is(&["am", "midnight", "morning"]) {
        Some(false)
    } else {
        None
    }
}
