//! What requests work with, made of a configuration that was found right.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use tidegate_gateway::{Place, Settings, Snapshot};
use tidegate_providers::translate::Card;
use tidegate_providers::translate::card::Tokenizer;
use tidegate_providers::translate::tools::NameRule;
use tidegate_providers::{Carriage, Protocol, cards, dialect, platform};
use tidegate_routing::{Catalogue, Endpoint, Model, Pricing, talks};

use super::Checked;
use crate::config::facts::Spoken;
use crate::config::mistakes::Mistakes;
use crate::config::prices::{self, Mistake, Sold};
use crate::config::providers::{self, Provider, Way};
use crate::config::{facts, nearest, raw};

impl Checked {
    /// The state a request works with. `sim` is the base address of the simulated provider, if it runs; `address` is the
    /// one we listen on.
    pub fn snapshot(&self, sim: Option<&str>, address: SocketAddr) -> anyhow::Result<Snapshot> {
        let mut upstreams = Vec::with_capacity(self.providers.len() + 1);
        // Where the ways of each provider begin.
        let mut starts = Vec::with_capacity(self.providers.len());
        for provider in &self.providers {
            starts.push(upstreams.len());
            upstreams.extend(provider.upstreams()?);
        }
        let (mut models, mut places, mut mistakes) = (Vec::new(), Vec::new(), Mistakes::default());
        for (index, model) in self.models.iter().enumerate() {
            let is_own = index < self.own_models;
            let made = self.model(model, is_own, &starts, &mut places);
            let made = made.with_context(|| format!("models[{index}] ({})", model.id));
            let made = made.map_err(|error| if is_own { self.located(index, error) } else { error });
            models.extend(mistakes.note(made));
        }
        if let Some(base_url) = sim {
            let provider_index = upstreams.len();
            let provider = providers::simulator(base_url);
            for demo in tidegate_sim::DEMO_MODELS {
                models.push(demo_model(demo, &self.settings.brand, &provider, provider_index, places.len()));
                places.push(Place {
                    card: native_card(&provider.ways[0]),
                    calls: provider.ways[0].calls(&provider.slug, demo.id)?,
                    talks: true,
                    others: Vec::new(),
                });
            }
            upstreams.extend(provider.upstreams()?);
        }
        let catalogue = Catalogue::new(models, self.aliases.iter().cloned());
        // Where a model could not be made, an alias of it is none the worse for it.
        mistakes.check()?;
        let mut mistakes = Mistakes::default();
        for (name, target) in self.aliases.iter().filter(|(_, target)| catalogue.find(target).is_err()) {
            mistakes.note::<()>(Err(anyhow::anyhow!("aliases.{name}: there is no model {target}")));
        }
        mistakes.check()?;
        let (docs_url, public_url) = (self.docs_url(address), self.public_url(address));
        let mut settings = Settings { docs_url, public_url, ..self.settings.clone() };
        settings.egress.own = self.own_addresses(address, sim);
        Ok(Snapshot::new(settings, catalogue, upstreams, places))
    }

    fn model(
        &self,
        model: &raw::Model,
        is_own: bool,
        starts: &[usize],
        places: &mut Vec<Place>,
    ) -> anyhow::Result<Model> {
        let mut endpoints = Vec::new();
        for (index, endpoint) in model.endpoints.iter().enumerate() {
            let place = || format!("endpoints[{index}]");
            // A platform's name stands for its provider.
            let known = platform::find(&endpoint.provider);
            let named = |provider: &Provider| {
                *provider.slug == *endpoint.provider || known.is_some_and(|known| *provider.slug == *known.slug)
            };
            let provider = self.providers.iter().enumerate().find(|(_, provider)| named(provider));
            let Some((number, provider)) = provider else {
                // A built-in model whose provider is not configured simply has no endpoint there.
                ensure!(
                    platform::find(&endpoint.provider).is_some(),
                    "{}: {}",
                    place(),
                    self.unknown_provider(&endpoint.provider)
                );
                continue;
            };
            let way_index = match provider.way(endpoint, &model.id) {
                Ok(way) => way,
                Err(error) if is_own => return Err(error.context(place())),
                // The catalogue knows more ways than this provider is configured with.
                Err(_) => continue,
            };
            let at = At { index, entry: endpoint, model, provider, start: starts[number] };
            let made = at.endpoint(way_index, places)?;
            let others = provider.others(way_index).into_iter().filter_map(|other| {
                // A fact that is said of the one protocol may be wrong of another; then there is none.
                Some((provider.ways[other].protocol, at.endpoint(other, places).ok()?))
            });
            let others = others.collect();
            places[made.place].others = others;
            endpoints.push(made);
        }
        Ok(Model {
            name: model.name.clone().unwrap_or_else(|| model.id.clone()),
            description: model.description.clone().unwrap_or_default(),
            input_modalities: model.input_modalities.clone(),
            output_modalities: model.output_modalities.clone(),
            aliases: model.aliases.clone(),
            family: model.family.clone(),
            released: model.released_at.as_deref().map(facts::released).transpose()?,
            hidden: model.hidden,
            distillable: model.distillable,
            coding_percentile: facts::coding_percentile(model)?,
            ..Model::new(model.id.as_str(), endpoints)
        })
    }

    /// A mistake in a model of the file, with the line of it where it is known.
    fn located(&self, model: usize, error: anyhow::Error) -> anyhow::Error {
        let of_price = error
            .downcast_ref::<Mistake>()
            .map(|mistake| format!("models[{model}].endpoints[{}].pricing.{}", mistake.endpoint, mistake.key));
        let of_fact = || error.downcast_ref::<facts::Mistake>().map(|it| format!("models[{model}].{}", it.path));
        match of_price.or_else(of_fact) {
            Some(path) => self.lines.named(&path, error),
            None => error,
        }
    }

