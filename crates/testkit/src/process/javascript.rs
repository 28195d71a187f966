//! Scripts for Node.js and the packages they need, installed once for all tests of a build.
//!
//! The packages are those of the lock file beside the scripts; npm checks them against it. They are kept below the build
//! directory under a name that follows from the scripts, so that a change of either installs anew and tests that run at
//! once do not meet half an installation: it gets its name by one rename, when it is whole.

use std::ffi::OsString;
use std::hash::{DefaultHasher, Hasher};
use std::path::{Path, PathBuf};

use super::program::{Launch, Program, command};

/// A directory of scripts with their packages.
#[derive(Debug, Clone)]
pub struct Javascript {
    directory: PathBuf,
}

impl Javascript {
    /// `sources` has the scripts, `package.json` and `package-lock.json`; `cache` is the caller's
    /// `env!("CARGO_TARGET_TMPDIR")`.
    pub async fn install(sources: impl AsRef<Path>, cache: impl AsRef<Path>) -> Javascript {
        let files = read(sources.as_ref());
        let directory = cache.as_ref().join(format!("node-{:016x}", fingerprint(&files)));
        if !directory.is_dir() {
            let unfinished = tempfile::Builder::new().prefix("node-unfinished-").tempdir_in(cache.as_ref());
            let unfinished = unfinished.expect("the build directory can be written");
            for (name, content) in &files {
                std::fs::write(unfinished.path().join(name), content).expect("the build directory can be written");
            }
            fetch(unfinished.path()).await;
            // Where another test was faster, its installation is as good.
            let renamed = std::fs::rename(unfinished.path(), &directory);
            assert!(directory.is_dir(), "{} cannot be made: {renamed:?}", directory.display());
        }
        Javascript { directory }
    }

    /// Runs one of the scripts with these variables.
    pub fn start(&self, script: &str, env: &[(&str, String)]) -> Program {
        Program::start(&Launch {
            name: script.into(),
            binary: "node".into(),
            args: vec![OsString::from(script)],
            env: env.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            directory: self.directory.clone(),
        })
    }
}

/// The files of a directory, by name.
fn read(directory: &Path) -> Vec<(OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("it can be read"))
        .filter(|entry| entry.path().is_file())
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).expect("it can be read")))
        .collect();
    files.sort();
    files
}

fn fingerprint(files: &[(OsString, Vec<u8>)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, content) in files {
        hasher.write(name.as_encoded_bytes());
        hasher.write(&[0]);
        hasher.write(content);
        hasher.write(&[0]);
    }
    hasher.finish()
}

async fn fetch(directory: &Path) {
    let mut npm = command(Path::new("npm"), directory);
    let output = npm.args(["ci", "--prefer-offline", "--loglevel=error"]).output().await;
    let output = output.expect("npm is installed, as scripts/test does it");
    assert!(output.status.success(), "npm ci: {}", String::from_utf8_lossy(&output.stderr));
}
