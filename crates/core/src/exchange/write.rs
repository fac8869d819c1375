//! The text of a finished request, which is written twice for every call: the same as what serde writes, at a third of the
//! cost.

use std::borrow::Cow;

use super::{AttemptRecord, Exchange};
use crate::id::GenerationId;
use crate::json;
use crate::ledger::{Account, Posting, Slot};
use crate::money::Money;
use crate::usage::Usage;
use crate::window::Window;

impl Exchange {
    /// Appends it as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        // By name, so that nothing that is added is forgotten here.
        let Self {
            id,
            parent,
            organisation,
            workspace,
            key,
            model,
            provider,
            outcome,
            status,
            streamed,
            stop_reason,
            upstream_id,
            native_stop_reason,
            error_type,
            usage,
            usage_reported,
            is_estimated,
            is_clamped,
            settlement,
            reserved,
            postings,
            cost,
            is_byok,
            list_cost,
            upstream_cost,
            reported_cost,
            cache_discount,
            service_tier,
            session,
            user,
            user_agent,
            referer,
            title,
            attempts,
            started,
            first_content_ms,
            duration_ms,
            request_bytes,
            response_bytes,
            cache_source,
            preset,
        } = self;
        let mut object = Object::begin(out);
        object.plain("id", id.as_str());
        object.some_id("parent", parent.as_ref());
        object.text("organisation", &organisation.0);
        object.text("workspace", &workspace.0);
        object.plain("key", &key.to_hex());
        object.text("model", model);
        object.text("provider", provider);
        object.plain("outcome", outcome.as_str());
        object.number("status", *status);
        object.flag("streamed", *streamed);
        object.some_text("stop_reason", stop_reason.as_deref());
        object.some_text("upstream_id", upstream_id.as_deref());
        object.some_text("native_stop_reason", native_stop_reason.as_deref());
        object.some_text("error_type", error_type.as_ref().map(Cow::as_ref));
        if *usage != Usage::default() {
            object.name("usage");
            write_usage(usage, object.out);
        }
        object.flag("usage_reported", *usage_reported);
        object.flag("is_estimated", *is_estimated);
        object.flag("is_clamped", *is_clamped);
        object.plain("settlement", settlement.as_str());
        object.count("reserved", reserved.0);
        object.list("postings", postings, write_posting);
        object.money("cost", *cost);
        object.flag("is_byok", *is_byok);
        object.money("list_cost", *list_cost);
        object.money("upstream_cost", *upstream_cost);
        object.money("reported_cost", *reported_cost);
        object.money("cache_discount", *cache_discount);
        object.some_text("service_tier", service_tier.as_deref());
        object.some_text("session", session.as_deref());
        object.some_text("user", user.as_deref());
        object.some_text("user_agent", user_agent.as_deref());
        object.some_text("referer", referer.as_deref());
        object.some_text("title", title.as_deref());
        object.list("attempts", attempts, write_attempt);
        object.number("started", started.0);
        object.some_number("first_content_ms", *first_content_ms);
        object.count("duration_ms", *duration_ms);
        object.count("request_bytes", *request_bytes);
        object.count("response_bytes", *response_bytes);
        object.some_id("cache_source", cache_source.as_ref());
        object.some_text("preset", preset.as_deref());
        object.end();
    }

    /// The same as a text of its own.
    pub fn to_text(&self) -> String {
        // Nearly always enough, so that it need not grow.
        let mut out = Vec::with_capacity(1_024);
        self.write(&mut out);
        String::from_utf8(out).expect("JSON is text")
    }
}

fn write_usage(usage: &Usage, out: &mut Vec<u8>) {
    let Usage {
        input,
        output,
        cache_read,
        cache_write,
        cache_write_1h,
        thinking,
        input_image,
        input_audio,
        output_image,
        output_audio,
        billed_input,
        billed_output,
        images,
        images_out,
        web_searches,
        web_fetches,
        code_exec_seconds,
        containers,
    } = *usage;
    let mut object = Object::begin(out);
    object.count("input", input);
    object.count("output", output);
    object.count("cache_read", cache_read);
    object.count("cache_write", cache_write);
    object.count("cache_write_1h", cache_write_1h);
    object.count("thinking", thinking);
    object.count("input_image", input_image);
    object.count("input_audio", input_audio);
    object.count("output_image", output_image);
    object.count("output_audio", output_audio);
    object.some_number("billed_input", billed_input);
    object.some_number("billed_output", billed_output);
    object.count("images", images);
    object.count("images_out", images_out);
    object.count("web_searches", web_searches);
    object.count("web_fetches", web_fetches);
    object.count("code_exec_seconds", code_exec_seconds);
    object.count("containers", containers);
    object.end();
}

