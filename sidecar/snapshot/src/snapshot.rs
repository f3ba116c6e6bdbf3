//! A snapshot, evaluated over its bytes in any kind of memory.

pub(crate) mod describe;
pub(crate) mod digests;
pub(crate) mod explain;
pub(crate) mod request_state;

use std::sync::Arc;

use crate::ReadError;
use crate::RequestState;
use crate::Role;
use crate::TraitValue;
use crate::budget::{StepBudget, Undecided};
use crate::context::{Derivations, EvaluationContext};
use crate::evaluate::{
    Decisions,
    evaluation::{Evaluation, IdentityOverride},
    flag_overrides::{FlagOverride, FlagOverrides},
};
use crate::format::revision::Revision;
use crate::format::{
    document::Document,
    header::{Header, stated_core},
    layout::{ALL_SEGMENTS, IDENTITY_FREE_SEGMENTS, SERVES_DOCUMENT},
    overrides::{Overrides, Shards},
    pointer::Pointer,
    view::{SectionTable, View, section_table},
};
use crate::render::{
    flagsmith::{self, environment_answer},
    ofrep::{self, OfrepFlag},
};
use crate::segments::{Scope, Segments};
use crate::validate::read_core;
use crate::values::hash::{Fingerprint, checksum};

/// Steps that finding the feature of one item of an identity override takes.
const STEPS_AN_ITEM: usize = 4;

/// Reports that the budget of an evaluation was exhausted. Segments that it left undecided do not match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overrun<'a> {
    /// Name of the first undecided segment. `None` if the first undecided work was not a single segment.
    pub segment: Option<&'a str>,
}

/// A validated snapshot. `B` owns its bytes, for example a `Vec` or a mapped file. A clone of it copies no file if a
/// clone of `B` does not.
#[derive(Debug, Clone)]
pub struct Snapshot<B> {
    core: B,
    section_table: SectionTable,
    derivations: Arc<Derivations>,
    shards: Shards<B>,
    fingerprint: Fingerprint,
    revision: Revision,
    /// Flag overrides. `None` if no flag is overridden, as in nearly all pods.
    flag_overrides: Option<Box<FlagOverrides>>,
}

impl<B: AsRef<[u8]>> Snapshot<B> {
    /// Reads a core file. Validates everything that rows refer to, once and in linear time, and copies nothing.
    ///
    /// # Errors
    /// The bytes are not a core file of this format. Each error says what to do.
    pub fn read(core: B) -> Result<Self, ReadError> {
        let header = read_core(core.as_ref())?;
        Ok(Self::of_header(core, &header))
    }

    /// Creates a snapshot of a core with this header. Does not validate it.
    pub(crate) fn of_header(core: B, header: &Header) -> Self {
        let section_table = section_table(core.as_ref());
        let derivations = Arc::new(Derivations::of(&View::of(core.as_ref(), &section_table, header.fingerprint)));
        Self {
            section_table,
            derivations,
            core,
            shards: Shards::none(),
            fingerprint: header.fingerprint,
            revision: header.revision,
            flag_overrides: None,
        }
    }

    /// Reads a core from its parts, which the caller has put one after another. It must be the core that the pointer
    /// names.
    ///
    /// # Errors
    /// Those of [`Snapshot::read`], or the parts hold the core of another revision or environment.
    pub fn read_parts(core: B, pointer: &Pointer) -> Result<Self, ReadError> {
        let header = stated_core(core.as_ref())?;
        if header.revision != pointer.revision() {
            return Err(ReadError::OtherRevision { found: header.revision, named: pointer.revision() });
        }
        Self::read_other_parts(core, pointer)
    }

    /// Reads a core of any revision from the parts of the set that the pointer does not name. Usually it is the revision
    /// before. A reader without any core serves it while the parts of the pointed set are incomplete.
    ///
    /// # Errors
    /// Those of [`Snapshot::read`], or the parts hold the core of another environment.
    pub fn read_other_parts(core: B, pointer: &Pointer) -> Result<Self, ReadError> {
        let snapshot = Self::read(core).map_err(|error| match error {
            ReadError::WrongChecksum => ReadError::MixedParts,
            other => other,
        })?;
        if snapshot.fingerprint == pointer.fingerprint() { Ok(snapshot) } else { Err(ReadError::OtherEnvironment) }
    }

    /// Adds an overrides file to the core. The file may be of an older revision: it is consistent by itself, only
    /// stale.
    ///
    /// # Errors
    /// The bytes are not an overrides file of this environment. The snapshot does not change.
    pub fn attach(&mut self, overrides: B) -> Result<(), ReadError> {
        self.shards.attach(overrides, self.fingerprint)
    }

