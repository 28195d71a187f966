//! The guard of a leader's command: a process between the elector and the command that sees to it that the command is gone in
//! time, whatever becomes of the elector.
//!
//! It starts the command as a process group of its own and holds a deadline, which the elector moves on with every renewal of
//! its lease. Where nobody moves it in time (the backend is out of reach, the elector was stopped or is stuck) the group gets
//! SIGTERM and then SIGKILL, both before the lease can be another's. Where the elector dies, the group gets SIGTERM at once.
//! What is below the command in other groups and sessions is killed with it, and whatever it leaves behind when it ends.
//!
//! Where the guard itself is killed, the kernel kills the command with it, and the elector the rest. Only where both are killed
//! at the same moment is nobody left to do that.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use convoke_core::duration;
use rustix::process::{Pid, Signal, WaitStatus, getppid, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::signal::unix::{SignalKind, signal};

use super::brood::Brood;
use super::leash::{Ending, Hold, Moment, Order, Word, line_of};

/// The name by which the binary starts itself as a guard.
pub const NAME: &str = "elect-guard";
/// A timer does not count while the machine sleeps; the clock is looked at this often.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// As shells have it: a command that cannot be run, and one that is not there.
const NOT_RUNNABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

#[derive(Debug, Args)]
pub struct GuardArgs {
    /// From SIGTERM to SIGKILL at most, where the elector has died
    #[arg(long, value_parser = duration::parse, default_value = "10s")]
    grace: Duration,
    /// Become the command, and die with this process
    #[arg(long, value_name = "PID")]
    under: Option<i32>,
    #[arg(required = true, last = true)]
    command: Vec<OsString>,
}

/// This very binary, also where its file has been replaced since.
pub fn myself() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

pub async fn run(args: GuardArgs) -> Result<ExitCode> {
    match args.under {
        Some(parent) => Ok(become_command(&args.command, parent)),
        None => guard(args).await,
    }
}

async fn guard(args: GuardArgs) -> Result<ExitCode> {
    // Meant for the elector, which tells what to do: a terminal's or a supervisor's signals reach everybody.
    let ignored = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::quit(), SignalKind::hangup()];
    let _ignored = ignored.into_iter().map(signal).collect::<io::Result<Vec<_>>>()?;
    let line = StdUnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    line.set_nonblocking(true)?;
    let answers = line.try_clone()?;
    let mut orders = BufReader::new(UnixStream::from_std(line).context("standard input is not an elector's")?).lines();
    let Some(Order::Hold(hold)) = next(&mut orders).await else {
        // The elector died, or thought better of it.
        return Ok(ExitCode::SUCCESS);
    };
    if Moment::now() >= hold.terminate_at {
        tell(&answers, Word::Stopping);
        tell(&answers, Word::Ended(Ending::Signal(Signal::TERM.as_raw())));
        return Ok(ExitCode::SUCCESS);
    }
    let brood = Brood::adopt().context("the orphans of the command cannot be had")?;
    let group = Pid::from_child(&start(&args.command)?);
    tell(&answers, Word::Started { pid: group.as_raw_nonzero().get() });
    let mut charge = Charge { group, brood, hold, grace: args.grace, is_stopping: false, is_killed: false, answers };
    let status = charge.watch(orders).await;
    // What it left behind must not outlive the term either.
    charge.signal(Signal::KILL);
    charge.brood.end().await;
    tell(&charge.answers, Word::Ended(ending(status?)));
    Ok(ExitCode::SUCCESS)
}

/// The command, as a group of its own. It goes through this binary, because the wish to die with the guard can only be made by
/// the process itself.
fn start(command: &[OsString]) -> Result<Child> {
    let mut run = Command::new(myself()?);
    run.arg0("convoke").arg(NAME).arg("--under").arg(std::process::id().to_string()).arg("--").args(command);
    run.stdin(Stdio::null()).process_group(0);
    run.spawn().context("the command cannot be started")
}

/// The command takes the place of this process. Gives an exit code only where that fails.
fn become_command(command: &[OsString], parent: i32) -> ExitCode {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if getppid().map(|pid| pid.as_raw_nonzero().get()) != Some(parent) {
        // The guard died before the wish was made.
        return ExitCode::from(NOT_RUNNABLE);
    }
    let Some((program, args)) = command.split_first() else { return ExitCode::from(NOT_FOUND) };
    let error = std::process::Command::new(program).args(args).exec();
    eprintln!("error: {} cannot be run: {error}", OsStr::display(program));
    ExitCode::from(if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE })
}

/// A command that runs.
struct Charge {
    group: Pid,
    brood: Brood,
    hold: Hold,
    grace: Duration,
    is_stopping: bool,
    is_killed: bool,
    answers: StdUnixStream,
}

impl Charge {
    async fn watch(&mut self, mut orders: Lines<BufReader<UnixStream>>) -> io::Result<WaitStatus> {
        let mut has_elector = true;
        loop {
            self.keep_time(Moment::now());
            let patience = self.until_next(Moment::now());
            tokio::select! {
                status = self.brood.ended(self.group) => return status,
                () = tokio::time::sleep(patience) => {}
                order = next(&mut orders), if has_elector => match order {
                    Some(order) => self.obey(order),
                    None => {
                        has_elector = false;
                        self.orphaned(Moment::now());
                    }
                },
            }
        }
    }

    fn keep_time(&mut self, now: Moment) {
        if now >= self.hold.kill_at && !self.is_killed {
            self.is_killed = true;
            self.stop();
            self.kill();
        } else if now >= self.hold.terminate_at {
            self.stop();
        }
    }

    fn stop(&mut self) {
        if !std::mem::replace(&mut self.is_stopping, true) {
            tell(&self.answers, Word::Stopping);
            self.signal(Signal::TERM);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            // A renewal in the last moment does not save a command that was told to end.
            Order::Hold(hold) if !self.is_stopping => self.hold = hold,
            Order::Hold(_) => {}
            Order::Kill => self.kill(),
            Order::Signal(number) => {
                if let Some(signal) = Signal::from_named_raw(number) {
                    self.signal(signal);
                }
            }
        }
    }

    /// The lease outlasts its holder, but nobody is left to prolong it.
    fn orphaned(&mut self, now: Moment) {
        let hold = Hold { terminate_at: now, kill_at: self.hold.kill_at.min(now.after(self.grace)) };
        self.hold = hold;
        self.stop();
    }

    fn until_next(&self, now: Moment) -> Duration {
        let next = if self.is_stopping { self.hold.kill_at } else { self.hold.terminate_at };
        if self.is_killed { LOOK_INTERVAL } else { next.since(now).min(LOOK_INTERVAL) }
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
        self.brood.kill();
    }

    fn signal(&self, signal: Signal) {
        // An error means that nobody is left to hear it.
        let _ = kill_process_group(self.group, signal);
    }
}

/// The next order. One that cannot be understood is as good as an elector that has died.
async fn next(orders: &mut Lines<BufReader<UnixStream>>) -> Option<Order> {
    let line = orders.next_line().await.ok().flatten()?;
    serde_json::from_str(&line).ok()
}

fn tell(mut answers: &StdUnixStream, word: Word) {
    // An elector that has died need not know.
    let _ = answers.write_all(&line_of(&word));
}

fn ending(status: WaitStatus) -> Ending {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Ending::Code(u8::try_from(code).unwrap_or(u8::MAX)),
        (None, signal) => Ending::Signal(signal.unwrap_or_default()),
    }
}