fn write_posting(Posting { slot, amount }: &Posting, out: &mut Vec<u8>) {
    let mut object = Object::begin(out);
    object.name("slot");
    write_slot(slot, object.out);
    object.number("amount", amount.0);
    object.end();
}

/// As its `Display` says it.
fn write_slot(Slot { account, window, first_day }: &Slot, out: &mut Vec<u8>) {
    let mut put = |kind: &str, name: &str| {
        out.push(b'"');
        out.extend_from_slice(kind.as_bytes());
        out.push(b':');
        json::within(out, name);
    };
    match account {
        Account::Key(hash) => put("key", &hash.to_hex()),
        Account::Member(id) => put("member", id),
        Account::Guardrail(id) => put("guardrail", id),
        Account::Workspace(id) => put("workspace", &id.0),
        Account::Organisation(id) => put("organisation", &id.0),
    }
    out.push(b':');
    out.extend_from_slice(window.map_or("lifetime", Window::as_str).as_bytes());
    out.push(b':');
    json::number(out, *first_day);
    out.push(b'"');
}

fn write_attempt(attempt: &AttemptRecord, out: &mut Vec<u8>) {
    let AttemptRecord { provider, model, status, duration_ms, is_byok } = attempt;
    let mut object = Object::begin(out);
    object.text("provider", provider);
    object.text("model", model);
    object.number("status", *status);
    object.number("duration_ms", *duration_ms);
    object.name("is_byok");
    object.out.extend_from_slice(if *is_byok { b"true" } else { b"false" });
    object.end();
}

