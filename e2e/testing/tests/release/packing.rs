//! Images, chart and plugin of a release, as they are packed.

use std::process::Command;

use remora_testing::not_run;
use serde_json::Value;

use crate::packed::{ARCHITECTURES, Directory, REGISTRY, SOURCE, VERSION, lacking, run};

/// Checks the manifest by the rules of krew's own validation (`internal/index/validation` of krew 0.4), and the rules of
/// its index about archives.
#[test]
fn manifest_of_plugin_is_valid_for_krew_and_names_its_archives() {
    if let Some(lacking) = lacking() {
        return not_run(&lacking);
    }
    let directory = Directory::new("plugin");
    let sums = directory.pack();
    let text = std::fs::read_to_string(directory.0.join("release/remora.yaml")).unwrap();
    let manifest: Value = serde_yaml::from_str(&text).unwrap();
    assert_eq!(manifest["apiVersion"], "krew.googlecontainertools.github.com/v1alpha2");
    assert_eq!((&manifest["kind"], &manifest["metadata"]["name"]), (&"Plugin".into(), &"remora".into()));
    let spec = &manifest["spec"];
    assert_eq!(spec["version"], format!("v{VERSION}"));
    let short = spec["shortDescription"].as_str().unwrap();
    assert!((1..=50).contains(&short.len()) && !short.contains(['\r', '\n']) && !short.ends_with('.'), "{short:?}");
    assert!(spec["description"].as_str().is_some_and(|text| !text.is_empty()));
    let known = ["version", "homepage", "shortDescription", "description", "caveats", "platforms"];
    assert!(spec.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{spec}");

    let platforms = spec["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), ARCHITECTURES.len());
    for (platform, architecture) in platforms.iter().zip(ARCHITECTURES) {
        assert_eq!(platform["selector"], serde_json::json!({"matchLabels": {"os": "linux", "arch": architecture}}));
        let archive = format!("kubectl-remora-linux-{architecture}.tar.gz");
        assert_eq!(platform["uri"], format!("{SOURCE}/releases/download/v{VERSION}/{archive}"));
        let sum = platform["sha256"].as_str().unwrap();
        assert!(sum.len() == 64 && sum.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{sum}");
        assert!(sums.lines().any(|line| line == format!("{sum}  {archive}")), "{sums}");
        // Without `files`, krew takes all files of the archive.
        assert!(platform.get("files").is_none());
        let bin = platform["bin"].as_str().unwrap();
        assert_eq!(directory.unpacked(&archive, bin), format!("kubectl-remora-linux-{architecture}"));
        assert!(directory.unpacked(&archive, "LICENSE").contains("Apache License"));
        let listing = run(Command::new("tar").arg("-tvf").arg(directory.0.join("release").join(&archive))).unwrap();
        assert!(listing.lines().any(|line| line.starts_with("-rwx") && line.ends_with(bin)), "{listing}");
    }
}

#[test]
fn release_is_packed_twice_to_the_same_bytes() {
    if let Some(lacking) = lacking() {
        return not_run(&lacking);
    }
    let (first, second) = (Directory::new("first"), Directory::new("second"));
    let sums = first.pack();
    assert_eq!(sums, second.pack());
    assert_eq!(sums.lines().count(), 12, "{sums}");

    let chart = format!("remora-{VERSION}.tgz");
    let values = first.unpacked(&chart, "remora/values.yaml");
    assert!(values.contains(&format!("\n  registry: {REGISTRY}\n")), "{values}");
    for program in ["remora-operator", "remora-sidecar"] {
        let archive = format!("{program}.oci.tar");
        let layout: Value = serde_json::from_str(&first.unpacked(&archive, "index.json")).unwrap();
        let digest = layout["manifests"][0]["digest"].as_str().unwrap();
        assert!(values.contains(&format!("\n    digest: {digest}\n")), "{program}: {digest}");
        let blob = |digest: &str| first.unpacked(&archive, &format!("blobs/{}", digest.replace(':', "/")));
        let index: Value = serde_json::from_str(&blob(digest)).unwrap();
        assert_eq!(index["annotations"]["org.opencontainers.image.version"], VERSION);
        for (number, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let image = &index["manifests"][number];
            assert_eq!(image["platform"]["architecture"], architecture, "{index}");
            let manifest: Value = serde_json::from_str(&blob(image["digest"].as_str().unwrap())).unwrap();
            let configuration: Value =
                serde_json::from_str(&blob(manifest["config"]["digest"].as_str().unwrap())).unwrap();
            assert_eq!(configuration["architecture"], architecture);
            assert_eq!(configuration["config"]["User"], "65532");
            let layer = blob(manifest["layers"][0]["digest"].as_str().unwrap());
            assert!(layer.contains(&format!("{program}-linux-{architecture}")), "another program");
        }
    }
}
