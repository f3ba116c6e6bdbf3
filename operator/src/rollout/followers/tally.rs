//! Counts the answers of pods, and describes what is wrong. Pure.

use std::collections::BTreeMap;

use super::{
    Subject,
    ask::Reply,
    pods::{Injected, Mounted},
};
use crate::api::{Carrier, Pods, names::FORMAT};

/// Number of pod names in a message.
const NAMED: usize = 3;

/// The snapshot that pods should serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due<'a> {
    pub(super) revision: &'a str,
    pub(super) bytes: usize,
    pub(super) carrier: Carrier,
    pub(super) overrides_files: usize,
}

impl<'a> From<&'a Subject> for Due<'a> {
    fn from(subject: &'a Subject) -> Self {
        let Subject { revision, bytes, carrier, overrides_files, .. } = subject;
        Self { revision, bytes: *bytes, carrier: *carrier, overrides_files: *overrides_files }
    }
}

/// The answers so far. A pod that serves the revision is not asked again.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) total: usize,
    /// Number of pods in the sample, or of all pods.
    pub(super) asked: usize,
    pub(super) current: usize,
    pub(super) behind: Vec<Injected>,
    pub(super) silent: Vec<Injected>,
    /// Number of pods whose sidecar does not run, or has no snapshot yet.
    pub(super) starting: usize,
    /// Pods whose volumes name objects in another format. They cannot serve the revision and are not asked.
    pub(super) other_format: Vec<Injected>,
    /// Pods whose volumes name objects of another kind.
    pub(super) other_kind: Vec<Injected>,
    /// Pods whose volumes name fewer overrides objects than are published.
    pub(super) few_slots: Vec<Injected>,
}

impl Tally {
    /// Records the pods whose volume layout does not fit the snapshot.
    pub(super) fn inspect(&mut self, pods: &[Injected], due: &Due<'_>) {
        let made = |is_wrong: fn(&Due<'_>, Mounted) -> bool| {
            let wrong = pods.iter().filter(|pod| pod.volume.is_some_and(|volume| is_wrong(due, volume)));
            wrong.cloned().collect()
        };
        self.other_format = made(|_, volume| volume.format != FORMAT);
        self.other_kind = made(|due, volume| volume.format == FORMAT && volume.carrier != due.carrier);
        self.few_slots = made(|due, volume| volume.format == FORMAT && volume.slots < due.overrides_files);
    }

    /// Counts the answer of a pod.
    pub(super) fn count(&mut self, pod: Injected, reply: &Reply, revision: &str) {
        match reply {
            Reply::Serves(Some(serves)) if serves == revision => self.current += 1,
            Reply::Serves(Some(_)) => self.behind.push(pod),
            Reply::Serves(None) => self.starting += 1,
            Reply::Silent => self.silent.push(pod),
        }
    }

    /// True if all pods serve the revision.
    pub(super) fn is_settled(&self) -> bool {
        !self.is_behind() && self.silent.is_empty() && self.starting == 0
    }

    /// True if some pods serve another revision.
    pub(super) fn is_behind(&self) -> bool {
        !self.behind.is_empty() || !self.other_format.is_empty()
    }

    /// Counts for the status. With `is_late` they include the problem of pods that have not followed in time.
    pub(super) fn report(&self, due: &Due<'_>, is_late: bool) -> Pods {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Pods {
            // Without pods, a new revision does not change the status.
            revision: (self.total > 0).then(|| due.revision.to_owned()),
            total: count(self.total),
            asked: (self.asked < self.total).then(|| count(self.asked)),
            current: count(self.current),
            behind: count(self.behind.len() + self.other_format.len()),
            silent: count(self.silent.len()),
            problem: self.problem(due, is_late),
        }
    }

    fn problem(&self, due: &Due<'_>, is_late: bool) -> Option<String> {
        let mut sentences = self.restart_needed(due);
        if is_late {
            sentences.extend(self.late(due));
        }
        (!sentences.is_empty()).then(|| sentences.join(". "))
    }

    /// Problems of pods that need a restart, because their volume layout does not fit.
    fn restart_needed(&self, due: &Due<'_>) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut by_format: BTreeMap<_, Vec<&Injected>> = BTreeMap::new();
        for (pod, volume) in self.other_format.iter().filter_map(|pod| Some((pod, pod.volume?))) {
            by_format.entry(volume.format).or_default().push(pod);
        }
        for (format, pods) in by_format {
            sentences.push(format!(
                "mounting objects of format {format} while format {FORMAT} is published: {}; they keep their revision until they are restarted",
                named(&pods)
            ));
        }
        if !self.few_slots.is_empty() {
            let pods: Vec<&Injected> = self.few_slots.iter().collect();
            sentences.push(format!(
                "volumes without room for all overrides objects: {}; {} are published: restart the pods",
                named(&pods),
                due.overrides_files
            ));
        }
        if !self.other_kind.is_empty() {
            let (pods, former): (Vec<&Injected>, _) = (self.other_kind.iter().collect(), due.carrier.other().kind());
            sentences.push(format!(
                "still mounting {former}s: {}; the {former}s stay published until these pods are restarted",
                named(&pods)
            ));
        }
        sentences
    }

    fn late(&self, due: &Due<'_>) -> Vec<String> {
        let needed = 2 * due.bytes as u128;
        let is_cramped = |pod: &&Injected| pod.room.is_some_and(|room| room < needed);
        let is_made_for_fewer = |pod: &&Injected| self.few_slots.iter().any(|few| few.uid == pod.uid);
        let behind = self.behind.iter().filter(|pod| !is_made_for_fewer(pod));
        let (cramped, late): (Vec<&Injected>, Vec<&Injected>) = behind.partition(is_cramped);
        let mut sentences = Vec::new();
        if let Some(room) = cramped.iter().filter_map(|pod| pod.room).min() {
            sentences.push(format!(
                "volumes too small to be updated: {}; their memory limits leave {room} bytes for the volume, and an update needs {needed}: raise the limits (the sidecar's with the annotation remora.dev/memory-limit) and restart the pods",
                named(&cramped)
            ));
        }
        if !late.is_empty() {
            sentences.push(format!(
                "still serving an older revision: {}; look at their Events and at their nodes, or restart them",
                named(&late)
            ));
        }
        if !self.silent.is_empty() {
            let silent: Vec<&Injected> = self.silent.iter().collect();
            sentences.push(format!(
                "not answering: {}; allow the controller to connect to their port remora-admin, also in NetworkPolicies of the namespace",
                named(&silent)
            ));
        }
        sentences
    }
}

