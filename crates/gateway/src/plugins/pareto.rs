//! `pareto-router`: the cheapest model that writes programs well enough, or the best one for a price. Pure; what may be
//! called is told to it.

use serde_json::{Value, json};

use super::options::Pareto;

const CHOSEN: usize = 3;

/// A model that could serve and whose score is known.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scored {
    pub id: String,
    /// How well it writes programs: the share of models that do it worse, in percent.
    pub score: f64,
    /// Dollars for a million tokens of input; an unknown price counts as the dearest.
    pub price: Option<f64>,
    /// Tokens per second, where enough calls were made.
    pub speed: Option<f32>,
}

impl Scored {
    fn cost(&self) -> f64 {
        self.price.unwrap_or(f64::INFINITY)
    }
}

/// What was chosen, and what the metadata say of it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    pub models: Vec<String>,
    pub told: Value,
}

/// How well programs must be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tier {
    Low,
    Medium,
    High,
}

impl Tier {
    fn wanted(least: Option<f64>) -> Self {
        match least {
            Some(least) if least < 0.33 => Self::Low,
            Some(least) if least < 0.66 => Self::Medium,
            _ => Self::High,
        }
    }

    /// The part that a score falls into; none for those of the lower half.
    fn of(score: f64) -> Option<Self> {
        match score {
            score if score >= 80.0 => Some(Self::High),
            score if score >= 65.0 => Some(Self::Medium),
            score if score >= 50.0 => Some(Self::Low),
            _ => None,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// `None` when nobody is left. `remembered`: the model that this conversation was answered by, which serves again while it
/// may be chosen.
pub(super) fn choose(
    candidates: Vec<Scored>,
    options: &Pareto,
    is_fast: bool,
    remembered: Option<&str>,
) -> Option<Choice> {
    let count = candidates.len();
    let (mut pool, mut told) = match options.max_price {
        _ if !options.enabled => (by_score(candidates), json!({})),
        Some(most) => (within(candidates, most), json!({"max_price": most})),
        None => {
            let (tier, mut pool) = of_tier(candidates, Tier::wanted(options.min_score))?;
            pool.sort_by(|a, b| match is_fast {
                true => b.speed.unwrap_or(0.0).total_cmp(&a.speed.unwrap_or(0.0)),
                false => a.cost().total_cmp(&b.cost()),
            });
            (pool, json!({"tier": tier.as_str()}))
        }
    };
    let known = remembered.and_then(|id| pool.iter().position(|model| model.id == id));
    if let Some(place) = known {
        pool[..=place].rotate_right(1);
    }
    told["candidates"] = json!(count);
    told["score"] = json!(pool.first()?.score);
    told["sticky"] = json!(known.is_some());
    Some(Choice { models: pool.into_iter().take(CHOSEN).map(|model| model.id).collect(), told })
}

/// Those of the wanted part; where nobody is, those next to it, the better ones first.
fn of_tier(candidates: Vec<Scored>, wanted: Tier) -> Option<(Tier, Vec<Scored>)> {
    let order = match wanted {
        Tier::High => [Tier::High, Tier::Medium, Tier::Low],
        Tier::Medium => [Tier::Medium, Tier::High, Tier::Low],
        Tier::Low => [Tier::Low, Tier::Medium, Tier::High],
    };
    let tier = order.into_iter().find(|tier| candidates.iter().any(|model| Tier::of(model.score) == Some(*tier)))?;
    Some((tier, candidates.into_iter().filter(|model| Tier::of(model.score) == Some(tier)).collect()))
}

/// Those that cost no more: first those for which nobody is both better and cheaper, the best of them first.
fn within(candidates: Vec<Scored>, most: f64) -> Vec<Scored> {
    let left: Vec<Scored> = candidates.into_iter().filter(|model| model.cost() <= most).collect();
    let beats = |one: &Scored, other: &Scored| {
        let no_worse = one.score >= other.score && one.cost() <= other.cost();
        no_worse && (one.score > other.score || one.cost() < other.cost())
    };
    let is_beaten = |model: &Scored| left.iter().any(|other| beats(other, model));
    let (others, frontier): (Vec<Scored>, Vec<Scored>) = left.iter().cloned().partition(is_beaten);
    by_score(frontier).into_iter().chain(by_score(others)).collect()
}

fn by_score(mut models: Vec<Scored>) -> Vec<Scored> {
    models.sort_by(|a, b| b.score.total_cmp(&a.score));
    models
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(id: &str, score: f64, price: f64) -> Scored {
        Scored { id: id.to_owned(), score, price: Some(price), speed: None }
    }

    fn models() -> Vec<Scored> {
        vec![
            Scored { speed: Some(10.0), ..model("best", 95.0, 9.0) },
            Scored { speed: Some(90.0), ..model("good", 80.0, 3.0) },
            model("dear", 85.0, 9.5),
            model("fair", 79.9, 1.0),
            model("poor", 50.0, 0.5),
            model("bad", 49.9, 0.1),
        ]
    }

    fn chosen(options: &Pareto, is_fast: bool) -> Vec<String> {
        choose(models(), options, is_fast, None).unwrap().models
    }

    #[test]
    fn the_cheapest_of_a_tier_comes_first() {
        let least = |min_score| Pareto { min_score, ..Pareto::default() };
        assert_eq!(chosen(&least(None), false), ["good", "best", "dear"]);
        assert_eq!(chosen(&least(Some(0.66)), false), ["good", "best", "dear"]);
        assert_eq!(chosen(&least(Some(0.65)), false), ["fair"]);
        assert_eq!(chosen(&least(Some(0.33)), false), ["fair"]);
        assert_eq!(chosen(&least(Some(0.32)), false), ["poor"]);
        assert_eq!(chosen(&least(None), true)[..2], ["good", "best"], "the fastest of those that were measured");
    }

    #[test]
    fn an_empty_tier_gives_way_to_its_neighbour_and_the_lower_half_to_nobody() {
        let least = |min_score| Pareto { min_score, ..Pareto::default() };
        let only = |id: &str, score| choose(vec![model(id, score, 1.0)], &least(Some(0.5)), false, None);
        assert_eq!(only("h", 90.0).unwrap().told["tier"], "high");
        assert_eq!(only("l", 50.0).unwrap().told["tier"], "low");
        assert_eq!(only("n", 49.0), None);
        assert_eq!(choose(Vec::new(), &least(None), false, None), None);
    }

    #[test]
    fn a_price_is_a_ceiling_under_which_the_best_comes_first() {
        let most = |price| Pareto { max_price: Some(price), min_score: Some(0.0), ..Pareto::default() };
        // Nobody is better and cheaper than best, good, fair, poor and bad; best beats dear.
        assert_eq!(chosen(&most(9.5), false), ["best", "good", "fair"]);
        assert_eq!(chosen(&most(3.0), false), ["good", "fair", "poor"]);
        assert_eq!(chosen(&most(0.1), false), ["bad"]);
        assert_eq!(choose(models(), &most(0.05), false, None), None);
        let two = vec![model("a", 90.0, 1.0), model("b", 80.0, 2.0), model("c", 70.0, 0.5)];
        assert_eq!(choose(two, &most(2.0), false, None).unwrap().models, ["a", "c", "b"], "who is beaten comes last");
        let unknown = vec![Scored { price: None, ..model("a", 90.0, 0.0) }];
        assert_eq!(choose(unknown, &most(100.0), false, None), None, "a price that nobody knows");
    }

    #[test]
    fn a_conversation_stays_with_its_model_while_that_may_be_chosen() {
        let made = choose(models(), &Pareto::default(), false, Some("dear")).unwrap();
        assert_eq!((made.models[0].as_str(), &made.told["sticky"]), ("dear", &json!(true)));
        assert_eq!((made.models.len(), &made.told["score"]), (3, &json!(85.0)));
        let made = choose(models(), &Pareto::default(), false, Some("poor")).unwrap();
        assert_eq!((made.models[0].as_str(), &made.told["sticky"]), ("good", &json!(false)));
    }
}
