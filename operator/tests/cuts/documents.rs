//! Documents of the scenarios, and a compiler of them: the same files for the same document, in no time.

use std::{
    collections::HashMap,
    io::Write,
    sync::{LazyLock, Mutex},
};

use flate2::{Compression, write::GzEncoder};
use remora_compile::{File, SnapshotCounts};
use remora_operator::compiler::{DocumentStats, Error, Request, Response};
use remora_snapshot::{
    files::MAX_FILE_BYTES,
    model::{Compressed, Context, Environment, Feature, IdentityFlag, IdentityOverride},
    write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Size in bytes of a file, beyond which a small document gets a further file for overrides or for the document itself.
const SMALL_FILE: usize = 2_000;

/// A document, by what its snapshot has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Document {
    /// Name of every feature's value.
    pub(super) value: String,
    pub(super) client_key: String,
    pub(super) features: usize,
    /// Number of identities with overrides.
    pub(super) overrides: usize,
    /// Size in bytes of the compressed document that sidecars serve. 0: they serve none.
    pub(super) document: usize,
    /// Number of repetitions of the value of the first feature.
    pub(super) repeated: usize,
}

/// Returns a small document with one feature.
pub(super) fn small(value: &str) -> Document {
    Document {
        value: value.to_owned(),
        client_key: "client".to_owned(),
        features: 1,
        overrides: 0,
        document: 0,
        repeated: 1,
    }
}

/// Returns a document whose core has this many parts.
pub(super) fn large(value: &str, parts: usize) -> Document {
    // The core has each value twice.
    Document { repeated: 510_000 * parts - 100_000, ..small(value) }
}

impl Document {
    /// Returns the ConfigMap with this document, which a FeatureEnvironment names as its source.
    pub(super) fn source(&self) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "flags", "namespace": "shop"},
            "data": {"environment.json": serde_json::to_string(self).unwrap()},
        })
    }

    pub(super) fn revision(&self) -> String {
        compiled(self).1
    }

    fn model(&self) -> Environment {
        let feature = |id: usize| {
            let text = self.value.repeat(if id == 1 { self.repeated } else { 1 });
            let default = Context { enabled: true, value: json!(text).to_string(), split: None };
            Feature {
                id: i64::try_from(id).unwrap(),
                name: format!("f{id}"),
                kind: "STANDARD".to_owned(),
                served: true,
                server_only: false,
                default,
            }
        };
        let identity = |number: usize| IdentityOverride {
            identifier: format!("user-{number}"),
            flags: vec![IdentityFlag {
                feature: 1,
                enabled: true,
                value: json!(format!("{} of {number}", self.value)).to_string(),
                variant: None,
            }],
        };
        let document = (self.document > 0).then(|| {
            // Bytes that do not compress, so that the size is known.
            let mut random = fastrand::Rng::with_seed(self.value.bytes().map(u64::from).sum());
            let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(self.document).collect();
            let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
            gzip.write_all(&bytes).unwrap();
            Compressed { gzip: gzip.finish().unwrap(), length: bytes.len() as u64 }
        });
        Environment {
            name: "storefront".to_owned(),
            client_key: self.client_key.clone(),
            features: (1..=self.features).map(feature).collect(),
            identity_overrides: (0..self.overrides).map(identity).collect(),
            document,
            ..Environment::default()
        }
    }
}

/// The files of a document, and their revision.
type Files = (Vec<File>, String);

fn compiled(document: &Document) -> Files {
    static KNOWN: LazyLock<Mutex<HashMap<Document, Files>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap();
    let compile = || {
        let limit = if document.repeated > 1 { MAX_FILE_BYTES } else { SMALL_FILE };
        let written = write(&document.model(), limit).unwrap();
        (written.files, written.revision.to_string())
    };
    known.entry(document.clone()).or_insert_with(compile).clone()
}

/// Compiles the document of a request.
#[expect(clippy::needless_pass_by_value, reason = "the signature of a compiling function")]
pub(super) fn compile(request: Request) -> Result<Response, Error> {
    let document: Document = serde_json::from_slice(&request.pages.concat()).unwrap();
    let (files, revision) = compiled(&document);
    let about = DocumentStats {
        client_key: document.client_key.clone(),
        updated_at: None,
        features: document.features,
        segments: 0,
        overrides: document.overrides,
    };
    let bytes = files.iter().map(|file| file.bytes.len()).sum();
    let summary =
        SnapshotCounts { features: document.features, segments: 0, identity_overrides: document.overrides, bytes };
    Ok(Response { files, revision, summary, findings: Vec::new(), finding_count: 0, about })
}
