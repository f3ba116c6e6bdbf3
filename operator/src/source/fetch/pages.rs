//! Requests one document from a server, page by page. Page contents are not parsed here: the `Link` header names the
//! next page.

use std::{
    collections::HashSet,
    hash::{BuildHasher, RandomState},
    time::{Duration, SystemTime},
};

use jiff::Timestamp;
use reqwest::{
    Client, Response, StatusCode, Url,
    header::{self, HeaderName},
};
use tokio::time::{Instant, timeout_at};

use super::{
    body::{self, Unread},
    error::{Error, Fault},
    failure::{explain, unavailable},
    interrupted::Interrupted,
    key::EnvironmentKey,
    link,
    memory_budget::Reservation,
    minimum_rate::{MinimumRate, Progress},
    origin::Origin,
    validator,
};

/// Maximum number of pages. No document within the size limit has more.
const PAGES: usize = 4096;
/// Maximum length of the URL of a page in characters. Flagsmith's own have less than 300.
const PAGE_URL_MAX: usize = 4096;
/// Maximum size of an answer's header in bytes.
pub(super) const HEADERS: usize = 32 << 10;
/// Maximum length of an entity tag in bytes. A longer one is ignored.
const ENTITY_TAG_MAX: usize = 256;
/// Maximum of a server's `Retry-After`. Longer times are cut to it.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(15 * 60);

/// Parameters of the requests for one document.
pub(super) struct Request<'a> {
    pub(super) client: &'a Client,
    pub(super) origin: &'a Origin,
    pub(super) url: Url,
    pub(super) key: &'a EnvironmentKey,
    /// Header of a conditional request, and its value.
    pub(super) condition: Option<(HeaderName, String)>,
    /// Maximum size of all pages together in bytes.
    pub(super) limit: usize,
    /// Reservation in the memory budget that covers the bytes.
    pub(super) reservation: &'a Reservation,
}

/// Outcome of the requests for one document.
pub(super) enum DocumentAnswer {
    NotModified,
    Document {
        pages: Vec<Vec<u8>>,
        began: Timestamp,
        /// Entity tag of the only page.
        entity_tag: Option<String>,
    },
}

enum Page {
    NotModified,
    Document { bytes: Vec<u8>, began: Timestamp, entity_tag: Option<String>, next: Option<Url> },
}

