//! Which model serves a request that leaves it open: by task, rank and cost. Pure; what may be called is told to it.

use super::options::{AutoRouter, Tier};

/// A model that could serve.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Candidate {
    pub id: String,
    /// Dollars of a blend of input and output; unknown ones count as the dearest.
    pub price: Option<f64>,
}

/// What was chosen and why.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// The first, and at most two that serve in its place.
    pub models: Vec<String>,
    pub candidates: usize,
    pub source: &'static str,
    pub is_pinned: bool,
    pub is_sticky: bool,
}

const CHOSEN: usize = 3;

/// What may be preferred over the ranking, while it is a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Known<'a> {
    /// The model of the last answer, where the caller wants it again.
    pub pinned: Option<&'a str>,
    /// The model that this conversation was answered by.
    pub remembered: Option<&'a str>,
}

/// `None` when nothing is left to choose from. `ranking`: what the operator prefers for the task, by pattern.
pub(super) fn choose(
    candidates: Vec<Candidate>,
    options: &AutoRouter,
    ranking: &[String],
    known: Known<'_>,
) -> Option<Choice> {
    let allowed =
        |id: &str| options.allowed.as_ref().is_none_or(|list| list.iter().any(|pattern| matches(pattern, id)));
    let excluded = |id: &str| options.excluded.iter().any(|pattern| matches(pattern, id));
    let mut left: Vec<Candidate> =
        candidates.into_iter().filter(|model| allowed(&model.id) && !excluded(&model.id)).collect();
    if left.is_empty() {
        return None;
    }
    let count = left.len();
    let place = |id: &str| ranking.iter().position(|pattern| matches(pattern, id));
    let source = if left.iter().any(|model| place(&model.id).is_some()) { "operator" } else { "catalogue" };
    let pinned = known.pinned.filter(|id| left.iter().any(|model| model.id == **id));
    let remembered = known.remembered.filter(|id| left.iter().any(|model| model.id == **id));
    let first = pinned.or(remembered).map(str::to_owned);
    let mut beside = Vec::new();
    if options.enabled {
        (left, beside) = within(left, options);
    }
    // Who is not ranked keeps the catalogue's order behind those who are.
    left.sort_by_key(|model| place(&model.id).unwrap_or(usize::MAX));
    let mut models: Vec<String> = first.clone().into_iter().collect();
    models.extend(left.into_iter().chain(beside).map(|model| model.id).filter(|id| Some(id) != first.as_ref()));
    models.truncate(CHOSEN);
    let (is_pinned, is_sticky) = (pinned.is_some(), pinned.is_none() && remembered.is_some());
    Some(Choice { models, candidates: count, source, is_pinned, is_sticky })
}

/// Those of the wanted part of prices, or where nobody is, those next to it; and those who may serve in their place, the
/// nearest first. A ceiling is one for them too.
fn within(candidates: Vec<Candidate>, options: &AutoRouter) -> (Vec<Candidate>, Vec<Candidate>) {
    let mut prices: Vec<f64> = candidates.iter().map(|model| model.price.unwrap_or(f64::INFINITY)).collect();
    prices.sort_by(f64::total_cmp);
    let count = prices.len() as f64;
    // The share of candidates that are cheaper, in percent: from 0 to below 100.
    let percentile = |model: &Candidate| {
        let price = model.price.unwrap_or(f64::INFINITY);
        prices.iter().filter(|other| **other < price).count() as f64 * 100.0 / count
    };
    if let (None, Some(tradeoff)) = (options.tier, options.tradeoff) {
        let ceiling = 90.0 - 8.0 * f64::from(tradeoff);
        let (kept, dearer): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|model| percentile(model) <= ceiling);
        return if kept.is_empty() { (dearer, kept) } else { (kept, Vec::new()) };
    }
    let wanted = options.tier.unwrap_or(Tier::Low) as i32;
    let distance = |model: &Candidate| (Tier::at(percentile(model)) as i32 - wanted).abs();
    let nearest = candidates.iter().map(distance).min().unwrap_or(0);
    let (kept, mut beside): (Vec<_>, Vec<_>) = candidates.into_iter().partition(|model| distance(model) == nearest);
    let cost = |model: &Candidate| model.price.unwrap_or(f64::INFINITY);
    beside.sort_by(|one, other| distance(one).cmp(&distance(other)).then(cost(one).total_cmp(&cost(other))));
    (kept, beside)
}

