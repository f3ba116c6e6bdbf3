//! The question if an account may do something. Pure.

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};

use crate::api::NamespacedName;

/// Question to the API server: may an account make requests of a kind in a namespace?
#[derive(Clone, Copy, Debug)]
pub(in crate::ask) struct AccessQuestion<'a> {
    /// Name of the ServiceAccount.
    pub(in crate::ask) account: &'a NamespacedName,
    /// Namespace of the requests.
    pub(in crate::ask) namespace: &'a str,
    /// API group of the resource. Empty for the core group.
    pub(in crate::ask) group: &'a str,
    /// Resource in the plural, possibly with a subresource: `pods` or `pods/status`.
    pub(in crate::ask) resource: &'a str,
    /// Verb of the requests, such as `list`.
    pub(in crate::ask) verb: &'a str,
}

impl AccessQuestion<'_> {
    /// Returns the question as the API server takes it.
    pub(super) fn review(&self) -> SubjectAccessReview {
        let NamespacedName { namespace: home, name: account } = self.account;
        let (resource, subresource) = match self.resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource)),
            None => (self.resource, None),
        };
        SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{home}:{account}")),
                groups: Some(vec![
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{home}"),
                    "system:authenticated".to_owned(),
                ]),
                resource_attributes: Some(ResourceAttributes {
                    namespace: Some(self.namespace.to_owned()),
                    group: Some(self.group.to_owned()),
                    resource: Some(resource.to_owned()),
                    subresource: subresource.map(str::to_owned),
                    verb: Some(self.verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        }
    }
}
