use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use tidegate_core::{Account, KeyHash, OrganisationId, Window, WorkspaceId};

use super::*;

const NOW: Timestamp = Timestamp(1_790_000_000_000);

fn slot(number: usize) -> Slot {
    match number % 4 {
        0 => Slot::of(Account::Key(KeyHash::of(b"k")), Some(Window::Daily), NOW),
        1 => Slot::of(Account::Workspace(WorkspaceId("w".into())), Some(Window::Monthly), NOW),
        2 => Slot::of(Account::Workspace(WorkspaceId("w".into())), None, NOW),
        _ => Slot::of(Account::Organisation(OrganisationId("o".into())), None, NOW),
    }
}

fn demand(number: usize, amount: i64) -> Demand {
    Demand { rule: rule(number), amount: Money(amount) }
}

fn rule(number: usize) -> Rule {
    Rule { slot: slot(number), limit: Money(1_000_000), counts_byok: false }
}

fn posting(number: usize, amount: i64) -> Posting {
    Posting { slot: slot(number), amount: Money(amount) }
}

fn id(number: u64) -> GenerationId {
    GenerationId::parse(&format!("gen-{number:026}")).unwrap()
}

fn book(leases: &[(usize, i64)]) -> Book {
    let mut book = Book::default();
    for (number, amount) in leases {
        book.granted(&rule(*number), Money(*amount), NOW);
    }
    book
}

#[test]
fn led_3_all_slots_or_none() {
    let mut book = book(&[(0, 100), (1, 30)]);
    let short = book.reserve(id(1), &[demand(0, 50), demand(1, 50)], NOW).unwrap_err();
    assert_eq!((short.len(), short[0].available), (1, Money(30)));
    book.reserve(id(1), &[demand(0, 100), demand(1, 30)], NOW).expect("the first try held nothing");
    // The same call again is no second reservation.
    book.reserve(id(1), &[demand(0, 100), demand(1, 30)], NOW).unwrap();
    assert!(book.reserve(id(2), &[demand(0, 1)], NOW).is_err());
    assert_eq!(book.settle(id(1), &[posting(0, 40), posting(1, 10)], NOW), Some(Closed::default()));
    assert_eq!(book.settle(id(1), &[posting(0, 99)], NOW), None, "settled once");
    book.reserve(id(3), &[demand(0, 60), demand(1, 20)], NOW).unwrap();
    assert!(book.reserve(id(4), &[demand(1, 1)], NOW).is_err());
}

#[test]
fn led_10_a_free_call_is_let_in_unless_something_is_overdrawn() {
    let mut book = book(&[(0, 10)]);
    book.reserve(id(1), &[demand(0, 10)], NOW).unwrap();
    book.reserve(id(2), &[demand(0, 0)], NOW).expect("nothing is left, but nothing is owed");
    book.settle(id(1), &[posting(0, 25)], NOW);
    assert_eq!(book.reserve(id(3), &[demand(0, 0)], NOW).unwrap_err()[0].available, Money(-15));
    // The store has it now. That what is leased is used up does not make good what is missing.
    book.forwarded(&[posting(0, 25)]);
    let short = book.reserve(id(3), &[demand(0, 0)], NOW).unwrap_err();
    assert_eq!((short[0].available, short[0].is_final), (Money::ZERO, false), "the store is asked how it stands");
    book.granted(&rule(0), Money(0), NOW);
    book.reserve(id(3), &[demand(0, 0)], NOW).expect("others had something left");
    assert!(book.reserve(id(4), &[demand(1, 0)], NOW).is_err(), "what is not known is asked for");
    // Nothing is left in the store, or less than nothing: an earlier start, or another node, has spent it.
    book.refused(&rule(1), (Money::ZERO, Money::ZERO), NOW, NOW);
    book.reserve(id(4), &[demand(1, 0)], NOW).unwrap();
    book.refused(&rule(1), (Money(-1), Money::ZERO), NOW, NOW);
    assert!(book.reserve(id(5), &[demand(1, 0)], NOW).is_err());
    book.granted(&rule(1), Money(0), NOW);
    book.reserve(id(5), &[demand(1, 0)], NOW).unwrap();
}

