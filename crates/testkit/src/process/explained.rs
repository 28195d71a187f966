//! The plans of the statements that a PostgreSQL server runs, as its module `auto_explain` logs them.

use serde_json::Value;

use super::Postgres;

/// Every statement of every session that begins from now on is explained, with the rows that it reads.
const SETTINGS: [(&str, &str); 6] = [
    ("session_preload_libraries", "auto_explain"),
    ("auto_explain.log_min_duration", "0"),
    ("auto_explain.log_analyze", "on"),
    ("auto_explain.log_timing", "off"),
    ("auto_explain.log_nested_statements", "on"),
    ("auto_explain.log_format", "json"),
];

/// A statement that was run, and the nodes of its plan.
#[derive(Debug, Clone)]
pub struct Explained {
    pub statement: String,
    pub nodes: Vec<Reading>,
}

/// A node of a plan that reads a table.
#[derive(Debug, Clone)]
pub struct Reading {
    pub kind: String,
    pub table: String,
    /// Rows and index entries that it read, in all of its loops.
    pub rows: u64,
}

impl Postgres {
    /// Explains everything that sessions of the database do which begin from now on.
    pub async fn explain_all(&self, database: &str) {
        let url = self.url();
        let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connects");
        tokio::spawn(connection);
        for (name, value) in SETTINGS {
            let sql = format!("alter database \"{database}\" set {name} = '{value}'");
            client.batch_execute(&sql).await.expect("set");
        }
    }

    /// Returns the plans that have been logged so far. Two sessions that write at once can spoil an entry: such ones are
    /// left out.
    pub fn explained(&self) -> Vec<Explained> {
        let lines = self.printed();
        let mut plans = Vec::new();
        let mut text: Option<String> = None;
        for line in &lines {
            match (line.strip_prefix('\t'), &mut text) {
                (Some(more), Some(text)) => text.push_str(more),
                (Some(_), None) => {}
                (None, _) => {
                    plans.extend(text.take().and_then(|text| parse(&text)));
                    text = line.trim_end().ends_with("plan:").then(String::new);
                }
            }
        }
        plans.extend(text.and_then(|text| parse(&text)));
        plans
    }
}

fn parse(text: &str) -> Option<Explained> {
    let entry: Value = serde_json::from_str(text).ok()?;
    let mut nodes = Vec::new();
    collect(&entry["Plan"], &mut nodes);
    Some(Explained { statement: entry["Query Text"].as_str()?.to_owned(), nodes })
}

fn collect(node: &Value, nodes: &mut Vec<Reading>) {
    let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
    if let (Some(table), true) = (node["Relation Name"].as_str(), number("Actual Loops") > 0.0) {
        let removed = number("Rows Removed by Filter") + number("Rows Removed by Index Recheck");
        let rows = ((number("Actual Rows") + removed) * number("Actual Loops")) as u64;
        nodes.push(Reading { kind: node["Node Type"].as_str().unwrap_or_default().into(), table: table.into(), rows });
    }
    for child in node["Plans"].as_array().into_iter().flatten() {
        collect(child, nodes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rows_of_every_node_that_ran_are_read() {
        let text = r#"{"Query Text": "-- x\nselect", "Plan": {"Node Type": "Limit", "Plans": [
            {"Node Type": "Seq Scan", "Relation Name": "t", "Actual Rows": 2, "Actual Loops": 3, "Rows Removed by Filter": 5},
            {"Node Type": "Index Scan", "Relation Name": "u", "Actual Rows": 0, "Actual Loops": 0}]}}"#;
        let explained = parse(text).expect("a plan");
        let read: Vec<_> = explained.nodes.iter().map(|node| (&*node.kind, &*node.table, node.rows)).collect();
        assert_eq!(read, [("Seq Scan", "t", 21)]);
        assert!(parse("{\"Query Text\": \"sel").is_none());
    }
}
