//! How much a destination is sent at once: less after it was too much, more only while all goes well.

/// Letters and bytes of one call.
pub(super) const BATCH: usize = 100;
pub(super) const BATCH_BYTES: usize = 4 << 20;
/// Calls to one destination at a time.
const AT_ONCE: usize = 8;
/// To one that is not the operator's: all of those share their room, and a slow one must leave some to the others.
const AT_ONCE_OF_MANY: usize = 4;

/// Calls to a destination at a time.
pub(super) fn at_once(is_operators: bool) -> usize {
    if is_operators { AT_ONCE } else { AT_ONCE_OF_MANY }
}

#[derive(Debug)]
pub(super) struct Gait {
    /// Letters of one call.
    size: usize,
    /// It took much at once, and nothing went wrong since.
    is_proven: bool,
    /// Rounds in a row of which some must be made again.
    failures: u32,
}

/// What became of the calls that were made at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    /// What they carried.
    pub letters: usize,
    pub bytes: usize,
    pub is_taken: bool,
    pub is_down: bool,
    pub is_refused: bool,
    /// Of a call that was too large, half of what it carried.
    pub half: Option<usize>,
}

impl Default for Gait {
    fn default() -> Self {
        Self { size: BATCH, is_proven: false, failures: 0 }
    }
}

impl Gait {
    pub fn size(&self) -> usize {
        self.size
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Letters and bytes that are taken at once. Letters that do not share calls make many of them as it is.
    pub fn most(&self, is_shared: bool) -> (usize, usize) {
        match self.is_proven && is_shared {
            true => (BATCH * AT_ONCE, 2 * BATCH_BYTES),
            false => (self.size, BATCH_BYTES),
        }
    }

    pub fn went(&mut self, round: &Round) {
        // Rows are whole and calls seldom full to the last letter: half of one is much.
        let is_much = round.letters > BATCH / 2 || round.bytes > BATCH_BYTES / 2;
        let is_good = round.is_taken && round.half.is_none() && !round.is_down && !round.is_refused;
        self.is_proven = is_good && (self.is_proven || is_much) && self.size == BATCH;
        self.size = match round.half {
            Some(half) => half.clamp(1, self.size),
            // What was too much is tried again little by little.
            None if round.is_taken => (self.size + self.size.div_ceil(8)).min(BATCH),
            None => self.size,
        };
        self.failures = if round.is_down { self.failures + 1 } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKEN: Round = Round { letters: 64, bytes: 9, is_taken: true, is_down: false, is_refused: false, half: None };

    fn after(rounds: &[Round]) -> Gait {
        let mut gait = Gait::default();
        rounds.iter().for_each(|round| gait.went(round));
        gait
    }

    #[test]
    fn many_calls_are_made_once_a_large_one_was_taken() {
        assert_eq!(after(&[]).most(true), (100, 4 << 20));
        assert_eq!(after(&[TAKEN]).most(true), (800, 8 << 20), "a row of 64 is all that fits in a call of 100");
        assert_eq!(after(&[TAKEN]).most(false), (100, 4 << 20));
        let few = Round { letters: 3, ..TAKEN };
        assert_eq!(after(&[few]).most(true).0, 100);
        assert_eq!(after(&[TAKEN, few]).most(true).0, 800);
        assert_eq!(after(&[Round { bytes: 3 << 20, ..few }]).most(true).0, 800, "long ones are much, too");
    }

    #[test]
    fn one_call_is_made_after_anything_went_wrong() {
        let down = Round { is_down: true, ..TAKEN };
        let nothing = Round { is_taken: false, ..TAKEN };
        for bad in [down, nothing, Round { is_refused: true, ..TAKEN }, Round { half: Some(50), ..TAKEN }] {
            assert_eq!(after(&[TAKEN, bad]).most(true).0, after(&[TAKEN, bad]).size(), "{bad:?}");
        }
        assert_eq!(after(&[down, down]).failures(), 2);
        assert_eq!(after(&[down, down, TAKEN]).failures(), 0);
    }

    #[test]
    fn what_was_too_much_is_tried_again_little_by_little() {
        let large = Round { is_taken: false, half: Some(50), ..TAKEN };
        let sizes: Vec<usize> = (0..9).map(|taken| after(&[vec![large], vec![TAKEN; taken]].concat()).size()).collect();
        assert_eq!(sizes, [50, 57, 65, 74, 84, 95, 100, 100, 100]);
        assert_eq!(after(&[large, Round { is_taken: false, is_down: true, ..TAKEN }]).size(), 50, "nothing was taken");
        assert_eq!(after(&[Round { half: Some(0), ..large }]).size(), 1);
        let full = [vec![large], vec![TAKEN; 6]].concat();
        assert_eq!(after(&full).most(true).0, 100, "it has yet to take as many");
        assert_eq!(after(&[full, vec![TAKEN]].concat()).most(true).0, 800);
    }
}
