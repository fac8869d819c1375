//! What an account operation was sent: the members of its body or the parameters of its query, each read into what it
//! must be. Every mistake is noted with its place, so that one answer names them all.

use std::collections::HashSet;
use std::hash::Hash;
use std::ops::RangeInclusive;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;
use tidegate_core::{KeyHash, Money, Secret, Timestamp};
use tidegate_gateway::Failure;
use tidegate_wire::envelope::{MAX_DEPTH, MAX_NODES};
use tidegate_wire::error::ErrorType;
use tidegate_wire::json::{self, Excess, Kind, Members, quoted};

use super::time::future;

/// Mistakes of an input, with their places. An error text says what the value must be and never repeats it: it may be
/// a secret in the wrong place.
#[derive(Default)]
pub struct Issues(Vec<(String, String)>);

impl Issues {
    pub fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push((path.into(), message.into()));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something is wrong with this member or with anything in it.
    pub fn mention(&self, path: &str) -> bool {
        let is_in =
            |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['[', '.']));
        self.0.iter().any(|(known, _)| is_in(known))
    }

    /// Place and text of each mistake.
    pub fn list(&self) -> Vec<(String, String)> {
        self.0.clone()
    }

    /// Refuses the input if anything is wrong with it.
    pub fn check(self) -> Result<(), Failure> {
        if self.0.is_empty() { Ok(()) } else { Err(self.into()) }
    }
}

impl From<Issues> for Failure {
    fn from(issues: Issues) -> Self {
        let listed: Vec<String> = issues
            .0
            .iter()
            .map(|(path, message)| format!(r#"{{"path":{},"message":{}}}"#, quoted(path), quoted(message)))
            .collect();
        let mut failure = Failure::new(400, ErrorType::InvalidRequest, "Invalid request parameters");
        failure.more_mut().metadata = Some(format!(r#"{{"issues":[{}]}}"#, listed.join(",")));
        failure
    }
}

/// One mistake as a failure.
pub fn refused(path: &str, message: impl Into<String>) -> Failure {
    let mut issues = Issues::default();
    issues.add(path, message);
    issues.into()
}

/// The members of a body. A member that is absent is `None`; where `null` means something, absent and null differ.
pub struct Form<'a> {
    members: Members<'a>,
    pub issues: Issues,
}

impl<'a> Form<'a> {
    /// `body` must be an object without repeated members; members nobody asks for are ignored.
    pub fn read(body: &'a Bytes) -> Result<Self, Failure> {
        // As for what calls a model: brackets cost more to read than to send.
        json::measure(body, MAX_DEPTH, MAX_NODES).map_err(|excess| match excess {
            Excess::Depth => refused("", format!("the body must not nest deeper than {MAX_DEPTH} levels")),
            Excess::Nodes => refused("", format!("the body must not hold more than {MAX_NODES} values")),
        })?;
        let text = std::str::from_utf8(body).map_err(|_| refused("", "the body must be UTF-8"))?;
        let raw: &RawValue = serde_json::from_str(text).map_err(|_| refused("", "the body must be JSON"))?;
        let members = Members::of(raw).ok_or_else(|| refused("", "the body must be a JSON object"))?;
        if let Some(name) = members.repeated() {
            return Err(refused(name, "stands twice"));
        }
        Ok(Self { members, issues: Issues::default() })
    }

    /// Notes that a member is needed when it is not there.
    pub fn require<T>(&mut self, name: &str, value: Option<T>) -> Option<T> {
        if value.is_none() && !self.issues.mention(name) {
            self.issues.add(name, "is required");
        }
        value
    }

    /// Reads a member that may be null.
    pub fn nullable<T>(
        &mut self,
        name: &str,
        read: impl FnOnce(&mut Reader<'_>, &'a RawValue) -> Option<T>,
    ) -> Option<Option<T>> {
        let raw = self.members.get(name)?;
        if json::kind(raw) == Kind::Null {
            return Some(None);
        }
        let mut reader = Reader { path: name.to_owned(), issues: &mut self.issues };
        read(&mut reader, raw).map(Some)
    }

    /// Reads a member that must not be null.
    pub fn value<T>(&mut self, name: &str, read: impl FnOnce(&mut Reader<'_>, &'a RawValue) -> Option<T>) -> Option<T> {
        match self.nullable(name, read)? {
            Some(value) => Some(value),
            None => {
                self.issues.add(name, "must not be null");
                None
            }
        }
    }

    /// A text whose length in characters is within `length`.
    pub fn text(&mut self, name: &str, length: RangeInclusive<usize>) -> Option<String> {
        self.value(name, |reader, raw| reader.text(raw, length))
    }

    pub fn nullable_text(&mut self, name: &str, length: RangeInclusive<usize>) -> Option<Option<String>> {
        self.nullable(name, |reader, raw| reader.text(raw, length))
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        self.value(name, |reader, raw| reader.flag(raw))
    }

    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        self.value(name, |reader, raw| reader.word(raw, words))
    }

    pub fn nullable_word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<Option<T>> {
        self.nullable(name, |reader, raw| reader.word(raw, words))
    }

    /// An amount of dollars, 0 or more.
    pub fn money(&mut self, name: &str) -> Option<Money> {
        self.value(name, |reader, raw| reader.money(raw))
    }

    pub fn nullable_money(&mut self, name: &str) -> Option<Option<Money>> {
        self.nullable(name, |reader, raw| reader.money(raw))
    }

    pub fn uuid(&mut self, name: &str) -> Option<String> {
        self.value(name, |reader, raw| reader.uuid(raw))
    }

    /// The last issue is checked by the caller with its own; this ends the reading.
    pub fn finish(self) -> Result<(), Failure> {
        self.issues.check()
    }
}

/// Reads one value and notes what is wrong with it.
pub struct Reader<'i> {
    path: String,
    issues: &'i mut Issues,
}

impl Reader<'_> {
    pub fn refuse<T>(&mut self, message: impl Into<String>) -> Option<T> {
        self.issues.add(self.path.clone(), message);
        None
    }

