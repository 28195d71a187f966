//! A directory as a disk that loses what was not synced when the power goes.
//!
//! The processes that write to it run with the library `kept.c`, which keeps a second copy: each file as it was when it was
//! last synced. After the processes were killed, [`Disk::cut`] puts that copy in place.

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

pub struct Disk {
    root: PathBuf,
    kept: PathBuf,
}

impl Disk {
    /// All that is in `root` now is on the disk.
    pub fn new(root: &Path) -> Disk {
        // As the library reads it from /proc.
        let root = root.canonicalize().expect("the directory exists");
        let kept = root.with_extension("kept");
        let disk = Disk { root, kept };
        disk.keep_all();
        disk.build_library();
        disk
    }

    fn library(&self) -> PathBuf {
        self.kept.join("kept.so")
    }

    fn build_library(&self) {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/power_loss/kept.c");
        let mut compiler = Command::new("cc");
        compiler.args(["-Wall", "-Werror", "-O2", "-shared", "-fPIC", "-o"]).arg(self.library()).arg(source);
        let built = compiler.output().expect("a C compiler is there, as for the build");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    }

    /// The environment of the processes that write to it.
    pub fn environment(&self) -> Vec<(String, String)> {
        let variables = [("LD_PRELOAD", &self.library()), ("POWER_ROOT", &self.root), ("POWER_KEPT", &self.kept)];
        variables.map(|(name, path)| (name.to_owned(), path.display().to_string())).into()
    }

    /// Puts in place what is left after the power is gone. Nothing may write to the directory meanwhile.
    pub fn cut(&self) {
        let key = key(&self.root);
        for entry in std::fs::read_dir(&self.root).expect("a readable directory").flatten() {
            let path = entry.path();
            let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            removed.expect("it can be removed");
        }
        self.restore(&key, &self.root);
        self.keep_all();
    }

    fn restore(&self, key: &str, to: &Path) {
        // A directory that was never synced is empty.
        let entries = std::fs::read_to_string(self.kept.join("dirs").join(key)).unwrap_or_default();
        for entry in entries.lines() {
            let mut parts = entry.splitn(6, ' ');
            let mut part = || parts.next().unwrap_or_else(|| panic!("an entry: {entry:?}"));
            let (kind, mode, user, group, key, name) = (part(), part(), part(), part(), part(), part());
            let path = to.join(name);
            match kind {
                "d" => {
                    std::fs::create_dir(&path).expect("a directory");
                    self.restore(key, &path);
                }
                "f" => {
                    let content = self.kept.join("files").join(key);
                    // The entry is there, and nothing of the content.
                    let content = if content.exists() { std::fs::read(content) } else { Ok(Vec::new()) };
                    std::fs::write(&path, content.expect("a readable file")).expect("a file");
                }
                other => panic!("{entry:?}: {other} is neither a directory nor a file"),
            }
            let mode = u32::from_str_radix(mode, 8).expect("a mode");
            chown(&path, user.parse().ok(), group.parse().ok()).expect("the same owner");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("the same mode");
        }
    }

    fn keep_all(&self) {
        for directory in ["files", "dirs"] {
            let path = self.kept.join(directory);
            let _ = std::fs::remove_dir_all(&path);
            std::fs::create_dir_all(&path).expect("a directory");
        }
        self.keep(&self.root);
        // The server of PostgreSQL has a user of its own.
        for path in [self.kept.clone(), self.kept.join("files"), self.kept.join("dirs")] {
            std::fs::set_permissions(&path, Permissions::from_mode(0o777)).expect("its mode");
            for entry in std::fs::read_dir(&path).expect("a readable directory").flatten() {
                std::fs::set_permissions(entry.path(), Permissions::from_mode(0o777)).expect("its mode");
            }
        }
    }

    fn keep(&self, directory: &Path) {
        let mut list = String::new();
        for entry in std::fs::read_dir(directory).expect("a readable directory").flatten() {
            let (path, metadata) = (entry.path(), entry.metadata().expect("it is there"));
            let (kind, key) = (if metadata.is_dir() { 'd' } else { 'f' }, key(&path));
            if metadata.is_dir() {
                self.keep(&path);
            } else {
                std::fs::copy(&path, self.kept.join("files").join(&key)).expect("a copy");
            }
            let (mode, user, group) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
            let name = entry.file_name();
            list.push_str(&format!("{kind} {mode:o} {user} {group} {key} {}\n", name.to_string_lossy()));
        }
        std::fs::write(self.kept.join("dirs").join(key(directory)), list).expect("a list");
    }
}

/// The inode with the time of its birth, as the library writes it.
fn key(path: &Path) -> String {
    let metadata = std::fs::symlink_metadata(path).expect("it is there");
    let born = metadata.created().ok().and_then(|born| born.duration_since(SystemTime::UNIX_EPOCH).ok());
    let born = born.unwrap_or_default();
    format!("{}-{}.{:09}", metadata.ino(), born.as_secs(), born.subsec_nanos())
}

#[test]
fn a_disk_keeps_what_was_synced_and_the_names_of_synced_directories() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().join("disk");
    std::fs::create_dir(&root).expect("a directory");
    std::fs::write(root.join("old"), "old").expect("a file");
    std::fs::write(root.join("moved"), "moved").expect("a file");
    let disk = Disk::new(&root);
    let script = "import os\n\
        def put(name, text, synced):\n    \
            file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)\n    \
            os.write(file, text.encode())\n    \
            if synced: os.fsync(file)\n\
        put('old', ' and synced', True)\nput('old', ' and lost', False)\n\
        put('new', 'synced', True)\nput('unsynced', 'lost', False)\n\
        os.rename('moved', 'elsewhere')\n\
        os.mkdir('d')\nput('d/a', 'a', True)\nput('d/b', 'b', True)\nos.rename('d/b', 'd/c')\n\
        os.fsync(os.open('d', os.O_RDONLY))\n";
    let mut python = Command::new("python3");
    let ran = python.args(["-c", script]).current_dir(&root).envs(disk.environment()).status();
    assert!(ran.expect("python3 is there, as for other tests").success());
    disk.cut();
    let read = |name: &str| std::fs::read_to_string(root.join(name)).ok();
    assert_eq!(read("old").as_deref(), Some("old and synced"));
    assert_eq!(read("new").as_deref(), Some("synced"));
    assert_eq!(read("unsynced"), None, "it was never synced, nor was its directory");
    assert_eq!((read("moved").as_deref(), read("elsewhere")), (Some("moved"), None), "a rename that was not synced");
    assert_eq!((read("d/a").as_deref(), read("d/b"), read("d/c").as_deref()), (Some("a"), None, Some("b")));
}
