//! Counts the answers of pods, and describes what is wrong. Pure.

use std::collections::BTreeMap;

use super::ObservationTarget;
use crate::{
    api::{Pods, Revision, names::FORMAT},
    rollout::{
        pods::{Injected, Mounted, named},
        sidecar::Reply,
    },
};

/// The answers so far. A pod that serves the revision is not asked again.
#[derive(Debug, Default)]
pub(super) struct Counts {
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
    /// Pods whose volumes name fewer parts of a core than are published.
    pub(super) few_parts: Vec<Injected>,
}

impl Counts {
    /// Records the pods whose volume layout does not fit the snapshot.
    pub(super) fn inspect(&mut self, pods: &[Injected], target: &ObservationTarget) {
        let with = |is_wrong: fn(&ObservationTarget, Mounted) -> bool| {
            let wrong = pods.iter().filter(|pod| pod.volume.is_some_and(|volume| is_wrong(target, volume)));
            wrong.cloned().collect()
        };
        self.other_format = with(|_, volume| volume.format != FORMAT);
        self.other_kind = with(|target, volume| volume.format == FORMAT && volume.object_kind != target.object_kind);
        self.few_slots =
            with(|target, volume| volume.format == FORMAT && volume.slots.overrides < target.slots.overrides);
        self.few_parts =
            with(|target, volume| volume.format == FORMAT && volume.slots.core_parts < target.slots.core_parts);
    }