    /// Overrides flags in all answers to requests. The prepared answers ([`Snapshot::flags`], [`Snapshot::flag`],
    /// [`Snapshot::first_flag`]), the document and explanations have no flag overrides, and neither have conditions that
    /// read flags.
    pub fn override_flags(&mut self, overrides: &[FlagOverride]) {
        let overrides = FlagOverrides::of(&self.view(), overrides);
        self.flag_overrides = (!overrides.is_empty()).then(|| Box::new(overrides));
    }

    /// Returns the names of the flags that flag overrides replace.
    pub fn overridden_flags(&self) -> impl Iterator<Item = &str> {
        self.flag_overrides.iter().flat_map(|overrides| overrides.flags())
    }

    /// Attaches an overrides file under the name of a slot ([`files::overrides`](crate::files::overrides)).
    ///
    /// # Errors
    /// The bytes are not the overrides file of this slot and environment. The snapshot does not change.
    pub fn attach_to(&mut self, slot: usize, overrides: B) -> Result<(), ReadError> {
        self.shards.attach_to(slot, overrides, self.fingerprint)
    }

    /// Removes overrides files that answers do not need: leftovers of a revision with more files. Returns the number of
    /// slots whose files count. `None` if any file may count, because one of those that the core states is missing or
    /// is of another revision.
    pub fn drop_leftovers(&mut self) -> Option<usize> {
        let view = self.view();
        if !view.overrides().is_empty() {
            self.shards.drop_all();
            return Some(0);
        }
        let flags = view.origin().flags;
        self.shards.drop_leftovers(flags)
    }

    /// Number of overrides files that the core states. `None` if the core has all overrides, or if its writer's version
    /// did not state the number; then every file counts.
    pub fn overrides_files(&self) -> Option<usize> {
        Shards::<B>::expected(self.view().origin().flags)
    }

    /// Returns true if every identifier has a file for its overrides, even if only of another revision.
    pub fn is_whole(&self) -> bool {
        let view = self.view();
        !view.overrides().is_empty() || self.shards.cover(view.origin().flags)
    }

    /// Returns true if the environment's document is served. It is in separate files ([`Snapshot::document`]).
    pub fn serves_document(&self) -> bool {
        self.view().origin().flags & SERVES_DOCUMENT != 0
    }

    /// Reads the environment's document from its files, in order. Like overrides, it may be of an older revision.
    ///
    /// # Errors
    /// The files are not all parts of one document of this environment.
    pub fn document(&self, files: Vec<B>) -> Result<Document<B>, ReadError> {
        Document::read(files, self.fingerprint)
    }

    /// Name of the environment in the operator.
    pub fn environment(&self) -> &str {
        let view = self.view();
        view.text(view.origin().name)
    }

    /// Revision: the name of the content.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// Number of features.
    pub fn features(&self) -> usize {
        self.view().features().len()
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.view().segments().len()
    }

    /// Number of identifiers with overrides.
    pub fn identity_overrides(&self) -> usize {
        self.overrides().map(|overrides| overrides.len()).sum()
    }

    /// Size of the core and the attached overrides files in bytes.
    pub fn bytes(&self) -> usize {
        self.core.as_ref().len() + self.shards.size()
    }

    /// Returns the role of an API key. `None` if it is not a key of this environment.
    pub fn role_of(&self, key: impl AsRef<[u8]>) -> Option<Role> {
        let (key, view) = (key.as_ref(), self.view());
        // The client key is no secret, as every browser page contains it, so it needs no hash.
        if key == view.bytes(view.origin().client_key) {
            return Some(Role::Client);
        }
        let hash = self.fingerprint.hash128(key);
        let found = view.keys().iter().find(|row| row.hash == hash)?;
        Some(if found.role == Role::Server as u32 { Role::Server } else { Role::Client })
    }

    /// Returns the answer without an identity: the complete JSON array of flags.
    pub fn flags(&self, role: Role) -> &[u8] {
        environment_answer(&self.view(), role).0
    }

    /// Returns one flag of the answer without an identity, as JSON. `None` if the role sees no such flag. A flag with
    /// exactly this name precedes one whose name differs in case.
    pub fn flag(&self, role: Role, name: &str) -> Option<&[u8]> {
        self.flag_at(role, self.feature_number_in_any_case(name)?)
    }

    /// Returns the first flag of the answer without an identity, as JSON. `None` if the role sees no flag.
    pub fn first_flag(&self, role: Role) -> Option<&[u8]> {
        (0..self.features() as u32).find_map(|feature| self.flag_at(role, feature))
    }

