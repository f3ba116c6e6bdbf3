//! A snapshot over its bytes, wherever they are.

pub(crate) mod describe;
pub(crate) mod explain;

use crate::ReadError;
use crate::Role;
use crate::Scope;
use crate::Subject;
use crate::TraitValue;
use crate::budget::{Budget, Undecided};
use crate::evaluate::evaluation::{Evaluation, Individual};
use crate::format::revision::Revision;
use crate::format::{
    document::Document,
    layout::{ALL_SEGMENTS, IDENTITY_FREE_SEGMENTS, SERVES_DOCUMENT},
    overrides::{Overrides, Shards},
    read::read_core,
    view::{Places, View, places},
};
use crate::render::{
    answer,
    cohort::Cohorts,
    finish::{self, Flags},
    ofrep::{self, OfrepFlag},
};
use crate::values::hash::{Fingerprint, checksum};

/// The steps that it takes to find the feature of an item of an identity override.
const STEPS_AN_ITEM: usize = 4;

/// An evaluation whose budget did not suffice. Segments that it left undecided do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun<'a> {
    /// The name of the first segment that was left undecided; `None` if that was not a single one.
    pub segment: Option<&'a str>,
}

/// A validated snapshot. `B` holds its bytes: a `Vec`, a mapped file.
#[derive(Debug)]
pub struct Snapshot<B> {
    core: B,
    places: Places,
    shards: Shards<B>,
    fingerprint: Fingerprint,
    revision: Revision,
    cohorts: Cohorts,
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Reads a core file. Everything that a table refers to is checked, once and in linear time; nothing is copied.
    ///
    /// # Errors
    /// Any bytes that are not a core file of this format, each with what to do about it.
    pub fn read(core: B) -> Result<Self, ReadError> {
        let header = read_core(core.as_ref())?;
        Ok(Self {
            places: places(core.as_ref()),
            core,
            shards: Shards::none(),
            fingerprint: header.fingerprint,
            revision: header.revision,
            cohorts: Cohorts::default(),
        })
    }

    /// Puts an overrides file beside the core. It may be of an older revision: it is right by itself, only staler.
    ///
    /// # Errors
    /// Bytes that are not an overrides file of this environment; the snapshot stays as it was.
    pub fn attach(&mut self, overrides: B) -> Result<(), ReadError> {
        self.shards.attach(overrides, self.fingerprint)
    }

    /// How many overrides files the core tells of. None where it has all overrides itself, or was written by a version that
    /// does not say; then any file counts.
    pub fn overrides_files(&self) -> Option<usize> {
        Shards::<B>::expected(self.view().origin().flags)
    }

    /// Whether nobody's overrides are missing: for every identifier there is a file, if only one of another revision.
    pub fn is_whole(&self) -> bool {
        let view = self.view();
        !view.overrides().is_empty() || self.shards.cover(view.origin().flags)
    }

    /// Whether the environment's document is served. It is in files of its own ([`Snapshot::document`]).
    pub fn serves_document(&self) -> bool {
        self.view().origin().flags & SERVES_DOCUMENT != 0
    }

    /// Reads the environment's document from its files, in order. As overrides, it may be of an older revision.
    ///
    /// # Errors
    /// Bytes that are not all the parts of one document of this environment.
    pub fn document(&self, files: Vec<B>) -> Result<Document<B>, ReadError> {
        Document::read(files, self.fingerprint)
    }

    /// The name that the operator knows the environment by.
    pub fn environment(&self) -> &str {
        let view = self.view();
        view.text(view.origin().name)
    }

    /// Names the content.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many features there are.
    pub fn features(&self) -> usize {
        self.view().features().len()
    }

    /// How many segments there are.
    pub fn segments(&self) -> usize {
        self.view().segments().len()
    }

    /// How many identifiers have overrides of their own.
    pub fn identity_overrides(&self) -> usize {
        self.overrides().map(|overrides| overrides.len()).sum()
    }