    pub fn text(&mut self, raw: &RawValue, length: RangeInclusive<usize>) -> Option<String> {
        let Some(text) = json::string(raw) else { return self.refuse("must be a string") };
        let characters = text.chars().count();
        let (least, most) = (*length.start(), *length.end());
        if text.contains('\0') {
            return self.refuse("must not contain NUL");
        }
        if characters < least {
            return self.refuse(format!("must have at least {least} character{}", if least == 1 { "" } else { "s" }));
        }
        if characters > most {
            return self.refuse(format!("must have at most {most} characters"));
        }
        Some(text.into_owned())
    }

    /// A secret, at most `most` bytes, without the white space around it.
    pub fn secret(&mut self, raw: &RawValue, most: usize) -> Option<Secret> {
        let Some(text) = json::string(raw) else { return self.refuse("must be a string") };
        let text = text.trim();
        let secret = Secret::new(text);
        if secret.is_empty() {
            return self.refuse("must not be empty");
        }
        if text.len() > most {
            return self.refuse(format!("must have at most {most} bytes"));
        }
        Some(secret)
    }

    pub fn flag(&mut self, raw: &RawValue) -> Option<bool> {
        match raw.get() {
            "true" => Some(true),
            "false" => Some(false),
            _ => self.refuse("must be true or false"),
        }
    }

