//! Scenario store of the stub: documents by server key, scripted faults, and the log of requests.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Context as _;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::answer::{self, Answer, Conditions};
use super::document::{Document, FlagChange};
use super::fault::{Fault, Scripted};
use super::head::Head;
use super::silent_change::SilentChange;

const DOCUMENT: &str = "/api/v1/environment-document/";
const ANALYTICS: &str = "/api/v1/analytics/flags/";
/// Maximum number of entries of the log. A test with more requests reads the log more often.
const LONGEST_LOG: usize = 10_000;

/// Request to the public side.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LoggedRequest {
    /// Time of arrival.
    pub at: Timestamp,
    /// Path of the request.
    pub path: String,
    /// Query of the request, as received.
    pub query: String,
    /// Value of `X-Environment-Key`.
    pub key: Option<String>,
    /// Value of `If-Modified-Since`.
    pub if_modified_since: Option<String>,
    /// True if the request came over TLS.
    pub tls: bool,
    /// Status of the answer, or the status that the answer had before a fault replaced it.
    pub status: u16,
    /// True if a scripted fault replaced the answer.
    pub faulty: bool,
}

/// Settings of an environment, apart from its document. An absent member has its default.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Number of identity overrides per page. Absent: all on one page, as a self-hosted API does.
    pub page_size: Option<usize>,
    /// True if the environment's organisation is over its plan: requests get 403.
    pub blocked: bool,
    /// Fault of every request with uses of flags. A fault with a status refuses the uses; any other fault stores them and
    /// changes the answer.
    pub uses_fault: Option<Fault>,
}

struct Environment {
    document: Document,
    settings: Settings,
    faults: VecDeque<Scripted>,
    changed: watch::Sender<Timestamp>,
    /// Uses of flags that clients sent, by the flag's name.
    uses: BTreeMap<String, u64>,
}

impl Environment {
    fn announce(&self) {
        self.changed.send_replace(self.document.updated_at());
    }

    fn next_fault(&mut self) -> Option<Fault> {
        let first = self.faults.front_mut()?;
        let fault = first.fault.clone();
        if let Some(times) = &mut first.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.faults.pop_front();
            }
        }
        Some(fault)
    }
}

#[derive(Default)]
struct Content {
    environments: BTreeMap<String, Environment>,
    log: VecDeque<LoggedRequest>,
}

/// Documents, settings, faults and the log, shared by both sides.
#[derive(Default)]
pub struct ScenarioStore(Mutex<Content>);

impl ScenarioStore {
    fn content(&self) -> MutexGuard<'_, Content> {
        // A panic while the lock is held leaves consistent values: every change is one assignment.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves `document` to requests with `server_key`, in place of an earlier one; settings and faults stay.
    ///
    /// # Errors
    ///
    /// Returns an error if the key does not start with `ser.`, or the text is not a document.
    pub fn put(&self, server_key: &str, document: &str) -> anyhow::Result<()> {
        anyhow::ensure!(server_key.starts_with("ser."), "a server-side key starts with `ser.`: {server_key}");
        let document = Document::parse(document, Timestamp::now())?;
        let mut content = self.content();
        if let Some(environment) = content.environments.get_mut(server_key) {
            environment.document = document;
            environment.announce();
        } else {
            let changed = watch::Sender::new(document.updated_at());
            let environment = Environment {
                document,
                settings: Settings::default(),
                faults: VecDeque::new(),
                changed,
                uses: BTreeMap::new(),
            };
            content.environments.insert(server_key.to_owned(), environment);
        }
        Ok(())
    }

    /// Removes the key: requests with it are refused like requests with an unknown key.
    pub fn remove(&self, server_key: &str) {
        self.content().environments.remove(server_key);
    }

    fn change<T>(
        &self,
        server_key: &str,
        change: impl FnOnce(&mut Environment) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let mut content = self.content();
        change(
            content
                .environments
                .get_mut(server_key)
                .with_context(|| format!("no document was put for the key {server_key}"))?,
        )
    }

    /// Changes the state of a feature, and `updated_at` with it.
    ///
    /// # Errors
    ///
    /// Returns an error if the key or the feature does not exist.
    pub fn change_flag(&self, server_key: &str, feature: &str, change: &FlagChange) -> anyhow::Result<()> {
        self.change(server_key, |environment| {
            environment.document.change_flag(feature, change, Timestamp::now())?;
            environment.announce();
            Ok(())
        })
    }

    /// Applies a change that does not move `updated_at`. Event streams do not report it.
    ///
    /// # Errors
    ///
    /// Returns an error if the key or the changed part does not exist.
    pub fn change_silently(&self, server_key: &str, change: &SilentChange) -> anyhow::Result<()> {
        self.change(server_key, |environment| environment.document.change_silently(change))
    }

    /// Replaces the settings of an environment.
    ///
    /// # Errors
    ///
    /// Returns an error if the key does not exist or the page size is 0.
    pub fn set(&self, server_key: &str, settings: Settings) -> anyhow::Result<()> {
        anyhow::ensure!(settings.page_size != Some(0), "pageSize: a page holds at least 1 override");
        self.change(server_key, |environment| {
            environment.settings = settings;
            Ok(())
        })
    }

