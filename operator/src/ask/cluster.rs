//! Requests to the API server with the caller's rights and a time limit.

mod access;
mod pod;

use std::{fmt::Debug, path::PathBuf, time::Duration};

use k8s_openapi::{NamespaceResourceScope, api::authorization::v1::SubjectAccessReview};
use kube::{
    Api, Client, Config, Resource, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(super) use self::access::AccessQuestion;
use super::failure::{Failure, Right};
use crate::{api::FeatureEnvironment, api_call::within, watched::pages::Pages};

/// Timeout of one request to the API server.
const TIMEOUT: Duration = Duration::from_secs(15);
/// Largest number of objects in one page of a list. [`Pages`] requests fewer.
const PAGE: u32 = 500;
/// Part of the API server's answer if it does not know a resource.
const NO_RESOURCE: &str = "could not find the requested resource";
/// Options of the connection, named as those of kubectl.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct Connection {
    /// File with the kubeconfig. Default: `KUBECONFIG`, or `~/.kube/config`.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig. Default: the current context.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// User to impersonate.
    #[arg(long = "as", global = true, value_name = "USER")]
    impersonated: Option<String>,
    /// Namespace of the FeatureEnvironment. Default: the namespace of the context.
    #[arg(long, short, global = true, value_name = "NAME")]
    namespace: Option<String>,
}

/// Cluster that the caller's kubeconfig names.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    namespace: String,
}

/// Kind of objects that a request is about.
pub(super) trait Kind: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {}

impl<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned> Kind for K {}

fn right<K: Kind>(verb: &'static str, namespace: Option<&str>) -> Right {
    let (plural, group) = (K::plural(&()), K::group(&()));
    let resource = if group.is_empty() { plural.into_owned() } else { format!("{plural}.{group}") };
    Right { verb, resource, namespace: namespace.map(str::to_owned) }
}

/// Calls the API server. `right` is the right that the call needs.
async fn call<T>(right: Right, call: impl Future<Output = kube::Result<T>>) -> Result<T, Failure> {
    within(TIMEOUT, call).await.map_err(|error| Failure::of(error, right))
}

