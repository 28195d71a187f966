//! A candidate process, which reports to the referee each time that it believes to lead.
//!
//! SIGUSR1 makes it resign, SIGTERM makes it leave. Its messages are lines on a TCP connection, with times of the monotonic clock,
//! which all processes of a machine share.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use async_trait::async_trait;
use convoke::election::{Policy, Settings};
use convoke::{Elector, connect};
use convoke_core::ports::leases::{Floor, Lease};
use convoke_core::ports::{Leases, Resignations};
use convoke_core::{Epoch, Result};
use convoke_testkit::process::monotonic_ns;
use tokio::signal::unix::{SignalKind, signal};

use super::record::PeerMessage;

pub const TTL: Duration = Duration::from_millis(500);
pub const HEARTBEAT: Duration = Duration::from_millis(100);
const CLAIM_PAUSE: Duration = Duration::from_millis(3);
/// A delay of more than this is reported to the referee: the machine or the backend caused it.
const NOTICED: Duration = Duration::from_millis(10);

pub struct Orders {
    pub url: String,
    pub id: String,
    pub referee: String,
    pub policy: String,
}

impl Orders {
    pub fn read() -> Option<Orders> {
        let get = |name: &str| std::env::var(format!("CONTENDER_{name}")).ok();
        Some(Orders { url: get("URL")?, id: get("ID")?, referee: get("REFEREE")?, policy: get("POLICY")? })
    }

    pub fn write(&self) -> Vec<(String, String)> {
        let pairs = [("URL", &self.url), ("ID", &self.id), ("REFEREE", &self.referee), ("POLICY", &self.policy)];
        pairs.map(|(name, value)| (format!("CONTENDER_{name}"), value.clone())).into()
    }
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
pub async fn run(orders: Orders) {
    let messages = connect_to_referee(&orders.referee);
    let leases = connect::leases(&orders.url, "contest").await.expect("the leases are available");
    let settings = Settings {
        policy: orders.policy.parse::<Policy>().expect("a policy"),
        heartbeat_interval: HEARTBEAT,
        heartbeat_jitter: HEARTBEAT / 5,
        lease_timeout: TTL,
        worker_timeout: TTL + HEARTBEAT,
        startup_jitter_max: Duration::ZERO,
        ..Settings::default()
    };
    let witnessed = Arc::new(Witnessed { leases, messages: messages.clone() });
    let elector = Elector::over(witnessed).id(orders.id).namespace("contest").settings(settings).start().await;
    let elector = elector.expect("starts");
    let (mut resign, mut leave) =
        (signal(SignalKind::user_defined1()).expect("a signal"), signal(SignalKind::terminate()).expect("a signal"));
    send(&messages, PeerMessage::Ready { at: monotonic_ns() });
    loop {
        let checked = monotonic_ns();
        tokio::select! {
            _ = resign.recv() => elector.resign().await,
            _ = leave.recv() => break,
            () = tokio::time::sleep(CLAIM_PAUSE) => {
                report_if_kept(&messages, checked, CLAIM_PAUSE);
                let Some(term) = elector.term() else { continue };
                // It led before this moment and leads after it: so it does at this moment.
                let at = monotonic_ns();
                if !term.is_over() {
                    send(&messages, PeerMessage::Claim { epoch: term.epoch().0, at });
                }
            }
        }
    }
    elector.stop().await;
}

fn send(messages: &Sender<PeerMessage>, word: PeerMessage) {
    messages.send(word).expect("the referee listens");
}

/// Since then no more than so long should have passed.
fn report_if_kept(messages: &Sender<PeerMessage>, since: u64, expected: Duration) {
    let at = monotonic_ns();
    if at - since > (expected + NOTICED).as_nanos() as u64 {
        send(messages, PeerMessage::Kept { ns: at - since, at });
    }
}

fn connect_to_referee(referee: &str) -> Sender<PeerMessage> {
    let mut line = TcpStream::connect(referee).expect("the referee is there");
    line.set_nodelay(true).expect("an option");
    let (messages, queued) = channel::<PeerMessage>();
    std::thread::spawn(move || {
        for message in queued {
            if line.write_all(format!("{} {message} .\n", std::process::id()).as_bytes()).is_err() {
                // Without a referee there is no contest.
                std::process::exit(0);
            }
        }
    });
    messages
}

/// Leases whose grants are reported to the referee: from before their request until before their release.
struct Witnessed {
    leases: Arc<dyn Leases>,
    messages: Sender<PeerMessage>,
}

#[async_trait]
impl Leases for Witnessed {
    async fn enroll(&self, namespace: &str, member: &str, ttl: Duration) -> Result<()> {
        self.leases.enroll(namespace, member, ttl).await
    }

    async fn withdraw(&self, namespace: &str, member: &str) -> Result<()> {
        self.leases.withdraw(namespace, member).await
    }

    async fn roster(&self, namespace: &str) -> Result<Vec<String>> {
        self.leases.roster(namespace).await
    }

    async fn read(&self, namespace: &str) -> Result<Option<Lease>> {
        let asked = monotonic_ns();
        let lease = self.leases.read(namespace).await;
        report_if_kept(&self.messages, asked, Duration::ZERO);
        lease
    }

    async fn elect(&self, namespace: &str, candidate: &str, ttl: Duration, floor: Floor) -> Result<Lease> {
        let asked = monotonic_ns();
        let lease = self.leases.elect(namespace, candidate, ttl, floor).await;
        report_if_kept(&self.messages, asked, Duration::ZERO);
        let lease = lease?;
        send(&self.messages, PeerMessage::Grant { epoch: lease.epoch.0, at: asked });
        Ok(lease)
    }

    async fn renew(&self, namespace: &str, holder: &str, epoch: Epoch, ttl: Duration) -> Result<Lease> {
        let asked = monotonic_ns();
        let lease = self.leases.renew(namespace, holder, epoch, ttl).await?;
        send(&self.messages, PeerMessage::Grant { epoch: lease.epoch.0, at: asked });
        Ok(lease)
    }

    async fn resign(&self, namespace: &str, holder: &str, epoch: Epoch) -> Result<()> {
        send(&self.messages, PeerMessage::Resign { epoch: epoch.0, at: monotonic_ns() });
        self.leases.resign(namespace, holder, epoch).await
    }

    fn watch_resignations(&self, namespace: &str) -> Box<dyn Resignations> {
        self.leases.watch_resignations(namespace)
    }

    fn lease_check_interval(&self) -> Option<Duration> {
        self.leases.lease_check_interval()
    }

    fn foreign(&self) -> Option<fn(&str) -> bool> {
        self.leases.foreign()
    }

    async fn ping(&self) -> Result<()> {
        self.leases.ping().await
    }
}