    /// Scripts faults for the next document requests, in place of the earlier script.
    ///
    /// # Errors
    ///
    /// Returns an error if the key does not exist.
    pub fn script(&self, server_key: &str, faults: impl IntoIterator<Item = Scripted>) -> anyhow::Result<()> {
        self.change(server_key, |environment| {
            environment.faults = faults.into_iter().filter(|scripted| scripted.times != Some(0)).collect();
            Ok(())
        })
    }

    /// Returns the uses of flags that clients sent with this key, or with the environment's client-side key.
    ///
    /// # Errors
    ///
    /// Returns an error if the key does not exist.
    pub fn uses(&self, server_key: &str) -> anyhow::Result<BTreeMap<String, u64>> {
        self.change(server_key, |environment| Ok(environment.uses.clone()))
    }

    /// Returns the requests, oldest first; with a key, only the requests with that key.
    #[must_use]
    pub fn log(&self, server_key: Option<&str>) -> Vec<LoggedRequest> {
        let content = self.content();
        content
            .log
            .iter()
            .filter(|request| server_key.is_none() || request.key.as_deref() == server_key)
            .cloned()
            .collect()
    }

    /// Answers a request to the public side and logs it. The writer applies the returned fault, if any.
    pub(super) fn answer(&self, head: &Head, tls: bool) -> anyhow::Result<(Answer, Option<Fault>)> {
        let key = head.header("x-environment-key");
        let mut content = self.content();
        let (answer, fault) = match (head.method.as_str(), head.path.as_str()) {
            ("GET", DOCUMENT) => match key {
                Some(key) if key.starts_with("ser.") => match content.environments.get_mut(key) {
                    Some(environment) => {
                        let conditions = Conditions {
                            if_modified_since: head.header("if-modified-since"),
                            page_id: head.parameter("page_id"),
                        };
                        let answer = if environment.settings.blocked {
                            Answer::forbidden("Organisation is disabled from serving flags.")
                        } else {
                            answer::document(&environment.document, environment.settings.page_size, conditions)?
                        };
                        (answer, environment.next_fault())
                    }
                    None => (Answer::forbidden("Invalid or missing Environment Key"), None),
                },
                _ => (Answer::forbidden("Invalid or missing Environment key"), None),
            },
            ("GET", path) if DOCUMENT.strip_suffix('/') == Some(path) => {
                let query = if head.query.is_empty() { String::new() } else { format!("?{}", head.query) };
                (Answer::redirect(format!("{DOCUMENT}{query}")), None)
            }
            ("POST", ANALYTICS) => {
                let is_named = |(server_key, environment): &(&String, &mut Environment)| {
                    key.is_some_and(|key| key == server_key.as_str() || key == environment.document.client_key())
                };
                match content.environments.iter_mut().find(is_named) {
                    Some((_, environment)) => {
                        let fault = environment.settings.uses_fault.clone();
                        let is_refused = matches!(fault, Some(Fault::Status { .. }));
                        let answer = if is_refused {
                            Answer::json(200, "")
                        } else {
                            add_uses(&mut environment.uses, &head.body)
                        };
                        (answer, fault)
                    }
                    None => (Answer::forbidden("Invalid or missing Environment key"), None),
                }
            }
            (method, DOCUMENT) => {
                (Answer::json(405, format!(r#"{{"detail":"Method \"{method}\" not allowed."}}"#)), None)
            }
            _ => (Answer::not_found(), None),
        };
        let request = LoggedRequest {
            at: Timestamp::now(),
            path: head.path.clone(),
            query: head.query.clone(),
            key: key.map(str::to_owned),
            if_modified_since: head.header("if-modified-since").map(str::to_owned),
            tls,
            status: match &fault {
                Some(Fault::Status { code, .. }) => *code,
                _ => answer.status,
            },
            faulty: fault.is_some(),
        };
        if content.log.len() == LONGEST_LOG {
            content.log.pop_front();
        }
        content.log.push_back(request);
        Ok((answer, fault))
    }

    /// Watches `updated_at` of the environment with this client-side key.
    pub(super) fn follow(&self, client_key: &str) -> Option<watch::Receiver<Timestamp>> {
        let content = self.content();
        let environment =
            content.environments.values().find(|environment| environment.document.client_key() == client_key)?;
        Some(environment.changed.subscribe())
    }
}

/// Adds the counts of a body. A body that is not an object of counts gets a refusal, and adds nothing.
fn add_uses(uses: &mut BTreeMap<String, u64>, body: &[u8]) -> Answer {
    let Ok(sent) = serde_json::from_slice::<BTreeMap<String, u64>>(body) else {
        return Answer::json(400, r#"{"detail":"not counts by the flag's name"}"#);
    };
    for (flag, count) in sent {
        let sum = uses.entry(flag).or_default();
        *sum = sum.saturating_add(count);
    }
    Answer::json(200, "")
}
