//! The form of a batch of messages as notifications of PostgreSQL.
//!
//! A notification is a text of less than 8,000 bytes. A batch is one text of records, cut into as many notifications as
//! it needs. They are sent by one transaction, so they arrive together and in order, and their number is bounded by the
//! size of a batch. Each begins with the id of its batch, its place and their count: PostgreSQL drops notifications of
//! one transaction that are equal, and a receiver knows whether one is missing.
//!
//! A record is the message of a topic, or the name of a queue that has new entries. The entries themselves stay in
//! their table.

use std::fmt::Write as _;

use bytes::Bytes;

/// Bytes of text in one notification: with its head it stays below 8,000.
const PART_BYTES_MAX: usize = 7_900;
/// Bounds what a receiver keeps of one batch, about 64 MiB.
const PARTS_MAX: usize = 8_192;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Record {
    Message {
        topic: String,
        body: Bytes,
    },
    /// The queue has new entries.
    Bell {
        queue: String,
    },
}

/// The records of one batch, as text.
#[derive(Default)]
pub(super) struct Batch {
    text: String,
}

impl Batch {
    pub(super) fn add_message(&mut self, topic: &str, body: &[u8]) {
        match std::str::from_utf8(body).ok().filter(|text| !text.contains('\0')) {
            Some(text) => self.add('t', &[topic, text]),
            // No text of PostgreSQL can hold it as it is. Messages of coordinators are JSON.
            None => self.add('x', &[topic, &hex(body)]),
        }
    }

    pub(super) fn add_bell(&mut self, queue: &str) {
        self.add('q', &[queue]);
    }

    fn add(&mut self, kind: char, fields: &[&str]) {
        self.text.push(kind);
        for field in fields {
            let _ = write!(self.text, "{} ", field.len());
        }
        fields.iter().for_each(|field| self.text.push_str(field));
    }

    /// Returns the notifications of the batch; `id` is that of no other batch.
    pub(super) fn notifications(&self, id: &str) -> Vec<String> {
        let mut parts = Vec::new();
        let mut rest = self.text.as_str();
        while !rest.is_empty() {
            let (part, more) = rest.split_at(rest.floor_char_boundary(PART_BYTES_MAX));
            parts.push(part);
            rest = more;
        }
        let count = parts.len();
        let numbered = parts.iter().enumerate();
        numbered.map(|(place, part)| format!("{id} {place} {count} {part}")).collect()
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Bytes> {
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::try_from((digit(pair[0])? << 4) | digit(*pair.get(1)?)?).ok())
        .collect::<Option<Vec<_>>>()
        .map(Bytes::from)
}

/// The batch or message that a notification has completed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// More notifications of its batch follow.
    Nothing,
    Records(Vec<Record>),
    /// Some records were lost, or somebody else sends notifications by this name.
    Gap,
}

/// Puts the notifications of batches together.
#[derive(Default)]
pub(super) struct Assembly {
    id: String,
    next: usize,
    text: String,
}

impl Assembly {
    pub(super) fn receive(&mut self, notification: &str) -> Arrival {
        let mut fields = notification.splitn(4, ' ');
        let (Some(id), Some(place), Some(count), Some(part)) =
            (fields.next(), number(fields.next()), number(fields.next()), fields.next())
        else {
            return self.give_up();
        };
        if place == 0 {
            let was_cut = self.next != 0;
            *self = Assembly { id: id.to_owned(), ..Assembly::default() };
            if was_cut {
                // The rest of the batch before this one is lost; this one may be lost with it.
                return Arrival::Gap;
            }
        }
        if place >= count || count > PARTS_MAX || id != self.id || place != self.next {
            return self.give_up();
        }
        self.text.push_str(part);
        self.next += 1;
        if self.next < count {
            return Arrival::Nothing;
        }
        let text = std::mem::take(self).text;
        decode(&text).map_or(Arrival::Gap, Arrival::Records)
    }

