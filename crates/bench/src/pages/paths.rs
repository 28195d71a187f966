//! The pages that are measured: all of the navigation, as the server lists them, one of each further kind, and the list of
//! jobs with every filter, every pair of filters and every bulk action.

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::super::jobs::wire::{Connection, Target};
use super::fill::LOGGED_CORRELATION;

/// Pages to follow before the page that counts as deep.
const DEEP_PAGES: usize = 20;
const ACTIONS: [&str; 3] = ["cancel", "retry", "delete"];

pub async fn all(target: &Target) -> Result<Vec<String>> {
    let mut connection = target.connect().await?;
    let front = text(target, &mut connection, "/").await?;
    let mut paths = navigation(&front);
    let (oldest, newest) = times(target, &mut connection).await?;
    let middle = oldest + newest.duration_since(oldest) / 2;
    paths.extend(things(target, &mut connection).await?);
    paths.push(deep(target, &mut connection).await?);
    let filters = filters(&middle.to_string());
    paths.extend(filters.iter().map(|filter| list(filter)));
    paths.extend(MORE.map(list));
    for (at, (one, other)) in pairs(&filters).into_iter().enumerate() {
        let both = format!("{one} {other}");
        paths.push(list(&both));
        paths.push(bulk(ACTIONS[at % ACTIONS.len()], &both));
    }
    for filter in filters.iter().map(String::as_str).chain(["", "type:bench.* tag:eu", "type:bench.none"]) {
        let actions = ACTIONS.iter().filter(|action| is_possible(action, filter));
        paths.extend(actions.map(|action| bulk(action, filter)));
    }
    paths.retain(|path| !is_refused(path));
    Ok(paths)
}

/// Filters, one for each word of the bar; for the status one for each kind of index.
fn filters(middle: &str) -> Vec<String> {
    [
        "status:pending",
        "status:scheduled",
        "status:running",
        "status:completed",
        "status:failed",
        "status:cancelled",
        "type:bench.t7",
        "type:bench.*",
        "queue:q7",
        "correlation:order-1001",
        "tag:eu",
        "schedule:s1",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([format!("after:{middle}"), format!("before:{middle}")])
    .collect()
}

/// Filters with few or no matches, and larger combinations.
const MORE: [&str; 8] = [
    "type:bench.rare",
    "type:bench.none",
    "type:none.*",
    "tag:rare",
    "tag:none",
    "queue:held3 status:pending type:bench.t3 after:24h",
    "status:failed,timedOut type:bench.* tag:eu after:24h",
    "tag:eu status:cancelled type:bench.rare",
];

fn list(filter: &str) -> String {
    format!("/jobs?q={}", encode(filter))
}

fn bulk(action: &str, filter: &str) -> String {
    format!("/bulk?action={action}&q={}", encode(filter))
}

/// Returns every pair of filters with different words.
fn pairs(filters: &[String]) -> Vec<(&str, &str)> {
    let word = |filter: &str| filter.split(':').next().unwrap_or_default().to_owned();
    let mut pairs = Vec::new();
    for (at, one) in filters.iter().enumerate() {
        pairs.extend(filters[at + 1..].iter().filter(|other| word(one) != word(other)).map(|other| (&**one, &**other)));
    }
    pairs
}

/// Returns whether a bulk action applies to jobs of the filter's status.
fn is_possible(action: &str, filter: &str) -> bool {
    let is = |statuses: &[&str]| statuses.iter().any(|status| filter.contains(&format!("status:{status}")));
    match action {
        "cancel" => !is(&["completed", "failed", "cancelled"]),
        "retry" => !is(&["pending", "scheduled", "running", "completed"]),
        _ => !is(&["pending", "scheduled", "running"]),
    }
}

fn is_refused(path: &str) -> bool {
    let Some((action, filter)) = path.strip_prefix("/bulk?action=").and_then(|rest| rest.split_once("&q=")) else {
        return false;
    };
    !is_possible(action, &filter.replace("%3A", ":"))
}

/// Returns the paths of the navigation of a page. That of the documentation is none of the pages.
fn navigation(page: &str) -> Vec<String> {
    let links = page.split("<a href=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let places = links.filter(|(path, rest)| {
        rest.split('>').next().is_some_and(|attributes| attributes.contains("data-key=")) && !path.ends_with("/docs/")
    });
    places.map(|(path, _)| path.to_owned()).collect()
}

