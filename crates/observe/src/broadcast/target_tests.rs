use super::*;

fn config(values: &[(&str, &str)], headers: &[(&str, &str)]) -> Config {
    let map =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(name, value)| ((*name).to_owned(), Secret::new(*value))).collect();
    Config { values: map(values), headers: map(headers) }
}

fn shown(target: &Target) -> (String, Vec<String>) {
    let header =
        |(name, value): &(String, Secret)| value.expose(|bytes| format!("{name}: {}", String::from_utf8_lossy(bytes)));
    (target.url.clone(), target.headers.iter().map(header).collect())
}

#[test]
fn each_vendor_is_reached_where_it_listens() {
    type Row = (Kind, &'static [(&'static str, &'static str)], &'static str, &'static [&'static str]);
    let table: [Row; 11] = [
        (Kind::OtelCollector, &[("endpoint", "http://c:4318/v1/traces")], "http://c:4318/v1/traces", &[]),
        (
            Kind::Langfuse,
            &[("publicKey", "pk"), ("secretKey", "sk")],
            "https://us.cloud.langfuse.com/api/public/otel/v1/traces",
            &["authorization: Basic cGs6c2s="],
        ),
        (
            Kind::Grafana,
            &[("instanceId", "1"), ("apiKey", "k"), ("baseUrl", "https://g/")],
            "https://g/otlp/v1/traces",
            &["authorization: Basic MTpr"],
        ),
        (
            Kind::NewRelic,
            &[("licenseKey", "k"), ("region", "eu")],
            "https://otlp.eu01.nr-data.net/v1/traces",
            &["api-key: k"],
        ),
        (
            Kind::Sentry,
            &[("otlpEndpoint", "https://s/o"), ("dsn", "https://abc@s/1")],
            "https://s/o",
            &["x-sentry-auth: sentry sentry_version=7, sentry_key=abc"],
        ),
        (
            Kind::Braintrust,
            &[("apiKey", "k"), ("projectId", "p")],
            "https://api.braintrust.dev/otel/v1/traces",
            &["authorization: Bearer k", "x-bt-parent: project_id:p"],
        ),
        (
            Kind::Weave,
            &[("apiKey", "k"), ("entity", "e"), ("project", "p")],
            "https://trace.wandb.ai/otel/v1/traces",
            &["wandb-api-key: k"],
        ),
        (
            Kind::Opik,
            &[("apiKey", "k"), ("workspace", "w"), ("projectName", "p")],
            "https://www.comet.com/opik/api/v1/private/otel/v1/traces",
            &["authorization: k", "comet-workspace: w", "projectname: p"],
        ),
        (Kind::Datadog, &[("apiKey", "k"), ("mlApp", "a")], "https://api.us5.datadoghq.com", &["dd-api-key: k"]),
        (Kind::PostHog, &[("apiKey", "k"), ("endpoint", "https://eu.i.posthog.com/")], "https://eu.i.posthog.com", &[]),
        (
            Kind::Snowflake,
            &[("account", "My_Org-acct.privatelink"), ("token", "t")],
            "https://my-org-acct.privatelink.snowflakecomputing.com",
            &["authorization: Bearer t", "x-snowflake-authorization-token-type: PROGRAMMATIC_ACCESS_TOKEN"],
        ),
    ];
    for (kind, values, url, headers) in table {
        let target = config(values, &[]).target(kind).map_err(|wrong| wrong.member).unwrap();
        assert_eq!(shown(&target), (url.to_owned(), headers.iter().map(|text| (*text).to_owned()).collect()));
    }
}

