//! The guard of a command: a process between the command and the process that wants it to run.
//!
//! It starts the command as a process group of its own and follows the orders of the process that started the guard. If a deadline
//! passes, the group gets SIGTERM and then SIGKILL. If the process that started the guard dies, the group gets SIGTERM at once and
//! SIGKILL after the grace. The processes of the command in other groups and sessions are killed together with it, and so is all
//! that it leaves behind when it ends. Then the guard waits for the order to start the command again.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use convoke_core::duration;
use rustix::process::{Pid, Signal, WaitStatus, getppid, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

use super::child_tree::ChildTree;
use super::guard_link::OrderReader;
use super::messages::{Deadline, Ending, GuardEvent, Moment, Order, to_line};

/// The name by which the binary starts itself as a guard.
pub const NAME: &str = "guard";
/// The name by which a guard starts the binary that becomes the command.
const EXEC_NAME: &str = "guard-exec";
/// A timer does not count while the machine sleeps, so the clock is read at least this often.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The exit codes of a shell for a command that cannot be run, and for a command that does not exist.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Debug, Args)]
pub struct GuardArgs {
    /// From SIGTERM to SIGKILL
    #[arg(long, value_parser = duration::parse, default_value = "10s")]
    grace: Duration,
    /// Have the kernel kill the command if the guard dies
    #[arg(long)]
    bound: bool,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// Returns the path of this binary, also if its file was replaced since it was started.
pub fn this_binary() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

pub async fn run(args: GuardArgs) -> Result<ExitCode> {
    // A terminal or a service manager may signal the guard too, but only the process that started it gives orders.
    let ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()];
    let _ignored = ignored.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    let socket = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let events = socket.try_clone()?;
    let mut orders =
        OrderReader::new(socket).context("standard input is not the socket of a process that runs commands")?;
    let mut tree = ChildTree::adopt().context("cannot become a subreaper")?;
    let mut guard = Guard { args, events, has_parent: true };
    while guard.has_parent {
        let order = tokio::select! {
            order = orders.next() => order,
            // Processes of an earlier command that could not be killed may end later.
            never = tree.reap_forever() => match never {},
        };
        match order {
            Some((Order::Start { env, deadline }, files)) => {
                guard.supervise(&mut orders, &mut tree, &env, deadline, files).await?;
            }
            // For a command that has ended already.
            Some(_) => {}
            None => break,
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct Guard {
    args: GuardArgs,
    events: StdUnixStream,
    has_parent: bool,
}

impl Guard {
    /// Runs the command to its end, and to the end of all that it started.
    async fn supervise(
        &mut self,
        orders: &mut OrderReader,
        tree: &mut ChildTree,
        env: &[(String, String)],
        deadline: Option<Deadline>,
        files: Vec<OwnedFd>,
    ) -> Result<()> {
        if deadline.is_some_and(|deadline| Moment::now() >= deadline.terminate_at) {
            self.report(&GuardEvent::Stopping);
            self.report(&GuardEvent::Ended(Ending::Signal(Signal::TERM.as_raw())));
            return Ok(());
        }
        let group = match self.start(env, files) {
            Ok(child) => Pid::from_child(&child),
            Err(error) => {
                self.report(&GuardEvent::NotStarted(error.to_string()));
                return Ok(());
            }
        };
        self.report(&GuardEvent::Started { pid: group.as_raw_nonzero().get() });
        let mut command = Supervised { group, deadline, is_stopping: false, is_killed: false };
        let status = self.watch(&mut command, orders, tree).await;
        command.signal(Signal::KILL);
        tree.kill_all().await;
        self.report(&GuardEvent::Ended(ending(status?)));
        Ok(())
    }

    async fn watch(
        &mut self,
        command: &mut Supervised,
        orders: &mut OrderReader,
        tree: &mut ChildTree,
    ) -> io::Result<WaitStatus> {
        loop {
            let now = Moment::now();
            if command.is_due(now) {
                self.stop(command);
            }
            if command.is_overdue(now) {
                command.is_killed = true;
                command.kill(tree);
            }
            let patience = command.until_next(Moment::now());
            tokio::select! {
                status = tree.wait_for(command.group) => return status,
                () = tokio::time::sleep(patience) => {}
                order = orders.next(), if self.has_parent => match order {
                    // A deadline that is moved too late does not save a command that got SIGTERM.
                    Some((Order::SetDeadline(deadline), _)) if !command.is_stopping => command.deadline = Some(deadline),
                    Some((Order::SetDeadline(_) | Order::Start { .. }, _)) => {}
                    Some((Order::Stop, _)) => command.hurry(self.args.grace),
                    Some((Order::Kill, _)) => command.kill(tree),
                    Some((Order::Signal(number), _)) => {
                        if let Some(signal) = Signal::from_named_raw(number) {
                            command.signal(signal);
                        }
                    }
                    None => {
                        self.has_parent = false;
                        command.hurry(self.args.grace);
                    }
                },
            }
        }
    }

    /// Starts the command as a process group of its own. A bound command is started by way of this binary, because a process can ask
    /// only for itself to be killed together with its parent.
    fn start(&self, env: &[(String, String)], files: Vec<OwnedFd>) -> io::Result<Child> {
        let [program, arguments @ ..] = self.args.command.as_slice() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let mut child = if self.args.bound {
            let mut child = Command::new(this_binary()?);
            child.arg0("convoke").arg(EXEC_NAME).arg(std::process::id().to_string()).arg(program);
            child
        } else {
            Command::new(program)
        };
        child.args(arguments).envs(env.iter().map(|(name, value)| (name, value)));
        child.stdin(Stdio::null()).process_group(0);
        let mut files = files.into_iter().map(Stdio::from);
        if let (Some(input), Some(output), Some(error)) = (files.next(), files.next(), files.next()) {
            child.stdin(input).stdout(output).stderr(error);
        }
        child.spawn()
    }

    fn stop(&self, command: &mut Supervised) {
        if !std::mem::replace(&mut command.is_stopping, true) {
            self.report(&GuardEvent::Stopping);
            command.signal(Signal::TERM);
        }
    }

    fn report(&self, event: &GuardEvent) {
        // If the process that started the guard has died, there is no reader.
        let _ = (&self.events).write_all(&to_line(event));
    }
}

/// The command that runs.
struct Supervised {
    group: Pid,
    deadline: Option<Deadline>,
    is_stopping: bool,
    is_killed: bool,
}

impl Supervised {
    fn is_due(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|deadline| now >= deadline.terminate_at.min(deadline.kill_at))
    }

    fn is_overdue(&self, now: Moment) -> bool {
        !self.is_killed && self.deadline.is_some_and(|deadline| now >= deadline.kill_at)
    }

    /// Moves the deadline to now, with the grace until SIGKILL or what is left of it.
    fn hurry(&mut self, grace: Duration) {
        let now = Moment::now();
        let kill_at = now.after(grace);
        let kill_at = self.deadline.map_or(kill_at, |deadline| deadline.kill_at.min(kill_at));
        self.deadline = Some(Deadline { terminate_at: now, kill_at });
    }

    fn until_next(&self, now: Moment) -> Duration {
        match self.deadline {
            Some(_) if self.is_killed => CHECK_INTERVAL,
            Some(deadline) if self.is_stopping => deadline.kill_at.since(now).min(CHECK_INTERVAL),
            Some(deadline) => deadline.terminate_at.since(now).min(CHECK_INTERVAL),
            // A command without a deadline waits for an order, so no timer is needed.
            None => Duration::MAX,
        }
    }

    fn kill(&self, tree: &ChildTree) {
        self.signal(Signal::KILL);
        tree.kill_children(|_| true);
    }

    fn signal(&self, signal: Signal) {
        // An error means that the group is empty.
        let _ = kill_process_group(self.group, signal);
    }
}

/// Becomes the command if this process was started by a guard to do so. Returns `None` if it was not, and an exit code if the command
/// cannot be run. Nothing else is set up before.
pub fn exec_under_guard(mut arguments: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    arguments.nth(1).filter(|name| name == EXEC_NAME)?;
    let guard = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if guard.is_none() || getppid().map(|pid| pid.as_raw_nonzero().get()) != guard {
        // The guard died before its death could be noticed.
        return Some(ExitCode::from(NOT_RUNNABLE));
    }
    let Some(program) = arguments.next() else { return Some(ExitCode::from(NOT_FOUND)) };
    let error = Command::new(&program).args(arguments).exec();
    eprintln!("error: {} cannot be run: {error}", OsStr::display(&program));
    Some(ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE }))
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Ending::Signal(signal.unwrap_or_default()),
    }
}