impl Cluster {
    /// Connects as the kubeconfig says.
    ///
    /// # Errors
    /// If there is no usable kubeconfig.
    pub(super) async fn connect(connection: &Connection) -> Result<Self, Failure> {
        let failed = |error: &dyn std::error::Error| Failure::Connection(error.to_string());
        let options = KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &connection.kubeconfig {
            Some(file) => {
                let kubeconfig = Kubeconfig::read_from(file).map_err(|error| failed(&error))?;
                Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))?
            }
            None if connection.context.is_some() => {
                Config::from_kubeconfig(&options).await.map_err(|error| failed(&error))?
            }
            None => Config::infer().await.map_err(|error| failed(&error))?,
        };
        config.default_retry = false;
        if connection.impersonated.is_some() {
            config.auth_info.impersonate = connection.impersonated.clone();
        }
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| failed(&error))?;
        Ok(Self::new(&client, namespace))
    }

    /// Uses this client, and this namespace where the command line names none. Pages of lists are bounded in bytes: authors
    /// decide how large objects are.
    #[must_use]
    pub fn new(client: &Client, namespace: String) -> Self {
        Self { client: Pages::default().bound(client), namespace }
    }

    /// Namespace that commands about one environment use.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the FeatureEnvironment of this name.
    pub(super) async fn environment(&self, name: &str) -> Result<FeatureEnvironment, Failure> {
        let namespace = &self.namespace;
        let api = Api::<FeatureEnvironment>::namespaced(self.client.clone(), namespace);
        match call(right::<FeatureEnvironment>("get", Some(namespace)), api.get_opt(name)).await? {
            Some(found) => Ok(found),
            // The API server answers 404 as well if it does not know the kind, which a list tells apart.
            None => {
                let environments = self.list::<FeatureEnvironment>(Some(namespace), "").await?;
                let names: Vec<&str> = environments.iter().filter_map(|found| found.metadata.name.as_deref()).collect();
                let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                Err(Failure::Usage(format!(
                    "namespace {namespace} has no FeatureEnvironment {name:?}: it has {known}. Set -n for another namespace"
                )))
            }
        }
    }

    /// Returns an object of the namespace, if it exists.
    pub(super) async fn get<K>(&self, namespace: &str, name: &str) -> Result<Option<K>, Failure>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        call(right::<K>("get", Some(namespace)), api.get_opt(name)).await
    }

    /// Returns an object of the cluster, if it exists.
    pub(super) async fn get_of_cluster<K: Kind>(&self, name: &str) -> Result<Option<K>, Failure> {
        call(right::<K>("get", None), Api::<K>::all(self.client.clone()).get_opt(name)).await
    }

    /// Lists objects with these labels, of one namespace or of all.
    pub(super) async fn list<K>(&self, namespace: Option<&str>, labels: &str) -> Result<Vec<K>, Failure>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        self.select(namespace, labels, Some).await
    }

    /// Lists what `keep` returns of the objects with these labels, of one namespace or of all. Each page is dropped before
    /// the next is requested.
    pub(super) async fn select<K, U>(
        &self,
        namespace: Option<&str>,
        labels: &str,
        keep: impl Fn(K) -> Option<U>,
    ) -> Result<Vec<U>, Failure>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope>,
    {
        let api = match namespace {
            Some(namespace) => Api::<K>::namespaced(self.client.clone(), namespace),
            None => Api::<K>::all(self.client.clone()),
        };
        self.pages(&api, right::<K>("list", namespace), labels, keep).await
    }

    /// Lists objects of the cluster with these labels.
    pub(super) async fn list_of_cluster<K: Kind>(&self, labels: &str) -> Result<Vec<K>, Failure> {
        self.pages(&Api::<K>::all(self.client.clone()), right::<K>("list", None), labels, Some).await
    }

    async fn pages<K: Kind, U>(
        &self,
        api: &Api<K>,
        right: Right,
        labels: &str,
        keep: impl Fn(K) -> Option<U>,
    ) -> Result<Vec<U>, Failure> {
        let mut parameters = ListParams::default().labels(labels).limit(PAGE);
        let mut found = Vec::new();
        loop {
            let page = call(right.clone(), api.list(&parameters)).await?;
            found.extend(page.items.into_iter().filter_map(&keep));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(found),
            }
        }
    }

    /// Lists the names of the admission policies with these labels, of the API version that the cluster has. Empty if it
    /// has none.
    pub(super) async fn policies(&self, labels: &str) -> Result<Vec<String>, Failure> {
        let (group, plural) = ("admissionregistration.k8s.io", "mutatingadmissionpolicies");
        for version in ["v1", "v1beta1"] {
            let kind = GroupVersionKind::gvk(group, version, "MutatingAdmissionPolicy");
            let resource = ApiResource::from_gvk_with_plural(&kind, plural);
            let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
            let right = Right { verb: "list", resource: format!("{plural}.{group}"), namespace: None };
            match call(right, api.list(&ListParams::default().labels(labels))).await {
                Ok(found) => return Ok(found.items.iter().map(ResourceExt::name_any).collect()),
                Err(Failure::Unanswered { message, .. }) if message.contains(NO_RESOURCE) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(Vec::new())
    }

    /// Asks the API server to create an object, without storing it. Returns what it would store.
    pub(super) async fn dry_run<K>(&self, namespace: &str, object: &K) -> Result<K, Failure>
    where
        K: Kind + Resource<Scope = NamespaceResourceScope> + serde::Serialize,
    {
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let parameters = PostParams { dry_run: true, ..PostParams::default() };
        call(right::<K>("create", Some(namespace)), api.create(&parameters, object)).await
    }

    /// Asks the API server if a ServiceAccount may do something.
    pub(super) async fn is_allowed(&self, question: AccessQuestion<'_>) -> Result<bool, Failure> {
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let right = right::<SubjectAccessReview>("create", None);
        let answer = call(right, api.create(&PostParams::default(), &question.review())).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }

    /// Merges `change` into a FeatureEnvironment, and returns the object as it is then.
    pub(super) async fn change(&self, name: &str, change: &Value) -> Result<FeatureEnvironment, Failure> {
        let api = Api::<FeatureEnvironment>::namespaced(self.client.clone(), &self.namespace);
        let (right, parameters) = (right::<FeatureEnvironment>("patch", Some(&self.namespace)), PatchParams::default());
        call(right, api.patch(name, &parameters, &Patch::Merge(change))).await
    }

    /// Returns the version of the API server, such as `v1.34.1`.
    pub(super) async fn version(&self) -> Result<String, Failure> {
        let right = Right { verb: "get", resource: "the path /version".to_owned(), namespace: None };
        Ok(call(right, self.client.apiserver_version()).await?.git_version)
    }

    /// Reads the FeatureEnvironment until `is_done`, for at most `limit`. Returns the object as it was read last.
    pub(super) async fn wait(
        &self,
        name: &str,
        limit: Duration,
        is_done: impl Fn(&FeatureEnvironment) -> bool,
    ) -> Result<FeatureEnvironment, Failure> {
        const PAUSE: Duration = Duration::from_millis(300);
        let end = tokio::time::Instant::now() + limit;
        loop {
            let found = self.environment(name).await?;
            if is_done(&found) || tokio::time::Instant::now() >= end {
                return Ok(found);
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}
