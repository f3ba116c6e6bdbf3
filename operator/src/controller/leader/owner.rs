//! Owner of the lease: the ServiceAccount of its holder, which is deleted when the release is uninstalled. Uninstalling
//! removes the permission to release the lease before the holder ends. Without an owner, the lease would remain, and
//! the next installation would wait until it expires.

use k8s_openapi::{
    api::authentication::v1::{SelfSubjectReview, UserInfo},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, api::PostParams};

use super::CALL_TIMEOUT;
use crate::api_call::within;

/// Returns a reference to the ServiceAccount of this process. `None` if the process uses no account of this namespace,
/// or the API server does not answer.
pub async fn account(client: Client, namespace: &str) -> Option<OwnerReference> {
    let reviews: Api<SelfSubjectReview> = Api::all(client);
    let (parameters, question) = (PostParams::default(), SelfSubjectReview::default());
    match within(CALL_TIMEOUT, reviews.create(&parameters, &question)).await {
        Ok(review) => reference(&review.status?.user_info?, namespace),
        Err(error) => {
            tracing::warn!(%error, "cannot read the ServiceAccount of this process: the lease has no owner, and an installation that follows an uninstallation waits for it");
            None
        }
    }
}

fn reference(user: &UserInfo, namespace: &str) -> Option<OwnerReference> {
    let account = user.username.as_ref()?.strip_prefix("system:serviceaccount:")?;
    let (of, name) = account.split_once(':')?;
    let uid = user.uid.clone().filter(|uid| !uid.is_empty())?;
    (of == namespace).then(|| OwnerReference {
        api_version: "v1".to_owned(),
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        uid,
        ..OwnerReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_of_another_namespace_owns_nothing() {
        let owner = |username: &str, uid: &str| {
            let user =
                UserInfo { username: Some(username.to_owned()), uid: Some(uid.to_owned()), ..UserInfo::default() };
            reference(&user, "remora-system").map(|owner| (owner.kind, owner.name, owner.uid))
        };
        let controller = "system:serviceaccount:remora-system:remora-controller";
        let owned = ("ServiceAccount".to_owned(), "remora-controller".to_owned(), "uid-1".to_owned());
        assert_eq!(owner(controller, "uid-1"), Some(owned));
        assert_eq!(owner(controller, ""), None);
        assert_eq!(owner("system:serviceaccount:other:remora-controller", "uid-1"), None);
        assert_eq!(owner("kubernetes-admin", "uid-1"), None);
    }
}