    fn give_up(&mut self) -> Arrival {
        *self = Assembly::default();
        Arrival::Gap
    }
}

fn number(field: Option<&str>) -> Option<usize> {
    field?.parse().ok()
}

fn decode(mut text: &str) -> Option<Vec<Record>> {
    let mut records = Vec::new();
    while !text.is_empty() {
        let (kind, rest) = text.split_at_checked(1)?;
        let (length, rest) = rest.split_once(' ')?;
        let length: usize = length.parse().ok()?;
        text = match kind {
            "q" => {
                let (queue, rest) = rest.split_at_checked(length)?;
                records.push(Record::Bell { queue: queue.to_owned() });
                rest
            }
            "t" | "x" => {
                let (body_length, rest) = rest.split_once(' ')?;
                let (topic, rest) = rest.split_at_checked(length)?;
                let (body, rest) = rest.split_at_checked(body_length.parse().ok()?)?;
                let body = if kind == "x" { unhex(body)? } else { Bytes::copy_from_slice(body.as_bytes()) };
                records.push(Record::Message { topic: topic.to_owned(), body });
                rest
            }
            _ => return None,
        };
    }
    Some(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(topic: &str, body: impl Into<Vec<u8>>) -> Record {
        Record::Message { topic: topic.into(), body: Bytes::from(body.into()) }
    }

    fn batch(records: &[Record]) -> Batch {
        let mut batch = Batch::default();
        for record in records {
            match record {
                Record::Message { topic, body } => batch.add_message(topic, body),
                Record::Bell { queue } => batch.add_bell(queue),
            }
        }
        batch
    }

    fn receive(assembly: &mut Assembly, notifications: &[String]) -> Vec<Record> {
        let (last, others) = notifications.split_last().expect("there is one");
        for notification in others {
            assert_eq!(assembly.receive(notification), Arrival::Nothing);
        }
        match assembly.receive(last) {
            Arrival::Records(records) => records,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_message_arrives_as_it_was_sent_however_large() {
        let records = [
            message("a", ""),
            message("a 1", "text with a \u{1F600} and\nlines"),
            Record::Bell { queue: "ä queue".into() },
            message("b", vec![0, 255, 7]),
            message("c", "ü".repeat(100_000)),
            message("d", "3 4 t"),
        ];
        let notifications = batch(&records).notifications("id");
        assert!(notifications.len() > 20 && notifications.iter().all(|text| text.len() < 8_000));
        let mut assembly = Assembly::default();
        for _ in 0..2 {
            assert_eq!(receive(&mut assembly, &notifications), records);
        }
    }

    #[test]
    fn a_missing_part_is_a_gap_and_the_next_batch_but_one_arrives() {
        let large = batch(&[message("t", "x".repeat(20_000))]);
        let (first, second) = (large.notifications("1"), large.notifications("2"));
        let small = batch(&[message("t", "y")]).notifications("3");
        let mut assembly = Assembly::default();
        assert_eq!(assembly.receive(&first[0]), Arrival::Nothing);
        assert_eq!(assembly.receive(&first[2]), Arrival::Gap);
        assert_eq!(receive(&mut assembly, &second).len(), 1);
        assert_eq!(assembly.receive(&first[0]), Arrival::Nothing);
        assert_eq!(assembly.receive(&small[0]), Arrival::Gap, "the end of the batch before is missing");
        assert_eq!(receive(&mut assembly, &small), [message("t", "y")]);
    }

    #[test]
    fn other_texts_are_gaps() {
        let mut assembly = Assembly::default();
        for text in [
            "",
            "a",
            "a b c d",
            "a 0 0 ",
            "a 1 2 x",
            "a 0 99999 x",
            "a 0 1 z1 a",
            "a 0 1 t1 ",
            "a 0 1 q9 a",
            "a 0 1 x1 1 tg",
        ] {
            assert_eq!(assembly.receive(text), Arrival::Gap, "{text:?}");
        }
    }
}