    fn unknown_provider(&self, slug: &str) -> String {
        let slugs: Vec<&str> = self.providers.iter().map(|provider| &*provider.slug).collect();
        match nearest(slug, &slugs) {
            Some(near) => format!("there is no provider {slug:?}; did you mean {near}?"),
            None => format!("there is no provider {slug:?}; configured: {}", slugs.join(", ")),
        }
    }
}

/// An endpoint of the file, and the provider that it is at.
struct At<'a> {
    index: usize,
    entry: &'a raw::Endpoint,
    model: &'a raw::Model,
    provider: &'a Provider,
    /// Where the provider's ways begin among the upstreams.
    start: usize,
}

impl At<'_> {
    /// The endpoint as it is called one way.
    fn endpoint(&self, way_index: usize, places: &mut Vec<Place>) -> anyhow::Result<Arc<Endpoint>> {
        let Self { index, entry: endpoint, model, provider, start } = *self;
        let place = || format!("endpoints[{index}]");
        let way = &provider.ways[way_index];
        let is_tiered = endpoint.tier.as_deref().is_some_and(|tier| tier != "default");
        let priced = |raw| {
            let sold = Sold { provider: &provider.slug, model: &model.id, upstream: &endpoint.model, is_tiered };
            prices::pricing(raw, &sold).map_err(|mistake| mistake.at(index))
        };
        let pricing = endpoint.pricing.as_ref().map(priced).transpose().with_context(place)?;
        let context_length = endpoint.context_length.unwrap_or(model.context_length);
        let max_output_tokens = endpoint.max_output_tokens.unwrap_or(model.max_output_tokens);
        let takes = |modality: &str| model.input_modalities.iter().any(|known| known == modality);
        let own = endpoint.card.clone().unwrap_or_default();
        let known = match way.protocol {
            Protocol::Messages => {
                let known = dialect::card_for(&provider.slug, way.protocol);
                let tokenizer = if way.is_anthropics() { Tokenizer::Claude } else { known.tokenizer };
                let (truncates, needs_thinking_back) = (known.truncates, known.needs_thinking_back);
                Card { tokenizer, truncates, needs_thinking_back, ..native_card(way) }
            }
            Protocol::Converse => {
                let is_claude = own.get("claude").and_then(serde_json::Value::as_bool).unwrap_or(false);
                let card = dialect::card_for(&provider.slug, way.protocol);
                cards::bedrock(card, &model.id, &endpoint.model, is_claude)
            }
            protocol => dialect::card_for(&provider.slug, protocol),
        };
        let known = Card { context_length, max_output_tokens, images: takes("image"), pdf: takes("file"), ..known };
        let card = facts::card(index, &known, &own)?;
        let calls = way.calls(&provider.slug, &endpoint.model).with_context(place)?;
        let is_native = way.protocol == Protocol::Messages && way.carriage == Carriage::Plain;
        let spoken = Spoken {
            protocol: way.protocol,
            searches: way.searches(),
            is_anthropics_own: is_native && way.is_anthropics(),
            holds_threads: is_native && way.holds_threads(),
        };
        let facts = facts::facts(index, endpoint, model, &provider.slug, spoken, &card)?;
        let made = Arc::new(Endpoint {
            tag: facts.tag,
            tier: facts.tier,
            quantization: facts.quantization,
            parameters: facts.parameters,
            modalities: facts.modalities,
            searcher: facts.searcher,
            shadow_price: facts.shadow_price,
            quality: facts.quality,
            policy: provider.policy,
            provider_index: start + way_index,
            provider_name: provider.display_name.clone(),
            origin: way.place(),
            upstream_model: endpoint.model.as_str().into(),
            context_length,
            max_output_tokens,
            place: places.len(),
            pricing: pricing.or_else(|| provider.local.then(Pricing::default)),
            shared: provider.shared,
            ..Endpoint::new(model.id.as_str(), provider.slug.clone())
        });
        // Elsewhere such a model is asked for pictures like others for words; OpenAI has a call of its own for them.
        let only_draws =
            way.protocol == Protocol::Responses && model.output_modalities.iter().all(|one| one == "image");
        let talks = talks(&model.output_modalities) && !only_draws;
        places.push(Place { card, calls, talks, others: Vec::new() });
        Ok(made)
    }
}

/// What is known of every model that is called in the Messages format.
fn native_card(way: &Way) -> Card {
    let foreign = !way.is_anthropics();
    Card {
        foreign,
        mid_system: !foreign,
        cache_ttl: !foreign,
        max_temperature: if foreign { 2.0 } else { 1.0 },
        image_url: way.carriage == Carriage::Plain,
        pdf_url: way.carriage == Carriage::Plain,
        name_rule: NameRule::Plain128,
        ..Card::default()
    }
}

fn demo_model(
    demo: &tidegate_sim::DemoModel,
    brand: &str,
    provider: &Provider,
    provider_index: usize,
    place: usize,
) -> Model {
    let id: Arc<str> = format!("{brand}/{}", demo.id).into();
    let endpoint = Endpoint {
        provider_index,
        provider_name: provider.display_name.clone(),
        origin: provider.ways[0].place(),
        upstream_model: demo.id.into(),
        context_length: 200_000,
        max_output_tokens: 8_192,
        pricing: Some(Pricing::default()),
        policy: provider.policy,
        place,
        ..Endpoint::new(id.clone(), provider.slug.clone())
    };
    Model {
        name: demo.name.to_owned(),
        description: demo.description.to_owned(),
        input_modalities: ["text", "image", "file"].map(str::to_owned).to_vec(),
        ..Model::new(id, vec![Arc::new(endpoint)])
    }
}
