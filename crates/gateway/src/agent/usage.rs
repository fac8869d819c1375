//! What the turns of a loop used together.

use serde_json::{Map, Number, Value, json};
use tidegate_core::Money;

use super::inner::Spent;

/// Members of `usage` that are dollars.
const DOLLARS: [&str; 2] = ["cost", "cost_details"];
/// Members that a turn has for itself.
const OF_A_TURN: [&str; 5] =
    ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cache_creation"];

/// Sums over the turns so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    total: Map<String, Value>,
    iterations: Vec<Value>,
    turns: usize,
    /// Tokens of models that tools asked.
    inner_tokens: u64,
    /// What tools cost: fees, and the models that they asked.
    pub tools: Money,
    /// Searches and fetches that were run for those.
    inner_searches: u64,
    inner_fetches: u64,
    /// Searches and fetches that were run here.
    pub searches: u64,
    pub fetches: u64,
    /// Whether any tool was run here.
    pub is_used: bool,
}

impl Sums {
    /// Before the first turn, when so much was searched already.
    pub fn after(searches: u64) -> Self {
        Self { searches, is_used: searches > 0, ..Self::default() }
    }

    /// Adds what a turn used.
    pub fn add(&mut self, usage: &Map<String, Value>, model: Option<&str>) {
        add(&mut self.total, usage, false);
        self.turns += 1;
        self.iterations.push(iteration("message", model, usage));
    }

    /// Adds what another model used that a tool asked: its tokens are listed, and paid, but are not the model's.
    pub fn add_inner(&mut self, spent: &Spent) {
        let cost: Map<String, Value> = spent
            .usage
            .iter()
            .filter(|(name, _)| DOLLARS.contains(&name.as_str()))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        self.tools = self.tools.plus(cost.get("cost").and_then(amount).unwrap_or(Money::ZERO));
        add(&mut self.total, &cost, true);
        self.inner_tokens += tokens(&spent.usage);
        let used =
            |name: &str| spent.usage.get("server_tool_use").and_then(|used| used.get(name)?.as_u64()).unwrap_or(0);
        self.inner_searches += used("web_search_requests");
        self.inner_fetches += used("web_fetch_requests");
        self.iterations.push(iteration(spent.kind, Some(&spent.model), &spent.usage));
    }

    /// Adds what a tool cost.
    pub fn add_fee(&mut self, fee: Money) {
        if fee == Money::ZERO {
            return;
        }
        let mut cost = Map::new();
        cost.insert("cost".into(), Value::Number(dollars(fee)));
        add(&mut self.total, &cost, true);
        self.tools = self.tools.plus(fee);
    }

    /// Counts what was settled and nobody told of: of turns that were cut short, and of models that did not come to an answer.
    /// Gives what that was.
    pub fn reach(&mut self, settled: Money) -> Money {
        let missing = Money(settled.0.saturating_sub(self.cost().0).max(0));
        if missing != Money::ZERO {
            let mut cost = Map::new();
            cost.insert("cost".into(), Value::Number(dollars(missing)));
            add(&mut self.total, &cost, true);
        }
        missing
    }

    /// Input, cached or not, and output, of all models.
    pub fn tokens(&self) -> u64 {
        tokens(&self.total) + self.inner_tokens
    }

    pub fn cost(&self) -> Money {
        self.total.get("cost").and_then(amount).unwrap_or(Money::ZERO)
    }

    /// Searches that vendors ran in the turns.
    pub fn vendors_searches(&self) -> u64 {
        let used = self.total.get("server_tool_use");
        used.and_then(|used| used.get("web_search_requests")?.as_u64()).unwrap_or(0)
    }

    pub fn turns(&self) -> usize {
        self.turns
    }

    /// As the answer tells it.
    pub fn told(&self) -> Value {
        let mut told = self.total.clone();
        if self.is_used {
            let vendors =
                |name: &str| told.get("server_tool_use").and_then(|used| used.get(name)?.as_u64()).unwrap_or(0);
            let used = json!({
                "web_search_requests": vendors("web_search_requests") + self.searches + self.inner_searches,
                "web_fetch_requests": vendors("web_fetch_requests") + self.fetches + self.inner_fetches,
            });
            told.insert("server_tool_use".into(), used);
        }
        if self.iterations.len() > 1 {
            told.insert("iterations".into(), Value::Array(self.iterations.clone()));
        }
        Value::Object(told)
    }
}

fn tokens(usage: &Map<String, Value>) -> u64 {
    OF_A_TURN[..4].iter().filter_map(|name| usage.get(*name)?.as_u64()).sum()
}

fn iteration(kind: &str, model: Option<&str>, usage: &Map<String, Value>) -> Value {
    let mut iteration = Map::new();
    iteration.insert("type".into(), json!(kind));
    iteration.insert("model".into(), json!(model));
    // Clients know all but the last as numbers, and some upstreams leave out what is none.
    for name in &OF_A_TURN[..4] {
        let count = usage.get(*name).filter(|count| count.is_number()).cloned();
        iteration.insert((*name).to_owned(), count.unwrap_or_else(|| json!(0)));
    }
    if let Some(written) = usage.get(OF_A_TURN[4]) {
        iteration.insert(OF_A_TURN[4].to_owned(), written.clone());
    }
    Value::Object(iteration)
}

