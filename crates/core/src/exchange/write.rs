//! The text of a finished request, which is written twice for every call: the same as what serde writes, at a third of the
//! cost.

use std::borrow::Cow;

use super::{Api, Asked, AttemptRecord, Exchange, Served};
use crate::id::GenerationId;
use crate::json;
use crate::ledger::{Account, Posting, Slot};
use crate::money::Money;
use crate::usage::Usage;
use crate::window::Window;

/// How a member begins, by what follows. One piece each: most of what a record costs is the number of its pieces.
struct Member {
    name: &'static str,
    text: &'static str,
    /// With its value.
    flag: &'static str,
}

macro_rules! member {
    ($name:literal) => {
        Member {
            name: concat!(",\"", $name, "\":"),
            text: concat!(",\"", $name, "\":\""),
            flag: concat!(",\"", $name, "\":true"),
        }
    };
}

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
            message_id,
            native_id,
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
            router,
            api,
            asked,
        } = self;
        let mut object = Object::begin(out);
        object.plain(member!("id"), id.as_bytes());
        object.some_id(member!("parent"), parent.as_ref());
        object.text(member!("organisation"), &organisation.0);
        object.text(member!("workspace"), &workspace.0);
        object.plain(member!("key"), key.hex_digits().as_flattened());
        object.text(member!("model"), model);
        object.text(member!("provider"), provider);
        object.plain(member!("outcome"), outcome.as_str().as_bytes());
        object.name(member!("status"));
        json::count(object.out, (*status).into());
        object.flag(member!("streamed"), *streamed);
        object.some_text(member!("stop_reason"), stop_reason.as_deref());
        object.some_text(member!("upstream_id"), message_id.as_deref());
        object.some_text(member!("native_id"), native_id.as_deref());
        object.some_text(member!("native_stop_reason"), native_stop_reason.as_deref());
        object.some_text(member!("error_type"), error_type.as_ref().map(Cow::as_ref));
        if *usage != Usage::default() {
            object.name(member!("usage"));
            write_usage(usage, object.out);
        }
        object.flag(member!("usage_reported"), *usage_reported);
        object.flag(member!("is_estimated"), *is_estimated);
        object.flag(member!("is_clamped"), *is_clamped);
        object.plain(member!("settlement"), settlement.as_str().as_bytes());
        object.money(member!("reserved"), Some(*reserved).filter(|reserved| *reserved != Money::ZERO));
        object.list(member!("postings"), postings, write_posting);
        object.money(member!("cost"), *cost);
        object.flag(member!("is_byok"), *is_byok);
        object.money(member!("list_cost"), *list_cost);
        object.money(member!("upstream_cost"), *upstream_cost);
        object.money(member!("reported_cost"), *reported_cost);
        object.money(member!("cache_discount"), *cache_discount);
        object.some_text(member!("service_tier"), service_tier.as_deref());
        object.some_text(member!("session"), session.as_deref());
        object.some_text(member!("user"), user.as_deref());
        object.some_text(member!("user_agent"), user_agent.as_deref());
        object.some_text(member!("referer"), referer.as_deref());
        object.some_text(member!("title"), title.as_deref());
        object.list(member!("attempts"), attempts, write_attempt);
        object.number(member!("started"), started.0);
        object.some_number(member!("first_content_ms"), *first_content_ms);
        object.count(member!("duration_ms"), *duration_ms);
        object.count(member!("request_bytes"), *request_bytes);
        object.count(member!("response_bytes"), *response_bytes);
        object.some_id(member!("cache_source"), cache_source.as_ref());
        object.some_text(member!("preset"), preset.as_deref());
        object.some_text(member!("router"), router.as_deref());
        if *api != Api::default() {
            object.plain(member!("api"), api.as_str().as_bytes());
        }
        if let Some(asked) = asked {
            object.name(member!("asked"));
            write_asked(asked, object.out);
        }
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

fn write_asked(asked: &Asked, out: &mut Vec<u8>) {
    let Asked { model, max_tokens, temperature, top_p, top_k, is_structured, served } = asked;
    let mut object = Object::begin(out);
    object.text(member!("model"), model);
    object.some_number(member!("max_tokens"), *max_tokens);
    object.some_text(member!("temperature"), temperature.as_deref());
    object.some_text(member!("top_p"), top_p.as_deref());
    object.some_text(member!("top_k"), top_k.as_deref());
    object.flag(member!("is_structured"), *is_structured);
    if let Some(served) = served {
        object.name(member!("served"));
        write_served(served, object.out);
    }
    object.end();
}

fn write_served(served: &Served, out: &mut Vec<u8>) {
    let Served { provider, origin, strategy, prompt, completion, tools } = served;
    let mut object = Object::begin(out);
    object.text(member!("provider"), provider);
    object.text(member!("origin"), origin);
    object.text(member!("strategy"), strategy);
    object.money(member!("prompt"), *prompt);
    object.money(member!("completion"), *completion);
    object.money(member!("tools"), *tools);
    object.end();
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
        search_units,
        characters,
        audio_ms,
    } = *usage;
    let mut object = Object::begin(out);
    object.count(member!("input"), input);
    object.count(member!("output"), output);
    object.count(member!("cache_read"), cache_read);
    object.count(member!("cache_write"), cache_write);
    object.count(member!("cache_write_1h"), cache_write_1h);
    object.count(member!("thinking"), thinking);
    object.count(member!("input_image"), input_image);
    object.count(member!("input_audio"), input_audio);
    object.count(member!("output_image"), output_image);
    object.count(member!("output_audio"), output_audio);
    object.some_number(member!("billed_input"), billed_input);
    object.some_number(member!("billed_output"), billed_output);
    object.count(member!("images"), images);
    object.count(member!("images_out"), images_out);
    object.count(member!("web_searches"), web_searches);
    object.count(member!("web_fetches"), web_fetches);
    object.count(member!("code_exec_seconds"), code_exec_seconds);
    object.count(member!("containers"), containers);
    object.count(member!("search_units"), search_units);
    object.count(member!("characters"), characters);
    object.count(member!("audio_ms"), audio_ms);
    object.end();
}

