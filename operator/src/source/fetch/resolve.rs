//! Resolves names to addresses and checks them where the connection is made, so that the checked address is the one
//! connected to.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use futures::future::BoxFuture;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::{address::is_allowed, origin::Reach};

/// A resolver of names.
pub trait Lookup: Send + Sync + 'static {
    /// Returns the addresses of `host`.
    fn lookup(&self, host: String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>>;
}

/// The resolver of the operating system.
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

/// Error: the reach excludes every address of the name.
#[derive(Debug, thiserror::Error)]
#[error("no address that may be connected to")]
pub(super) struct Blocked;

/// Error: the name has no address.
#[derive(Debug, thiserror::Error)]
#[error("the name does not resolve")]
pub(super) struct Unknown;

/// Resolver that returns only addresses that [`is_allowed`] accepts.
pub(super) struct CheckedResolver {
    pub(super) lookup: Arc<dyn Lookup>,
    pub(super) reach: Reach,
}

impl Resolve for CheckedResolver {
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