    /// How many bytes it has in all.
    pub fn bytes(&self) -> usize {
        self.core.as_ref().len() + self.shards.size()
    }

    /// What a key may see: `None` if it is not a key of this environment.
    pub fn role_of(&self, key: impl AsRef<[u8]>) -> Option<Role> {
        let (key, view) = (key.as_ref(), self.view());
        // It is no secret: the pages of every browser have it.
        if key == view.bytes(view.origin().client_key) {
            return Some(Role::Client);
        }
        let hash = self.fingerprint.hash128(key);
        let found = view.keys().iter().find(|row| row.hash == hash)?;
        Some(if found.role == Role::Server as u32 { Role::Server } else { Role::Client })
    }

    /// The answer without an identity: the whole JSON array of flags.
    pub fn flags(&self, role: Role) -> &[u8] {
        self.view().environment_answer(role).0
    }

    /// One flag of the answer without an identity, as JSON; `None` if the role sees no such flag.
    pub fn flag(&self, role: Role, name: &str) -> Option<&[u8]> {
        let view = self.view();
        let feature = view.feature_named(name.as_bytes(), &Budget::default())?;
        let (body, bounds) = view.environment_answer(role);
        let item = body.get(bounds.get(feature)?.word as usize..bounds.get(feature + 1)?.word as usize)?;
        let item = item.strip_suffix(b",").unwrap_or(item);
        (!item.is_empty()).then_some(item)
    }

    /// Whether there is a feature of this name, whoever may see it. One budget is for all names of a request; when it is
    /// used up, no name is found.
    pub fn has_feature(&self, name: &str, budget: &Budget) -> bool {
        self.view().feature_named(name.as_bytes(), budget).is_some()
    }

    /// Gives the subject its identifier. Without one there is no identity, and what applies is what the environment says
    /// ([`model::EnvironmentFlags`](crate::format::model::EnvironmentFlags)).
    pub fn identify(&self, subject: &mut Subject, identifier: &str) {
        subject.identified = true;
        subject.identifier.clear();
        subject.identifier.push_str(identifier);
    }

    /// Gives the subject a key of its own, which is hashed instead of client key and identifier. Flagsmith's evaluation
    /// context allows it; none of its SDKs sends one.
    pub fn set_key(&self, subject: &mut Subject, key: &str) {
        subject.own_key = Some(key.to_owned());
    }

    /// Gives the subject a trait. The last of several with one name counts; traits that no condition reads cost nothing.
    pub fn set_trait(&self, subject: &mut Subject, key: &str, value: TraitValue<'_>) {
        self.set_trait_with(subject, key, || value);
    }

