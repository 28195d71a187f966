//! The socket between a process and a guard: [`GuardLink`] is the end of the process that started the guard, [`OrderReader`] the end
//! of the guard.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use convoke_core::duration;
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, BufReader, Interest, Lines};
use tokio::net::UnixStream;

use super::guard;
use super::messages::{GuardEvent, Order, to_line};

/// Standard input, output and error.
const FILES_MAX: usize = 3;
const READ_BYTES: usize = 4096;

/// Which command a guard runs, and how.
pub struct GuardOptions<'a> {
    pub command: &'a [OsString],
    /// From SIGTERM to SIGKILL.
    pub grace: Duration,
    /// Variables of this process that the command must not see.
    pub without: &'a [&'static str],
    /// Whether the kernel kills the command if its guard dies. It costs an execution of this binary for each start of the command.
    pub bound: bool,
}

/// A guard that this process started. If it is dropped, the guard ends its command and then itself.
pub struct GuardLink {
    pid: Pid,
    orders: StdUnixStream,
    events: Lines<BufReader<UnixStream>>,
    /// The process group of the command that runs.
    group: Option<Pid>,
}

impl GuardLink {
    /// Starts a guard for a command. The caller reaps it, as a child of its [`ChildTree`](super::ChildTree).
    pub fn start(options: &GuardOptions) -> io::Result<GuardLink> {
        let (ours, theirs) = StdUnixStream::pair()?;
        let mut guard = Command::new(guard::this_binary()?);
        guard.arg0("convoke").arg(guard::NAME).args(["--grace", &duration::format(options.grace)]);
        guard.args(options.bound.then_some("--bound")).arg("--").args(options.command);
        for name in options.without {
            guard.env_remove(name);
        }
        guard.stdin(Stdio::from(OwnedFd::from(theirs))).process_group(0);
        let pid = Pid::from_child(&guard.spawn()?);
        // It holds a copy of the guard's end of the socket, which would hide the guard's death.
        drop(guard);
        ours.set_nonblocking(true)?;
        let orders = ours.try_clone()?;
        let events = BufReader::new(UnixStream::from_std(ours)?).lines();
        Ok(GuardLink { pid, orders, events, group: None })
    }

    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends an order. Returns whether it was sent.
    pub fn send(&mut self, order: &Order) -> bool {
        self.send_with(order, &[])
    }

    /// Sends an order together with open files. It never waits: a guard that does not read must not stop its parent.
    pub fn send_with(&mut self, order: &Order, files: &[BorrowedFd<'_>]) -> bool {
        let line = to_line(order);
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
            return false;
        }
        match sendmsg(&self.orders, &[IoSlice::new(&line)], &mut control, SendFlags::NOSIGNAL) {
            Ok(written) if written == line.len() => return true,
            Err(error) if error == rustix::io::Errno::AGAIN => {}
            // A part of an order cannot be taken back. If the guard has died, its events end.
            Ok(_) | Err(_) => self.kill_group(),
        }
        false
    }

    /// Returns the guard's next event, or `None` if the guard has died. Cancel safe.
    pub async fn next(&mut self) -> Option<GuardEvent> {
        let line = self.events.next_line().await.ok().flatten()?;
        let event = serde_json::from_str(&line).ok()?;
        match event {
            GuardEvent::Started { pid } => self.group = Pid::from_raw(pid),
            GuardEvent::NotStarted(_) | GuardEvent::Ended(_) => self.group = None,
            GuardEvent::Stopping => {}
        }
        Some(event)
    }

    /// Kills the command: its process group at once from here, the rest of its tree through the guard.
    pub fn kill(&mut self) {
        self.kill_group();
        self.send(&Order::Kill);
    }

    fn kill_group(&self) {
        if let Some(group) = self.group {
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Reads orders and the files that come with them.
pub struct OrderReader {
    socket: UnixStream,
    bytes: Vec<u8>,
    files: VecDeque<OwnedFd>,
}

impl OrderReader {
    pub fn new(socket: StdUnixStream) -> io::Result<OrderReader> {
        socket.set_nonblocking(true)?;
        Ok(OrderReader { socket: UnixStream::from_std(socket)?, bytes: Vec::new(), files: VecDeque::new() })
    }

    /// Returns the next order and its files. `None` if the other side has died or sent something else than an order. Cancel safe.
    pub async fn next(&mut self) -> Option<(Order, Vec<OwnedFd>)> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let order = serde_json::from_slice(&line).ok()?;
                return Some((order, self.files.drain(..).collect()));
            }
            let (bytes, files) = self.socket.async_io(Interest::READABLE, || receive(&self.socket)).await.ok()?;
            if bytes.is_empty() {
                return None;
            }
            self.bytes.extend(bytes);
            self.files.extend(files);
        }
    }
}

fn receive(socket: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; READ_BYTES];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(FILES_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket.as_fd(), &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    bytes.truncate(received.bytes);
    let mut files = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received);
        }
    }
    Ok((bytes, files))
}
