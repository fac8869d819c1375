//! Whether a name stands twice in an object.

use std::borrow::Cow;
use std::collections::HashSet;

/// Names seen so far in one object: a short list first, a set once a hostile object grows long.
#[derive(Default)]
pub struct Seen<'a> {
    /// A bit for each name, by some of what it is made of. Two names of one object hardly ever share one, and only such
    /// are looked for.
    marks: u64,
    few: [&'a str; FEW],
    count: usize,
    /// Made when it is needed, which is hardly ever: its keys are random and cost something.
    many: Option<HashSet<Cow<'a, str>>>,
}

/// More members than most objects have.
const FEW: usize = 16;

impl<'a> Seen<'a> {
    /// False when the name was there already.
    #[expect(clippy::ptr_arg, reason = "the clone of a borrowed name costs nothing; a &str would have to be copied")]
    #[inline]
    pub fn add(&mut self, name: &Cow<'a, str>) -> bool {
        let mark = mark(name);
        let is_marked = self.marks & mark != 0;
        self.marks |= mark;
        match (name, self.few.get_mut(self.count)) {
            (Cow::Borrowed(name), Some(free)) if !is_marked => {
                *free = name;
                self.count += 1;
                true
            }
            _ => self.add_slowly(name),
        }
    }

    #[expect(clippy::ptr_arg, reason = "as above")]
    #[inline(never)]
    fn add_slowly(&mut self, name: &Cow<'a, str>) -> bool {
        let is_among_many = self.many.as_ref().is_some_and(|many| many.contains(name));
        if is_among_many || self.few[..self.count].contains(&&**name) {
            return false;
        }
        match (name, self.few.get_mut(self.count)) {
            (Cow::Borrowed(name), Some(free)) => {
                *free = name;
                self.count += 1;
                true
            }
            _ => self.many.get_or_insert_default().insert(name.clone()),
        }
    }
}

fn mark(name: &str) -> u64 {
    let [first, .., last] = name.as_bytes() else { return 1 };
    let middle = name.as_bytes()[name.len() / 2];
    1 << ((name.len() ^ (usize::from(*first) << 1) ^ (usize::from(middle) << 3) ^ (usize::from(*last) << 2)) & 63)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_new_once(names in proptest::collection::vec(("[ab]{0,2}[a-e]{0,2}", proptest::bool::ANY), 0..60)) {
            let mut seen = Seen::default();
            let mut known = HashSet::new();
            for (name, is_borrowed) in &names {
                let name = if *is_borrowed { Cow::Borrowed(name.as_str()) } else { Cow::Owned(name.clone()) };
                prop_assert_eq!(seen.add(&name), known.insert(name), "{:?}", names);
            }
        }
    }
}
