//! Order of the overrides files of a publication. Pure.

use remora_snapshot::files::OVERRIDES_SLOTS;

/// Overrides file in the cluster, of any revision.
#[derive(Clone, Copy, Debug)]
pub(in crate::publish) struct PresentFile {
    /// Number of the file.
    pub(in crate::publish) slot: usize,
    /// Number of overrides files of its revision. `None` if the version that wrote it did not state the number.
    pub(in crate::publish) files: Option<usize>,
}

/// Identities in the file of one slot, as one bit for each file of the largest division.
#[derive(Clone, Copy, Default)]
struct Covered {
    /// Identities in a file of any revision.
    by_any: u64,
    /// Identities in a file of the published division or of this publication. Other files may be older.
    by_known: u64,
}

/// Returns the slots of a publication with this number of overrides `files` in the order in which they are written.
/// `published` is the number of the published revision.
///
/// Slots without a file are first, in the order of their numbers: a process that starts looks for files without a gap. Of
/// the others, the next one is the first whose file, once it is replaced, leaves no identity without a file that had one.
pub(super) fn slots(files: usize, published: Option<usize>, present: &[PresentFile]) -> Vec<usize> {
    let mut covered = [Covered::default(); OVERRIDES_SLOTS];
    for PresentFile { slot, files } in present {
        let stated = files.or(published.filter(|files| slot < files));
        let range = stated.map_or(0, |files| range(*slot, files));
        if let Some(place) = covered.get_mut(*slot) {
            *place = Covered { by_any: range, by_known: if stated == published { range } else { 0 } };
        }
    }
    let is_present = |slot: &usize| present.iter().any(|file| file.slot == *slot);
    let (mut replaced, mut ordered): (Vec<usize>, Vec<usize>) = (0..files).partition(is_present);
    for slot in &ordered {
        write(&mut covered, *slot, files);
    }
    while !replaced.is_empty() {
        let keeps = |slot: usize, by: fn(&Covered) -> u64| {
            let mut after = covered;
            write(&mut after, slot, files);
            let all = |covered: &[Covered]| covered.iter().map(by).fold(0, |all, some| all | some);
            all(&covered) & !all(&after) == 0
        };
        let keeps_any = |slot: &usize| keeps(*slot, |covered| covered.by_any);
        let keeps_known = |slot: &usize| keeps_any(slot) && keeps(*slot, |covered| covered.by_known);
        let next = replaced.iter().position(keeps_known).or_else(|| replaced.iter().position(keeps_any));
        let slot = replaced.remove(next.unwrap_or_default());
        write(&mut covered, slot, files);
        ordered.push(slot);
    }
    ordered
}

/// Puts a file of this publication into its slot.
fn write(covered: &mut [Covered], slot: usize, files: usize) {
    if let Some(place) = covered.get_mut(slot) {
        let range = range(slot, files);
        *place = Covered { by_any: range, by_known: range };
    }
}

/// Returns the identities in the file of a slot if there are this many files. None if no revision has so many files.
fn range(slot: usize, files: usize) -> u64 {
    if slot >= files || files > OVERRIDES_SLOTS || !files.is_power_of_two() {
        return 0;
    }
    let width = OVERRIDES_SLOTS / files;
    (u64::MAX >> (OVERRIDES_SLOTS - width)) << (slot * width)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(files: &[(usize, usize)]) -> Vec<PresentFile> {
        files.iter().map(|(slot, files)| PresentFile { slot: *slot, files: Some(*files) }).collect()
    }

    fn division(files: usize) -> Vec<PresentFile> {
        (0..files).map(|slot| PresentFile { slot, files: Some(files) }).collect()
    }

    #[test]
    fn new_files_precede_replaced_ones_in_reverse_order() {
        assert_eq!(slots(8, Some(2), &division(2)), [2, 3, 4, 5, 6, 7, 1, 0]);
        assert_eq!(slots(4, Some(4), &division(4)), [0, 1, 2, 3]);
        assert_eq!(slots(2, Some(4), &division(4)), [0, 1]);
        assert_eq!(slots(4, None, &[]), [0, 1, 2, 3]);
        assert_eq!(slots(0, Some(4), &division(4)), [0; 0]);
    }

    #[test]
    fn files_of_earlier_version_have_published_division() {
        let unstated: Vec<PresentFile> = (0..2).map(|slot| PresentFile { slot, files: None }).collect();
        assert_eq!(slots(4, Some(2), &unstated), [2, 3, 1, 0]);
        assert_eq!(slots(4, None, &unstated), [2, 3, 0, 1]);
    }

    #[test]
    fn leftover_of_larger_division_is_replaced_before_published_file() {
        assert_eq!(slots(2, Some(1), &present(&[(0, 1), (1, 4), (2, 4), (3, 4)])), [1, 0]);
    }

    #[test]
    fn files_of_publication_that_was_cut_off_are_replaced_without_loss() {
        assert_eq!(slots(2, Some(1), &division(4)), [0, 1]);
        assert_eq!(slots(2, Some(1), &present(&[(0, 1), (1, 4)])), [1, 0]);
    }

    #[test]
    fn annotation_that_no_version_writes_counts_for_nothing() {
        assert_eq!(slots(2, Some(3), &present(&[(0, 3), (7, 2), (99, 128), (1, usize::MAX)])), [0, 1]);
    }
}