    pub fn word<T: Copy>(&mut self, raw: &RawValue, words: &[(&str, T)]) -> Option<T> {
        let text = json::string(raw);
        let found = text.and_then(|text| words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value));
        found.or_else(|| {
            let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.refuse(format!("must be one of {}", list.join(", ")))
        })
    }

    pub fn money(&mut self, raw: &RawValue) -> Option<Money> {
        if json::kind(raw) != Kind::Number {
            return self.refuse("must be a number");
        }
        match Money::parse(raw.get()) {
            Ok(money) => Some(money),
            Err(error) => self.refuse(error.to_string()),
        }
    }

    pub fn integer(&mut self, raw: &RawValue, range: RangeInclusive<i64>) -> Option<i64> {
        let number = raw.get().parse::<i64>().ok().filter(|number| range.contains(number));
        number.or_else(|| self.refuse(format!("must be an integer from {} to {}", range.start(), range.end())))
    }

    pub fn number(&mut self, raw: &RawValue, range: RangeInclusive<f64>) -> Option<f64> {
        let number = (json::kind(raw) == Kind::Number).then(|| raw.get().parse::<f64>().ok()).flatten();
        let number = number.filter(|number| range.contains(number));
        number.or_else(|| self.refuse(format!("must be a number from {} to {}", range.start(), range.end())))
    }

    pub fn uuid(&mut self, raw: &RawValue) -> Option<String> {
        let uuid = json::string(raw).and_then(|text| parse_uuid(&text));
        uuid.or_else(|| self.refuse("must be a UUID"))
    }

    /// An instant in RFC 3339 after `now`. With `utc_only`, it must be written with `Z` or `+00:00`.
    pub fn future(&mut self, raw: &RawValue, now: Timestamp, utc_only: bool) -> Option<Timestamp> {
        let Some(text) = json::string(raw) else { return self.refuse("must be a string") };
        match future(&text, now, utc_only) {
            Ok(instant) => Some(instant),
            Err(message) => self.refuse(message),
        }
    }

    /// A list whose length is within `count`, each element read by `read`; the same element twice counts once.
    pub fn list<T: Eq + Hash + Clone>(
        &mut self,
        raw: &RawValue,
        count: RangeInclusive<usize>,
        mut read: impl FnMut(&mut Reader<'_>, &RawValue) -> Option<T>,
    ) -> Option<Vec<T>> {
        let Some(elements) = (json::kind(raw) == Kind::Array).then(|| json::elements(raw)).flatten() else {
            return self.refuse("must be an array");
        };
        if elements.len() < *count.start() {
            let least = *count.start();
            return self.refuse(format!("must have at least {least} entr{}", if least == 1 { "y" } else { "ies" }));
        }
        if elements.len() > *count.end() {
            return self.refuse(format!("must have at most {} entries", count.end()));
        }
        let mut list = Vec::with_capacity(elements.len());
        let mut seen = HashSet::with_capacity(elements.len());
        let mut whole = true;
        for (place, element) in elements.into_iter().enumerate() {
            let mut reader = Reader { path: format!("{}[{place}]", self.path), issues: self.issues };
            match read(&mut reader, element) {
                Some(value) if !seen.insert(value.clone()) => {}
                Some(value) => list.push(value),
                None => whole = false,
            }
        }
        whole.then_some(list)
    }

    /// An object as a form of its own, whose mistakes are noted under this place.
    pub fn form<'a, T>(&mut self, raw: &'a RawValue, read: impl FnOnce(&mut Form<'a>) -> Option<T>) -> Option<T> {
        let Some(members) = Members::of(raw) else { return self.refuse("must be an object") };
        if let Some(name) = members.repeated() {
            return self.refuse(format!("has {name} twice"));
        }
        let mut form = Form { members, issues: Issues::default() };
        let value = read(&mut form);
        for (path, message) in form.issues.0 {
            self.issues.add(format!("{}.{path}", self.path), message);
        }
        value
    }

    /// Any value, none of whose objects has a member twice: of two, each reader would take another.
    pub fn plain(&mut self, raw: &RawValue) -> Option<Value> {
        if let Some((place, name)) = repeated(raw) {
            self.issues.add(format!("{}{place}", self.path), format!("has {name} twice"));
            return None;
        }
        serde_json::from_str(raw.get()).ok().or_else(|| self.refuse("cannot be read"))
    }

    pub fn key_hash(&mut self, raw: &RawValue) -> Option<KeyHash> {
        let hash = json::string(raw).and_then(|text| KeyHash::parse(&text));
        hash.or_else(|| self.refuse("must be 64 lower-case hexadecimal characters"))
    }
}

/// The first object with a member that stands twice, and that member. A body is not deep when this looks into it.
fn repeated(raw: &RawValue) -> Option<(String, String)> {
    match json::kind(raw) {
        Kind::Object => {
            let members = Members::of(raw)?;
            if let Some(name) = members.repeated() {
                return Some((String::new(), name.to_owned()));
            }
            let mut members = members.0.iter();
            members.find_map(|(member, value)| repeated(value).map(|(place, name)| (format!(".{member}{place}"), name)))
        }
        Kind::Array => {
            let mut elements = json::elements(raw)?.into_iter().enumerate();
            elements.find_map(|(at, value)| repeated(value).map(|(place, name)| (format!("[{at}]{place}"), name)))
        }
        Kind::Null | Kind::Boolean | Kind::Number | Kind::String => None,
    }
}

