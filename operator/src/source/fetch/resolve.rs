//! Names to addresses, checked where the connection is made: what was checked is what is connected to.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{address::is_allowed, origin::Reach};

/// How names become addresses.
pub trait Lookup: Send + Sync + 'static {
    /// The addresses of `host`.
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The system's resolver.
#[derive(Clone, Copy, Debug)]
pub struct SystemLookup;

impl Lookup for SystemLookup {
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        Box::pin(async move {
            let found = tokio::net::lookup_host((host, 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}

/// Every address of the name is one that this reach excludes.
#[derive(Debug, thiserror::Error)]
#[error("no address that may be connected to")]
pub(super) struct Blocked;

/// The name has no address.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve")]
pub(super) struct Unknown;

/// Lets through what [`is_allowed`] allows.
pub(super) struct Guard {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) reach: Reach,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let found = self.lookup.lookup(name.as_str().to_owned());
        let reach = self.reach;
        Box::pin(async move {
            let all = found.await.map_err(|_| Unknown)?;
            if all.is_empty() {
                return Err(Unknown.into());
            }
            let allowed: Vec<SocketAddr> = all
                .into_iter()
                .filter(|address| is_allowed(*address, reach))
                .map(|address| SocketAddr::new(address, 0))
                .collect();
            if allowed.is_empty() {
                return Err(Blocked.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}
