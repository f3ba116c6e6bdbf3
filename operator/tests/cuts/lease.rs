//! The Lease that the controller's processes compete for, as an API server stores it.

use serde_json::{Value, json};

use super::server::{Answer, Call, failure};

#[derive(Default)]
pub(super) struct Lease {
    /// `Null` if the Lease does not exist.
    object: Value,
    version: u64,
}

impl Lease {
    /// Returns the identity of the process that holds the lease. `None` if the Lease does not exist, and empty if it has no
    /// holder.
    pub(super) fn holder(&self) -> Option<&str> {
        (!self.object.is_null()).then(|| self.object["spec"]["holderIdentity"].as_str().unwrap_or_default())
    }

    pub(super) fn delete(&mut self) {
        self.object = Value::Null;
    }

    pub(super) fn answer(&mut self, call: &Call) -> Answer {
        match (call.method.as_str(), self.object.is_null()) {
            ("GET", false) => (200, self.object.clone()),
            ("GET" | "PUT", true) => failure(404, "NotFound"),
            ("POST", false) => failure(409, "AlreadyExists"),
            ("PUT", false)
                if call.body["metadata"]["resourceVersion"] != self.object["metadata"]["resourceVersion"] =>
            {
                failure(409, "Conflict")
            }
            ("PUT" | "POST", _) => {
                self.version += 1;
                self.object = call.body.clone();
                self.object["metadata"]["resourceVersion"] = json!(self.version.to_string());
                (200, self.object.clone())
            }
            _ => failure(405, "MethodNotAllowed"),
        }
    }
}