    /// The same, where it is some work to tell the value: that is only done where a condition reads the trait.
    pub fn set_trait_with<'v>(&self, subject: &mut Subject, key: &str, value: impl FnOnce() -> TraitValue<'v>) {
        let slots = self.view().slots().len();
        if slots > 0
            && let Some(slot) = self.slot_of(key, &subject.budget)
        {
            subject.fit(slots);
            subject.set(slot, value());
        }
    }

    /// The slot of a trait that some condition reads. Not inlined, as it is called in a loop over traits.
    #[inline(never)]
    fn slot_of(&self, key: &str, budget: &Budget) -> Option<u32> {
        self.view().slot_named(key.as_bytes(), budget)
    }

    /// Appends the JSON array of all flags for the subject, as Flagsmith's edge proxy writes it. Returns a digest of the
    /// flags: equal for whoever got the same ones, in any revision and in either dialect.
    pub fn write_flags(&self, subject: &mut Subject, role: Role, out: &mut Vec<u8>) -> u64 {
        answer::write_flags(&self.evaluation(subject), subject, role, out)
    }

    /// Ends an object of which the array of all flags is the last member: the same array and the brace, but for a part that
    /// others have as well, and that need not be copied.
    pub fn finish_with_flags(&self, subject: &mut Subject, role: Role, out: &mut Vec<u8>) -> Flags {
        finish::finish_with_flags(&self.evaluation(subject), subject, role, &self.cohorts, out)
    }

    /// Appends one flag for the subject, as OFREP writes it, if it can be told.
    pub fn write_ofrep_flag(&self, subject: &mut Subject, role: Role, name: &str, out: &mut Vec<u8>) -> OfrepFlag {
        let feature = self.view().feature_named(name.as_bytes(), &subject.budget);
        let Some(feature) = feature else { return OfrepFlag::Unknown };
        let evaluation = self.evaluation(subject);
        ofrep::write_flag(&evaluation, subject, role, feature, out)
    }

    /// Appends all flags for the subject, as OFREP writes them, joined by commas. Returns the digest that
    /// [`Snapshot::write_flags`] has.
    pub fn write_ofrep_flags(&self, subject: &mut Subject, role: Role, out: &mut Vec<u8>) -> u64 {
        ofrep::write_flags(&self.evaluation(subject), subject, role, out)
    }

    /// What the last evaluation of the subject left undecided, if its budget did not suffice ([`crate::MAX_STEPS`],
    /// [`crate::regex::backtrack::MAX_STEPS`]).
    #[inline]
    pub fn overrun(&self, subject: &Subject) -> Option<Overrun<'_>> {
        subject.budget.overrun().map(|undecided| self.describe_overrun(undecided))
    }

    #[cold]
    fn describe_overrun(&self, undecided: Undecided) -> Overrun<'_> {
        let view = self.view();
        let segment = match undecided {
            Undecided::Others => None,
            Undecided::Program(entry) => view.segments().iter().find(|segment| segment.entry == entry),
        };
        Overrun { segment: segment.map(|segment| view.text(segment.name)) }
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> View<'_> {
        View::of(self.core.as_ref(), &self.places, self.fingerprint)
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// The files with the overrides that count.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = Overrides<'_>> {
        let view = self.view();
        let embedded = Some(view.overrides()).filter(|bytes| !bytes.is_empty());
        // With all of them in the core, files are left over from a revision that had more.
        let files = embedded.is_none().then(|| self.shards.belonging(view.origin().flags));
        embedded.map(Overrides::of).into_iter().chain(files.into_iter().flatten())
    }

    /// Makes the subject ready to be evaluated, and looks up what it has for itself.
    pub(crate) fn evaluation(&self, subject: &mut Subject) -> Evaluation<'_> {
        let view = self.view();
        subject.budget.start();
        view.begin(subject);
        subject.resolution.clear();
        subject.candidates.clear();
        subject.default_places.clear();
        subject.unasked = 0..0;
        let mut individual = None;
        if subject.identified {
            let hash = || self.fingerprint.hash96(subject.identifier.as_bytes());
            let embedded = (!view.overrides().is_empty()).then(|| Overrides::of(view.overrides()));
            let found = match embedded {
                Some(overrides) if overrides.len() == 0 => None,
                Some(overrides) => overrides.find(&hash()).map(|items| (items, overrides.blob)),
                None => self.shards.find(view.origin().flags, &hash()),
            };
            individual = found.map(|(items, blob)| Individual { items, blob });
            if let Some(individual) = individual {
                subject.budget.spend(individual.items.len() * STEPS_AN_ITEM);
            }
        }
        if !subject.budget.spend(0) {
            subject.budget.note(Undecided::Others);
        }
        let scope = match view.origin().flags {
            _ if subject.identified => Scope::All,
            flags if flags & ALL_SEGMENTS != 0 => Scope::All,
            flags if flags & IDENTITY_FREE_SEGMENTS != 0 => Scope::IdentityFree,
            _ => Scope::None,
        };
        Evaluation { view, individual, scope }
    }
}

/// A short digest of any bytes, for validators of HTTP caches.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = checksum(bytes);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
