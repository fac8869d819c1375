//! The same rows in a table of Snowflake, over its SQL API: one statement inserts all rows of a call, which travel as one
//! bound value.

use serde_json::json;

use super::record::uuid;
use super::rows::{COLUMNS, is_table};

/// The table, and where statements find it.
pub struct Warehouse {
    database: String,
    schema: String,
    warehouse: String,
    table: String,
}

const LONGEST_ACCOUNT: usize = 255;

impl Warehouse {
    /// It, and the address of the account.
    pub(super) fn read(text: &impl Fn(&str) -> String) -> Result<(Self, String), (&'static str, &'static str)> {
        let (account, table) = (text("account"), text("table"));
        let is_word =
            |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if account.len() > LONGEST_ACCOUNT || !account.split(['.', '-']).all(is_word) {
            return Err(("account", "must be the identifier of an account, such as org-account"));
        }
        if !is_table(&table) {
            return Err(("table", "must be a name of letters, digits and _ that does not begin with a digit"));
        }
        // Names of hosts have no underscores; Snowflake takes a dash for each.
        let host = account.to_ascii_lowercase().replace('_', "-");
        let known = Self { database: text("database"), schema: text("schema"), warehouse: text("warehouse"), table };
        Ok((known, format!("https://{host}.snowflakecomputing.com")))
    }

    /// Query and body of what inserts these rows. The id of the request is made from them: the same ones are not inserted
    /// again when an answer was lost.
    pub(super) fn insert(&self, rows: &[&str]) -> (String, String) {
        let names: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
        let values: Vec<String> = COLUMNS.iter().map(|(name, kind)| read(name, kind)).collect();
        let statement = format!(
            "INSERT INTO {} ({}) SELECT {} FROM TABLE(FLATTEN(INPUT => PARSE_JSON(?)))",
            self.table,
            names.join(", "),
            values.join(", ")
        );
        let rows = format!("[{}]", rows.join(","));
        let path = format!("/api/v2/statements?requestId={}&retry=true", uuid(&rows));
        (path, self.body(&statement, Some(&rows)))
    }

    /// Of what makes the table where it is not there.
    pub(super) fn create(&self) -> (String, String) {
        let column = |(name, kind): &(&str, &str)| format!("{name} {}", type_of(name, kind));
        let columns: Vec<String> = COLUMNS.iter().map(column).collect();
        let statement = format!("CREATE TABLE IF NOT EXISTS {} ({})", self.table, columns.join(", "));
        ("/api/v2/statements".to_owned(), self.body(&statement, None))
    }

    fn body(&self, statement: &str, bound: Option<&str>) -> String {
        let bindings = bound.map(|rows| json!({"1": {"type": "TEXT", "value": rows}}));
        let mut body = json!({
            "statement": statement,
            "timeout": 60,
            "database": self.database,
            "schema": self.schema,
            "warehouse": self.warehouse,
        });
        if let Some(bindings) = bindings {
            body["bindings"] = bindings;
        }
        body.to_string()
    }
}

fn type_of(name: &str, kind: &str) -> &'static str {
    match (name, kind) {
        ("INPUT" | "OUTPUT" | "METADATA" | "ATTRIBUTES" | "MODEL_PARAMETERS", _) => "VARIANT",
        ("TIMESTAMP", _) => "TIMESTAMP_NTZ(3)",
        (_, "UInt64") => "NUMBER(20,0)",
        (_, "Float64") => "FLOAT",
        _ => "VARCHAR",
    }
}

/// How a column is read from a row, where JSON is still text.
fn read(name: &str, kind: &str) -> String {
    match type_of(name, kind) {
        "VARIANT" => format!("TRY_PARSE_JSON(value:{name}::VARCHAR)"),
        other => format!("value:{name}::{other}"),
    }
}