fn write_posting(Posting { slot, amount }: &Posting, out: &mut Vec<u8>) {
    put(out, r#"{"slot":""#);
    write_slot(slot, out);
    put(out, r#"","amount":"#);
    json::number(out, amount.0);
    out.push(b'}');
}

/// As its `Display` says it.
fn write_slot(Slot { account, window, first_day }: &Slot, out: &mut Vec<u8>) {
    match account {
        Account::Key(hash) => {
            put(out, "key:");
            out.extend_from_slice(hash.hex_digits().as_flattened());
        }
        Account::Member(id) => put_name(out, "member:", id),
        Account::Guardrail(id) => put_name(out, "guardrail:", id),
        Account::Workspace(id) => put_name(out, "workspace:", &id.0),
        Account::Organisation(id) => put_name(out, "organisation:", &id.0),
    }
    match window {
        None => put(out, ":lifetime:"),
        Some(Window::Daily) => put(out, ":daily:"),
        Some(Window::Weekly) => put(out, ":weekly:"),
        Some(Window::Monthly) => put(out, ":monthly:"),
    }
    json::number(out, *first_day);
}

fn write_attempt(attempt: &AttemptRecord, out: &mut Vec<u8>) {
    let AttemptRecord { provider, slug, model, status, duration_ms, is_byok, after_ms, error_type } = attempt;
    put(out, r#"{"provider":""#);
    json::within(out, provider);
    if !slug.is_empty() {
        put(out, r#"","slug":""#);
        json::within(out, slug);
    }
    put(out, r#"","model":""#);
    json::within(out, model);
    put(out, r#"","status":"#);
    json::count(out, (*status).into());
    put(out, r#","duration_ms":"#);
    json::count(out, (*duration_ms).into());
    if *is_byok {
        put(out, r#","is_byok":true"#);
    } else {
        put(out, r#","is_byok":false"#);
    }
    if let Some(after) = after_ms {
        put(out, r#","after_ms":"#);
        json::count(out, (*after).into());
    }
    if let Some(error_type) = error_type {
        put(out, r#","error_type":""#);
        json::within(out, error_type);
        out.push(b'"');
    }
    out.push(b'}');
}

/// Where the length is known when this is compiled, which it is nearly everywhere, nobody is called for the copy.
#[inline(always)]
fn put(out: &mut Vec<u8>, piece: &str) {
    out.extend_from_slice(piece.as_bytes());
}

#[inline(always)]
fn put_name(out: &mut Vec<u8>, kind: &str, name: &str) {
    put(out, kind);
    json::within(out, name);
}

/// Members of which each is written with a comma before it; in the first one's place the object begins.
struct Object<'a> {
    out: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Object<'a> {
    fn begin(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        Self { out, start }
    }

    fn end(self) {
        match self.out.get_mut(self.start) {
            Some(first) => *first = b'{',
            None => self.out.push(b'{'),
        }
        self.out.push(b'}');
    }

    #[inline(always)]
    fn name(&mut self, member: Member) {
        put(self.out, member.name);
    }

    #[inline(always)]
    fn text(&mut self, member: Member, text: &str) {
        put(self.out, member.text);
        json::within(self.out, text);
        self.out.push(b'"');
    }

    /// Of which it is known that nothing in it must be escaped.
    #[inline(always)]
    fn plain(&mut self, member: Member, text: &[u8]) {
        put(self.out, member.text);
        self.out.extend_from_slice(text);
        self.out.push(b'"');
    }

    #[inline(always)]
    fn some_text(&mut self, member: Member, text: Option<&str>) {
        if let Some(text) = text {
            self.text(member, text);
        }
    }

    #[inline(always)]
    fn some_id(&mut self, member: Member, id: Option<&GenerationId>) {
        if let Some(id) = id {
            self.plain(member, id.as_bytes());
        }
    }

    #[inline(always)]
    fn number(&mut self, member: Member, number: impl itoa::Integer) {
        self.name(member);
        json::number(self.out, number);
    }

    #[inline(always)]
    fn some_number(&mut self, member: Member, number: Option<impl itoa::Integer>) {
        if let Some(number) = number {
            self.number(member, number);
        }
    }

    #[inline(always)]
    fn money(&mut self, member: Member, money: Option<Money>) {
        self.some_number(member, money.map(|money| money.0));
    }

    /// Zero says nothing.
    #[inline(always)]
    fn count(&mut self, member: Member, count: impl Into<u64>) {
        let count = count.into();
        if count != 0 {
            self.name(member);
            json::count(self.out, count);
        }
    }

    /// Nor does no.
    #[inline(always)]
    fn flag(&mut self, member: Member, flag: bool) {
        if flag {
            put(self.out, member.flag);
        }
    }

    fn list<T>(&mut self, member: Member, list: &[T], write: impl Fn(&T, &mut Vec<u8>)) {
        if list.is_empty() {
            return;
        }
        self.name(member);
        for (place, element) in list.iter().enumerate() {
            self.out.push(if place == 0 { b'[' } else { b',' });
            write(element, self.out);
        }
        self.out.push(b']');
    }
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
