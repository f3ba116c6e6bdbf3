//! Findings about a snapshot that soon exceeds a limit of its size. Pure.

use remora_snapshot::{
    File,
    files::{self, DOCUMENT_SLOTS, OVERRIDES_SLOTS},
};

use super::Finding;

/// Share of a limit, in percent, from which on a size is a finding.
const NEARLY_FULL: usize = 70;

/// True if this size is a finding, because it may soon exceed the limit.
pub fn is_nearly_full(bytes: usize, limit: usize) -> bool {
    bytes.saturating_mul(100) >= limit.saturating_mul(NEARLY_FULL)
}

/// Returns a finding for each of core, identity overrides and document that is nearly as large as a snapshot can hold.
/// `limit` is the largest size of a file in bytes.
pub(super) fn findings(written: &[File], limit: usize) -> Vec<Finding> {
    let sizes = |is_kind: fn(&str) -> bool| -> Vec<usize> {
        written.iter().filter(|file| is_kind(&file.name)).map(|file| file.bytes.len()).collect()
    };
    let core = sizes(|name| name == files::CORE).into_iter().sum();
    let document = sizes(files::is_document).into_iter().sum();
    let nearly_full = [
        core_finding(core, limit.max(files::MAX_CORE_BYTES)),
        overrides_finding(&sizes(files::is_overrides), limit),
        document_finding(document, DOCUMENT_SLOTS.saturating_mul(limit)),
    ];
    nearly_full.into_iter().flatten().collect()
}

fn core_finding(bytes: usize, limit: usize) -> Option<Finding> {
    let message = format!(
        "flags, segments and values take {bytes} bytes, and a snapshot holds {limit}: leave features out with spec.prune.features, or shorten values and IN lists, before they do not fit"
    );
    is_nearly_full(bytes, limit).then(|| Finding::new("core", &message))
}

/// The hash of an identifier chooses its file, so the largest file decides. As long as there are fewer files than slots,
/// the next division halves each of them.
fn overrides_finding(sizes: &[usize], limit: usize) -> Option<Finding> {
    let largest = sizes.iter().copied().max()?;
    let message = format!(
        "identity overrides take {OVERRIDES_SLOTS} objects, the largest one with {largest} bytes, and an object holds {limit}: drop them with spec.prune.identityOverrides, or use segments, before they do not fit"
    );
    let is_full = sizes.len() >= OVERRIDES_SLOTS && is_nearly_full(largest, limit);
    is_full.then(|| Finding::new("identity overrides", &message))
}

fn document_finding(bytes: usize, limit: usize) -> Option<Finding> {
    let message = format!(
        "the document takes {bytes} bytes when it is compressed, and {DOCUMENT_SLOTS} objects hold {limit}: leave features or identity overrides out with spec.prune, or set spec.serve.environmentDocument to false, before it does not fit"
    );
    is_nearly_full(bytes, limit).then(|| Finding::new("document", &message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sizes: &[(&str, usize)]) -> Vec<String> {
        let file = |(name, bytes): &(&str, usize)| File { name: (*name).to_owned(), bytes: vec![0; *bytes] };
        let written: Vec<File> = sizes.iter().map(file).collect();
        findings(&written, 1_000).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn core_near_its_limit_is_a_finding() {
        let limit = files::MAX_CORE_BYTES;
        assert_eq!(of(&[("core", limit * 69 / 100)]), [""; 0]);
        let found = of(&[("core", limit * 7 / 10 + 1)]);
        assert!(found[0].starts_with("core: flags, segments and values take 116"), "{found:?}");
    }

    #[test]
    fn overrides_are_a_finding_if_the_largest_file_cannot_be_divided_further() {
        let names: Vec<String> = (0..OVERRIDES_SLOTS).map(files::overrides).collect();
        let of_files = |count: usize, largest: usize| {
            let size = |number: usize| if number == 5 { largest } else { 100 };
            let sizes: Vec<_> = (0..count).map(|number| (names[number].as_str(), size(number))).collect();
            of(&sizes)
        };
        assert_eq!(of_files(OVERRIDES_SLOTS / 2, 1_000), [""; 0]);
        assert_eq!(of_files(OVERRIDES_SLOTS, 699), [""; 0]);
        let found = of_files(OVERRIDES_SLOTS, 700);
        assert!(found[0].starts_with("identity overrides: identity overrides take 64 objects"), "{found:?}");
    }

    #[test]
    fn files_of_any_size_are_never_full() {
        let written = [File { name: files::CORE.to_owned(), bytes: vec![0; 1_000] }];
        assert_eq!(findings(&written, usize::MAX), []);
    }

    #[test]
    fn document_near_its_limit_is_a_finding() {
        assert_eq!(of(&[("document-00", 1_000), ("document-01", 1_000), ("document-02", 99)]), [""; 0]);
        let found = of(&[("document-00", 1_000), ("document-01", 1_000), ("document-02", 100)]);
        assert!(found[0].starts_with("document: the document takes 2100 bytes"), "{found:?}");
    }
}
