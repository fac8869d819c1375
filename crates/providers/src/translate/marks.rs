//! How many cache markers an upstream takes, and in which order. What is over it is refused as a whole, so the markers
//! that reach least far go.

use super::conversation::{Conversation, Mark, Part, Said, Turn};

/// The longest parts of the conversation count: the last ones.
pub const MOST_MARKS: usize = 4;

/// Leaves the last four, and none that is kept for longer than one before it. `marks` are in the order in which the
/// upstream reads what they stand on: tools, system, conversation. Says whether one is kept for a
/// shorter time than was asked for.
pub fn bound(marks: &mut [&mut Mark]) -> bool {
    let excess = marks.iter().filter(|mark| mark.is_set()).count().saturating_sub(MOST_MARKS);
    for mark in marks.iter_mut().filter(|mark| mark.is_set()).take(excess) {
        **mark = Mark::None;
    }
    let (mut was_short, mut is_shortened) = (false, false);
    for mark in marks.iter_mut().filter(|mark| mark.is_set()) {
        was_short |= **mark == Mark::Short;
        if was_short {
            is_shortened |= **mark == Mark::Long;
            **mark = Mark::Short;
        }
    }
    is_shortened
}

impl Conversation {
    /// The markers in the order of what they stand on. A result is one place, whatever is marked inside of it.
    pub fn marks(&mut self) -> Vec<&mut Mark> {
        let mut marks: Vec<&mut Mark> = self.system.iter_mut().map(|text| &mut text.mark).collect();
        for turn in &mut self.turns {
            match turn {
                Turn::User(parts) => marks.extend(parts.iter_mut().map(Part::mark)),
                Turn::Assistant(said) => marks.extend(said.iter_mut().filter_map(Said::mark)),
                Turn::Results(outcomes) => {
                    for outcome in outcomes {
                        for inner in outcome.parts.iter_mut().map(Part::mark) {
                            outcome.mark = outcome.mark.longer(std::mem::take(inner));
                        }
                        marks.push(&mut outcome.mark);
                    }
                }
                Turn::System(_) => {}
            }
        }
        marks
    }

    /// Marks the last thing that can carry a marker.
    pub(super) fn mark_last(&mut self, mark: Mark) {
        if mark.is_set()
            && let Some(last) = self.marks().pop()
        {
            *last = mark;
        }
    }
}

impl Part {
    pub(super) fn mark(&mut self) -> &mut Mark {
        match self {
            Self::Text(text) => &mut text.mark,
            Self::Image { mark, .. } | Self::Document { mark, .. } => mark,
        }
    }
}

impl Said {
    /// Thinking carries none.
    pub(super) fn mark(&mut self) -> Option<&mut Mark> {
        match self {
            Self::Text(text) => Some(&mut text.mark),
            Self::Call { mark, .. } => Some(mark),
            Self::Thinking { .. } | Self::Redacted(_) => None,
        }
    }
}

impl Mark {
    fn longer(self, other: Self) -> Self {
        match (self, other) {
            (Self::Long, _) | (_, Self::Long) => Self::Long,
            (Self::Short, _) | (_, Self::Short) => Self::Short,
            (Self::None, Self::None) => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_last_four_stay_and_none_outlives_one_before_it() {
        use Mark::{Long, None, Short};
        let table: [(&[Mark], &[Mark]); 6] = [
            (&[], &[]),
            (&[Short, None, Long], &[Short, None, Short]),
            (&[Long, Short], &[Long, Short]),
            (&[Short, Long, Long, Long, Long], &[None, Long, Long, Long, Long]),
            (&[Long, Long, Short, None, Long, Short, Short], &[None, None, Short, None, Short, Short, Short]),
            (&[None, None], &[None, None]),
        ];
        for (given, wanted) in table {
            let mut marks = given.to_vec();
            let is_shortened = bound(&mut marks.iter_mut().collect::<Vec<_>>());
            assert_eq!(marks, wanted, "{given:?}");
            let shortened = given.iter().zip(wanted).any(|pair| pair == (&Long, &Short));
            assert_eq!(is_shortened, shortened, "{given:?}");
        }
    }

    proptest! {
        #[test]
        fn what_is_kept_is_the_end_of_what_was_given(
            given in proptest::collection::vec(prop_oneof![Just(Mark::None), Just(Mark::Short), Just(Mark::Long)], 0..20),
        ) {
            let mut marks = given.clone();
            bound(&mut marks.iter_mut().collect::<Vec<_>>());
            let places = |marks: &[Mark]| -> Vec<usize> {
                marks.iter().enumerate().filter(|(_, mark)| mark.is_set()).map(|(place, _)| place).collect()
            };
            let (before, after) = (places(&given), places(&marks));
            prop_assert_eq!(&before[before.len().saturating_sub(MOST_MARKS)..], &after[..]);
            let kept: Vec<Mark> = marks.into_iter().filter(|mark| mark.is_set()).collect();
            prop_assert!(kept.windows(2).all(|pair| pair != [Mark::Short, Mark::Long]));
        }
    }
}