struct Object<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    fn end(self) {
        self.out.push(b'}');
    }

    fn name(&mut self, name: &str) {
        self.out.extend_from_slice(if self.is_first { b"\"" } else { b",\"" });
        self.is_first = false;
        self.out.extend_from_slice(name.as_bytes());
        self.out.extend_from_slice(b"\":");
    }

    fn text(&mut self, name: &str, text: &str) {
        self.name(name);
        json::text(self.out, text);
    }

    /// Of which it is known that nothing in it must be escaped.
    fn plain(&mut self, name: &str, text: &str) {
        self.name(name);
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
    }

    fn some_text(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    fn some_id(&mut self, name: &str, id: Option<&GenerationId>) {
        if let Some(id) = id {
            self.plain(name, id.as_str());
        }
    }

    fn number(&mut self, name: &str, number: impl itoa::Integer) {
        self.name(name);
        json::number(self.out, number);
    }

    fn some_number(&mut self, name: &str, number: Option<impl itoa::Integer>) {
        if let Some(number) = number {
            self.number(name, number);
        }
    }

    fn money(&mut self, name: &str, money: Option<Money>) {
        self.some_number(name, money.map(|money| money.0));
    }

    /// Zero says nothing.
    fn count<T: itoa::Integer + Default + PartialEq>(&mut self, name: &str, count: T) {
        if count != T::default() {
            self.number(name, count);
        }
    }

    /// Nor does no.
    fn flag(&mut self, name: &str, flag: bool) {
        if flag {
            self.name(name);
            self.out.extend_from_slice(b"true");
        }
    }

    fn list<T>(&mut self, name: &str, list: &[T], write: fn(&T, &mut Vec<u8>)) {
        if list.is_empty() {
            return;
        }
        self.name(name);
        for (place, element) in list.iter().enumerate() {
            self.out.push(if place == 0 { b'[' } else { b',' });
            write(element, self.out);
        }
        self.out.push(b']');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::exchange::{Outcome, Settlement};
    use crate::key::KeyHash;
    use crate::tenant::{OrganisationId, WorkspaceId};
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = String> {
        prop_oneof![Just(String::new()), "[a-z/]{1,12}", r#"["\\\n\t éü€\u{1}:]{1,6}"#]
    }

    fn account() -> impl Strategy<Value = Account> {
        (0..5_u8, text()).prop_map(|(kind, name)| match kind {
            0 => Account::Key(KeyHash::of(name.as_bytes())),
            1 => Account::Member(name.into()),
            2 => Account::Guardrail(name.into()),
            3 => Account::Workspace(WorkspaceId(name.into())),
            _ => Account::Organisation(OrganisationId(name.into())),
        })
    }

    fn window() -> impl Strategy<Value = Option<Window>> {
        prop::sample::select(vec![None, Some(Window::Daily), Some(Window::Weekly), Some(Window::Monthly)])
    }

    prop_compose! {
        fn usage()(
            counts in prop::array::uniform16(prop_oneof![Just(0), any::<u64>()]),
            billed in prop::array::uniform2(prop::option::of(any::<u64>())),
        ) -> Usage {
            let [
                input, output, cache_read, cache_write, cache_write_1h, thinking, input_image, input_audio, output_image,
                output_audio, images, images_out, web_searches, web_fetches, code_exec_seconds, containers,
            ] = counts;
            let [billed_input, billed_output] = billed;
            Usage {
                input, output, cache_read, cache_write, cache_write_1h, thinking, input_image, input_audio, output_image,
                output_audio, billed_input, billed_output, images, images_out, web_searches, web_fetches,
                code_exec_seconds, containers,
            }
        }
    }

    prop_compose! {
        fn exchange()(
            names in prop::array::uniform4(text()), words in prop::array::uniform10(prop::option::of(text())),
            usage in prop::option::of(usage()), money in prop::array::uniform5(prop::option::of(any::<i64>())),
            flags in prop::array::uniform7(any::<bool>()), times in any::<(i64, Option<u32>, u32, u64, u64)>(),
            postings in prop::collection::vec((account(), window(), any::<i64>(), any::<i64>()), 0..4),
            attempts in prop::collection::vec((text(), text(), any::<u16>(), any::<u32>(), any::<bool>()), 0..3),
            reserved: i64, outcome in 0..4_usize, settlement in 0..3_usize, status: u16,
        ) -> Exchange {
            let [organisation, workspace, model, provider] = names;
            let [stop_reason, upstream_id, native_stop_reason, error_type, service_tier, session, user, user_agent,
                referer, title] = words.map(|word| word.map(String::into_boxed_str));
            let [cost, list_cost, upstream_cost, reported_cost, cache_discount] = money.map(|amount| amount.map(Money));
            let [streamed, usage_reported, is_estimated, is_clamped, is_byok, has_parent, has_source] = flags;
            let (started, first_content_ms, duration_ms, request_bytes, response_bytes) = times;
            let another = GenerationId::new(Timestamp(5));
            let outcomes = [Outcome::Complete, Outcome::Cancelled, Outcome::Failed, Outcome::Broken];
            let preset = title.clone();
            let posting = |(account, window, first_day, amount)| Posting {
                slot: Slot { account, window, first_day }, amount: Money(amount),
            };
            let attempt = |(provider, model, status, duration_ms, is_byok): (String, String, _, _, _)| AttemptRecord {
                provider: provider.into(), model: model.into(), status, duration_ms, is_byok,
            };
            Exchange {
                id: GenerationId::new(Timestamp(1)), parent: has_parent.then_some(another),
                organisation: OrganisationId(organisation.into()), workspace: WorkspaceId(workspace.into()),
                key: KeyHash::of(b"k"), model: model.into(), provider: provider.into(), outcome: outcomes[outcome],
                status, streamed, stop_reason, upstream_id, native_stop_reason,
                error_type: error_type.map(|text| Cow::Owned(text.into())), usage: usage.unwrap_or_default(),
                usage_reported, is_estimated, is_clamped, settlement: Settlement::ALL[settlement],
                reserved: Money(reserved), postings: postings.into_iter().map(posting).collect(), cost, is_byok,
                list_cost, upstream_cost, reported_cost, cache_discount, service_tier, session, user, user_agent,
                referer, title, attempts: attempts.into_iter().map(attempt).collect(), started: Timestamp(started),
                first_content_ms, duration_ms, request_bytes, response_bytes,
                cache_source: has_source.then_some(another), preset,
            }
        }
    }

    proptest! {
        #[test]
        fn it_is_written_as_serde_writes_it(exchange in exchange()) {
            prop_assert_eq!(exchange.to_text(), serde_json::to_string(&exchange).unwrap());
        }
    }
}
