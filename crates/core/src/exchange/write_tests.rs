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
        counts in prop::array::uniform19(prop_oneof![Just(0), any::<u64>()]),
        billed in prop::array::uniform2(prop::option::of(any::<u64>())),
    ) -> Usage {
        let [
            input, output, cache_read, cache_write, cache_write_1h, thinking, input_image, input_audio, output_image,
            output_audio, images, images_out, web_searches, web_fetches, code_exec_seconds, containers, search_units,
            characters, audio_ms,
        ] = counts;
        let [billed_input, billed_output] = billed;
        Usage {
            input, output, cache_read, cache_write, cache_write_1h, thinking, input_image, input_audio, output_image,
            output_audio, billed_input, billed_output, images, images_out, web_searches, web_fetches,
            code_exec_seconds, containers, search_units, characters, audio_ms,
        }
    }
}

prop_compose! {
    fn exchange()(
        names in prop::array::uniform4(text()), words in prop::array::uniform10(prop::option::of(text())),
        usage in prop::option::of(usage()), money in prop::array::uniform5(prop::option::of(any::<i64>())),
        flags in prop::array::uniform8(any::<bool>()), times in any::<(i64, Option<u32>, u32, u64, u64)>(),
        postings in prop::collection::vec((account(), window(), any::<i64>(), any::<i64>()), 0..4),
        attempts in prop::collection::vec(
            ([text(), text(), text()], any::<(u16, u32, bool, Option<u32>)>(), prop::option::of(text())), 0..3,
        ),
        asked in prop::option::of((text(), prop::option::of(any::<u64>()), prop::array::uniform3(prop::option::of(text())))),
        reserved: i64, outcome in 0..4_usize, settlement in 0..3_usize, status: u16,
    ) -> Exchange {
        let [organisation, workspace, model, provider] = names;
        let [stop_reason, message_id, native_stop_reason, error_type, service_tier, session, user, user_agent,
            referer, title] = words.map(|word| word.map(String::into_boxed_str));
        let [cost, list_cost, upstream_cost, reported_cost, cache_discount] = money.map(|amount| amount.map(Money));
        let [streamed, usage_reported, is_estimated, is_clamped, is_byok, has_parent, has_source, draws] = flags;
        let (started, first_content_ms, duration_ms, request_bytes, response_bytes) = times;
        let another = GenerationId::new(Timestamp(5));
        let outcomes = [Outcome::Complete, Outcome::Cancelled, Outcome::Failed, Outcome::Broken];
        let (preset, router, native_id) = (title.clone(), title.clone(), message_id.clone());
        let posting = |(account, window, first_day, amount)| Posting {
            slot: Slot { account, window, first_day }, amount: Money(amount),
        };
        let attempt = |(names, numbers, error_type): ([String; 3], _, Option<String>)| {
            let ([provider, slug, model], (status, duration_ms, is_byok, after_ms)) = (names.map(Into::into), numbers);
            AttemptRecord {
                provider, slug, model, status, duration_ms, is_byok, after_ms, error_type: error_type.map(Cow::Owned),
            }
        };
        Exchange {
            id: GenerationId::new(Timestamp(1)), parent: has_parent.then_some(another),
            organisation: OrganisationId(organisation.into()), workspace: WorkspaceId(workspace.into()),
            key: KeyHash::of(b"k"), model: model.into(), provider: provider.into(), outcome: outcomes[outcome],
            status, streamed, stop_reason, message_id, native_id, native_stop_reason,
            error_type: error_type.map(|text| Cow::Owned(text.into())), usage: usage.unwrap_or_default(),
            usage_reported, is_estimated, is_clamped, settlement: Settlement::ALL[settlement],
            reserved: Money(reserved), postings: postings.into_iter().map(posting).collect(), cost, is_byok,
            list_cost, upstream_cost, reported_cost, cache_discount, service_tier, session, user, user_agent,
            referer, title, attempts: attempts.into_iter().map(attempt).collect(), started: Timestamp(started),
            first_content_ms, duration_ms, request_bytes, response_bytes,
            cache_source: has_source.then_some(another), preset, router,
            asked: asked.map(|(model, max_tokens, numbers)| {
                let [temperature, top_p, top_k] = numbers.map(|number| number.map(String::into_boxed_str));
                let (provider, origin) = (model.clone().into(), "https://a\"b".into());
                let (strategy, prompt) = (Cow::Borrowed("direct"), max_tokens.map(|_| Money(reserved)));
                let served = Served { provider, origin, strategy, prompt, completion: prompt, tools: cost };
                let served = draws.then_some(served);
                Box::new(Asked { model: model.into(), max_tokens, temperature, top_p, top_k, is_structured: draws, served })
            }),
            api: if draws { Api::Images } else { Api::Messages },
        }
    }
}

proptest! {
    #[test]
    fn it_is_written_as_serde_writes_it(exchange in exchange()) {
        prop_assert_eq!(exchange.to_text(), serde_json::to_string(&exchange).unwrap());
    }
}
