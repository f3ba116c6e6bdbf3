//! Event streams: clients that listen are notified when other data is served.
//!
//! Both protocols use server-sent events: OFREP's events make providers evaluate again, and Flagsmith's events announce
//! that the environment changed. An event contains no flags. So a slow client misses nothing: it gets the latest event.
//! A client that reconnects with the identifier of its last event is notified at once if it missed one. Flagsmith's
//! server SDKs reconnect without an identifier: they get an event at once in any case, because they may have missed
//! one, and fetch nothing without an event.
//!
//! SDKs compare the time of an event, and fetch only if it is later: Python and Go than `updated_at` of the document that
//! they have, which is a time of Flagsmith's clock, and Ruby than the last event. So the time of an event is later than
//! that of every document that was served before, also where the clock of the node is behind Flagsmith's clock.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use remora_snapshot::Revision;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::time::{Instant, interval_at};

/// Number of clients that may listen at once. They do not count against the limit of connections.
const MAX_STREAMS: usize = 64;

/// Interval between two heartbeats. Proxies and clients give up after half a minute at the soonest.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Time after which a stream ends, and the client has to reconnect. A client that has stopped reading looks like one
/// without news, because the kernel buffers the events. The limit frees its permit; a live client reconnects and misses
/// nothing.
const LIFETIME: Duration = Duration::from_secs(15 * 60);

/// A comment, which clients ignore.
const COMMENT: Bytes = Bytes::from_static(b":\n\n");

/// The data that is served, and the time of its change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Change {
    pub(crate) revision: Revision,
    /// Hash of all bytes that are served.
    pub(crate) content_hash: u64,
    /// Time of the change since 1970. Each is later than the one before; zero while nothing is served.
    pub(crate) at: Duration,
}

impl Change {
    /// Returns the change that follows this one. `updated_at` is the time of the document that is served from now on: a
    /// client may have it already, and a process that restarts knows no other document.
    pub(crate) fn next(
        self,
        revision: Revision,
        content_hash: u64,
        now: Duration,
        updated_at: Option<Duration>,
    ) -> Change {
        let before = self.at.max(updated_at.unwrap_or_default());
        Change { revision, content_hash, at: now.max(before + Duration::from_micros(1)) }
    }

    fn id(self) -> String {
        format!("{:016x}", self.content_hash)
    }
}

/// Protocol of an event stream.
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
            // The event has a tag of everything that is served: the tag of an answer depends on the context of its request.
            // This tag also changes if overrides files arrive after their core.
            Dialect::Ofrep => format!(
                "id: {id}\ndata: {{\"type\":\"refetchEvaluation\",\"etag\":\"\\\"{}-{id}\\\"\",\"lastModified\":{seconds}}}\n\n",
                change.revision
            ),
        };
        Bytes::from(text)
    }
}

/// Refusal of a client: [`MAX_STREAMS`] clients listen already.
#[derive(Debug)]
pub(crate) struct Full;

/// The event streams of all environments.
pub(crate) struct Streams {
    permits: Arc<Semaphore>,
    end: watch::Sender<bool>,
    lifetime: Duration,
}

impl Default for Streams {
    fn default() -> Streams {
        let permits = Arc::new(Semaphore::new(MAX_STREAMS));
        Streams { permits, end: watch::Sender::new(false), lifetime: LIFETIME }
    }
}

impl Streams {
    /// Number of open streams.
    pub(crate) fn open(&self) -> usize {
        MAX_STREAMS.saturating_sub(self.permits.available_permits())
    }

    /// Ends all streams, including those that clients open later.
    pub(crate) fn end(&self) {
        self.end.send_replace(true);
    }

