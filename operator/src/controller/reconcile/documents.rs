//! Documents under way, from the fetch to the compiled snapshot: one namespace has a bounded number of them, so that its
//! waits leave most reconciliations to other namespaces.

use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;

/// Largest number of documents of a namespace: an eighth of all reconciliations, and half of the requests that all servers
/// get at one time.
const PER_NAMESPACE: usize = 16;

/// Number of documents under way, by namespace.
#[derive(Debug, Default)]
pub(super) struct DocumentsUnderWay(Arc<Mutex<HashMap<String, usize>>>);

/// Place of one document. Dropping it gives the place back.
#[derive(Debug)]
pub(super) struct DocumentPlace {
    all: Arc<Mutex<HashMap<String, usize>>>,
    namespace: String,
}

impl DocumentsUnderWay {
    /// Takes a place. `None` if the namespace has [`PER_NAMESPACE`] of them.
    pub(super) fn begin(&self, namespace: &str) -> Option<DocumentPlace> {
        let mut all = self.0.lock();
        let under_way = all.entry(namespace.to_owned()).or_default();
        if *under_way >= PER_NAMESPACE {
            return None;
        }
        *under_way += 1;
        Some(DocumentPlace { all: Arc::clone(&self.0), namespace: namespace.to_owned() })
    }
}

impl Drop for DocumentPlace {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(under_way) = all.get_mut(&self.namespace) {
            *under_way -= 1;
            if *under_way == 0 {
                all.remove(&self.namespace);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_has_few_of_all_reconciliations() {
        let documents = DocumentsUnderWay::default();
        let mut many: Vec<DocumentPlace> = (0..PER_NAMESPACE).map(|_| documents.begin("many").unwrap()).collect();
        assert!(documents.begin("many").is_none());
        let other = documents.begin("other").unwrap();
        many.pop();
        many.push(documents.begin("many").unwrap());
        drop((many, other));
        assert!(documents.0.lock().is_empty(), "namespaces are not forgotten");
    }
}
