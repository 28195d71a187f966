//! The work of a term, and when it ends.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use convoke_runtime::election::Subscriber;
use tokio::sync::mpsc;

use super::*;

/// A subscriber that records all its calls.
fn diarist() -> (Subscriber, mpsc::UnboundedReceiver<String>) {
    let (elected, diary) = mpsc::unbounded_channel();
    let (deposed, worked) = (elected.clone(), elected.clone());
    let record = |diary: &mpsc::UnboundedSender<String>, what: String| {
        // Fails only where the test is over.
        let _ = diary.send(what);
    };
    let subscriber = Subscriber::new("diarist")
        .on_elected(move |term| {
            let elected = elected.clone();
            async move { record(&elected, format!("elected {}", term.epoch())) }
        })
        .on_deposed(move |epoch| {
            let deposed = deposed.clone();
            async move { record(&deposed, format!("deposed {epoch}")) }
        })
        .every(Duration::from_secs(1), move |term| {
            let worked = worked.clone();
            async move { record(&worked, format!("works {}", term.epoch())) }
        });
    (subscriber, diary)
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_is_told_of_each_term_and_works_within_it() {
    let leases = memory();
    let a = elector(&leases, "a");
    let (subscriber, mut diary) = diarist();
    a.subscribe(subscriber);
    for expected in ["elected 1", "works 1", "works 1", "works 1"] {
        assert_eq!(diary.recv().await.as_deref(), Some(expected));
    }
    a.resign().await;
    let mut after = Vec::new();
    while after.last().is_none_or(|last: &String| last != "works 2") {
        after.push(diary.recv().await.expect("goes on"));
    }
    assert_eq!(after, ["deposed 1", "elected 2", "works 2"]);
    a.stop().await;
    let mut last = String::new();
    while let Some(next) = diary.recv().await {
        last = next;
    }
    assert_eq!(last, "deposed 2", "notified before stop has returned, and nothing after");
}

#[tokio::test(start_paused = true)]
async fn any_number_of_subscribers_share_one_heartbeat() {
    let count = async |subscribers: usize| {
        let faulty = Arc::new(Faulty::over(memory()));
        let leases: Arc<dyn Leases> = faulty.clone();
        let a = Elector::start(Candidacy {
            settings: Settings { heartbeat_jitter: Duration::ZERO, ..settings() },
            ..candidacy(&leases, "a")
        })
        .expect("starts");
        let diaries: Vec<_> = (0..subscribers)
            .map(|_| {
                let (subscriber, diary) = diarist();
                a.subscribe(subscriber);
                diary
            })
            .collect();
        for mut diary in diaries {
            assert_eq!(diary.recv().await.as_deref(), Some("elected 1"));
        }
        tokio::time::sleep(Duration::from_secs(101)).await;
        faulty.asked()
    };
    assert_eq!(count(1).await, count(50).await);
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_panics_hinders_nobody() {
    let leases = memory();
    let a = elector(&leases, "a");
    let panics = Arc::new(AtomicU64::new(0));
    let counted = panics.clone();
    a.subscribe(Subscriber::new("careless").every(Duration::from_secs(1), move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { panic!("on purpose") }
    }));
    let (subscriber, mut diary) = diarist();
    a.subscribe(subscriber);
    assert_eq!(diary.recv().await.as_deref(), Some("elected 1"));
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(a.is_leader());
    assert!(panics.load(Ordering::Relaxed) > 5, "it is asked again");
}

#[tokio::test(start_paused = true)]
async fn each_term_is_handed_out_once_and_its_work_ends_with_it() {
    let leases = memory();
    let a = elector(&leases, "a");
    let first = a.lead().await.expect("leads");
    assert_eq!(first.run(async |term| term.epoch()).await, Some(Epoch(1)));
    let again = tokio::time::timeout(Duration::from_secs(60), a.lead()).await;
    assert!(again.is_err(), "the same term is not handed out twice");
    assert_eq!(a.clone().lead().await.expect("to another handle it is").epoch(), Epoch(1));
    let working = tokio::spawn({
        let first = first.clone();
        async move { first.run(|_| std::future::pending::<()>()).await }
    });
    a.resign().await;
    assert!(working.await.expect("does not panic").is_none());
    assert_eq!(a.lead().await.expect("leads").epoch(), Epoch(2));
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_stops_its_elector_when_it_is_deposed_hinders_nobody() {
    let leases = memory();
    let a = elector(&leases, "a");
    let (handle, (elected, mut received)) = (a.downgrade(), mpsc::unbounded_channel());
    let stopped = elected.clone();
    let quitter = Subscriber::new("quitter").on_elected(move |_| {
        let elected = elected.clone();
        async move { elected.send("elected").expect("the test goes on") }
    });
    a.subscribe(quitter.on_deposed(move |_| {
        let (handle, stopped) = (handle.clone(), stopped.clone());
        async move {
            let elector = handle.upgrade().expect("another handle is held");
            elector.resign().await;
            elector.stop().await;
            stopped.send("stopped").expect("the test goes on");
        }
    }));
    assert_eq!(received.recv().await, Some("elected"));
    let began = Instant::now();
    a.resign().await;
    assert_eq!(received.recv().await, Some("stopped"));
    a.stop().await;
    assert!(began.elapsed() < Duration::from_secs(5), "nobody waited for a lease to run out: {:?}", began.elapsed());
    assert_eq!(leases.read("production").await.expect("read"), None);
}

#[tokio::test(start_paused = true)]
async fn nobody_else_leads_while_work_of_the_term_is_being_put_away() {
    let leases = memory();
    let a = elector(&leases, "a");
    let guard = a.lead().await.expect("leads").guard();
    let b = elector(&leases, "b");
    tokio::time::sleep(Duration::from_secs(6)).await;
    let stopping = tokio::spawn(async move { a.stop().await });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(b.leader().as_deref(), Some("a"));
    drop(guard);
    stopping.await.expect("does not panic");
    b.lead().await.expect("leads");
}
