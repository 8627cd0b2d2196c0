//! Phrases that are searched for in the text of completions, and only counted.

use aho_corasick::AhoCorasick;
use firebrick_core::{Metrics, RewardedGroup};

/// Phrases that show a policy checking itself, such as "wait". They are counted to see whether, and how
/// often, they come up while nobody rewards them.
///
/// A phrase is found anywhere in the text, even inside words, whatever its case.
#[derive(Clone, Debug, Default)]
pub struct Phrases {
    /// Phrases as the recipe has them: they name metrics.
    names: Vec<String>,
    automaton: Option<AhoCorasick>,
}

impl Phrases {
    /// Prepares the search for `phrases`, which are not empty and differ in more than case.
    pub fn new(phrases: Vec<String>) -> Self {
        let automaton = (!phrases.is_empty()).then(|| {
            AhoCorasick::new(phrases.iter().map(|phrase| phrase.to_lowercase()))
                .expect("phrases that fit in memory make fewer than 2³¹ states")
        });
        Phrases { names: phrases, automaton }
    }

    /// Counts each phrase in `text`, in one pass through it. Occurrences of one phrase do not overlap,
    /// although those of several phrases may: "wait" is in "wait a minute".
    pub fn count(&self, text: &str) -> Vec<usize> {
        let mut counts = vec![0; self.names.len()];
        let mut ends = vec![0; self.names.len()];
        let Some(automaton) = &self.automaton else { return counts };

        for occurrence in automaton.find_overlapping_iter(&text.to_lowercase()) {
            let phrase = occurrence.pattern().as_usize();
            if occurrence.start() >= ends[phrase] {
                counts[phrase] += 1;
                ends[phrase] = occurrence.end();
            }
        }

        counts
    }

    /// Records fractions and means over every completion of `groups`; nothing without phrases or completions.
    /// Mean credits leave out completions without a verdict.
    pub(crate) fn record_metrics(&self, groups: &[RewardedGroup], metrics: &mut Metrics) {
        let count: usize = groups.iter().map(|group| group.rewards.len()).sum();
        if self.names.is_empty() || count == 0 {
            return;
        }

        let mut share_any = 0.0;
        let mut with_phrase = Tally::default();
        let mut without_phrase = Tally::default();
        let mut phrases = vec![(0.0, 0.0); self.names.len()];

        let completions =
            groups.iter().flat_map(|group| group.group.completions.iter().zip(&group.rewards));
        for (completion, reward) in completions {
            let counts = self.count(&completion.text);
            let any = counts.iter().any(|&count| count > 0);
            share_any += f64::from(u8::from(any));

            if reward.is_judged() {
                let tally = if any { &mut with_phrase } else { &mut without_phrase };
                tally.add(f64::from(reward.score.credit));
            }

            for ((share, mean), count) in phrases.iter_mut().zip(counts) {
                *share += f64::from(u8::from(count > 0));
                *mean += count as f64;
            }
        }

        let of_all = |sum: f64| sum / count as f64;
        for (name, (share, mean)) in self.names.iter().zip(phrases) {
            metrics.set(format!("observe/phrase/{name}"), of_all(share));
            metrics.set(format!("observe/count/{name}"), of_all(mean));
        }
        metrics.set("observe/any", of_all(share_any));

        for (name, tally) in [("with", with_phrase), ("without", without_phrase)] {
            if tally.count > 0.0 {
                metrics.set(format!("observe/credit_{name}"), tally.credit / tally.count);
            }
        }
    }
}

/// How many completions there are, and the sum of their credit.
#[derive(Default)]
struct Tally {
    count: f64,
    credit: f64,
}

impl Tally {
    fn add(&mut self, credit: f64) {
        self.count += 1.0;
        self.credit += credit;
    }
}

#[cfg(test)]
mod tests {
    use firebrick_core::{Completion, Group, Prompt, RewardScale, Score, Verdict};

    use super::*;

    #[test]
    fn completions_without_a_verdict_are_in_shares_and_in_no_credit() {
        let judged = [
            ("wait", Score::right("")),
            ("wait", Score::none(Verdict::Error)),
            ("no", Score::none(Verdict::Error)),
            ("no", Score::partial(Verdict::Wrong, 0.5, "")),
        ];

        let scale = RewardScale { right: 1.0, wrong: -1.0 };
        let (texts, scores): (Vec<&str>, Vec<Score>) = judged.into_iter().unzip();
        let completions = texts.into_iter().map(Completion::of_text).collect();
        let group = Group { prompt: Prompt::default(), completions, step: 1, draw: 0 };
        let rewards = scores.into_iter().map(|score| scale.reward(score)).collect();

        let phrases = Phrases::new(vec!["wait".into()]);
        let mut metrics = Metrics::default();
        phrases.record_metrics(&[RewardedGroup { group: group.into(), rewards }], &mut metrics);

        let expected = [
            ("observe/any", 0.5),
            ("observe/count/wait", 0.5),
            ("observe/credit_with", 1.0),
            ("observe/credit_without", 0.5),
            ("observe/phrase/wait", 0.5),
        ];
        let actual: Vec<_> =
            metrics.0.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(actual, expected);

        // There is no fraction of nothing.
        let mut metrics = Metrics::default();
        phrases.record_metrics(&[], &mut metrics);
        assert_eq!(metrics, Metrics::default());
    }

    #[test]
    fn phrases_are_counted_whatever_their_case() {
        let count = |phrases: &[&str], text: &str| {
            Phrases::new(phrases.iter().map(|&phrase| phrase.to_owned()).collect()).count(text)
        };
        for (phrases, text, counts) in [
            (&["Wait", "let me check"][..], "wait. WAIT! Let me\ncheck: awaited", &[3, 0][..]),
            (&["wait", "wait a minute", "minute"], "Wait a minute", &[1, 1, 1]),
            // `str::matches` counts the same.
            (&["aa", "aaa"], "aaaaa", &[2, 1]),
            (&["überprüfe", "检查"], "ÜBERPRÜFE, 检查检查", &[1, 2]),
            (&["wait"], "", &[0]),
            (&[], "wait", &[]),
        ] {
            assert_eq!(count(phrases, text), counts, "{phrases:?} in {text:?}");
        }
    }
}