/// Adds number to number and member to member; of anything else the later word counts.
fn add(total: &mut Map<String, Value>, more: &Map<String, Value>, is_dollars: bool) {
    for (name, value) in more {
        let is_dollars = is_dollars || DOLLARS.contains(&name.as_str());
        match (total.get_mut(name), value) {
            (Some(Value::Number(known)), Value::Number(more)) => *known = sum(known, more, is_dollars),
            (Some(Value::Object(known)), Value::Object(more)) => add(known, more, is_dollars),
            // Whether an own credential served any of it.
            (Some(Value::Bool(known)), Value::Bool(more)) => *known |= *more,
            // What one turn knows, another one not saying it does not take back.
            (Some(known), Value::Null) if !known.is_null() => {}
            _ => {
                total.insert(name.clone(), value.clone());
            }
        }
    }
}

/// Dollars are added as nano-dollars: a sum of fractions would not be one.
fn sum(one: &Number, other: &Number, is_dollars: bool) -> Number {
    let whole = |number: &Number| number.as_u64();
    match (whole(one), whole(other)) {
        (Some(one), Some(other)) => one.saturating_add(other).into(),
        _ if is_dollars => dollars(nanos(one).plus(nanos(other))),
        _ => Number::from_f64(one.as_f64().unwrap_or(0.0) + other.as_f64().unwrap_or(0.0)).unwrap_or_else(|| 0.into()),
    }
}

fn amount(value: &Value) -> Option<Money> {
    match value {
        Value::Number(number) => Some(nanos(number)),
        _ => None,
    }
}

fn nanos(number: &Number) -> Money {
    Money::parse(&number.to_string()).unwrap_or(Money::ZERO)
}

/// Nine places at most: within what a double holds exactly enough to be read back as the same amount.
pub(super) fn dollars(amount: Money) -> Number {
    if amount.0 % 1_000_000_000 == 0 {
        return (amount.0 / 1_000_000_000).into();
    }
    Number::from_f64(amount.0 as f64 / 1e9).unwrap_or_else(|| 0.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn turns_are_added_bucket_by_bucket_and_listed() {
        let mut sums = Sums::default();
        sums.add(
            &usage(json!({"input_tokens": 10, "output_tokens": 3, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 2},
                "server_tool_use": null, "service_tier": "standard", "cost": 0.1, "is_byok": true,
                "cost_details": {"upstream_inference_cost": null}})),
            Some("a/m"),
        );
        assert!(sums.told().get("iterations").is_none(), "one turn is no list");
        sums.add(
            &usage(json!({"input_tokens": 20, "output_tokens": 4, "cache_read_input_tokens": 6, "cache_creation_input_tokens": 1,
                "cache_creation": {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 0},
                "server_tool_use": null, "service_tier": null, "cost": 0.2, "is_byok": false,
                "cost_details": {"upstream_inference_cost": 0.3}})),
            Some("a/m"),
        );
        sums.is_used = true;
        sums.searches = 2;
        let told = sums.told();
        assert_eq!(told["input_tokens"], 30);
        assert_eq!(told["cache_creation"], json!({"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2}));
        assert_eq!(told["cost"].to_string(), "0.3", "not 0.30000000000000004");
        assert_eq!(told["cost_details"], json!({"upstream_inference_cost": 0.3}));
        assert_eq!((&told["service_tier"], &told["is_byok"]), (&json!("standard"), &json!(true)), "one of them was");
        assert_eq!(told["server_tool_use"], json!({"web_search_requests": 2, "web_fetch_requests": 0}));
        assert_eq!(told["iterations"][1]["input_tokens"], 20);
        assert_eq!(told["iterations"][0]["type"], "message");
        assert_eq!((sums.tokens(), sums.cost()), (49, Money(300_000_000)));
    }

    #[test]
    fn what_other_models_used_is_paid_and_listed_and_not_the_models_own() {
        let mut sums = Sums::default();
        sums.add(&usage(json!({"input_tokens": 10, "output_tokens": 3, "cost": 0.1})), Some("a/m"));
        let other = usage(
            json!({"input_tokens": 7, "output_tokens": 2, "cache_read_input_tokens": null, "cost": 0.2, "server_tool_use": {"web_search_requests": 1}}),
        );
        sums.add_inner(&Spent { kind: "advisor_message", model: "b/n".into(), usage: other });
        sums.is_used = true;
        let told = sums.told();
        assert_eq!((&told["input_tokens"], &told["output_tokens"]), (&json!(10), &json!(3)));
        assert_eq!((told["cost"].to_string(), sums.tokens(), sums.turns()), ("0.3".to_owned(), 22, 1));
        assert_eq!(told["server_tool_use"]["web_search_requests"], 1);
        let listed = json!({"type": "advisor_message", "model": "b/n", "input_tokens": 7, "output_tokens": 2,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0});
        assert_eq!(told["iterations"][1], listed);
    }

    #[test]
    fn what_was_settled_and_not_told_is_paid_all_the_same() {
        let mut sums = Sums::default();
        sums.add(&usage(json!({"input_tokens": 10, "output_tokens": 3, "cost": 0.1})), Some("a/m"));
        assert_eq!(sums.reach(Money(100_000_000)), Money::ZERO);
        assert_eq!(sums.reach(Money(350_000_000)), Money(250_000_000));
        assert_eq!(sums.told()["cost"].to_string(), "0.35");
    }

    proptest::proptest! {
        #[test]
        fn amounts_add_up_to_the_nano_dollar(amounts in proptest::collection::vec(0_i64..5_000_000_000, 1..20)) {
            let mut sums = Sums::default();
            for amount in &amounts {
                let mut usage = Map::new();
                usage.insert("cost".into(), Value::Number(dollars(Money(*amount))));
                sums.add(&usage, None);
            }
            proptest::prop_assert_eq!(sums.cost(), Money(amounts.iter().sum()));
        }
    }
}
