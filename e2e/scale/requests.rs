//! Requests of the controller, from the API server's audit log.

use std::{collections::BTreeMap, fmt, fs, path::Path};

use jiff::Timestamp;
use serde_json::Value;

/// Request of the controller.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) verb: String,
    /// Resource, with its subresource.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    /// Time at which the API server received it.
    at: Timestamp,
    /// Status of the answer, or zero if the log has none.
    status: u64,
}

impl Request {
    /// True if the API server answered with an error.
    pub(crate) fn is_refused(&self) -> bool {
        self.status >= 400
    }

    /// True if the request writes an object other than the Lease.
    pub(crate) fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch") && self.resource != "leases"
    }

    /// True if the request has this verb and resource.
    pub(crate) fn is(&self, verb: &str, resource: &str) -> bool {
        self.verb == verb && self.resource == resource
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if self.is_refused() { write!(f, " answered with {}", self.status) } else { Ok(()) }
    }
}

/// Counts requests by their text, the most frequent first.
pub(crate) fn summary(requests: &[Request]) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for request in requests {
        *counts.entry(request.to_string()).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts: Vec<String> = counts.into_iter().map(|(request, count)| format!("{count} {request}")).collect();
    counts.join(", ")
}

/// Returns the largest number of the selected requests within one second.
pub(crate) fn most_in_a_second(requests: &[Request], selects: impl Fn(&Request) -> bool) -> usize {
    let mut times: Vec<i64> =
        requests.iter().filter(|request| selects(request)).map(|request| request.at.as_millisecond()).collect();
    times.sort_unstable();
    let within = |(place, first): (usize, &i64)| times.partition_point(|time| *time < first + 1000) - place;
    times.iter().enumerate().map(within).max().unwrap_or_default()
}

/// Reader of the audit log.
#[derive(Default)]
pub(crate) struct AuditLog {
    read: u64,
}

impl AuditLog {
    /// Returns the requests since the last call.
    pub(crate) fn since(&mut self, log: &Path) -> anyhow::Result<Vec<Request>> {
        let text = fs::read(log).unwrap_or_default();
        let new = text.get(usize::try_from(self.read)?..).unwrap_or_default();
        // The last line may be incomplete.
        let complete = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.read += complete as u64;
        let lines = new.get(..complete).unwrap_or_default().split(|byte| *byte == b'\n');
        let mut requests = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            requests.extend(request(&serde_json::from_slice(line)?));
        }
        Ok(requests)
    }
}

/// Returns the request of an event. A watch counts when it begins or is refused, any other request when it ends.
fn request(event: &Value) -> Option<Request> {
    let text = |path: &str| event.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let status = event.pointer("/responseStatus/code").and_then(Value::as_u64).unwrap_or_default();
    let (verb, begins) = (text("/verb"), text("/stage") == "ResponseStarted");
    let counts = if verb == "watch" { begins || status >= 400 } else { !begins };
    let (resource, part) = (text("/objectRef/resource"), text("/objectRef/subresource"));
    // The auditor looks for pods without a sidecar once a minute, by their metadata.
    let is_audit = verb == "list" && resource == "pods" && text("/requestURI").contains("sidecar%21%3Dinjected");
    let resource = match part {
        _ if is_audit => "pods without a sidecar".to_owned(),
        "" => resource.to_owned(),
        part => format!("{resource}/{part}"),
    };
    let namespace = text("/objectRef/namespace").to_owned();
    let at = text("/requestReceivedTimestamp").parse().ok()?;
    counts.then(|| Request { verb: verb.to_owned(), resource, namespace, at, status })
}
