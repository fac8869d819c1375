//! Questions about finished requests that are asked by hand: figures over a span of time, apart by up to two of their
//! sides. What may be asked is a closed list, and each word of it stands for a fixed piece of SQL; what callers write goes
//! in as values and never into the text.

mod text;

use std::time::Duration;

use sqlx::{AssertSqlSafe, Row as _};
use tidegate_core::{Tenant, Timestamp};
use tokio::time::Instant;

use crate::error::TimedOut;
use crate::{Result, Store, StoreError, dialect};

use text::Statement;
pub use text::{Dimension, Granularity, Measure, Metric};

/// How often a running statement of SQLite looks at the clock, in its own steps.
const LOOK: i32 = 10_000;

/// What is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub metrics: Vec<Metric>,
    /// At most two.
    pub dimensions: Vec<Dimension>,
    pub filters: Vec<Filter>,
    pub granularity: Option<Granularity>,
    /// From the first to before the second.
    pub range: (Timestamp, Timestamp),
    /// By which column, and whether the largest comes first.
    pub order: Option<(Column, bool)>,
    pub limit: u32,
    /// Of how many combinations of dimensions the course of time is told: those with the most of the first metric.
    pub group_limit: u32,
}

/// A column of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    Time,
    Dimension(usize),
    Metric(usize),
}

/// Which requests count.
#[derive(Clone, Debug, PartialEq)]
pub enum Filter {
    /// Among these values, or not among them; whether those without one count as well.
    Among {
        dimension: Dimension,
        values: Vec<String>,
        is_not: bool,
        or_unset: bool,
    },
    Compared {
        measure: Measure,
        sense: Sense,
        value: f64,
        or_unset: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sense {
    Equal,
    Unequal,
    More,
    MoreOrEqual,
    Less,
    LessOrEqual,
}

/// One line of the answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// When its part of the time begins.
    pub at: Timestamp,
    /// By dimension; nothing where requests have none.
    pub values: Vec<Option<Side>>,
    /// By metric; nothing where there is nothing to compute it from. Money is in nano-dollars, time in milliseconds.
    pub figures: Vec<Option<f64>>,
}

/// The value of a dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Side {
    pub id: String,
    /// Its name, where it has one beside its id.
    pub label: Option<String>,
}

pub(super) enum Bound {
    Text(String),
    Int(i64),
    Float(f64),
}

impl Store {
    /// The answer, with one line more than asked for where there are more. `None`: it takes longer than the limit.
    pub async fn analytics(&self, tenant: &Tenant, question: &Question, limit: Duration) -> Result<Option<Vec<Line>>> {
        let statement = Statement::of(tenant, question);
        let until = Instant::now() + limit;
        match self.run(&statement, question, limit).await {
            // Timers are coarse: what came too late is as good as nothing.
            Ok(lines) => Ok((Instant::now() < until).then_some(lines)),
            Err(error) if is_over(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn run(&self, statement: &Statement, question: &Question, limit: Duration) -> Result<Vec<Line>> {
        match self {
            Self::Sqlite { readers, .. } => {
                // Whoever waits leaves at the limit. SQLite goes on unless it is told to look at the time; a connection that
                // was told so is used for nothing else.
                let until = Instant::now() + limit;
                dialect::bounded_by(limit, async {
                    let mut connection = readers.acquire().await?.detach();
                    connection.lock_handle().await?.set_progress_handler(LOOK, move || Instant::now() < until);
                    let lines = lines!(&mut connection, statement, question);
                    Ok(lines)
                })
                .await
            }
            Self::Postgres(pool) => {
                dialect::bounded_by(limit, async {
                    let mut transaction = dialect::begin_snapshot(pool).await?;
                    dialect::limit_statements(&mut transaction, limit.max(Duration::from_millis(1))).await?;
                    let lines = lines!(&mut *transaction, statement, question);
                    Ok(lines)
                })
                .await
            }
        }
    }
}

macro_rules! lines {
    ($executor:expr, $statement:expr, $question:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($statement.text.clone())).persistent(false);
        for value in &$statement.values {
            query = match value {
                Bound::Text(text) => query.bind(text.clone()),
                Bound::Int(number) => query.bind(*number),
                Bound::Float(number) => query.bind(*number),
            };
        }
        let mut lines = Vec::new();
        for row in query.fetch_all($executor).await? {
            let mut values = Vec::new();
            for place in 0..$question.dimensions.len() {
                let (id, label): (String, Option<String>) = (row.try_get(1 + place)?, row.try_get(3 + place)?);
                values.push((!id.is_empty()).then_some(Side { id, label }));
            }
            let mut figures = Vec::new();
            for place in 0..$question.metrics.len() {
                figures.push(row.try_get::<Option<f64>, _>(5 + place)?);
            }
            lines.push(Line { at: Timestamp(row.try_get(0)?), values, figures });
        }
        lines
    }};
}
use lines;

/// Whether a statement was ended for its time.
fn is_over(error: &StoreError) -> bool {
    let StoreError::Unavailable(cause) = error else { return false };
    let code = cause.downcast_ref::<sqlx::Error>().and_then(|error| error.as_database_error()?.code());
    // SQLite says 9 (`SQLITE_INTERRUPT`), PostgreSQL that a statement was cancelled.
    cause.is::<TimedOut>() || code.is_some_and(|code| code == "9" || code == "57014")
}
