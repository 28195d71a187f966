//! Input from unknown peers on an open port. None of it is fatal, all of it is counted, and it does not affect valid
//! workers.

use bytes::Bytes;
use convoke_adapters::zmq::ZmqLimits;
use convoke_core::ports::router::Sent;
use convoke_testkit::process::eventually;
use tokio::io::AsyncWriteExt;

use super::stage::*;

#[tokio::test]
async fn garbage_ends_its_own_connection_and_is_counted() {
    let mut router = bind_with(impatient()).await;
    let wrong = |place: usize, byte: u8| {
        let mut bytes = greeting();
        bytes[place] = byte;
        bytes
    };
    let garbage: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
        b"*1\r\n$4\r\nPING\r\n".to_vec(),
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
        vec![0; 4096],
        vec![0xff; 4096],
        (0..4096_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect(),
        wrong(10, 9),
        wrong(12, b'X'),
        // An unknown command instead of READY.
        [greeting(), frame(4, b"\x05NOPES")].concat(),
        // A message before the handshake is over.
        [greeting(), frame(0, b"too soon")].concat(),
        // READY whose property is longer than the frame.
        [greeting(), frame(4, b"\x05READY\x0bSocket-Type\xff\xff\xff\xffDEALER")].concat(),
        // A socket type that a ROUTER does not accept.
        [greeting(), frame(4, b"\x05READY\x0bSocket-Type\x00\x00\x00\x03SUB")].concat(),
        // A command with the largest possible length.
        [greeting(), vec![6, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]].concat(),
    ];
    let strangers = garbage.len() as u64;
    for bytes in garbage {
        let mut stream = raw(&*router).await;
        let _ = stream.write_all(&bytes).await;
        closed(&mut stream).await;
    }
    refused(&*router, "all of them are counted", strangers).await;
    serves(&mut *router).await;
    assert_eq!(router.refusals().handshakes, strangers);
}

#[tokio::test]
async fn a_peer_that_breaks_the_protocol_after_its_handshake_is_cut_off() {
    let mut router = bind().await;
    let after = [
        vec![0xff, 0xff, 0xff],
        frame(4, b""),
        frame(4, b"\xffPING"),
        vec![2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
    ];
    for bytes in after {
        let (mut stream, _) = by_hand(&mut *router, "").await;
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        closed(&mut stream).await;
    }
    serves(&mut *router).await;
}

#[tokio::test]
async fn half_handshakes_that_are_held_open_do_not_keep_workers_out() {
    let limits = ZmqLimits { handshakes_max: 32, ..impatient() };
    let mut router = bind_with(limits).await;
    let mut held = Vec::new();
    for round in 0..200_usize {
        let mut stream = raw(&*router).await;
        let _ = stream.write_all(&greeting()[..round % 64]).await;
        held.push(stream);
    }
    // While their side still holds all of them.
    serves(&mut *router).await;
    for stream in &mut held {
        closed(stream).await;
    }
    refused(&*router, "all of them are counted", 200).await;
}

#[tokio::test]
async fn a_message_over_the_limit_ends_its_connection_and_is_counted() {
    let mut router = bind().await;
    let limit = ZmqLimits::default().message_bytes_max;
    // One frame, and many that exceed the limit only together.
    let one = frame(0, &vec![b'x'; limit + 1]);
    let many = [frame(1, &vec![b'x'; limit / 4]).repeat(5), frame(0, b"")].concat();
    let endless = frame(1, b"").repeat(limit);
    for (count, bytes) in [(1, one), (2, many), (3, endless)] {
        let (mut stream, _) = by_hand(&mut *router, "").await;
        let (mut reading, mut writing) = stream.split();
        let write = async {
            let _ = writing.write_all(&bytes).await;
        };
        let mut bytes = Vec::new();
        let read = tokio::io::AsyncReadExt::read_to_end(&mut reading, &mut bytes);
        let (_, _) = within("the end of the connection", async { tokio::join!(write, read) }).await;
        eventually("it is counted", async || (router.refusals().oversized == count).then_some(())).await;
    }
    serves(&mut *router).await;
}

#[tokio::test]
async fn a_message_just_under_the_limit_arrives() {
    let mut router = bind().await;
    let mut dealer = connect(&*router).await;
    let large = Bytes::from(vec![b'x'; (1 << 20) - 1024]);
    dealer.send(large.clone()).await.expect("room");
    let received = receive(&mut *router).await;
    assert!(received.frames == [large.clone()]);
    assert_eq!(reply(&mut *router, &received.from, large.clone()).await, Sent::Queued);
    assert!(within("it comes back", dealer.receive()).await.expect("a message") == [large]);
}

#[tokio::test]
async fn a_message_of_a_thousand_parts_or_of_nothing_arrives_as_it_was_sent() {
    let mut router = bind().await;
    let (mut stream, _) = by_hand(&mut *router, "").await;
    let parts = [frame(1, b"part").repeat(999), frame(0, b"last")].concat();
    let nothing = frame(0, b"");
    let delimited = [frame(1, b""), frame(0, b"after a delimiter")].concat();
    stream.write_all(&[parts, nothing, delimited].concat()).await.expect("it is read");
    let received = receive(&mut *router).await;
    assert_eq!(received.frames.len(), 1000);
    assert_eq!(received.frames[999], Bytes::from_static(b"last"));
    assert_eq!(receive(&mut *router).await.frames, [Bytes::new()]);
    assert_eq!(receive(&mut *router).await.frames, [Bytes::new(), Bytes::from_static(b"after a delimiter")]);
}

#[tokio::test]
async fn a_peer_that_never_reads_loses_its_messages_and_delays_nobody() {
    let mut router = bind().await;
    let (_stream, deaf) = by_hand(&mut *router, "deaf").await;
    let mut full = 0;
    for _ in 0..10_000 {
        match reply(&mut *router, &deaf, vec![b'x'; 1000]).await {
            Sent::Queued => {}
            Sent::Full => full += 1,
            Sent::Gone => panic!("it is still connected"),
        }
    }
    assert!(full > 0, "ten megabytes were kept for it");
    serves(&mut *router).await;
}

#[tokio::test]
async fn a_peer_that_talks_without_end_does_not_silence_the_others() {
    let mut router = bind().await;
    let (stream, _) = by_hand(&mut *router, "loud").await;
    let (_reading, mut writing) = stream.into_split();
    let flood = frame(0, b"noise").repeat(1000);
    let loud = tokio::spawn(async move { while writing.write_all(&flood).await.is_ok() {} });
    let mut dealer = connect(&*router).await;
    for message in 0..10 {
        dealer.send(Bytes::from(format!("message {message}"))).await.expect("room");
        within("the quiet one's message", async {
            while receive(&mut *router).await.frames != [Bytes::from(format!("message {message}"))] {}
        })
        .await;
    }
    loud.abort();
}
