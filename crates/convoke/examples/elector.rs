//! A ledger that only the leader may write to, guarded by the number of the leader's term.
//!
//! Run it in two terminals: `cargo run -p convoke --example elector -- sqlite:/tmp/elector.db`. One of them writes; kill it,
//! or stop it (Ctrl-Z) and let it go on (`fg`): the other takes over, and what the first one still tries is refused.
//!
//! A leader that was paused does not know that its time is up until it looks, and between the look and the write anything
//! can happen. So the resource itself compares the term's number with the highest that it has seen, in one step with the
//! write. That is the fence; an election alone is only a hint.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::time::Duration;

use convoke::election::{Subscriber, Term};
use convoke::{Elector, Epoch};

/// A file whose last line is `EPOCH COUNT`.
struct EpochFile {
    path: String,
}

impl EpochFile {
    /// Counts one further, unless a later term has written already.
    fn count(&self, epoch: Epoch) -> io::Result<u64> {
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&self.path)?;
        // Nobody else reads or writes between the comparison and the write.
        file.lock()?;
        let (written, count) = last_line(&mut file)?;
        if epoch < written {
            return Err(io::Error::other(format!("term {epoch} is over: term {written} has written")));
        }
        writeln!(file, "{epoch} {}", count + 1)?;
        Ok(count + 1)
    }
}

fn last_line(file: &mut File) -> io::Result<(Epoch, u64)> {
    let mut text = String::new();
    file.rewind()?;
    file.read_to_string(&mut text)?;
    let mut words = text.lines().last().unwrap_or_default().split(' ').map(|word| word.parse().unwrap_or_default());
    Ok((Epoch(words.next().unwrap_or_default()), words.next().unwrap_or_default()))
}

async fn write(term: Term, path: String) {
    match (EpochFile { path }).count(term.epoch()) {
        Ok(count) => println!("term {}: counted to {count}", term.epoch()),
        Err(refused) => {
            println!("{refused}");
            term.end();
        }
    }
}

#[tokio::main]
async fn main() -> convoke::Result<()> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "memory:".into());
    let path = std::env::temp_dir().join("convoke-elector-ledger").display().to_string();
    let elector = Elector::connect(&url).await?.namespace("ledger").ttl(Duration::from_secs(3)).start().await?;
    println!("{} would write to {path}", elector.id());

    elector.subscribe(
        Subscriber::new("ledger")
            .on_elected(async |term: Term| println!("leads for term {}", term.epoch()))
            .on_deposed(async |epoch: Epoch| println!("term {epoch} is over"))
            .every(Duration::from_millis(500), move |term| write(term, path.clone())),
    );
    let mut events = elector.events();
    // `--changes N` ends it after so many changes, for those who only want to see that it works.
    let changes = std::env::args().skip_while(|arg| arg != "--changes").nth(1).and_then(|count| count.parse().ok());
    let mut left: u64 = changes.unwrap_or(u64::MAX);
    while left > 0 {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => break,
            event = events.next() => match event {
                Some(event) => println!("{}", serde_json::to_string(&*event).unwrap_or_default()),
                None => break,
            },
        }
        left -= 1;
    }
    // The next leader need not wait for the lease to run out.
    elector.stop().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_former_term_writes_is_refused_and_leaves_no_trace() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("ledger").display().to_string();
        let count = |epoch| (EpochFile { path: path.clone() }).count(Epoch(epoch)).map_err(|error| error.to_string());
        assert_eq!([count(1), count(1), count(3)], [Ok(1), Ok(2), Ok(3)]);
        // It was paused between its look at the clock and its write.
        assert_eq!(count(1), Err("term 1 is over: term 3 has written".into()));
        assert_eq!(count(2), Err("term 2 is over: term 3 has written".into()));
        assert_eq!(std::fs::read_to_string(&path).expect("written"), "1 1\n1 2\n3 3\n");
        assert_eq!([count(3), count(10)], [Ok(4), Ok(5)]);
    }
}