#[test]
fn some_vendors_file_what_comes_by_what_its_sender_is() {
    let resource = |kind, values: &[(&str, &str)]| {
        let target = config(values, &[]).target(kind).map_err(|wrong| wrong.member).unwrap();
        let Shape::Otlp(otlp) = target.shape else { panic!("it takes OTLP") };
        otlp.resource.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let arize = [("apiKey", "k"), ("spaceKey", "s"), ("modelId", "shop")];
    assert_eq!(resource(Kind::Arize, &arize), ["openinference.project.name=shop", "model_id=shop"]);
    let weave = [("apiKey", "k"), ("entity", "e"), ("project", "p")];
    assert_eq!(resource(Kind::Weave, &weave), ["wandb.entity=e", "wandb.project=p"]);
    assert!(resource(Kind::Ramp, &[("apiKey", "k")]).is_empty());
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let webhook = [("url", "https://w")];
    for (kind, values, headers, member) in [
        (Kind::OtelCollector, &[][..], &[][..], "endpoint"),
        (Kind::OtelCollector, &[("endpoint", "ftp://x")], &[], "endpoint"),
        (Kind::OtelCollector, &[("endpoint", "https://x"), ("stranger", "1")], &[], "stranger"),
        (Kind::Webhook, &[("url", "https://w"), ("method", "GET")], &[], "method"),
        (Kind::Webhook, &webhook, &[("Host", "evil")], "headers.Host"),
        (Kind::Webhook, &webhook, &[("Metadata", "true")], "headers.Metadata"),
        (
            Kind::Webhook,
            &webhook,
            &[("X-aws-ec2-metadata-token-ttl-seconds", "9")],
            "headers.X-aws-ec2-metadata-token-ttl-seconds",
        ),
        (Kind::Webhook, &webhook, &[("Content-Encoding", "gzip")], "headers.Content-Encoding"),
        (Kind::Webhook, &webhook, &[("Proxy-Authorization", "x")], "headers.Proxy-Authorization"),
        (Kind::Webhook, &webhook, &[("x-a", "b\r\nx-c: d")], "headers.x-a"),
        (Kind::Webhook, &webhook, &[("x a", "b")], "headers.x a"),
        (Kind::NewRelic, &[("licenseKey", "k"), ("region", "asia")], &[], "region"),
        (Kind::OtelCollector, &[("endpoint", "https://x"), ("protocol", "grpc")], &[], "protocol"),
        (Kind::OtelCollector, &[("endpoint", "https://x"), ("compression", "br")], &[], "compression"),
        (Kind::OtelCollector, &[("endpoint", "https://x")], &[("Content-Type", "text/csv")], "headers.Content-Type"),
        (Kind::OtelCollector, &[("endpoint", "https://x")], &[("content-encoding", "br")], "headers.content-encoding"),
        (Kind::Snowflake, &[("account", "evil.com/x"), ("token", "t")], &[], "account"),
        (Kind::Snowflake, &[("account", "a..b"), ("token", "t")], &[], "account"),
        (Kind::Snowflake, &[("account", "a"), ("token", "t"), ("table", "t(")], &[], "table"),
        (Kind::Sentry, &[("otlpEndpoint", "https://s"), ("dsn", "https://s/1")], &[], "dsn"),
    ] {
        let wrong = config(values, headers).target(kind).err().map(|wrong| wrong.member);
        assert_eq!(wrong.as_deref(), Some(member));
    }
}

#[test]
fn an_address_of_sentry_names_a_key_a_host_and_a_project() {
    for (dsn, key) in [
        ("https://abc@s.io/1", Some("abc")),
        ("https://abc:def@o1.ingest.sentry.io:8443/under/1", Some("abc")),
        ("https://abc@s.io/1/", Some("abc")),
        ("https://abc@s.io/1?environment=a/b@c", Some("abc")),
        ("https://abc@s.io/under/1/?x#y", Some("abc")),
        ("https://abc@[2001:db8::1]/1", Some("abc")),
        ("https://abc@[::1]:9000/1", Some("abc")),
        ("https://abc@[::1]9000/1", None),
        ("https://abc@[s.io]/1", None),
        ("https://abc@::1/1", None),
        ("https://abc@s.io//?1", None),
        ("https://abc@s.io:/1", None),
        ("https://abc@", None),
        ("https://abc@/1", None),
        ("https://abc@s.io", None),
        ("https://abc@s.io/", None),
        ("https://abc@s.io:x/1", None),
        ("https://@s.io/1", None),
        ("https://a b@s.io/1", None),
        ("https://abc, sentry_client=x@s.io/1", None),
        ("http://abc@s.io/1", None),
        ("https://s.io/1", None),
    ] {
        assert_eq!(key_of(dsn), key, "{dsn}");
    }
}

#[test]
fn collectors_are_told_how_they_say() {
    let told = |values: &[(&str, &str)], headers: &[(&str, &str)]| {
        let values = [&[("endpoint", "https://x")], values].concat();
        let target = config(&values, headers).target(Kind::OtelCollector).map_err(|wrong| wrong.member).unwrap();
        assert!(target.headers.is_empty(), "what is decided by a header is not sent twice");
        let Shape::Otlp(otlp) = target.shape else { panic!("a collector takes OTLP") };
        (otlp.is_protobuf, target.is_packed)
    };
    assert_eq!(told(&[], &[]), (false, false));
    assert_eq!(told(&[("protocol", "http/protobuf"), ("compression", "gzip")], &[]), (true, true));
    let headers = [("Content-Type", "application/x-protobuf"), ("Content-Encoding", "gzip")];
    assert_eq!(told(&[], &headers), (true, true));
}

#[test]
fn an_address_holds_no_password() {
    for url in ["https://u:planted@c/v1/traces", "http://planted@c?x=1", "https://u:planted@c"] {
        let wrong = config(&[("endpoint", url)], &[]).target(Kind::OtelCollector).err().unwrap();
        assert_eq!(wrong.member, "endpoint", "{url}");
        assert!(wrong.message.contains("put them into headers") && !wrong.message.contains("planted"), "{wrong:?}");
    }
    let target = config(&[("endpoint", "https://c/v1/@traces?to=a@b")], &[]).target(Kind::OtelCollector);
    assert!(target.is_ok(), "elsewhere it is a character as any other");
}
