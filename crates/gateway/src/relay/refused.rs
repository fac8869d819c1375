//! An answer in which a model declines, kept while the further models of the request are asked: when none of them answers,
//! it is the answer.

use std::sync::Arc;

use bytes::Bytes;
use tidegate_core::Timestamp;
use tidegate_providers::{Class, Fault};
use tidegate_routing::Attempt;
use tokio::time::Instant;

use super::attempt::{Done, is_written, unwritten};
use super::job::Job;
use super::receive::{Opened, told};
use super::settle::Shelved;
use super::stream::Relay;
use crate::failure::Failure;

/// The reason of a model that will not answer.
pub(super) const REFUSAL: &str = "refusal";

pub(super) struct Refused {
    attempt: Attempt,
    since: Timestamp,
    warnings: Vec<String>,
    /// What its call used.
    used: Box<Shelved>,
    answer: Answer,
}

enum Answer {
    /// In the Messages format, before anything of ours is set in it.
    Whole(Bytes),
    Stream(Box<Opened>),
}

/// Keeps a whole answer that is a refusal, unless nobody else could answer.
pub(super) fn keep_whole(job: &mut Job, attempt: &Attempt, since: Timestamp, body: &Bytes) -> Result<(), Fault> {
    if !has_further_model(job, attempt) {
        return Ok(());
    }
    keep(job, attempt, since, Answer::Whole(body.clone()));
    Err(Fault::in_answer(Class::ContentFilter))
}

/// The same of a stream: none of it was sent.
pub(super) fn keep_stream(job: &mut Job, attempt: &Attempt, since: Timestamp, opened: Opened) -> Result<Opened, Fault> {
    if opened.pump.reason() != Some(REFUSAL) || !has_further_model(job, attempt) {
        return Ok(opened);
    }
    // One that is not here to its end would have to be read while others are asked.
    if opened.finished {
        keep(job, attempt, since, Answer::Stream(Box::new(opened)));
    }
    Err(Fault::in_answer(Class::ContentFilter))
}

fn keep(job: &mut Job, attempt: &Attempt, since: Timestamp, answer: Answer) {
    let (warnings, used) = (std::mem::take(&mut job.warnings), job.ticket.shelved());
    job.refused = Some(Box::new(Refused { attempt: attempt.clone(), since, warnings, used, answer }));
}

/// Whether the request names another model, behind this attempt, that may answer what this one refuses.
fn has_further_model(job: &Job, attempt: &Attempt) -> bool {
    let behind = job.plan.attempts.iter().skip_while(|other| !is_same(other, attempt));
    job.heard.is_none() && behind.into_iter().any(|other| other.model != attempt.model)
}

fn is_same(one: &Attempt, other: &Attempt) -> bool {
    Arc::ptr_eq(&one.endpoint, &other.endpoint) && one.credential == other.credential
}

/// Gives the refusal after all, charged as any answer.
pub(super) async fn given(mut job: Box<Job>, refused: Box<Refused>, deadline: Instant) -> Done {
    if !is_written(&job).await {
        return unwritten(job);
    }
    let Refused { attempt, since, warnings, used, answer } = *refused;
    job.ticket.take_up(used);
    match answer {
        Answer::Whole(body) => match told(&mut job, &attempt, since, &body) {
            Ok(answer) => Done::Refused(answer, warnings, job.ticket.complete()),
            Err(_) => {
                let failure = Failure { generation: Some(job.ticket.id()), ..Failure::internal() };
                let settled = job.ticket.fail(&failure);
                Done::Failed(failure, settled)
            }
        },
        Answer::Stream(opened) => {
            // Somebody else may answer the next time.
            job.recording = None;
            let place = job.plan.attempts.iter().position(|other| is_same(other, &attempt)).unwrap_or_default();
            job.ticket.first_content();
            let relay = Relay::new(job, (place, attempt), since, *opened, deadline.into_std());
            Done::Stream(Box::new(relay), warnings)
        }
    }
}