    /// Counts the answer of a pod.
    pub(super) fn count(&mut self, pod: Injected, reply: &Reply, revision: &Revision) {
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
    pub(super) fn report(&self, target: &ObservationTarget, is_late: bool) -> Pods {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        Pods {
            // Without pods, a new revision does not change the status.
            revision: (self.total > 0).then(|| target.revision.clone()),
            total: count(self.total),
            asked: (self.total > 0).then(|| count(self.asked)),
            current: count(self.current),
            behind: count(self.behind.len() + self.other_format.len()),
            silent: count(self.silent.len()),
            problem: self.problem(target, is_late),
        }
    }

    fn problem(&self, target: &ObservationTarget, is_late: bool) -> Option<String> {
        let mut sentences = self.restart_needed(target);
        if is_late {
            sentences.extend(self.late(target));
        }
        (!sentences.is_empty()).then(|| sentences.join(". "))
    }

    /// Problems of pods that need a restart, because their volume layout does not fit.
    fn restart_needed(&self, target: &ObservationTarget) -> Vec<String> {
        let mut sentences = Vec::new();
        let mut by_format: BTreeMap<_, Vec<&Injected>> = BTreeMap::new();
        for (pod, volume) in self.other_format.iter().filter_map(|pod| Some((pod, pod.volume?))) {
            by_format.entry(volume.format).or_default().push(pod);
        }
        for (format, pods) in by_format {
            sentences.push(format!(
                "{}: the volume names objects of format {format}, and format {FORMAT} is published; restart the pods, which keep their revision until then",
                named(&pods)
            ));
        }
        if !self.few_slots.is_empty() {
            let pods: Vec<&Injected> = self.few_slots.iter().collect();
            sentences.push(format!(
                "{}: the volume names fewer than the {} published overrides objects; restart the pods",
                named(&pods),
                target.slots.overrides
            ));
        }
        if !self.few_parts.is_empty() {
            let pods: Vec<&Injected> = self.few_parts.iter().collect();
            sentences.push(format!(
                "{}: the volume names fewer than the {} published parts of the core; restart the pods",
                named(&pods),
                target.slots.core_parts
            ));
        }
        if !self.other_kind.is_empty() {
            let (pods, previous): (Vec<&Injected>, _) =
                (self.other_kind.iter().collect(), target.object_kind.other().as_str());
            let until_then = if target.has_other_kind {
                format!("restart the pods, until then the operator keeps the {previous}s")
            } else {
                // The pods were admitted before their environment existed.
                format!("there are no such {previous}s, so these pods have no flags: restart them")
            };
            sentences.push(format!("{}: the volume names {previous}s; {until_then}", named(&pods)));
        }
        sentences
    }

    fn late(&self, target: &ObservationTarget) -> Vec<String> {
        let needed = 2 * target.bytes as u128;
        let is_too_small = |pod: &&Injected| pod.capacity.is_some_and(|capacity| capacity < needed);
        let has_few_slots =
            |pod: &&Injected| self.few_slots.iter().chain(&self.few_parts).any(|few| few.uid == pod.uid);
        let behind = self.behind.iter().filter(|pod| !has_few_slots(pod));
        let (too_small, late): (Vec<&Injected>, Vec<&Injected>) = behind.partition(is_too_small);
        let mut sentences = Vec::new();
        if let Some(capacity) = too_small.iter().filter_map(|pod| pod.capacity).min() {
            sentences.push(format!(
                "{}: the memory limits leave {capacity} bytes for the volume, and an update needs {needed}; raise the limits (the sidecar's with annotation remora.dev/memory-limit) and restart the pods",
                named(&too_small)
            ));
        }
        if !late.is_empty() {
            sentences.push(format!(
                "{}: serving another revision; look at the Events and the nodes of the pods, or restart the pods",
                named(&late)
            ));
        }
        if !self.silent.is_empty() {
            let silent: Vec<&Injected> = self.silent.iter().collect();
            sentences.push(format!(
                "{}: no answer; allow the controller to connect to port remora-admin of the pods, also in NetworkPolicies of the namespace",
                named(&silent)
            ));
        }
        sentences
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{api::ObjectKind, injection::Slots};

    const SLOTS: Slots = Slots { overrides: 16, core_parts: 2 };
    fn target() -> ObservationTarget {
        ObservationTarget {
            uid: "u".into(),
            namespace: "shop".to_owned(),
            environment: "storefront".parse().unwrap(),
            revision: Revision::new("new"),
            bytes: 10,
            object_kind: ObjectKind::ConfigMap,
            has_other_kind: true,
            slots: SLOTS,
            nudge: true,
            published_at: None,
        }
    }

    fn pod(name: &str, capacity: Option<u128>) -> Injected {
        Injected { capacity, ..Injected::named(name) }
    }

    fn counts(replies: &[(Reply, Option<u128>)]) -> Counts {
        let mut counts = Counts { total: replies.len(), asked: replies.len(), ..Counts::default() };
        for (number, (reply, capacity)) in replies.iter().enumerate() {
            counts.count(pod(&format!("web-{number}"), *capacity), reply, &Revision::new("new"));
        }
        counts
    }

    fn serves(revision: &str) -> (Reply, Option<u128>) {
        (Reply::Serves(Some(Revision::new(revision))), None)
    }

    #[test]
    fn pods_are_counted_by_answer() {
        let counts = counts(&[serves("new"), serves("old"), (Reply::Serves(None), None), (Reply::Silent, None)]);
        assert!(!counts.is_settled());
        let pods = counts.report(&target(), false);
        assert_eq!((pods.total, pods.current, pods.behind, pods.silent), (4, 1, 1, 1));
        assert_eq!((pods.problem, pods.asked), (None, Some(4)));
    }

    #[test]
    fn late_pod_with_capacity_below_two_snapshots_is_reported_with_its_limit() {
        let late = counts(&[serves("old"), serves("old"), serves("old"), serves("old")]).report(&target(), true);
        let problem = late.problem.unwrap();
        assert!(problem.starts_with("4 pods (web-0, web-1, web-2 and 1 more): serving another revision;"), "{problem}");
        let too_small = counts(&[(serves("old").0, Some(19)), (serves("old").0, Some(20))]).report(&target(), true);
        let problem = too_small.problem.unwrap();
        assert!(problem.contains("1 pod (web-0): the memory limits leave 19 bytes"), "{problem}");
        assert!(problem.contains("1 pod (web-1): serving another revision;"), "{problem}");
    }

    #[test]
    fn pod_with_other_volume_layout_is_reported_before_it_is_late() {
        let made = |name: &str, object_kind, slots| Injected {
            volume: Some(Mounted { object_kind, format: FORMAT, slots }),
            ..pod(name, None)
        };
        let pods = [
            made("few", ObjectKind::ConfigMap, Slots { overrides: 8, ..SLOTS }),
            made("good", ObjectKind::ConfigMap, SLOTS),
            made("other", ObjectKind::Secret, SLOTS),
            made("part", ObjectKind::ConfigMap, Slots { core_parts: 1, ..SLOTS }),
        ];
        let mut counts = counts(&[serves("new"), serves("new"), serves("new"), serves("new")]);
        counts.inspect(&pods, &target());
        let problem = counts.report(&target(), false).problem.unwrap();
        assert!(
            problem.starts_with("1 pod (few): the volume names fewer than the 16 published overrides objects;"),
            "{problem}"
        );
        assert!(
            problem.contains("1 pod (part): the volume names fewer than the 2 published parts of the core;"),
            "{problem}"
        );
        assert!(
            problem.ends_with(
                "1 pod (other): the volume names Secrets; restart the pods, until then the operator keeps the Secrets"
            ),
            "{problem}"
        );
        counts.count(pods[0].clone(), &serves("old").0, &Revision::new("new"));
        counts.count(pods[3].clone(), &serves("old").0, &Revision::new("new"));
        assert!(
            !counts.report(&target(), true).problem.unwrap().contains("serving another"),
            "the cause is reported already"
        );
    }

    #[test]
    fn pod_without_objects_of_its_kind_has_no_flags() {
        let volume = Some(Mounted { object_kind: ObjectKind::ConfigMap, format: FORMAT, slots: SLOTS });
        let target = ObservationTarget { object_kind: ObjectKind::Secret, has_other_kind: false, ..target() };
        let mut counts = counts(&[(Reply::Serves(None), None)]);
        counts.inspect(&[Injected { volume, ..pod("early", None) }], &target);
        assert_eq!(
            counts.report(&target, false).problem.unwrap(),
            "1 pod (early): the volume names ConfigMaps; there are no such ConfigMaps, so these pods have no flags: restart them"
        );
    }

    #[test]
    fn pod_of_other_format_is_behind_and_never_late() {
        let format = FORMAT.earlier().next().unwrap();
        let made = |name: &str, object_kind, slots| Injected {
            volume: Some(Mounted { object_kind, format, slots }),
            ..pod(name, None)
        };
        let many = Slots { overrides: 64, core_parts: 17 };
        let pods = [made("web-1", ObjectKind::ConfigMap, SLOTS), made("web-2", ObjectKind::Secret, many)];
        let mut counts = Counts { total: 3, asked: 3, current: 1, ..Counts::default() };
        counts.inspect(&pods, &target());
        assert!(!counts.is_settled() && counts.is_behind());
        for is_late in [false, true] {
            let pods = counts.report(&target(), is_late);
            assert_eq!((pods.total, pods.current, pods.behind, pods.silent), (3, 1, 2, 0));
            let problem = pods.problem.unwrap();
            let expected = format!(
                "2 pods (web-1, web-2): the volume names objects of format {format}, and format {FORMAT} is published; restart the pods, which keep their revision until then"
            );
            assert_eq!(problem, expected);
        }
    }

    #[test]
    fn pods_that_serve_the_revision_have_no_problem() {
        assert!(counts(&[serves("new")]).is_settled());
        assert_eq!(counts(&[serves("new")]).report(&target(), true).problem, None);
        assert_eq!(counts(&[]).report(&target(), true), Pods::default());
    }
}
