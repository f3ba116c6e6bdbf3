//! `publish.sh` never replaces what a registry has under a version.

use crate::packed::{Directory, VERSION};
use crate::registry::Registry;
use crate::signatures::{Cosign, crane, refused};

const NAMES: [&str; 3] = ["remora-operator", "remora-sidecar", "charts/remora"];

/// Returns the digest of each name under this version, and an empty text for a name without one.
fn digests(place: &str) -> [String; 3] {
    NAMES.map(|name| crane(&["digest", &format!("{place}/{name}:{VERSION}")]).unwrap_or_default())
}

#[test]
fn publication_keeps_version_that_has_another_digest() {
    let Some(cosign) = Cosign::find() else { return };
    let directory = Directory::new("kept");
    let registry = Registry::start(&directory);
    let place = registry.place.as_str();
    let key = cosign.keys(&directory.0.join("publisher"));
    let packed = |name: &str, mark: &str| {
        let release = Directory::new(name);
        release.pack_for(place, mark);
        release.write_provenance(place);
        release
    };
    let first = packed("kept-first", "");
    cosign.publish(&first, place, &key).unwrap();
    let published = digests(place);
    assert!(published.iter().all(|digest| !digest.is_empty()), "{published:?}");

    let other = packed("kept-other", " altered");
    let reason = format!("version {VERSION} is published already with another digest");
    refused(&cosign.publish(&other, place, &key), &reason);
    assert_eq!(digests(place), published);

    // Only the chart differs.
    let chart = packed("kept-chart", "");
    chart.alter_chart();
    let result = cosign.publish(&chart, place, &key);
    refused(&result, &reason);
    refused(&result, "/charts/remora: ");
    assert_eq!(digests(place), published);

    cosign.publish(&first, place, &key).expect("the same release is no other one");
    assert_eq!(digests(place), published);
}

/// The comparison of the chart comes before the first push of an image.
#[test]
fn publication_pushes_no_image_beside_chart_of_another_release() {
    let Some(cosign) = Cosign::find() else { return };
    let directory = Directory::new("alone");
    let registry = Registry::start(&directory);
    let place = registry.place.as_str();
    let key = cosign.keys(&directory.0.join("publisher"));
    let first = Directory::new("alone-first");
    first.pack_for(place, "");
    first.write_provenance(place);
    let elsewhere = format!("{place}-elsewhere");
    let another = Directory::new("alone-another");
    another.pack_for(&elsewhere, " altered");
    another.write_provenance(&elsewhere);
    cosign.publish(&another, &elsewhere, &key).unwrap();
    let [from, to] = [&elsewhere[..], place].map(|place| format!("{place}/charts/remora:{VERSION}"));
    crane(&["copy", &from, &to]).unwrap();

    refused(&cosign.publish(&first, place, &key), "is published already with another digest");
    assert_eq!(digests(place)[..2], [String::new(), String::new()]);
}
