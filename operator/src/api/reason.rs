//! Reasons of conditions, Events and failed steps.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// Reason in one word: of a condition, of an Event, or of a failed step in metrics.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)+
        }

        impl Reason {
            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the variant's name.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }
    };
}

// `operator/README.md` has a row for each reason.
reasons! {
    /// The spec and the objects that it refers to can be used.
    Accepted,
    /// The last fetch succeeded.
    Synced,
    /// The newest document is published.
    Published,
    /// The source confirms the published snapshot.
    Current,
    /// No attempt was made yet.
    Pending,
    /// The last good revision stays published, because a newer one cannot be fetched or published.
    LastGood,
    /// The source has not confirmed the published snapshot for a short time.
    Behind,
    /// The source has not confirmed the published snapshot for a long time.
    Stale,
    /// `spec.suspend` is true.
    Suspended,
    /// `spec.pin` keeps a revision published.
    Pinned,
    /// `spec.pin` names a revision that is not kept.
    UnknownRevision,
    /// No snapshot is published.
    NothingPublished,
    /// The only published snapshot has the format of another version.
    PreviousFormat,
    /// The FeatureEnvironment's name cannot be part of object names.
    InvalidName,
    /// The prune rules contain an invalid pattern.
    InvalidPattern,
    /// The source cannot be used as written.
    InvalidSource,
    /// The administrator allows no published Secrets.
    DeliveryNotAllowed,
    /// No administrator allowed the server's origin.
    OriginNotAllowed,
    /// The server's name resolves to forbidden addresses only.
    AddressBlocked,
    /// The Secret does not exist.
    SecretNotFound,
    /// The Secret lacks the key, or the key's value is unusable.
    SecretInvalid,
    /// The Secret lacks the label with which its owner consents.
    SecretNotConsented,
    /// The ConfigMap does not exist.
    ConfigMapNotFound,
    /// The ConfigMap lacks the key, or the key's value is unusable.
    ConfigMapInvalid,
    /// The API server did not return an object that the source names, or a published object.
    ReadFailed,
    /// The TLS handshake with the server failed.
    TLSFailure,
    /// The server refused the key.
    AuthenticationFailed,
    /// The server answered HTTP 404.
    EnvironmentNotFound,
    /// The server answered HTTP 429.
    RateLimited,
    /// The server gave no answer, or an unusable one.
    UpstreamUnavailable,
    /// The server sends the document below the minimum rate.
    AnswerTooSlow,
    /// The server redirects to another origin, or too often.
    RedirectRefused,
    /// A part of the answer or the document exceeds its size limit.
    BodyTooLarge,
    /// The environment changed between two pages of its document, several times in a row.
    PagesChanged,
    /// The bytes are not a valid document.
    ParseError,
    /// The document contradicts itself.
    CompileError,
    /// The compilation exceeded its memory bound.
    CompileOutOfMemory,
    /// The compilation exceeded a time bound.
    CompileOutOfTime,
    /// The compilation ended without an answer for another reason.
    CompileCrashed,
    /// The process that compiles could not be started.
    CompileNotStarted,
    /// The compiled core cannot be divided into objects.
    CoreIndivisible,
    /// The snapshot does not fit into its objects.
    CapacityExceeded,
    /// The snapshots of the namespace have used up its share of the controller's memory.
    SnapshotMemoryFull,
    /// The core needs more objects than the volumes of running pods name.
    PodsWithoutRoom,
    /// The document lost more than `spec.guard.maxShrinkPercent` allows.
    SuspiciousShrink,
    /// The document belongs to another environment than the published one.
    OtherEnvironment,
    /// The document is older than the published one.
    OlderDocument,
    /// An object of another owner has the name.
    Conflict,
    /// The namespace's quota is used up.
    QuotaExceeded,
    /// The namespace is being deleted.
    NamespaceTerminating,
    /// The API server refused a write, or did not answer.
    WriteFailed,
    /// The API server refused a status, or did not answer.
    ReportFailed,
    /// The API server refused to list the pods that need room for a new core.
    ListPods,
    /// The API server did not list the pods to notify in time.
    ListPodsTimeout,
    /// Some pods could not be notified.
    PodsNotNotified,
    /// The source can be fetched again.
    FetchRecovered,
    /// Pods do not serve the published revision.
    PodsBehind,
    /// All pods that answer serve the published revision again.
    PodsFollowed,
    /// A pod that asks for flags has no sidecar.
    NotInjected,
    /// The auditor evicted a pod without its sidecar.
    EvictedForInjection,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