#[test]
fn led_11_a_top_up_adds_what_is_missing_and_an_overshoot_is_told() {
    let mut book = book(&[(0, 100)]);
    book.reserve(id(1), &[demand(0, 40)], NOW).unwrap();
    book.top_up(id(1), &[demand(0, 70)], NOW).unwrap();
    book.top_up(id(1), &[demand(0, 60)], NOW).expect("it has more already");
    assert_eq!(book.held(id(1)), Some(&[posting(0, 70)][..]));
    assert!(book.top_up(id(1), &[demand(0, 101)], NOW).is_err());
    assert_eq!(book.settle(id(1), &[posting(0, 85)], NOW).unwrap().overshoot, Money(15));
    assert!(book.reserve(id(2), &[demand(0, 16)], NOW).is_err());
    book.reserve(id(2), &[demand(0, 15)], NOW).unwrap();
}

#[test]
fn led_21_what_the_store_has_leaves_the_book_with_its_part_of_the_lease() {
    let mut book = book(&[(0, 100)]);
    book.reserve(id(1), &[demand(0, 60)], NOW).unwrap();
    book.settle(id(1), &[posting(0, 30)], NOW);
    book.forwarded(&[posting(0, 30)]);
    assert!(book.reserve(id(2), &[demand(0, 71)], NOW).is_err());
    book.reserve(id(2), &[demand(0, 70)], NOW).unwrap();
    // It costs more than the whole lease: the store knows that, the lease is used up, and no more.
    book.settle(id(2), &[posting(0, 95)], NOW);
    book.forwarded(&[posting(0, 95)]);
    book.granted(&rule(0), Money(5), NOW);
    book.reserve(id(3), &[demand(0, 5)], NOW).unwrap();
}

#[test]
fn led_22_what_is_free_can_be_given_back_and_what_is_held_cannot() {
    let mut book = book(&[(0, 100), (1, 50)]);
    book.reserve(id(1), &[demand(0, 60)], NOW).unwrap();
    assert_eq!(book.surplus(&slot(0)), Money(40));
    assert_eq!(book.surplus(&slot(0)), Money::ZERO);
    assert!(book.is_low(&slot(0), NOW) && !book.is_low(&slot(1), NOW));
    let later = Timestamp(NOW.0 + 1);
    assert!(book.idle(NOW).is_empty());
    assert_eq!(book.idle(later), [(slot(1), Money(50))]);
    book.settle(id(1), &[posting(0, 10)], later);
    assert_eq!(book.surplus(&slot(0)), Money(50));
}

#[test]
fn a_changed_limit_is_noticed_before_anything_is_spent_under_the_old_one() {
    let mut book = book(&[(0, 100)]);
    let lowered = Demand { rule: Rule { limit: Money(10), ..rule(0) }, amount: Money(1) };
    book.reserve(id(1), std::slice::from_ref(&lowered), NOW).unwrap_err();
    assert!(book.state(&lowered.rule, NOW).unwrap().is_stale);
    assert_eq!(book.surplus(&slot(0)), Money(100));
    book.granted(&lowered.rule, Money(10), NOW);
    book.reserve(id(1), std::slice::from_ref(&lowered), NOW).unwrap();
    // What is open goes on by the limit it was let in under.
    book.top_up(id(1), &[demand(0, 5)], NOW).unwrap();
    let counting = Demand { rule: Rule { counts_byok: true, ..lowered.rule }, amount: Money(1) };
    assert!(book.reserve(id(2), std::slice::from_ref(&counting), NOW).is_err(), "more counts towards it than before");
    assert!(book.state(&counting.rule, NOW).unwrap().is_stale);
}

#[test]
fn a_limit_that_came_while_a_call_ran_counts_it_once() {
    let mut book = book(&[(0, 100), (1, 100)]);
    book.reserve(id(1), &[demand(0, 50)], NOW).unwrap();
    let cost = [posting(0, 40), posting(1, 40), posting(2, 40)];
    book.post_unheld(id(1), &cost, NOW);
    assert_eq!(book.state(&rule(0), NOW).unwrap().available, Money(50), "what is held counts when the call is closed");
    assert_eq!(book.state(&rule(1), NOW).unwrap().available, Money(60));
    book.settle(id(1), &cost, NOW);
    assert_eq!([0, 1].map(|number| book.state(&rule(number), NOW).unwrap().available), [Money(60); 2]);
    assert!(book.state(&rule(2), NOW).is_none(), "nothing is known here of a slot that nobody asked for");
}

