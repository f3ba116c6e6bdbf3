//! The publisher of the model: the program's own order of writes.

use std::collections::HashMap;

use remora_snapshot::files::{self, CoreSet};

use super::{
    super::{CoreLocation, File, PresentFile, Snapshot, kept, order},
    CORE, Content, OVERRIDES, Volume,
    documents::Document,
    file_of,
};

pub(super) struct Publisher {
    snapshots: Vec<Snapshot>,
    /// Everything that a file can hold, by number. The first one stands for no file.
    pub(super) contents: Vec<Vec<u8>>,
    numbers: HashMap<Vec<u8>, Content>,
    /// Files of each document in the order in which they are written, by the published objects.
    plans: HashMap<(usize, Volume), Vec<(usize, Content)>>,
    /// Number of overrides files of the revision to which each content of such a file belongs.
    divisions: HashMap<Content, usize>,
    /// Document and place that each content of the file `core` names.
    published: HashMap<Content, (usize, CoreLocation)>,
}

impl Publisher {
    pub(super) fn new(documents: &[Document]) -> Self {
        Self {
            snapshots: documents.iter().enumerate().map(|(number, document)| document.snapshot(number)).collect(),
            contents: vec![Vec::new()],
            numbers: HashMap::new(),
            plans: HashMap::new(),
            divisions: HashMap::new(),
            published: HashMap::new(),
        }
    }

    /// Returns the files of a document in the order in which the publisher writes them over these objects.
    pub(super) fn plan(&mut self, document: usize, objects: &Volume) -> Vec<(usize, Content)> {
        if let Some(known) = self.plans.get(&(document, *objects)) {
            return known.clone();
        }
        let core = objects[CORE];
        let before = self.published.get(&core).map(|(_, placed)| placed.clone());
        let snapshot = self.snapshots[document].clone();
        let placed = CoreLocation::next(&snapshot, before.as_ref());
        let published = || File::new(files::CORE.to_owned(), self.contents[usize::from(core)].clone());
        let kept = placed.set.filter(|_| placed.outgrows(before.as_ref())).map(|set| kept(published(), set).into());
        let contents = snapshot.contents(placed.set.unwrap_or(CoreSet::A)).unwrap();
        let divisions = (0..).zip(&objects[OVERRIDES..]).filter(|(_, content)| **content != 0);
        let present: Vec<_> = divisions
            .map(|(slot, content)| PresentFile { slot, files: self.divisions.get(content).copied() })
            .collect();
        let ordered = order(contents, before.as_ref(), &placed, kept, &present);
        let plan: Vec<_> =
            ordered.iter().map(|content| (file_of(&content.file), self.number(&content.bytes))).collect();
        let (last, written) = *plan.last().unwrap();
        assert_eq!(last, CORE, "the core is written last");
        self.published.insert(written, (document, placed));
        let overrides = plan.iter().filter(|(file, _)| *file >= OVERRIDES);
        self.divisions.extend(overrides.map(|(_, content)| (*content, snapshot.overrides_files())));
        self.plans.insert((document, *objects), plan.clone());
        plan
    }

    fn number(&mut self, bytes: &[u8]) -> Content {
        if let Some(number) = self.numbers.get(bytes) {
            return *number;
        }
        let number = Content::try_from(self.contents.len()).unwrap();
        self.contents.push(bytes.to_vec());
        self.numbers.insert(bytes.to_vec(), number);
        number
    }

    /// Returns the number of the document with this revision.
    pub(super) fn document(&self, revision: &str) -> Option<usize> {
        self.snapshots.iter().position(|snapshot| snapshot.revision.as_str() == revision)
    }

    /// Returns the number of the document that this content of the file `core` names.
    pub(super) fn published(&self, core: Content) -> usize {
        self.published[&core].0
    }

    /// True if this content of the file `core` is a core, or no file.
    pub(super) fn is_one_object(&self, core: Content) -> bool {
        self.published.get(&core).is_none_or(|(_, placed)| placed.set.is_none())
    }

    /// True if the document has another number of overrides files than the one that this content of the file `core` names.
    pub(super) fn divides_otherwise(&self, document: usize, core: Content) -> bool {
        let before = self.published.get(&core).and_then(|(_, placed)| placed.overrides);
        before.unwrap_or_default() != self.snapshots[document].overrides_files()
    }
}