impl Request<'_> {
    /// Requests all pages. The parser of the pages checks that they belong to one environment at one time.
    pub(super) async fn send(&self) -> Result<DocumentAnswer, Interrupted> {
        let mut progress = Progress::start(Instant::now());
        let first = self.page(&self.url, self.condition.as_ref(), 0, &mut progress).await?;
        let (first, began, entity_tag, mut next) = match first {
            Page::NotModified if self.condition.is_none() => return Err(self.unasked().into()),
            Page::NotModified => return Ok(DocumentAnswer::NotModified),
            Page::Document { bytes, began, entity_tag, next } => (bytes, began, entity_tag, next),
        };
        // The tag of a page says nothing about the others.
        let entity_tag = entity_tag.filter(|_| next.is_none());
        let mut held = first.len();
        let mut pages = vec![first];
        // Digests, because thousands of URLs take more memory than a document. Nobody knows the keys, so no server can
        // make two URLs equal.
        let digests = RandomState::new();
        let mut seen = HashSet::from([digests.hash_one(&self.url)]);
        while let Some(url) = next {
            if seen.len() >= PAGES || !seen.insert(digests.hash_one(&url)) {
                return Err(unavailable(self.origin, "its pages form a loop, or do not end").into());
            }
            let (page, after) = match self.page(&url, None, held, &mut progress).await? {
                Page::NotModified => return Err(self.unasked().into()),
                Page::Document { bytes, next, .. } => (bytes, next),
            };
            held = held.saturating_add(page.len());
            pages.push(page);
            next = after;
        }
        Ok(DocumentAnswer::Document { pages, began, entity_tag })
    }

    fn too_slow(&self, rate: MinimumRate) -> Error {
        Error::AnswerTooSlow { origin: self.origin.clone(), rate }
    }

    fn unasked(&self) -> Error {
        unavailable(self.origin, "it answered HTTP 304 to an unconditional request")
    }

    /// Requests the page at this URL. `held` is the size in bytes of the pages before it.
    async fn page(
        &self,
        url: &Url,
        condition: Option<&(HeaderName, String)>,
        held: usize,
        progress: &mut Progress,
    ) -> Result<Page, Interrupted> {
        let mut request = self
            .client
            .get(url.clone())
            .header("X-Environment-Key", self.key.header())
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "gzip");
        if let Some((name, value)) = condition {
            request = request.header(name, value);
        }
        let sent = Instant::now();
        let (deadline, rate) = progress.head_deadline();
        let response = timeout_at(deadline, request.send()).await.map_err(|_| self.too_slow(rate))?;
        let response = response.map_err(|error| explain(&error, self.origin, url))?;
        if size_of_headers(&response) > HEADERS {
            let remedy = "check that spec.source.flagsmith.apiUrl names Flagsmith's API";
            return Err(Error::BodyTooLarge { what: "the answer's header", limit: HEADERS, remedy }.into());
        }
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_MODIFIED => return Ok(Page::NotModified),
            status => return Err(status_error(status, &response, self.origin, self.key).into()),
        }
        let began = validator::began(text(&response, &header::DATE), sent.elapsed(), Timestamp::now());
        let entity_tag = text(&response, &header::ETAG).filter(|tag| tag.len() <= ENTITY_TAG_MAX).map(str::to_owned);
        let next = self.next_page(&response)?;
        let limit = self.limit.saturating_sub(held);
        let grow_to = |bytes| self.reservation.grow_to(held.saturating_add(bytes));
        progress.start_page(Instant::now());
        let read = body::read(response, limit, progress, grow_to).await;
        let bytes = read.map_err(|unread| match unread {
            Unread::OverBudget(over_budget) => over_budget.into(),
            Unread::TooLarge(error) => Interrupted::Failed(error),
            Unread::TooSlow(rate) => self.too_slow(rate).into(),
            Unread::Broken(problem) => unavailable(self.origin, &problem).into(),
        })?;
        Ok(Page::Document { bytes, began, entity_tag, next })
    }

    /// Returns the URL of the next page. Its origin must be the one of the request, because requests carry the key.
    fn next_page(&self, response: &Response) -> Result<Option<Url>, Error> {
        let links = response.headers().get_all(header::LINK);
        let Some(target) = link::next(links.iter().filter_map(|value| value.to_str().ok())) else {
            return Ok(None);
        };
        let url = response.url().join(target).ok();
        if url.as_ref().is_some_and(|url| url.as_str().len() > PAGE_URL_MAX) {
            let problem = format!("the URL of its next page has more than {PAGE_URL_MAX} characters");
            return Err(unavailable(self.origin, &problem));
        }
        let here = url.filter(|url| Origin::of(url).as_ref() == Some(self.origin));
        here.map(Some).ok_or_else(|| {
            unavailable(
                self.origin,
                "its next page is at another origin, which gets no request because the request contains the key",
            )
        })
    }
}

/// Translates a status that is no success.
pub(super) fn status_error(status: StatusCode, response: &Response, origin: &Origin, key: &EnvironmentKey) -> Error {
    let origin = origin.clone();
    let retry_after =
        text(response, &header::RETRY_AFTER).and_then(|value| parse_retry_after(value, SystemTime::now()));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            Error::AuthenticationFailed { origin, status, key: key.clone() }
        }
        StatusCode::NOT_FOUND => Error::EnvironmentNotFound(origin),
        StatusCode::TOO_MANY_REQUESTS => Error::RateLimited { origin, retry_after },
        _ if status.is_redirection() => Error::RedirectRefused(origin),
        _ => Error::UpstreamUnavailable {
            origin,
            problem: format!("it answered HTTP {}; see the log of the server", status.as_u16()),
            fault: if status.is_server_error() { Fault::Server } else { Fault::Answer },
            retry_after,
        },
    }
}

pub(super) fn size_of_headers(response: &Response) -> usize {
    response.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum()
}

fn text<'a>(response: &'a Response, name: &header::HeaderName) -> Option<&'a str> {
    response.headers().get(name)?.to_str().ok()
}

/// Parses `Retry-After`, which holds seconds or a date, and cuts it to [`RETRY_AFTER_MAX`].
fn parse_retry_after(value: &str, now: SystemTime) -> Option<Duration> {
    let wait = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => httpdate::parse_http_date(value).ok()?.duration_since(now).unwrap_or_default(),
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_bounded() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        let at = |seconds| httpdate::fmt_http_date(now + Duration::from_secs(seconds));
        assert_eq!(parse_retry_after("7", now), Some(Duration::from_secs(7)));
        assert_eq!(parse_retry_after(&at(60), now), Some(Duration::from_secs(60)));
        assert_eq!(parse_retry_after("99999999", now), Some(RETRY_AFTER_MAX));
        assert_eq!(parse_retry_after(&at(86_400), now), Some(RETRY_AFTER_MAX));
        assert_eq!(parse_retry_after("Thu, 01 Jan 1970 00:00:00 GMT", now), Some(Duration::ZERO));
        assert_eq!(parse_retry_after("-1", now), None);
        assert_eq!(parse_retry_after("soon", now), None);
    }
}
