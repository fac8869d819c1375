//! The kinds of destinations: what each is called and what its configuration holds.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    OtelCollector,
    Webhook,
    Langfuse,
    Langsmith,
    Grafana,
    NewRelic,
    Sentry,
    Arize,
    Braintrust,
    Ramp,
    S3,
    ClickHouse,
    Weave,
    Opik,
    Datadog,
    PostHog,
    Snowflake,
}

/// A member of a destination's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: &'static str,
    /// What it is when nobody says; none where somebody must.
    pub default: Option<&'static str>,
    pub is_secret: bool,
}

const fn needed(name: &'static str) -> Field {
    Field { name, default: None, is_secret: false }
}

const fn secret(name: &'static str) -> Field {
    Field { name, default: None, is_secret: true }
}

const fn usual(name: &'static str, default: &'static str) -> Field {
    Field { name, default: Some(default), is_secret: false }
}

impl Kind {
    pub const ALL: [(&'static str, Self); 17] = [
        ("otel-collector", Self::OtelCollector),
        ("webhook", Self::Webhook),
        ("langfuse", Self::Langfuse),
        ("langsmith", Self::Langsmith),
        ("grafana", Self::Grafana),
        ("newrelic", Self::NewRelic),
        ("sentry", Self::Sentry),
        ("arize", Self::Arize),
        ("braintrust", Self::Braintrust),
        ("ramp", Self::Ramp),
        ("s3", Self::S3),
        ("clickhouse", Self::ClickHouse),
        ("weave", Self::Weave),
        ("opik", Self::Opik),
        ("datadog", Self::Datadog),
        ("posthog", Self::PostHog),
        ("snowflake", Self::Snowflake),
    ];

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(name, _)| *name == text).map(|(_, kind)| *kind)
    }

    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The member that says where it is.
    pub fn address(self) -> &'static str {
        match self {
            Self::OtelCollector | Self::Langsmith | Self::S3 | Self::PostHog => "endpoint",
            Self::ClickHouse => "host",
            Self::Webhook | Self::Datadog => "url",
            Self::Snowflake => "account",
            Self::NewRelic => "region",
            Self::Sentry => "otlpEndpoint",
            Self::Langfuse | Self::Grafana | Self::Arize | Self::Braintrust | Self::Ramp | Self::Weave | Self::Opik => {
                "baseUrl"
            }
        }
    }

    /// The members of its configuration besides `headers`, which all of them have.
    pub fn fields(self) -> &'static [Field] {
        const COLLECTOR: &[Field] = &[needed("endpoint"), usual("protocol", "http/json"), usual("compression", "none")];
        const WEBHOOK: &[Field] = &[needed("url"), usual("method", "POST")];
        const LANGFUSE: &[Field] =
            &[secret("publicKey"), secret("secretKey"), usual("baseUrl", "https://us.cloud.langfuse.com")];
        const LANGSMITH: &[Field] = &[
            secret("apiKey"),
            usual("endpoint", "https://api.smith.langchain.com"),
            usual("project", "main"),
            usual("workspaceId", ""),
        ];
        const GRAFANA: &[Field] = &[
            needed("instanceId"),
            secret("apiKey"),
            usual("baseUrl", "https://otlp-gateway-prod-us-west-0.grafana.net"),
        ];
        const NEW_RELIC: &[Field] = &[secret("licenseKey"), usual("region", "us")];
        const SENTRY: &[Field] = &[needed("otlpEndpoint"), secret("dsn")];
        const ARIZE: &[Field] =
            &[secret("apiKey"), secret("spaceKey"), needed("modelId"), usual("baseUrl", "https://otlp.arize.com")];
        const BRAINTRUST: &[Field] =
            &[secret("apiKey"), needed("projectId"), usual("baseUrl", "https://api.braintrust.dev")];
        const RAMP: &[Field] =
            &[secret("apiKey"), usual("baseUrl", "https://api.ramp.com/developer/v1/ai-usage/tidegate")];
        const S3: &[Field] = &[
            needed("bucketName"),
            secret("accessKeyId"),
            secret("secretAccessKey"),
            Field { name: "sessionToken", default: Some(""), is_secret: true },
            usual("region", "us-east-1"),
            usual("endpoint", ""),
            usual("prefix", "tidegate-traces"),
            usual("pathTemplate", "{prefix}/{date}"),
        ];
        const CLICKHOUSE: &[Field] = &[
            needed("host"),
            needed("database"),
            needed("username"),
            secret("password"),
            usual("table", "TIDEGATE_TRACES"),
        ];
        const WEAVE: &[Field] =
            &[secret("apiKey"), needed("entity"), needed("project"), usual("baseUrl", "https://trace.wandb.ai")];
        const OPIK: &[Field] = &[
            secret("apiKey"),
            needed("workspace"),
            needed("projectName"),
            usual("baseUrl", "https://www.comet.com/opik/api"),
        ];
        const DATADOG: &[Field] = &[secret("apiKey"), needed("mlApp"), usual("url", "https://api.us5.datadoghq.com")];
        const POSTHOG: &[Field] = &[secret("apiKey"), usual("endpoint", "https://us.i.posthog.com")];
        const SNOWFLAKE: &[Field] = &[
            needed("account"),
            secret("token"),
            usual("database", "SNOWFLAKE_LEARNING_DB"),
            usual("schema", "PUBLIC"),
            usual("table", "TIDEGATE_TRACES"),
            usual("warehouse", "COMPUTE_WH"),
        ];
        match self {
            Self::OtelCollector => COLLECTOR,
            Self::Webhook => WEBHOOK,
            Self::Langfuse => LANGFUSE,
            Self::Langsmith => LANGSMITH,
            Self::Grafana => GRAFANA,
            Self::NewRelic => NEW_RELIC,
            Self::Sentry => SENTRY,
            Self::Arize => ARIZE,
            Self::Braintrust => BRAINTRUST,
            Self::Ramp => RAMP,
            Self::S3 => S3,
            Self::ClickHouse => CLICKHOUSE,
            Self::Weave => WEAVE,
            Self::Opik => OPIK,
            Self::Datadog => DATADOG,
            Self::PostHog => POSTHOG,
            Self::Snowflake => SNOWFLAKE,
        }
    }
}