/// `*` stands for any run of characters; everything else for itself.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

/// What kind of work a request is, by what its last words look like.
pub(super) fn task(text: &str, has_tools: bool, has_images: bool, has_files: bool) -> &'static str {
    let lower = text.to_lowercase();
    let any = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    let is_code = text.contains("```") || any(&["function ", "def ", "class ", "compile", "stack trace", "traceback"]);
    match () {
        () if any(&[
            "traceback (most recent",
            "stack trace",
            "panicked at",
            "exception in thread",
            "segmentation fault",
        ]) =>
        {
            "code:debugging"
        }
        () if is_code && any(&["refactor", "clean up", "simplify this code"]) => "code:refactor",
        () if is_code && any(&["review", "what is wrong with this code"]) => "code:review",
        () if any(&["select ", " sql", "join "]) && any(&["table", "query", "database"]) => "code:sql",
        () if is_code || any(&["write a program", "write a script", "implement "]) => "code:generation",
        () if has_tools => "agent:tool_use",
        () if has_images => "image_understanding",
        () if any(&["translate", "übersetze", "traduis", "traduce"]) => "translation",
        () if any(&["summarize", "summarise", "tl;dr", "zusammenfass"]) => "summarization",
        () if any(&["extract", "list all", "parse the"]) => "extraction",
        () if any(&["classify", "categorize", "which category"]) => "classification",
        () if any(&["poem", "story", "song", "fiction"]) => "writing:creative",
        () if any(&["email", "letter", "memo", "press release"]) => "writing:business",
        () if any(&["proofread", "rewrite", "improve the wording"]) => "editing",
        () if any(&["prove", "integral", "equation", "solve for", "derivative"]) => "math",
        () if any(&["brainstorm", "ideas for"]) => "brainstorming",
        () if has_files => "qa_document",
        () if lower.trim_end().ends_with('?') => "qa_knowledge",
        () => "general",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models(list: &[(&str, f64)]) -> Vec<Candidate> {
        list.iter().map(|(id, price)| Candidate { id: (*id).to_owned(), price: Some(*price) }).collect()
    }

    /// Five at one to five dollars: one in each part of prices.
    fn five() -> Vec<Candidate> {
        models(&[("a/one", 1.0), ("a/two", 2.0), ("b/three", 3.0), ("b/four", 4.0), ("c/five", 5.0)])
    }

    fn chosen(options: &AutoRouter, ranking: &[&str]) -> Option<Vec<String>> {
        let ranking: Vec<String> = ranking.iter().map(|&pattern| pattern.to_owned()).collect();
        choose(five(), options, &ranking, Known::default()).map(|choice| choice.models)
    }

    fn texts(list: &[&str]) -> Vec<String> {
        list.iter().map(|&text| text.to_owned()).collect()
    }

    #[test]
    fn patterns_match_the_whole_name() {
        let table = [
            ("anthropic/*", "anthropic/claude", true),
            ("anthropic/*", "not-anthropic/claude", false),
            ("*/claude-*", "x/claude-2", true),
            ("openai/gpt-5*", "openai/gpt-5", true),
            ("openai/gpt-5*", "openai/gpt-4", false),
            ("a/one", "a/one", true),
            ("a/one", "a/one-more", false),
            ("*", "anything", true),
            ("a*a", "a", false),
            ("*ab*b", "xabyb", true),
        ];
        for (pattern, text, wanted) in table {
            assert_eq!(matches(pattern, text), wanted, "{pattern} {text}");
        }
    }

    #[test]
    fn what_is_excluded_is_out_whatever_is_allowed() {
        let options = AutoRouter {
            allowed: Some(texts(&["a/*", "b/*"])),
            excluded: texts(&["*/one"]),
            tier: Some(Tier::Low),
            ..AutoRouter::default()
        };
        // Of two, three and four dollars the cheapest fifth is the first.
        assert_eq!(chosen(&options, &[]), Some(texts(&["a/two", "b/three", "b/four"])));
        let nothing = AutoRouter { excluded: texts(&["*"]), ..AutoRouter::default() };
        assert_eq!(chosen(&nothing, &[]), None);
    }

    #[test]
    fn a_tier_is_a_part_of_prices_and_wins_over_the_older_word() {
        // Behind it the two nearest, who serve when it fails: the cheaper one first.
        for (tier, models) in [
            (Tier::Low, ["a/one", "a/two", "b/three"]),
            (Tier::Medium, ["a/two", "a/one", "b/three"]),
            (Tier::High, ["b/three", "a/two", "b/four"]),
            (Tier::Xhigh, ["b/four", "b/three", "c/five"]),
            (Tier::Max, ["c/five", "b/four", "b/three"]),
        ] {
            let options = AutoRouter { tier: Some(tier), tradeoff: Some(0), ..AutoRouter::default() };
            assert_eq!(chosen(&options, &[]), Some(texts(&models)), "{tier:?}");
        }
        let low = Some(texts(&["a/one", "a/two", "b/three"]));
        assert_eq!(chosen(&AutoRouter::default(), &[]), low, "low is what is meant without a word");
        // A ceiling holds for everybody.
        let lowest = AutoRouter { tradeoff: Some(10), ..AutoRouter::default() };
        assert_eq!(chosen(&lowest, &[]), Some(texts(&["a/one"])));
        // 90 - 8 × 5 = 50: those with at most half of the others below them.
        let half = AutoRouter { tradeoff: Some(5), ..AutoRouter::default() };
        assert_eq!(chosen(&half, &[]), Some(texts(&["a/one", "a/two", "b/three"])));
    }

    #[test]
    fn a_part_without_anybody_widens_to_the_nearest() {
        let same = models(&[("a/one", 1.0), ("a/two", 1.0)]);
        let options = AutoRouter { tier: Some(Tier::Max), ..AutoRouter::default() };
        let choice = choose(same, &options, &[], Known::default()).unwrap();
        assert_eq!(choice.models, ["a/one", "a/two"]);
    }

    #[test]
    fn the_operators_rank_decides_and_what_is_known_comes_before_it() {
        let all = AutoRouter { tradeoff: Some(0), ..AutoRouter::default() };
        assert_eq!(chosen(&all, &["b/*", "a/two"]), Some(texts(&["b/three", "b/four", "a/two"])));
        let known = Known { pinned: Some("a/two"), remembered: Some("b/four") };
        let choice = choose(five(), &all, &[], known).unwrap();
        assert_eq!((choice.models[0].as_str(), choice.is_pinned, choice.is_sticky), ("a/two", true, false));
        let choice = choose(five(), &all, &[], Known { pinned: Some("x/gone"), ..known }).unwrap();
        assert_eq!((choice.models[0].as_str(), choice.is_pinned, choice.is_sticky), ("b/four", false, true));
    }

    #[test]
    fn tasks_are_told_from_the_words() {
        for (text, task_type) in [
            ("```rust\nfn main() {}\n``` please review", "code:review"),
            ("Traceback (most recent call last): ...", "code:debugging"),
            ("Translate this into French: hello", "translation"),
            ("What is the capital of Peru?", "qa_knowledge"),
            ("hello", "general"),
        ] {
            assert_eq!(task(text, false, false, false), task_type, "{text}");
        }
        assert_eq!(task("hello", true, false, false), "agent:tool_use");
    }
}
