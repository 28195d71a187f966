//! Lists that come in pages.
//!
//! A page may be short, even empty, and still not be the last: a store looks at so many rows for one and no more. So a
//! command follows the cursors until it has as much as was asked for, or all there is.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;
use serde_json::value::RawValue;

use super::output::line;
use super::remote::{Remote, query};

/// As many as the server puts into one page.
const PAGE_MAX: usize = 1_000;

/// A list on the server, and how much of it is wanted.
pub struct Listing<'a> {
    pub path: &'a str,
    /// Under which name an answer has its items.
    pub name: &'a str,
    pub filter: Vec<(&'a str, Option<String>)>,
    /// Where the page before ended.
    pub cursor: Option<String>,
    pub limit: usize,
}

/// What was found, each item as it was sent.
pub struct Found {
    name: String,
    items: Vec<Box<RawValue>>,
    next_cursor: Option<String>,
}

impl Listing<'_> {
    pub async fn read(mut self, remote: &Remote) -> Result<Found> {
        let mut items: Vec<Box<RawValue>> = Vec::new();
        loop {
            let page = (self.limit - items.len()).min(PAGE_MAX);
            let position = [("limit", Some(page.to_string())), ("cursor", self.cursor.take())];
            let path = query(self.path, self.filter.iter().cloned().chain(position));
            let answer = remote.get(&path).await?;
            let (more, next_cursor) = self.parts(answer.text().as_ref())?;
            items.extend(more);
            if next_cursor.is_none() || items.len() >= self.limit {
                return Ok(Found { name: self.name.to_owned(), items, next_cursor });
            }
            self.cursor = next_cursor;
        }
    }

    fn parts(&self, text: &str) -> Result<(Vec<Box<RawValue>>, Option<String>)> {
        let read = || {
            let page: BTreeMap<String, &RawValue> = serde_json::from_str(text)?;
            let items = page.get(self.name).map_or(Ok(Vec::new()), |items| serde_json::from_str(items.get()))?;
            let next = page.get("nextCursor").map_or(Ok(None), |cursor| serde_json::from_str(cursor.get()))?;
            Ok::<_, serde_json::Error>((items, next))
        };
        read().context("the server's answer is no page of a list: is this the address of convoke?")
    }
}

impl Found {
    /// One page in the words of the server, whatever number of pages it was.
    pub fn print_json(&self) -> Result<()> {
        let items: Vec<&str> = self.items.iter().map(|item| item.get()).collect();
        let cursor = Value::from(self.next_cursor.clone());
        Ok(line(format!("{{\"{}\":[{}],\"nextCursor\":{cursor}}}", self.name, items.join(",")))?)
    }

    pub fn rows(&self, row: impl Fn(&Value) -> Vec<String>) -> Result<Vec<Vec<String>>> {
        self.items.iter().map(|item| Ok(row(&serde_json::from_str(item.get())?))).collect()
    }

    /// Says how to go on, where there is more.
    pub fn print_next_cursor(&self) {
        if let Some(cursor) = &self.next_cursor {
            eprintln!("there are more: --cursor {cursor}");
        }
    }
}
