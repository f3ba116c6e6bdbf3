//! Streams of events: clients that listen are told when something else is served.
//!
//! Both dialects have one, as server-sent events: OFREP's providers are told to evaluate anew, Flagsmith's SDKs when the
//! environment changed. An event tells that there is news, not what: so a listener that reads slowly misses none, it is
//! told of the newest. Who comes back with the identifier of the last event that it saw is told at once what it missed.
//! Flagsmith's SDKs for servers come back without: they are told at once in any case, for they may have missed something,
//! and fetch nothing unless they are told.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CACHE_CONTROL, RETRY_AFTER};
use http::{HeaderValue, StatusCode};
use remora_snapshot::Revision;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, interval_at};

use crate::answer::{Answer, Kind};
use crate::body::Body;

/// How many clients may listen at once. They do not count as connections of others.
const MOST_STREAMS: usize = 64;

/// How often those that listen hear that somebody is there. Proxies and clients give up after half a minute at the soonest.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// How long one may listen before it has to come again. Who has stopped reading cannot be told from who hears no news, as
/// the kernel takes what is sent: so nobody keeps a place for ever, and who is alive comes back and has missed nothing.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// A comment: it means nothing, and arrives.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// What is served since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    /// Stands for all bytes that are served.
    pub(crate) state: u64,
    /// Since 1970; each is later than the one before. Zero while nothing is served.
    pub(crate) at: Duration,
}

impl Change {
    /// The change after this one.
    pub(crate) fn next(self, revision: Revision, state: u64, now: Duration) -> Change {
        Change { revision, state, at: now.max(self.at + Duration::from_micros(1)) }
    }

    fn id(self) -> String {
        format!("{:016x}", self.state)
    }
}

/// Whose words are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Flagsmith's realtime updates.
    Flagsmith,
    /// OFREP's change events.
    Ofrep,
}

impl Dialect {
    fn event(self, change: Change) -> Bytes {
        let (id, seconds) = (change.id(), change.at.as_secs());
        let text = match self {
            Dialect::Flagsmith => format!(
                "event: environment_updated\nid: {id}\ndata: {{\"updated_at\": {seconds}.{:06}}}\n\n",
                change.at.subsec_micros()
            ),
            Dialect::Ofrep => format!(
                "id: {id}\ndata: {{\"type\":\"refetchEvaluation\",\"etag\":\"\\\"{}\\\"\",\"lastModified\":{seconds}}}\n\n",
                change.revision
            ),
        };
        Bytes::from(text)
    }
}

/// Those that listen, of all environments.
pub(crate) struct Streams {
    room: Arc<Semaphore>,
    end: watch::Sender<bool>,
    lifetime: Duration,
}

impl Default for Streams {
    fn default() -> Streams {
        let room = Arc::new(Semaphore::new(MOST_STREAMS));
        Streams { room, end: watch::Sender::new(false), lifetime: LIFETIME }
    }
}

impl Streams {
    /// How many listen.
    pub(crate) fn open(&self) -> usize {
        MOST_STREAMS.saturating_sub(self.room.available_permits())
    }

    /// Ends all of them, also those that come later.
    pub(crate) fn end(&self) {
        self.end.send_replace(true);
    }

    /// The answer to somebody who wants to listen, and saw the event `last` before.
    pub(crate) fn listen(&self, changes: &watch::Sender<Change>, dialect: Dialect, last: Option<&str>) -> Answer {
        let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
            return Answer::constant(StatusCode::SERVICE_UNAVAILABLE, "{\"detail\":\"too many streams are open\"}")
                .with(RETRY_AFTER, HeaderValue::from_static("30"));
        };
        let mut changes = changes.subscribe();
        let current = *changes.borrow();
        let behind = last.map_or(dialect == Dialect::Flagsmith, |last| last != current.id());
        if behind && !current.at.is_zero() {
            changes.mark_changed();
        }
        let (teller, listener) = mpsc::channel(1);
        let telling = tell(changes, self.end.subscribe(), dialect, teller);
        let lifetime = self.lifetime;
        tokio::spawn(async move {
            // That it is over is no failure.
            let _ = tokio::time::timeout(lifetime, telling).await;
            drop(place);
        });
        Answer::new(StatusCode::OK, Kind::Events, Body::events(listener))
            .with(CACHE_CONTROL, HeaderValue::from_static("no-cache"))
    }
}

/// Tells of changes until the listener has gone, or the process ends.
async fn tell(
    mut changes: watch::Receiver<Change>,
    mut end: watch::Receiver<bool>,
    dialect: Dialect,
    teller: mpsc::Sender<Bytes>,
) {
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    // Something at once, so that the listener knows that it is heard.
    let mut text = COMMENT;
    loop {
        let told = tokio::select! {
            told = teller.send(text) => told.is_ok(),
            _ = end.wait_for(|end| *end) => false,
        };
        if !told {
            return;
        }
        text = tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => dialect.event(*changes.borrow_and_update()),
                Err(_) => return,
            },
            _ = heartbeat.tick() => COMMENT,
            () = teller.closed() => return,
            _ = end.wait_for(|end| *end) => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_their_dialects_form() {
        let change =
            Change { revision: Revision::default(), state: 255, at: Duration::from_micros(1_771_622_898_000_012) };
        assert_eq!(
            Dialect::Flagsmith.event(change),
            "event: environment_updated\nid: 00000000000000ff\ndata: {\"updated_at\": 1771622898.000012}\n\n"
        );
        assert_eq!(
            Dialect::Ofrep.event(change),
            "id: 00000000000000ff\ndata: {\"type\":\"refetchEvaluation\",\"etag\":\"\\\"000000000000\\\"\",\"lastModified\":1771622898}\n\n"
        );
    }

    #[tokio::test]
    async fn nobody_keeps_a_place_for_ever() {
        let streams = Streams { lifetime: Duration::from_millis(50), ..Streams::default() };
        let changes = watch::Sender::default();
        // None of them is read from.
        let listeners: Vec<Answer> =
            (0..MOST_STREAMS).map(|_| streams.listen(&changes, Dialect::Ofrep, None)).collect();
        assert_eq!(streams.open(), MOST_STREAMS);
        assert_eq!(streams.listen(&changes, Dialect::Ofrep, None).status, StatusCode::SERVICE_UNAVAILABLE);
        while streams.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(streams.listen(&changes, Dialect::Ofrep, None).status, StatusCode::OK);
        assert!(listeners.iter().all(|answer| answer.status == StatusCode::OK));
    }

    #[test]
    fn each_change_is_later_than_the_one_before() {
        let now = Duration::from_secs(10);
        let one = Change::default().next(Revision::default(), 1, now);
        assert_eq!(one.at, now);
        let two = one.next(Revision::default(), 2, now);
        let three = two.next(Revision::default(), 3, Duration::from_secs(9));
        assert!(one.at < two.at && two.at < three.at);
    }
}
