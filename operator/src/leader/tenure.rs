//! No write by a replica that may have lost its lease: it is checked where requests leave, so that nobody can forget it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use http::{Method, Request};
use kube::{Client, Config, client::ClientBuilder};
use tower::{BoxError, filter::FilterLayer};

/// Since when the lease is ours, as far as we know.
#[derive(Clone, Debug, Default)]
pub struct Tenure(Arc<Mutex<Option<Instant>>>);

/// The write that was held back.
#[derive(Debug, thiserror::Error)]
#[error("nothing is written: the lease was not renewed in time, and another replica may have it")]
struct Over;

impl Tenure {
    /// The lease was renewed by a call that began at this time.
    pub(super) fn renewed(&self, at: Instant) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(at);
    }

    /// Whether it was renewed within this time.
    pub(super) fn lasts(&self, within: Duration) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < within)
    }

    /// A client that writes only while the lease is ours. A process that was stopped for a while finds out here.
    pub fn client(&self, config: Config) -> kube::Result<Client> {
        let tenure = self.clone();
        let fence = FilterLayer::new(move |request| tenure.admit(request));
        Ok(ClientBuilder::try_from(config)?.with_layer(&fence).build())
    }

    fn admit<B>(&self, request: Request<B>) -> Result<Request<B>, BoxError> {
        if request.method() == Method::GET || self.lasts(super::DEADLINE) { Ok(request) } else { Err(Over.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: Method) -> Request<()> {
        Request::builder().method(method).body(()).unwrap()
    }

    #[test]
    fn writes_need_a_lease_that_lasts() {
        let tenure = Tenure::default();
        let writes = [Method::POST, Method::PATCH, Method::PUT, Method::DELETE];
        assert!(tenure.admit(request(Method::GET)).is_ok());
        assert!(writes.iter().all(|method| tenure.admit(request(method.clone())).is_err()));
        tenure.renewed(Instant::now());
        assert!(writes.iter().all(|method| tenure.admit(request(method.clone())).is_ok()));
        tenure.renewed(Instant::now().checked_sub(super::super::DEADLINE).unwrap());
        assert!(writes.iter().all(|method| tenure.admit(request(method.clone())).is_err()));
        assert!(tenure.admit(request(Method::GET)).is_ok());
    }
}
