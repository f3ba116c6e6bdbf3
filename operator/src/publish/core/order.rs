//! Order in which the objects of a publication are written. Pure.

use remora_snapshot::files;

use super::{
    Content, CoreLocation,
    overrides::{self, PresentFile},
};

/// Returns the contents of a publication in the order in which their objects are written. `contents` are those of the
/// snapshot at `placed`, the core last. `before` is the published core, and `kept` its copy if it is one object that a
/// pointer is about to replace. `present` are the overrides files in the cluster.
///
/// A publication may end after each write, and pods read the objects at any time. The order keeps them whole:
///
/// 1. The object `core` is written last. Until then it names the revision before, whose core is untouched: the parts of
///    the new core are in the other set. So a core never names a file that does not exist.
/// 2. `kept` is written directly before the object `core`, which holds the same bytes until then. A sidecar that starts
///    before all parts of the new core have arrived serves it from the other set.
/// 3. Overrides files follow one another. A core is whole as soon as its overrides files, of any revision, cover all
///    identities, and the leading bits of an identity's hash choose the file. Each write leaves all identities covered
///    ([`overrides::slots`]), whatever division the files in the cluster have: a publication that was cut off may have
///    left files of a third one.
pub(in crate::publish) fn order<'a>(
    mut contents: Vec<Content<'a>>,
    before: Option<&CoreLocation>,
    placed: &CoreLocation,
    kept: Option<Content<'a>>,
    present: &[PresentFile],
) -> Vec<Content<'a>> {
    let published = before.and_then(|before| before.overrides);
    let slots = overrides::slots(placed.overrides.unwrap_or_default(), published, present);
    let slots: Vec<String> = slots.into_iter().map(files::overrides).collect();
    let is_overrides = |content: &Content<'_>| files::is_overrides(&content.file);
    let first = contents.iter().position(is_overrides).unwrap_or_default();
    let end = contents.iter().rposition(is_overrides).map_or(first, |last| last + 1);
    let overrides = contents.get_mut(first..end).unwrap_or_default();
    overrides.sort_by_cached_key(|content| slots.iter().position(|slot| *slot == content.file));
    let core = contents.len().saturating_sub(1);
    contents.splice(core..core, kept);
    contents
}

#[cfg(test)]
mod tests {
    use remora_snapshot::files::CoreSet;

    use super::*;
    use crate::{api::Revision, publish::snapshot::File};

    fn location(set: Option<CoreSet>, overrides: usize) -> CoreLocation {
        CoreLocation { revision: Revision::new("r"), set, overrides: Some(overrides) }
    }

    fn content(name: &str) -> Content<'static> {
        File::new(name.to_owned(), Vec::new()).into()
    }

    fn ordered(names: &[&str], before: &CoreLocation, placed: &CoreLocation, kept: Option<&str>) -> Vec<String> {
        let contents = names.iter().map(|name| content(name)).collect();
        let files = before.overrides;
        let present: Vec<_> = (0..files.unwrap_or_default()).map(|slot| PresentFile { slot, files }).collect();
        let ordered = order(contents, Some(before), placed, kept.map(content), &present);
        ordered.into_iter().map(|content| content.file.into_owned()).collect()
    }

    #[test]
    fn new_overrides_files_precede_replaced_ones_in_reverse_order() {
        let names = ["document-00", "overrides-00", "overrides-01", "overrides-02", "overrides-03", "core"];
        let of = |before| ordered(&names, &location(None, before), &location(None, 4), None);
        assert_eq!(of(2), ["document-00", "overrides-02", "overrides-03", "overrides-01", "overrides-00", "core"]);
        assert_eq!(of(0), names);
        assert_eq!(of(4), names);
        assert_eq!(of(8), names);
    }

    #[test]
    fn kept_core_follows_parts_and_precedes_pointer() {
        let names = ["overrides-00", "core-a-00", "core-a-01", "core"];
        let found = ordered(&names, &location(None, 1), &location(Some(CoreSet::A), 1), Some("core-b-00"));
        assert_eq!(found, ["overrides-00", "core-a-00", "core-a-01", "core-b-00", "core"]);
    }
}