    fn flag_at(&self, role: Role, feature: u32) -> Option<&[u8]> {
        let (body, bounds) = environment_answer(&self.view(), role);
        let item = body.get(bounds.get(feature)?.word as usize..bounds.get(feature + 1)?.word as usize)?;
        let item = item.strip_suffix(b",").unwrap_or(item);
        (!item.is_empty()).then_some(item)
    }

    /// Returns the number of the feature with this name, whether or not a role sees it. All look-ups of a request share
    /// one budget. After it is exhausted, no name is found.
    pub fn feature_number(&self, name: &str, budget: &StepBudget) -> Option<u32> {
        self.view().feature_named(name.as_bytes(), budget)
    }

    /// Returns the number of the feature with this name in any case. One with exactly this name precedes the others. The
    /// look-up has a budget of its own. After it is exhausted, the name is not found.
    pub fn feature_number_in_any_case(&self, name: &str) -> Option<u32> {
        let (view, budget) = (self.view(), StepBudget::default());
        let exact = view.feature_named(name.as_bytes(), &budget);
        exact.or_else(|| view.feature_named_in_any_case(name, &budget))
    }

    /// Returns the name of the feature with this number.
    pub fn feature_name(&self, feature: u32) -> Option<&str> {
        let view = self.view();
        Some(view.text(view.features().get(feature)?.name))
    }

    /// Sets the request's identifier. Without an identifier there is no identity, and the environment decides which
    /// segments apply ([`model::EnvironmentFlags`](crate::format::model::EnvironmentFlags)).
    pub fn identify(&self, request: &mut RequestState, identifier: &str) {
        request.context.identify(identifier);
    }

    /// Sets the request's identifier, and leaves its identity override out: Flagsmith's API does not look for the
    /// overrides of a transient identity in the query of a request.
    pub fn identify_transient(&self, request: &mut RequestState, identifier: &str) {
        self.identify(request, identifier);
        request.context.is_transient = true;
    }

    /// Sets the request's own key, which is hashed instead of client key and identifier. Flagsmith's evaluation context
    /// allows such a key; none of Flagsmith's SDKs sends one, so only tests that compare with the engine use it.
    pub fn set_key(&self, request: &mut RequestState, key: &str) {
        request.context.set_key(key);
    }

    /// Sets a trait of the request. The last of several with one name counts; traits that no condition reads cost
    /// nothing.
    pub fn set_trait(&self, request: &mut RequestState, key: &str, value: TraitValue<'_>) {
        self.set_trait_with(request, key, || value);
    }

