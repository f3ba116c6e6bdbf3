//! Images, chart and plugin of a release, as they are packed.

use std::process::Command;

use remora_testing::not_run;
use serde_json::Value;

use crate::packed::{ARCHITECTURES, Directory, REGISTRY, SOURCE, VERSION, lacking, root, run};

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
    // Values of a release outlive an upgrade with --reuse-values, and digests of another version must not.
    assert_eq!(values.matches("\n    digest: \"\"\n").count(), 2, "{values}");
    let digests: Value = serde_yaml::from_str(&first.unpacked(&chart, "remora/digests.yaml")).unwrap();
    for program in ["remora-operator", "remora-sidecar"] {
        let archive = format!("{program}.oci.tar");
        let layout: Value = serde_json::from_str(&first.unpacked(&archive, "index.json")).unwrap();
        let digest = layout["manifests"][0]["digest"].as_str().unwrap();
        assert_eq!(digests[program.trim_start_matches("remora-")], digest, "{program}");
        let blob = |digest: &str| first.unpacked(&archive, &format!("blobs/{}", digest.replace(':', "/")));
        let index: Value = serde_json::from_str(&blob(digest)).unwrap();
        assert_eq!(index["annotations"]["org.opencontainers.image.version"], VERSION);
        assert_eq!(index["annotations"]["org.opencontainers.image.source"], SOURCE);
        for (number, architecture) in ["amd64", "arm64"].into_iter().enumerate() {
            let image = &index["manifests"][number];
            assert_eq!(image["platform"]["architecture"], architecture, "{index}");
            let described = |descriptor: &Value| {
                let content = blob(descriptor["digest"].as_str().unwrap());
                assert_eq!(descriptor["size"], content.len(), "{descriptor}");
                content
            };
            let manifest: Value = serde_json::from_str(&described(image)).unwrap();
            let configuration: Value = serde_json::from_str(&described(&manifest["config"])).unwrap();
            assert_eq!(configuration["architecture"], architecture);
            assert_eq!(configuration["config"]["User"], "65532");
            assert_eq!(configuration["config"]["Labels"]["org.opencontainers.image.source"], SOURCE);
            let layer = described(&manifest["layers"][0]);
            assert!(layer.contains(&format!("{program}-linux-{architecture}")), "another program");
        }
    }
}

/// Returns the targets of all links in a text in Markdown.
fn links(text: &str) -> Vec<&str> {
    text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()).collect()
}

/// In the archive and on the page of a chart repository, a link to another file of the checkout leads nowhere.
#[test]
fn packed_chart_names_repository_in_links_and_metadata() {
    if let Some(lacking) = lacking() {
        return not_run(&lacking);
    }
    let directory = Directory::new("links");
    directory.pack();
    let chart = format!("remora-{VERSION}.tgz");
    let readme = directory.unpacked(&chart, "remora/README.md");
    let at = |kind: &str| format!("{SOURCE}/{kind}/v{VERSION}/");
    let mut files = 0;
    for link in links(&readme) {
        let file = [at("blob"), at("tree")].into_iter().find_map(|place| link.strip_prefix(&place).map(str::to_owned));
        if let Some(file) = file {
            let path = root().join(file.split('#').next().unwrap());
            let is_directory = link.starts_with(&at("tree"));
            assert!(path.exists() && path.is_dir() == is_directory, "{link}");
            files += 1;
        } else {
            assert!(link.starts_with('#') || link.starts_with("https://"), "{link}");
        }
    }
    let ours = std::fs::read_to_string(root().join("charts/remora/README.md")).unwrap();
    let relative = links(&ours).into_iter().filter(|link| !link.starts_with('#') && !link.starts_with("https://"));
    assert_eq!(files, relative.count());
    let metadata: Value = serde_yaml::from_str(&directory.unpacked(&chart, "remora/Chart.yaml")).unwrap();
    assert_eq!((&metadata["home"], &metadata["sources"]), (&SOURCE.into(), &serde_json::json!([SOURCE])));
}