/// Returns the times of the oldest and the newest job.
async fn times(target: &Target, connection: &mut Connection) -> Result<(Timestamp, Timestamp)> {
    let newest = json(target, connection, "/v1/jobs?limit=1").await?;
    let newest: Timestamp = newest["jobs"][0]["createdAt"].as_str().context("the server has no jobs")?.parse()?;
    // Found by halving: no list begins with the oldest job.
    let mut span = SignedDuration::from_secs(1);
    loop {
        let from = newest - span;
        let older = json(target, connection, &format!("/v1/jobs?limit=1&before={from}")).await?;
        if older["jobs"].as_array().is_none_or(Vec::is_empty) || span > SignedDuration::from_hours(24 * 365) {
            return Ok((from, newest));
        }
        span *= 2;
    }
}

/// Returns a page of each kind of thing.
async fn things(target: &Target, connection: &mut Connection) -> Result<Vec<String>> {
    let mut paths: Vec<String> =
        ["/jobs/new", "/schedules/new", "/cluster?window=1d", "/activity?action=schedule.trigger"]
            .map(str::to_owned)
            .into();
    let logged = format!("/v1/jobs?limit=1&correlationId={LOGGED_CORRELATION}");
    for list in [&*logged, "/v1/jobs?limit=1&status=failed", "/v1/jobs?limit=1&status=completed"] {
        if let Some(id) = json(target, connection, list).await?["jobs"][0]["id"].as_str() {
            paths.extend([format!("/jobs/{id}"), format!("/jobs/new?copy={id}")]);
        }
    }
    for (list, place, key) in [
        ("/v1/queues", "queues", "name"),
        ("/v1/workers", "workers", "workerId"),
        ("/v1/schedules", "schedules", "name"),
    ] {
        if let Some(name) = json(target, connection, list).await?[place][0][key].as_str() {
            paths.push(format!("/{place}/{}", encode(name)));
            if place == "schedules" {
                paths.push(format!("/schedules/{}/edit", encode(name)));
            }
            if place == "queues" {
                paths.push(format!("/dead-letters?queue={}", encode(name)));
            }
        }
    }
    Ok(paths)
}

/// Returns a page far down the list of jobs.
async fn deep(target: &Target, connection: &mut Connection) -> Result<String> {
    let mut path = "/jobs".to_owned();
    for _ in 0..DEEP_PAGES {
        let page = text(target, connection, &path).await?;
        let next = page.split_once("\" rel=\"next\"").and_then(|(before, _)| before.rsplit_once("href=\""));
        let Some((_, next)) = next else { break };
        path = next.replace("&#38;", "&").replace("&amp;", "&");
    }
    Ok(path)
}

async fn text(target: &Target, connection: &mut Connection, path: &str) -> Result<String> {
    Ok(String::from_utf8(connection.exchange(&target.request("GET", path, "")).await?.to_vec())?)
}

async fn json(target: &Target, connection: &mut Connection, path: &str) -> Result<Value> {
    Ok(serde_json::from_slice(connection.exchange(&target.request("GET", path, "")).await?)?)
}

/// Returns a text as a value of a query.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_the_navigation_are_found() {
        let page = r#"<a href="/x">no</a><a href="/jobs" data-key="j">Jobs</a> <a href="/docs/" data-key="a">API</a>"#;
        assert_eq!(navigation(page), ["/jobs"]);
    }

    #[test]
    fn each_word_is_combined_with_each_other_word_and_not_with_itself() {
        let filters = ["status:a", "status:b", "type:t", "tag:x"].map(str::to_owned);
        let pairs = pairs(&filters);
        assert_eq!(pairs.len(), 5);
        assert!(!pairs.contains(&("status:a", "status:b")) && pairs.contains(&("status:b", "tag:x")));
    }

    #[test]
    fn a_bulk_action_is_previewed_only_if_it_applies() {
        assert!(is_refused(&bulk("cancel", "status:failed tag:eu")) && !is_refused(&bulk("retry", "status:failed")));
        assert!(!is_refused("/jobs?q=status%3Afailed"));
        assert_eq!(list("a b:ä"), "/jobs?q=a%20b%3A%C3%A4");
    }
}
