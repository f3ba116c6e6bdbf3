//! Steps from a document to a snapshot: parse, prune, compile, read.

use remora_compile::document;
use remora_compile::prune::{Pruned, Rules, prune};
use remora_compile::{Compiled, Options, compile_to_files_of};
use remora_snapshot::{Document, Snapshot, files};

/// Parses a document and keeps all of it.
pub(crate) fn parsed(json: &[u8]) -> Result<Pruned, document::Error> {
    Ok(whole(document::parse(json)?))
}

/// Prunes a document by rules that keep all of it.
pub(crate) fn whole(document: document::Document) -> Pruned {
    prune(document, &Rules::default())
}

/// Compiles a document a second time. Panics if the result differs, because equal documents must give equal bytes.
pub(crate) fn assert_deterministic(pruned: &Pruned, largest_file: usize, options: &Options<'_>, first: &Compiled) {
    let second = compile_to_files_of(largest_file, pruned, options).expect("one document compiles only once");
    assert!(first.files == second.files, "one document compiles to different bytes");
    assert_eq!(first.findings, second.findings);
    assert_eq!(first.summary, second.summary);
}

/// Reads all files that the compiler wrote. Panics if the reader refuses one.
pub(crate) fn read(compiled: &Compiled) -> Snapshot<&[u8]> {
    let (documents, others): (Vec<_>, Vec<_>) = compiled
        .files
        .iter()
        .partition(|file| (0..files::DOCUMENT_SLOTS).any(|slot| file.name == files::document(slot)));
    let mut others = others.into_iter().map(|file| file.bytes.as_slice());
    let mut snapshot = Snapshot::read(others.next().unwrap()).unwrap();
    others.for_each(|file| snapshot.attach(file).unwrap());
    assert_eq!(snapshot.serves_document(), !documents.is_empty());
    if let Some(first) = documents.first() {
        assert_eq!(Document::<&[u8]>::count(&first.bytes).unwrap(), documents.len());
        snapshot.document(documents.iter().map(|file| file.bytes.as_slice()).collect()).unwrap();
    }
    snapshot
}
