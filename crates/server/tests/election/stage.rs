//! Processes of `convoke elect` that contend for one namespace, and a diary that their commands write.
//!
//! Every command appends lines `EPOCH NAME` to the diary for as long as it runs. The order of the lines is the order in which
//! they were written, whoever wrote them: no clock is needed to see whether two ran at once.

use std::path::PathBuf;

use convoke_testkit::process::{Cli, Launch, Output, Program, eventually};
use tempfile::TempDir;

pub const NAMESPACE: &str = "tests";

pub struct Stage {
    directory: TempDir,
    url: String,
    ttl: &'static str,
    /// Of every process, beside what its command needs.
    variables: Vec<(String, String)>,
    /// A program that becomes each of them, and its arguments.
    wrapper: &'static [&'static str],
}

/// One line of the diary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub epoch: u64,
    pub name: String,
}

impl Stage {
    /// Leases in a file that goes with the test.
    pub fn on_sqlite(ttl: &'static str) -> Stage {
        let directory = TempDir::with_prefix("convoke-elect-").expect("a temporary directory");
        let url = format!("sqlite:{}", directory.path().join("leases.db").display());
        Stage { directory, url, ttl, variables: Vec::new(), wrapper: &[] }
    }

    pub fn at(url: String, ttl: &'static str) -> Stage {
        Stage { url, ..Stage::on_sqlite(ttl) }
    }

    /// The same with variables by which the leases are found.
    pub fn with(self, variables: Vec<(String, String)>) -> Stage {
        Stage { variables, ..self }
    }

    /// The same with processes that are started by a program.
    pub fn under(self, wrapper: &'static [&'static str]) -> Stage {
        Stage { wrapper, ..self }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A process that would run `script` with sh while it leads.
    pub fn contend(&self, name: &str, flags: &[&str], script: &str) -> Program {
        self.contend_at(&self.url, name, flags, script)
    }

    /// The same by another way to the leases.
    pub fn contend_at(&self, url: &str, name: &str, flags: &[&str], script: &str) -> Program {
        self.start(url, name, &[flags, &["--", "sh", "-c", script]].concat())
    }

    /// A process without a command.
    pub fn watch(&self, name: &str, flags: &[&str]) -> Program {
        self.start(&self.url, name, flags)
    }

    fn start(&self, url: &str, name: &str, args: &[&str]) -> Program {
        let mut env = self.variables.clone();
        env.extend([("NAME".into(), name.into()), ("DIARY".into(), self.path("diary").display().to_string())]);
        let elect =
            [env!("CARGO_BIN_EXE_convoke"), "elect", NAMESPACE, "--leases", url, "--id", name, "--ttl", self.ttl];
        let mut words = self.wrapper.iter().chain(&elect).chain(args);
        Program::start(&Launch {
            name: format!("elect as {name}"),
            binary: words.next().expect("there is the binary").into(),
            args: words.map(Into::into).collect(),
            env,
            directory: self.directory.path().to_owned(),
        })
    }

    /// `convoke elect VIEW` of the namespace, as JSON.
    pub async fn inspect(&self, view: &str) -> Output {
        let cli = Cli { env: self.variables.clone(), ..self.cli() };
        cli.run(["elect", view, NAMESPACE, "--leases", &self.url, "--json"]).await
    }

    pub fn cli(&self) -> Cli {
        Cli {
            binary: env!("CARGO_BIN_EXE_convoke").into(),
            directory: self.directory.path().to_owned(),
            server: None,
            env: Vec::new(),
        }
    }

    /// All whole lines so far.
    pub fn diary(&self) -> Vec<Entry> {
        let text = std::fs::read_to_string(self.path("diary")).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let entry = |line: &str| {
            let (epoch, name) = line.split_once(' ').expect("two words");
            Entry { epoch: epoch.parse().expect("a number"), name: name.to_owned() }
        };
        whole.lines().map(entry).collect()
    }

    /// Waits until a command of a later term than that writes.
    pub async fn term_after(&self, epoch: u64) -> Entry {
        eventually("a command of a later term", || async { self.diary().pop().filter(|it| it.epoch > epoch) }).await
    }

    /// No command wrote once that of a later term had, and no term had two.
    #[track_caller]
    pub fn assert_one_at_a_time(&self) {
        let diary = self.diary();
        for pair in diary.windows(2) {
            let [before, after] = pair else { continue };
            let is_right = after.epoch > before.epoch || after == before;
            assert!(is_right, "{after:?} wrote after {before:?}");
        }
    }
}