    /// Sets a trait of the request. Calls `value` only if a condition reads the trait.
    pub fn set_trait_with<'v>(&self, request: &mut RequestState, key: &str, value: impl FnOnce() -> TraitValue<'v>) {
        let slots = self.view().slots().len();
        if slots > 0
            && let Some(slot) = self.slot_of(key, &request.budget)
        {
            request.context.fit(slots, &self.derivations);
            request.context.set(slot, value(), &self.derivations);
        }
    }

    /// Returns the slot of a trait that a condition reads. Not inlined, as it is called in a loop over traits.
    #[inline(never)]
    fn slot_of(&self, key: &str, budget: &StepBudget) -> Option<u32> {
        self.view().slot_named(key.as_bytes(), budget)
    }

    /// Appends the JSON array of all flags for the request, like Flagsmith's edge proxy. Returns a digest of the flags,
    /// which is equal for equal flags in every revision and in both dialects.
    pub fn write_flags(&self, request: &mut RequestState, role: Role, out: &mut Vec<u8>) -> u64 {
        match &self.flag_overrides {
            None => flagsmith::write_array(&self.decide(request), role, out),
            Some(overrides) => flagsmith::write_overridden_array(&self.decide(request), overrides, role, out),
        }
    }

    /// Appends one flag for the request, like Flagsmith's API. Returns its digest, or `None` if the role sees no flag of
    /// exactly this name.
    pub fn write_flag(&self, request: &mut RequestState, role: Role, name: &str, out: &mut Vec<u8>) -> Option<u64> {
        let feature = self.view().feature_named(name.as_bytes(), &request.budget)?;
        let RequestState { context, budget, matching, deciding } = request;
        let evaluation = self.start(context, budget);
        let mut outcome = evaluation.decide_one(context, matching, deciding, feature);
        if let Some(own) = self.flag_overrides.as_ref().and_then(|overrides| overrides.get(feature)) {
            outcome = outcome.map(|outcome| outcome.overridden(own));
        }
        let start = out.len();
        let digest = flagsmith::write_item(evaluation.view(), outcome, role, out);
        (out.len() > start).then_some(digest)
    }

    /// Appends the first flag that the role sees, like Flagsmith's API. Returns its digest. All flags are decided at once,
    /// by one budget.
    pub fn write_first_flag(&self, request: &mut RequestState, role: Role, out: &mut Vec<u8>) -> Option<u64> {
        let decisions = self.decide(request);
        let start = out.len();
        (0..decisions.view().features().len() as u32).find_map(|feature| {
            let mut outcome = decisions.outcome(feature);
            if let Some(own) = self.flag_overrides.as_ref().and_then(|overrides| overrides.get(feature)) {
                outcome = outcome.map(|outcome| outcome.overridden(own));
            }
            let digest = flagsmith::write_item(decisions.view(), outcome, role, out);
            (out.len() > start).then_some(digest)
        })
    }

    /// Appends one flag for the request as OFREP, if it can be returned.
    pub fn write_ofrep_flag(&self, request: &mut RequestState, role: Role, name: &str, out: &mut Vec<u8>) -> OfrepFlag {
        let feature = self.view().feature_named(name.as_bytes(), &request.budget);
        let Some(feature) = feature else { return OfrepFlag::Unknown };
        let RequestState { context, budget, matching, deciding } = request;
        let evaluation = self.start(context, budget);
        let outcome = evaluation.decide_one(context, matching, deciding, feature);
        ofrep::write_flag(&evaluation, feature, outcome, self.flag_overrides.as_deref(), role, out)
    }

    /// Appends all flags for the request as OFREP, separated by commas. Returns the same digest as
    /// [`Snapshot::write_flags`].
    pub fn write_ofrep_flags(&self, request: &mut RequestState, role: Role, out: &mut Vec<u8>) -> u64 {
        match &self.flag_overrides {
            None => ofrep::write_flags(&self.decide(request), role, out),
            Some(overrides) => ofrep::write_overridden_flags(&self.decide(request), overrides, role, out),
        }
    }

    /// Returns the work that the request's last evaluation left undecided, if its budget was exhausted
    /// ([`crate::MAX_STEPS`], [`crate::regex::backtrack::MAX_STEPS`]).
    #[inline]
    pub fn overrun(&self, request: &RequestState) -> Option<Overrun<'_>> {
        request.budget.overrun().map(|undecided| self.describe_overrun(undecided))
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
        View::of(self.core.as_ref(), &self.section_table, self.fingerprint)
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Iterates over the overrides that count.
    pub(crate) fn overrides(&self) -> impl Iterator<Item = Overrides<'_>> {
        let view = self.view();
        let embedded = Some(view.overrides()).filter(|bytes| !bytes.is_empty());
        // If the core has all overrides, files are leftovers of an earlier revision.
        let files = embedded.is_none().then(|| self.shards.belonging(view.origin().flags));
        embedded.map(Overrides::of).into_iter().chain(files.into_iter().flatten())
    }

    /// Decides all features for the request.
    pub(crate) fn decide<'a>(&'a self, request: &'a mut RequestState) -> Decisions<'a> {
        let RequestState { context, budget, matching, deciding } = request;
        self.start(context, budget).decide(context, matching, deciding)
    }

    /// Starts an evaluation: completes the context, and looks up its identity override.
    fn start<'a>(&'a self, context: &mut EvaluationContext, budget: &'a StepBudget) -> Evaluation<'a> {
        let view = self.view();
        budget.start();
        context.derive(&view, &self.derivations, budget);
        let identity_override = match context.is_identified && !context.is_transient {
            true => self.identity_override(context.identifier()),
            false => None,
        };
        if let Some(identity_override) = identity_override {
            budget.spend(identity_override.items.len() * STEPS_AN_ITEM);
        }
        if !budget.spend(0) {
            budget.note(Undecided::Others);
        }
        let scope = match view.origin().flags {
            _ if context.is_identified => Scope::All,
            flags if flags & ALL_SEGMENTS != 0 => Scope::All,
            flags if flags & IDENTITY_FREE_SEGMENTS != 0 => Scope::IdentityFree,
            _ => Scope::None,
        };
        let reads_flags = self.derivations.reads_flags;
        Evaluation { segments: Segments { view, scope, budget }, identity_override, reads_flags }
    }

    /// Looks up the override of an identity.
    fn identity_override(&self, identifier: &str) -> Option<IdentityOverride<'_>> {
        let view = self.view();
        let hash = || self.fingerprint.hash96(identifier.as_bytes());
        let embedded = (!view.overrides().is_empty()).then(|| Overrides::of(view.overrides()));
        let found = match embedded {
            Some(overrides) if overrides.len() == 0 => None,
            Some(overrides) => overrides.find(&hash()).map(|items| (items, overrides.blob)),
            None => self.shards.find(view.origin().flags, &hash()),
        };
        found.map(|(items, blob)| IdentityOverride { items, blob })
    }
}

/// Returns a 64-bit digest of any bytes.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = checksum(bytes);
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}