/// A UUID in its usual form, in lower case.
pub fn parse_uuid(text: &str) -> Option<String> {
    let fits = text.len() == 36
        && text.bytes().enumerate().all(|(place, byte)| match place {
            8 | 13 | 18 | 23 => byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
    fits.then(|| text.to_ascii_lowercase())
}

/// The parameters of a query.
pub struct Query {
    pairs: Vec<(String, String)>,
    pub issues: Issues,
}

impl Query {
    pub fn read(query: Option<&str>) -> Self {
        let pairs = url::form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        let pairs: Vec<(String, String)> = pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect();
        Self { pairs, issues: Issues::default() }
    }

    /// The value of a parameter; an empty one counts as absent, and one that stands twice is a mistake.
    pub fn text(&mut self, name: &str) -> Option<String> {
        let mut values = self.pairs.iter().filter(|(known, _)| known == name).map(|(_, value)| value.clone());
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            self.issues.add(name, "stands twice");
        }
        if first.as_ref().is_some_and(|value| value.contains('\0')) {
            self.issues.add(name, "must not contain NUL");
            return None;
        }
        first.filter(|value| !value.is_empty())
    }

    /// Notes parameters that are there and say nothing: whoever sends one means something by it.
    pub fn refuse_empty(&mut self, names: &[&str]) {
        for name in names {
            if self.pairs.iter().any(|(known, value)| known == name && value.is_empty()) {
                self.issues.add(*name, "must not be empty");
            }
        }
    }

    pub fn number(&mut self, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let text = self.text(name)?;
        let number = text.parse::<u32>().ok().filter(|number| range.contains(number));
        if number.is_none() {
            self.issues.add(name, format!("must be an integer from {} to {}", range.start(), range.end()));
        }
        number
    }

    /// An integer without a largest.
    pub fn whole(&mut self, name: &str, least: u64) -> Option<u64> {
        let text = self.text(name)?;
        let number = text.parse::<u64>().ok().filter(|number| *number >= least);
        if number.is_none() {
            self.issues.add(name, format!("must be an integer of at least {least}"));
        }
        number
    }

    /// A number that is not negative, with or without a fraction.
    pub fn amount(&mut self, name: &str, most: f64) -> Option<f64> {
        let text = self.text(name)?;
        let number = text.parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
        if number.is_none() {
            let range = if most == f64::MAX { "of at least 0".to_owned() } else { format!("from 0 to {most}") };
            self.issues.add(name, format!("must be a number {range}"));
        }
        number
    }

    /// Words with commas between them.
    pub fn list(&mut self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    /// `offset`, by default 0.
    pub fn offset(&mut self) -> u32 {
        self.number("offset", 0..=i32::MAX as u32).unwrap_or(0)
    }

    /// `limit`: 1 to 100, by default 50.
    pub fn limit(&mut self) -> u32 {
        self.number("limit", 1..=100).unwrap_or(50)
    }

    /// `offset` and `limit` of an operation that refuses no query: what is out of range is moved into it, and what is
    /// no number counts as absent.
    pub fn clamped_page(&mut self) -> (u32, u32) {
        (self.clamped("offset", 0..=i32::MAX as u32).unwrap_or(0), self.clamped("limit", 1..=100).unwrap_or(50))
    }

    fn clamped(&mut self, name: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let text = self.text(name)?;
        let (is_negative, digits) = text.strip_prefix('-').map_or((false, &*text), |digits| (true, digits));
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // More digits than fit are more than any limit.
        let number = if is_negative { 0 } else { digits.parse::<u32>().unwrap_or(u32::MAX) };
        Some(number.clamp(*range.start(), *range.end()))
    }

    pub fn uuid(&mut self, name: &str) -> Option<String> {
        let text = self.text(name)?;
        let uuid = parse_uuid(&text);
        if uuid.is_none() {
            self.issues.add(name, "must be a UUID");
        }
        uuid
    }

    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(name)?;
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        if found.is_none() {
            let list: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.issues.add(name, format!("must be one of {}", list.join(", ")));
        }
        found
    }

    pub fn flag(&mut self, name: &str) -> Option<bool> {
        match self.text(name)?.as_str() {
            "true" | "1" => Some(true),
            "false" | "0" => Some(false),
            _ => {
                self.issues.add(name, "must be true or false");
                None
            }
        }
    }

    /// What a parameter says, without judging it.
    pub fn raw(&self, name: &str) -> Option<String> {
        let found = self.pairs.iter().find(|(known, value)| known == name && !value.is_empty());
        found.map(|(_, value)| value.clone())
    }

    /// Puts something else in the place of a parameter's value.
    pub fn edit(&mut self, name: &str, with: impl Fn(&str) -> String) {
        for (_, value) in self.pairs.iter_mut().filter(|(known, _)| known == name) {
            *value = with(value);
        }
    }

    /// All parameters as a query again, with everything in it that must be encoded.
    pub fn encoded(&self) -> String {
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(&self.pairs).finish()
    }

    /// All parameters as a query again, one of them with another value.
    pub fn with(&self, name: &str, value: &str) -> String {
        let mut pairs: Vec<(&str, &str)> = self.pairs.iter().map(|(name, value)| (&**name, &**value)).collect();
        match pairs.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => pairs.push((name, value)),
        }
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
    }

    /// These parameters as a query again.
    pub fn again(&self, names: &[&str]) -> String {
        let kept = self.pairs.iter().filter(|(name, _)| names.contains(&name.as_str()));
        url::form_urlencoded::Serializer::new(String::new()).extend_pairs(kept).finish()
    }

    /// Refuses the query if anything is wrong with it.
    pub fn check(&mut self) -> Result<(), Failure> {
        std::mem::take(&mut self.issues).check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn issues(body: &str, read: impl FnOnce(&mut Form<'_>)) -> Vec<(String, String)> {
        let body = Bytes::from(body.to_owned());
        let mut form = Form::read(&body).unwrap_or_else(|_| panic!("the body can be read"));
        read(&mut form);
        form.issues.list()
    }

    #[test]
    fn inp_2_a_name_stands_once_in_every_object() {
        for (value, expected) in [
            (r#"{"a":1,"a":2}"#, Some(("x", "has a twice"))),
            (r#"{"b":{"a":1,"\u0061":2}}"#, Some(("x.b", "has a twice"))),
            (r#"{"b":[0,[{"a":1},{"a":1,"a":1}]]}"#, Some(("x.b[1][1]", "has a twice"))),
            (r#"{"b":[{"a":1},{"a":1}],"a":{"b":1}}"#, None),
        ] {
            let found = issues(&format!("{{\"x\":{value}}}"), |form| {
                form.value("x", |reader, raw| reader.plain(raw));
            });
            let expected: Vec<_> =
                expected.map(|(path, text)| (path.to_owned(), text.to_owned())).into_iter().collect();
            assert_eq!(found, expected, "{value}");
        }
    }

    #[test]
    fn what_is_there_and_wrong_is_not_missing() {
        let found = issues(r#"{"users":[5],"user":5}"#, |form| {
            let users =
                form.value("users", |reader, raw| reader.list(raw, 1..=9, |reader, raw| reader.text(raw, 1..=9)));
            form.require("users", users);
            form.require("use", None::<()>);
        });
        let paths: Vec<_> = found.iter().map(|(path, text)| format!("{path} {text}")).collect();
        assert_eq!(paths, ["users[0] must be a string", "use is required"]);
    }

    #[test]
    fn a_secret_is_measured_without_the_space_around_it() {
        for (text, expected) in [(" 12345678\\n", 0), ("123456789", 1)] {
            let found = issues(&format!("{{\"key\":\"{text}\"}}"), |form| {
                form.value("key", |reader, raw| reader.secret(raw, 8));
            });
            assert_eq!(found.len(), expected, "{text}");
        }
    }

    #[test]
    fn inp_2_a_body_is_neither_deep_nor_in_a_thousand_pieces() {
        let read = |value: String| Form::read(&Bytes::from(format!("{{\"x\":{value}}}"))).is_ok();
        // The object itself is one level.
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(read(nested(63)));
        assert!(!read(nested(64)) && !read(nested(100_000)));
        assert!(read(format!("[{}1]", "1,".repeat(100_000))));
        assert!(!read(format!("[{}1]", "1,".repeat(200_000))));
    }
}