    /// Opens the stream of a client. `last` is the identifier of the last event that it received.
    ///
    /// # Errors
    /// [`MAX_STREAMS`] clients listen already.
    pub(crate) fn listen(
        &self,
        changes: &watch::Sender<Change>,
        dialect: Dialect,
        last: Option<&str>,
    ) -> Result<mpsc::Receiver<Bytes>, Full> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Full)?;
        let mut changes = changes.subscribe();
        let current = *changes.borrow();
        let behind = last.map_or(dialect == Dialect::Flagsmith, |last| last != current.id());
        if behind && !current.at.is_zero() {
            changes.mark_changed();
        }
        let (sender, receiver) = mpsc::channel(1);
        let sending = send_changes(changes, self.end.subscribe(), dialect, sender);
        let lifetime = self.lifetime;
        tokio::spawn(async move {
            // A timeout is the regular end of a stream.
            let _ = tokio::time::timeout(lifetime, sending).await;
            drop(permit);
        });
        Ok(receiver)
    }
}

/// Sends changes to a client until it disconnects or the process ends.
async fn send_changes(
    mut changes: watch::Receiver<Change>,
    mut end: watch::Receiver<bool>,
    dialect: Dialect,
    sender: mpsc::Sender<Bytes>,
) {
    let mut heartbeat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
    // The first bytes are sent at once, so that the client knows that the stream works.
    let mut text = COMMENT;
    loop {
        let sent = tokio::select! {
            sent = sender.send(text) => sent.is_ok(),
            _ = end.wait_for(|end| *end) => false,
        };
        if !sent {
            return;
        }
        text = tokio::select! {
            changed = changes.changed() => match changed {
                Ok(()) => dialect.event(*changes.borrow_and_update()),
                Err(_) => return,
            },
            _ = heartbeat.tick() => COMMENT,
            () = sender.closed() => return,
            _ = end.wait_for(|end| *end) => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_has_the_form_of_its_dialect() {
        let change = Change {
            revision: Revision::default(),
            content_hash: 255,
            at: Duration::from_micros(1_771_622_898_000_012),
        };
        assert_eq!(
            Dialect::Flagsmith.event(change),
            "event: environment_updated\nid: 00000000000000ff\ndata: {\"updated_at\": 1771622898.000012}\n\n"
        );
        assert_eq!(
            Dialect::Ofrep.event(change),
            "id: 00000000000000ff\ndata: {\"type\":\"refetchEvaluation\",\"etag\":\"\\\"000000000000-00000000000000ff\\\"\",\"lastModified\":1771622898}\n\n"
        );
    }

    #[tokio::test]
    async fn stream_ends_after_its_lifetime() {
        let streams = Streams { lifetime: Duration::from_millis(50), ..Streams::default() };
        let changes = watch::Sender::default();
        // The test reads from none of the streams.
        let listeners: Vec<_> = (0..MAX_STREAMS).map(|_| streams.listen(&changes, Dialect::Ofrep, None)).collect();
        assert_eq!(streams.open(), MAX_STREAMS);
        assert!(streams.listen(&changes, Dialect::Ofrep, None).is_err());
        while streams.open() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(streams.listen(&changes, Dialect::Ofrep, None).is_ok());
        assert!(listeners.iter().all(Result::is_ok));
    }

    #[test]
    fn change_is_later_than_its_predecessor() {
        let now = Duration::from_secs(10);
        let one = Change::default().next(Revision::default(), 1, now, None);
        assert_eq!(one.at, now);
        let two = one.next(Revision::default(), 2, now, None);
        let three = two.next(Revision::default(), 3, Duration::from_secs(9), None);
        assert!(one.at < two.at && two.at < three.at);
    }

    #[test]
    fn change_is_later_than_every_document_that_was_served() {
        let (now, later) = (Duration::from_secs(10), Duration::from_secs(60));
        let next = |change: Change, updated_at| change.next(Revision::default(), 1, now, Some(updated_at));
        assert_eq!(next(Change::default(), Duration::from_secs(9)).at, now);
        let one = next(Change::default(), later);
        // A document may change without its time, and an earlier document may be served again.
        let two = next(one, later);
        let three = next(two, Duration::from_secs(9));
        assert!(later < one.at && one.at < two.at && two.at < three.at);
        assert!(three.at < later + Duration::from_secs(1), "{three:?}");
    }
}
