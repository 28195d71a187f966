//! Lists that the server returns in pages.
//!
//! A page may be short, even empty, and still not be the last, because a store reads a limited number of rows for each.
//! A command follows the cursors until it has as many items as requested, or all.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde_json::Value;
use serde_json::value::RawValue;

use super::output::line;
use super::remote::{Remote, query};

/// The server's maximum number of items in a page.
const PAGE_MAX: usize = 1_000;

/// A list on the server, and how many items to read.
pub struct Listing<'a> {
    pub path: &'a str,
    /// The name of the list in a response.
    pub name: &'a str,
    pub filter: Vec<(&'a str, Option<String>)>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    pub limit: usize,
}

/// The items that were read, each as it was sent.
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
            let response = remote.get(&path).await?;
            let (more, next_cursor) = self.parts(response.text().as_ref())?;
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
        read().context("expected a page of a list from the server: is this the address of convoke?")
    }
}

impl Found {
    /// Prints all items as one page in the server's format, however many pages were read.
    pub fn print_json(&self) -> Result<()> {
        let items: Vec<&str> = self.items.iter().map(|item| item.get()).collect();
        let cursor = Value::from(self.next_cursor.clone());
        Ok(line(format!("{{\"{}\":[{}],\"nextCursor\":{cursor}}}", self.name, items.join(",")))?)
    }

    pub fn rows(&self, row: impl Fn(&Value) -> Vec<String>) -> Result<Vec<Vec<String>>> {
        self.items.iter().map(|item| Ok(row(&serde_json::from_str(item.get())?))).collect()
    }

    /// Prints the cursor of the next page, if there is one.
    pub fn print_next_cursor(&self) {
        if let Some(cursor) = &self.next_cursor {
            eprintln!("more items follow: --cursor {cursor}");
        }
    }
}
