//! Answers of the API to requests, decided without a socket.

use super::date;
use super::document::Document;

/// Response before a fault is applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers without `Content-Length`, which the writer adds.
    pub headers: Vec<(&'static str, String)>,
    /// Body; empty for a 304.
    pub body: String,
}

impl Answer {
    pub(super) fn json(status: u16, body: impl Into<String>) -> Self {
        Self { status, headers: vec![("Content-Type", "application/json".to_owned())], body: body.into() }
    }

    /// Returns a refusal in the form of the Django REST framework: always 403, never 401.
    pub(super) fn forbidden(detail: &str) -> Self {
        Self::json(403, format!(r#"{{"detail":"{detail}"}}"#))
    }

    pub(super) fn not_found() -> Self {
        let headers = vec![("Content-Type", "text/html; charset=utf-8".to_owned())];
        Self {
            status: 404,
            headers,
            body: "<h1>Not Found</h1><p>The requested resource was not found on this server.</p>".to_owned(),
        }
    }

    pub(super) fn redirect(to: impl Into<String>) -> Self {
        Self { status: 301, headers: vec![("Location", to.into())], body: String::new() }
    }
}

/// Parts of a document request that decide its answer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions<'a> {
    pub(super) if_modified_since: Option<&'a str>,
    pub(super) page_id: Option<&'a str>,
}

/// Answers a document request with a valid key.
pub(super) fn document(
    document: &Document,
    page_size: Option<usize>,
    conditions: Conditions<'_>,
) -> anyhow::Result<Answer> {
    let updated_at = document.updated_at();
    let last_modified = ("Last-Modified", date::write(updated_at));
    // The comparison is in whole seconds: a second change within the same second is not visible, as in the real API.
    if conditions.if_modified_since.and_then(date::read).is_some_and(|since| since >= updated_at.as_second()) {
        return Ok(Answer { status: 304, headers: vec![last_modified], body: String::new() });
    }
    let Some(start) = start_of(document, conditions.page_id) else {
        return Ok(Answer::json(400, r#"{"detail":"Invalid page_id"}"#));
    };
    let end = page_size.map_or(document.overrides(), |size| document.overrides().min(start.saturating_add(size)));
    let mut answer = Answer::json(200, document.page(start..end)?);
    answer.headers.push(last_modified);
    let seconds = updated_at.as_microsecond();
    answer.headers.push((
        "X-Flagsmith-Document-Updated-At",
        format!("{}.{:06}", seconds.div_euclid(1_000_000), seconds.rem_euclid(1_000_000)),
    ));
    answer.headers.push(("Cache-Control", "max-age=0, no-cache, no-store, must-revalidate, private".to_owned()));
    answer.headers.push(("Vary", "Accept, Origin".to_owned()));
    if end < document.overrides() {
        let cursor = format!("identity_override%3A{}%3A{end:032x}", document.id());
        answer.headers.push(("Link", format!(r#"</api/v1/environment-document/?page_id={cursor}>; rel="next""#)));
    }
    Ok(answer)
}

/// Returns the index of the first override of the page that a cursor names. Cursors are opaque to clients; the last
/// part of the stub's cursors is a number.
fn start_of(document: &Document, page_id: Option<&str>) -> Option<usize> {
    let Some(page_id) = page_id else {
        return Some(0);
    };
    let mut parts = page_id.split("%3A").flat_map(|part| part.split("%3a")).flat_map(|part| part.split(':'));
    let (kind, environment, at) = (parts.next()?, parts.next()?, parts.next()?);
    let at = usize::from_str_radix(at, 16).ok()?;
    (kind == "identity_override" && environment == document.id().to_string() && at <= document.overrides())
        .then_some(at)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn three_overrides() -> Document {
        let text = r#"{"id":7,"api_key":"k","identity_overrides":[{"identifier":"a"},{"identifier":"b"},{"identifier":"c"}],"updated_at":"2026-11-21T00:01:24.250000+00:00"}"#;
        Document::parse(text, Timestamp::UNIX_EPOCH).unwrap()
    }

    fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
        answer.headers.iter().find(|(own, _)| *own == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn validators_equal_those_of_api() {
        let answer = document(&three_overrides(), None, Conditions::default()).unwrap();
        assert_eq!(answer.status, 200);
        assert_eq!(header(&answer, "Last-Modified"), Some("Sat, 21 Nov 2026 00:01:24 GMT"));
        assert_eq!(header(&answer, "X-Flagsmith-Document-Updated-At"), Some("1795219284.250000"));
        assert_eq!(header(&answer, "Link"), None);
    }

    #[test]
    fn request_within_same_second_is_not_modified() {
        let ask = |since| {
            document(&three_overrides(), None, Conditions { if_modified_since: Some(since), page_id: None })
                .unwrap()
                .status
        };
        assert_eq!(ask("Sat, 21 Nov 2026 00:01:24 GMT"), 304);
        assert_eq!(ask("Sat, 21 Nov 2026 00:01:25 GMT"), 304);
        assert_eq!(ask("Sat, 21 Nov 2026 00:01:23 GMT"), 200);
        assert_eq!(ask("Sat, 21 Nov 2026 00:01:24 +0000"), 200);
    }

    #[test]
    fn pages_follow_each_other_to_end() {
        let mut page_id: Option<String> = None;
        let mut seen = Vec::new();
        for _ in 0..3 {
            let answer = document(
                &three_overrides(),
                Some(2),
                Conditions { if_modified_since: None, page_id: page_id.as_deref() },
            )
            .unwrap();
            let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
            seen.push(
                body["identity_overrides"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|o| o["identifier"].as_str().unwrap().to_owned())
                    .collect::<Vec<_>>(),
            );
            let Some(link) = header(&answer, "Link") else {
                break;
            };
            let target = link
                .strip_prefix("</api/v1/environment-document/?page_id=")
                .and_then(|rest| rest.strip_suffix(r#">; rel="next""#));
            page_id = Some(target.unwrap().to_owned());
        }
        assert_eq!(seen, [vec!["a", "b"], vec!["c"]]);
    }

    #[test]
    fn unknown_cursor_is_refused() {
        for cursor in ["x", "identity_override:8:1", "identity_override%3A7%3Azz", "identity_override%3A7%3A9"] {
            let answer =
                document(&three_overrides(), Some(2), Conditions { if_modified_since: None, page_id: Some(cursor) })
                    .unwrap();
            assert_eq!(answer.status, 400, "{cursor}");
        }
    }
}