fn named(pods: &[&Injected]) -> String {
    let mut names: Vec<&str> = pods.iter().map(|pod| pod.name.as_str()).collect();
    names.sort_unstable();
    let (rest, plural) = (names.len().saturating_sub(NAMED), if names.len() == 1 { "" } else { "s" });
    names.truncate(NAMED);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!("{} pod{plural} ({}{more})", pods.len(), names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUE: Due<'_> = Due { revision: "new", bytes: 10, carrier: Carrier::ConfigMap, overrides_files: 16 };

    fn pod(name: &str, room: Option<u128>) -> Injected {
        Injected { uid: name.to_owned(), name: name.to_owned(), admin: None, room, volume: None }
    }

    fn tally(replies: &[(Reply, Option<u128>)]) -> Tally {
        let mut tally = Tally { total: replies.len(), asked: replies.len(), ..Tally::default() };
        for (number, (reply, room)) in replies.iter().enumerate() {
            tally.count(pod(&format!("web-{number}"), *room), reply, "new");
        }
        tally
    }

    fn serves(revision: &str) -> (Reply, Option<u128>) {
        (Reply::Serves(Some(revision.to_owned())), None)
    }

    #[test]
    fn pods_are_counted_by_answer() {
        let tally = tally(&[serves("new"), serves("old"), (Reply::Serves(None), None), (Reply::Silent, None)]);
        assert!(!tally.is_settled());
        let pods = tally.report(&DUE, false);
        assert_eq!((pods.total, pods.current, pods.behind, pods.silent), (4, 1, 1, 1));
        assert_eq!((pods.problem, pods.asked), (None, None));
    }

    #[test]
    fn late_pod_with_capacity_below_two_snapshots_is_reported_with_its_limit() {
        let late = tally(&[serves("old"), serves("old"), serves("old"), serves("old")]).report(&DUE, true);
        let problem = late.problem.unwrap();
        assert!(
            problem.starts_with("still serving an older revision: 4 pods (web-0, web-1, web-2 and 1 more);"),
            "{problem}"
        );
        let cramped = tally(&[(serves("old").0, Some(19)), (serves("old").0, Some(20))]).report(&DUE, true);
        let problem = cramped.problem.unwrap();
        assert!(
            problem.contains("volumes too small to be updated: 1 pod (web-0); their memory limits leave 19 bytes"),
            "{problem}"
        );
        assert!(problem.contains("still serving an older revision: 1 pod (web-1);"), "{problem}");
    }

    #[test]
    fn pod_with_other_volume_layout_is_reported_before_it_is_late() {
        let made = |name: &str, carrier, slots| Injected {
            volume: Some(Mounted { carrier, format: FORMAT, slots }),
            ..pod(name, None)
        };
        let pods = [
            made("few", Carrier::ConfigMap, 8),
            made("good", Carrier::ConfigMap, 16),
            made("other", Carrier::Secret, 16),
        ];
        let mut tally = tally(&[serves("new"), serves("new"), serves("new")]);
        tally.inspect(&pods, &DUE);
        let problem = tally.report(&DUE, false).problem.unwrap();
        assert!(
            problem.starts_with("volumes without room for all overrides objects: 1 pod (few); 16 are published"),
            "{problem}"
        );
        assert!(
            problem.ends_with(
                "still mounting Secrets: 1 pod (other); the Secrets stay published until these pods are restarted"
            ),
            "{problem}"
        );
        tally.count(pods[0].clone(), &serves("old").0, "new");
        assert!(!tally.report(&DUE, true).problem.unwrap().contains("still serving"), "the cause is reported already");
    }

    #[test]
    fn pod_of_other_format_is_behind_and_never_late() {
        let format = FORMAT.earlier().next().unwrap();
        let made = |name: &str, carrier, slots| Injected {
            volume: Some(Mounted { carrier, format, slots }),
            ..pod(name, None)
        };
        let pods = [made("web-1", Carrier::ConfigMap, 8), made("web-2", Carrier::Secret, 64)];
        let mut tally = Tally { total: 3, asked: 3, current: 1, ..Tally::default() };
        tally.inspect(&pods, &DUE);
        assert!(!tally.is_settled() && tally.is_behind());
        for is_late in [false, true] {
            let told = tally.report(&DUE, is_late);
            assert_eq!((told.total, told.current, told.behind, told.silent), (3, 1, 2, 0));
            let problem = told.problem.unwrap();
            let expected = format!(
                "mounting objects of format {format} while format {FORMAT} is published: 2 pods (web-1, web-2); they keep their revision until they are restarted"
            );
            assert_eq!(problem, expected);
        }
    }

    #[test]
    fn pods_that_serve_the_revision_have_no_problem() {
        assert!(tally(&[serves("new")]).is_settled());
        assert_eq!(tally(&[serves("new")]).report(&DUE, true).problem, None);
        assert_eq!(tally(&[]).report(&DUE, true), Pods::default());
    }
}