#[test]
fn doubt_is_as_good_as_a_changed_limit_until_the_store_is_asked() {
    let mut book = book(&[(0, 100), (1, 100)]);
    book.doubt(&slot(0));
    book.doubt_guardrails();
    assert_eq!([0, 1].map(|number| book.state(&rule(number), NOW).unwrap().is_stale), [true, false]);
    book.reserve(id(1), &[demand(0, 1)], NOW).unwrap_err();
    book.granted(&rule(0), Money::ZERO, NOW);
    book.reserve(id(1), &[demand(0, 100)], NOW).unwrap();
}

#[test]
fn a_call_that_held_nothing_so_far_is_let_in_by_its_first_top_up() {
    let mut book = book(&[(0, 100)]);
    assert!(book.top_up(id(1), &[demand(0, 101)], NOW).is_err());
    book.top_up(id(1), &[demand(0, 100)], NOW).unwrap();
    assert!(book.reserve(id(2), &[demand(0, 1)], NOW).is_err());
    assert!(book.settle(id(1), &[posting(0, 7)], NOW).is_some());
}

#[test]
fn a_refusal_is_remembered_until_its_time() {
    let mut book = Book::default();
    book.refused(&rule(0), (Money::ZERO, Money::ZERO), NOW, Timestamp(NOW.0 + 1_000));
    assert!(book.reserve(id(1), &[demand(0, 1)], NOW).unwrap_err()[0].is_final);
    assert!(!book.reserve(id(1), &[demand(0, 1)], Timestamp(NOW.0 + 1_000)).unwrap_err()[0].is_final);
    book.granted(&rule(0), Money(1), NOW);
    book.reserve(id(1), &[demand(0, 1)], NOW).unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Reserve(u64, Vec<(usize, i64)>),
    TopUp(u64, Vec<(usize, i64)>),
    Settle(u64, Vec<(usize, i64)>),
    Release(u64),
    Grant(usize, i64),
    Forward(usize),
    GiveBack(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let amounts = || vec((0..4_usize, 0..60_i64), 0..4);
    prop_oneof![
        4 => (0..12_u64, amounts()).prop_map(|(id, parts)| Step::Reserve(id, parts)),
        1 => (0..12_u64, amounts()).prop_map(|(id, parts)| Step::TopUp(id, parts)),
        4 => (0..12_u64, amounts()).prop_map(|(id, parts)| Step::Settle(id, parts)),
        1 => (0..12_u64).prop_map(Step::Release),
        2 => (0..4_usize, 0..100_i64).prop_map(|(slot, amount)| Step::Grant(slot, amount)),
        1 => (0..4_usize).prop_map(Step::Forward),
        1 => (0..4_usize).prop_map(Step::GiveBack),
    ]
}

/// The same, kept as lists of what happened and summed anew at every question.
#[derive(Default)]
struct Naive {
    /// Slot and amount of grants, less what was given back.
    leases: Vec<(usize, i64)>,
    known: [bool; 4],
    /// More was forwarded than was leased, and nothing was granted since.
    overdrawn: [bool; 4],
    held: BTreeMap<u64, BTreeMap<usize, i64>>,
    /// Settled, and whether the store has it.
    spent: Vec<(usize, i64)>,
}

impl Naive {
    fn available(&self, slot: usize) -> i64 {
        let leased: i64 = self.leases.iter().filter(|(of, _)| *of == slot).map(|(_, amount)| amount).sum();
        let pending: i64 = self.held.values().filter_map(|parts| parts.get(&slot)).sum();
        let spent: i64 = self.spent.iter().filter(|(of, _)| *of == slot).map(|(_, amount)| amount).sum();
        leased - pending - spent
    }

    fn admits(&self, wanted: &BTreeMap<usize, i64>) -> bool {
        let admits = |(slot, amount): (&usize, &i64)| {
            self.known[*slot] && self.available(*slot) >= *amount && (*amount > 0 || !self.overdrawn[*slot])
        };
        wanted.iter().all(admits)
    }
}

/// One demand per slot: a call names each of its accounts once.
fn distinct(parts: &[(usize, i64)]) -> BTreeMap<usize, i64> {
    parts.iter().copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever the order: the book answers as the lists do, and what calls hold is never more than may be spent.
    #[test]
    fn led_3_the_book_is_its_naive_reference(steps in vec(step(), 1..80)) {
        let (mut book, mut naive) = (Book::default(), Naive::default());
        for step in steps {
            match step {
                Step::Reserve(number, parts) => {
                    let parts = distinct(&parts);
                    let demands: Vec<Demand> = parts.iter().map(|(slot, amount)| demand(*slot, *amount)).collect();
                    let expected = naive.held.contains_key(&number) || naive.admits(&parts);
                    let reserved = book.reserve(id(number), &demands, NOW);
                    prop_assert_eq!(reserved.is_ok(), expected);
                    if let Err(short) = &reserved {
                        for short in short {
                            let number = (0..4).find(|number| slot(*number) == short.demand.rule.slot).unwrap();
                            let available = if naive.known[number] { naive.available(number) } else { 0 };
                            prop_assert_eq!(short.available, Money(available));
                        }
                    }
                    if expected {
                        naive.held.entry(number).or_insert(parts);
                    }
                }
                Step::TopUp(number, parts) => {
                    let parts = distinct(&parts);
                    let demands: Vec<Demand> = parts.iter().map(|(slot, amount)| demand(*slot, *amount)).collect();
                    let missing: BTreeMap<usize, i64> = match naive.held.get(&number) {
                        None => parts.clone(),
                        Some(held) => parts
                            .iter()
                            .map(|(slot, amount)| (*slot, amount - held.get(slot).copied().unwrap_or(0)))
                            .filter(|(_, amount)| *amount > 0)
                            .collect(),
                    };
                    let expected = naive.admits(&missing);
                    prop_assert_eq!(book.top_up(id(number), &demands, NOW).is_ok(), expected);
                    if expected {
                        let held = naive.held.entry(number).or_default();
                        for (slot, amount) in missing {
                            *held.entry(slot).or_default() += amount;
                        }
                    }
                }
                Step::Settle(number, parts) => {
                    let actual = distinct(&parts);
                    let postings: Vec<Posting> = actual.iter().map(|(slot, amount)| posting(*slot, *amount)).collect();
                    let closed = book.settle(id(number), &postings, NOW);
                    let held = naive.held.remove(&number);
                    prop_assert_eq!(closed.is_some(), held.is_some());
                    for (slot, amount) in held.into_iter().flatten() {
                        let cost = actual.get(&slot).copied().unwrap_or(0);
                        naive.spent.push((slot, cost));
                        prop_assert!(closed.unwrap().overshoot >= Money(cost - amount));
                    }
                }
                Step::Release(number) => {
                    prop_assert_eq!(book.release(id(number), NOW).is_some(), naive.held.remove(&number).is_some());
                }
                Step::Grant(number, amount) => {
                    book.granted(&rule(number), Money(amount), NOW);
                    naive.leases.push((number, amount));
                    naive.known[number] = true;
                    naive.overdrawn[number] = false;
                }
                Step::Forward(number) => {
                    let sum: i64 = naive.spent.iter().filter(|(of, _)| *of == number).map(|(_, cost)| cost).sum();
                    let leased: i64 = naive.leases.iter().filter(|(of, _)| *of == number).map(|(_, part)| part).sum();
                    book.forwarded(&[posting(number, sum)]);
                    naive.spent.retain(|(of, _)| *of != number);
                    naive.overdrawn[number] |= naive.known[number] && sum > leased;
                    // The store takes no more from a lease than there is.
                    naive.leases.push((number, -sum.min(leased)));
                }
                Step::GiveBack(number) => {
                    let free = naive.available(number).max(0);
                    prop_assert_eq!(book.surplus(&slot(number)), Money(free));
                    naive.leases.push((number, -free));
                }
            }
            prop_assert_eq!(book.open_calls(), naive.held.len());
        }
    }
}
