//! A page that takes long to render, which requests share.
//!
//! One thread answers all requests, and other pods reach the admin port: clients that request such a page again and
//! again must not delay the application's answers. So a page is rendered at most once in [`PAUSE`], and after a rendering
//! that took long, the pause is [`PAUSES`] times as long as the rendering. A request that comes sooner waits, and one
//! rendering answers all requests that wait for it. No answer is older than its request.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::time::{Sleep, sleep};

use crate::http::body::Buffer;
use crate::lock::Lock;

/// Shortest time between the end of a rendering of a page and the beginning of the next one. A rendering with 2,000 used
/// flags takes about a millisecond.
const PAUSE: Duration = Duration::from_millis(100);
/// The same time as a multiple of the time that the rendering took.
const PAUSES: u32 = 10;
/// Longest time between two renderings. It is shorter than the time that a request of the admin port may take.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// A page, and its latest rendering, which is kept until the page may be rendered again.
#[derive(Debug, Default)]
pub(crate) struct SharedPage(Arc<Lock<Option<Rendering>>>);

#[derive(Debug)]
struct Rendering {
    began: Instant,
    ended: Instant,
    text: Vec<u8>,
}

/// A request that waits for a page.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Time at which the request arrived. A rendering that began earlier does not answer it.
    since: Instant,
    /// Timer until the page may be rendered again.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Waiting {
    /// Creates the wait of a request that arrives now.
    pub(crate) fn new() -> Waiting {
        Waiting { since: Instant::now(), timer: None }
    }
}

impl SharedPage {
    /// Waits until the page is rendered after the arrival of the request, and copies it into a buffer. `render` renders
    /// it, if no other request has done so.
    pub(crate) fn poll(
        &self,
        request: &mut Waiting,
        cx: &mut Context<'_>,
        render: impl FnOnce() -> Vec<u8>,
    ) -> Poll<Buffer> {
        let mut latest = self.0.lock();
        if let Some(rendering) = latest.as_ref().filter(|rendering| rendering.began >= request.since) {
            return Poll::Ready(rendering.copy());
        }
        loop {
            let rest = latest.as_ref().map(Rendering::rest).unwrap_or_default();
            if rest.is_zero() {
                break;
            }
            ready!(request.timer.insert(Box::pin(sleep(rest))).as_mut().poll(cx));
        }
        let (began, text) = (Instant::now(), render());
        let rendering = Rendering { began, ended: Instant::now(), text };
        let (pause, buffer) = (rendering.pause(), rendering.copy());
        *latest = Some(rendering);
        drop(latest);
        let page = Arc::clone(&self.0);
        tokio::spawn(async move {
            sleep(pause).await;
            let mut latest = page.lock();
            if latest.as_ref().is_some_and(|rendering| rendering.began == began) {
                *latest = None;
            }
        });
        Poll::Ready(buffer)
    }
}

impl Rendering {
    /// Time after the end of this rendering for which there is no other.
    fn pause(&self) -> Duration {
        (self.ended.duration_since(self.began) * PAUSES).clamp(PAUSE, MAX_PAUSE)
    }

    /// Time until the page may be rendered again.
    fn rest(&self) -> Duration {
        self.pause().saturating_sub(self.ended.elapsed())
    }

    /// Copies the page into a buffer, which counts in the budget of answers.
    fn copy(&self) -> Buffer {
        let mut buffer = Buffer::take();
        buffer.bytes().extend_from_slice(&self.text);
        buffer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;

    use super::*;

    /// Waits for a page that consists of the number of its rendering.
    async fn number(page: &SharedPage, renderings: &Cell<u8>, mut request: Waiting) -> u8 {
        let render = || {
            renderings.set(renderings.get() + 1);
            vec![renderings.get()]
        };
        let buffer = poll_fn(|cx| page.poll(&mut request, cx, render)).await;
        buffer.as_ref()[0]
    }

    #[tokio::test]
    async fn requests_that_wait_share_one_rendering_after_their_arrival() {
        let (page, renderings, began) = (SharedPage::default(), Cell::new(0), Instant::now());
        let ask = |request| number(&page, &renderings, request);
        assert_eq!(ask(Waiting::new()).await, 1);
        let (one, other, third) = (Waiting::new(), Waiting::new(), Waiting::new());
        assert_eq!(tokio::join!(ask(one), ask(other), ask(third)), (2, 2, 2));
        // The second rendering began before this request arrived.
        assert_eq!(ask(Waiting::new()).await, 3);
        assert!(began.elapsed() >= 2 * PAUSE, "{:?}", began.elapsed());
    }

    #[tokio::test]
    async fn page_that_takes_long_is_rendered_for_a_tenth_of_the_time() {
        let (page, times) = (SharedPage::default(), Cell::new(None));
        let render = || {
            let began = Instant::now();
            std::thread::sleep(PAUSE / 2);
            times.set(Some((began, Instant::now())));
            Vec::new()
        };
        let ask = async || {
            let mut request = Waiting::new();
            poll_fn(|cx| page.poll(&mut request, cx, render)).await;
            times.get().unwrap()
        };
        let (began, ended) = ask().await;
        let (again, _) = ask().await;
        assert!(again - ended >= ((ended - began) * PAUSES).min(MAX_PAUSE), "{:?}", again - ended);
    }

    #[tokio::test]
    async fn page_is_dropped_after_the_pause() {
        let page = SharedPage::default();
        assert_eq!(number(&page, &Cell::new(0), Waiting::new()).await, 1);
        assert!(page.0.lock().is_some());
        let dropped = async {
            while page.0.lock().is_some() {
                sleep(PAUSE).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), dropped).await.unwrap();
    }
}
