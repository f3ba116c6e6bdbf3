//! Tests of the files that a release adds to the chart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

use super::{Objects, arguments, chart, get, helm_on, objects};

/// Copy of the chart with the files of a release. It is removed with this value.
pub(super) struct Packed(PathBuf);

impl Drop for Packed {
    fn drop(&mut self) {
        let _a_directory_that_stays_is_no_failure = std::fs::remove_dir_all(&self.0);
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn digest(of: char) -> String {
    format!("sha256:{}", of.to_string().repeat(64))
}

impl Packed {
    pub(super) fn new() -> Packed {
        static COPIES: AtomicU32 = AtomicU32::new(0);
        let number = COPIES.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("remora-chart-{}-{number}", std::process::id()));
        copy(&chart(), &path);
        let digests = format!("operator: {}\nsidecar: {}\n", digest('a'), digest('b'));
        std::fs::write(path.join("digests.yaml"), digests).unwrap();
        let metadata = std::fs::read_to_string(path.join("Chart.yaml")).unwrap();
        std::fs::write(path.join("Chart.yaml"), metadata + "home: https://code.example.org/remora\n").unwrap();
        Packed(path)
    }

    pub(super) fn render(&self, values: &Value) -> Objects {
        let output = helm_on(&self.0, "remora-system", &["template", "remora"], values);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        objects(&String::from_utf8(output.stdout).unwrap())
    }
}

/// Returns the images of the operator and of the sidecar.
fn images(objects: &Objects) -> [String; 2] {
    let webhook = get(objects, "Deployment", "remora-webhook");
    let operator = webhook["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned();
    let sidecar = arguments(webhook).into_iter().find_map(|option| option.strip_prefix("--sidecar-image="));
    [operator, sidecar.unwrap().to_owned()]
}

/// `helm upgrade --reuse-values` gives the new chart all values of the earlier release.
#[test]
fn values_of_earlier_release_keep_no_image() {
    let packed = Packed::new();
    let own = ["remora-operator", "remora-sidecar"];
    let released = [format!("{}@{}", own[0], digest('a')), format!("{}@{}", own[1], digest('b'))];
    let earlier: Value = serde_yaml::from_str(&std::fs::read_to_string(chart().join("values.yaml")).unwrap()).unwrap();
    for values in [json!({}), earlier] {
        assert_eq!(images(&packed.render(&values)), released);
    }
    let mirror = json!({"image": {"registry": "mirror.example.org/remora"}});
    assert_eq!(images(&packed.render(&mirror)), released.map(|image| format!("mirror.example.org/remora/{image}")));
}

#[test]
fn digest_and_tag_in_values_precede_digest_of_release() {
    let packed = Packed::new();
    let given = json!({"image": {"operator": {"tag": "x"}, "sidecar": {"tag": "y", "digest": digest('c')}}});
    assert_eq!(
        images(&packed.render(&given)),
        ["remora-operator:x".to_owned(), format!("remora-sidecar@{}", digest('c'))]
    );
}
