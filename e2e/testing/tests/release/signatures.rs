//! Signatures by a key: `publish.sh` signs a release in a registry, and the documented commands accept nothing else.

use std::path::{Path, PathBuf};
use std::process::Command;

use remora_testing::not_run;

use crate::documented::documented;
use crate::packed::{Directory, REGISTRY, VERSION, lacking, root, run};
use crate::registry::Registry;

/// Cosign, and a search path on which it is the first.
pub(crate) struct Cosign {
    path: String,
}

impl Cosign {
    /// Returns cosign if this machine has all that the tests of signatures need; otherwise reports the test as not run.
    #[track_caller]
    pub(crate) fn find() -> Option<Cosign> {
        let registry =
            ["docker-registry", "apt-get"].iter().any(|name| run(Command::new(name).arg("--version")).is_ok());
        let found = run(Command::new(root().join("e2e/release/cosign.sh")).arg("--find"));
        let missing = lacking()
            .or_else(|| found.clone().err().map(|_| "cosign 3: e2e/release/cosign.sh fetches it".to_owned()))
            .or_else(|| (!registry).then(|| "docker-registry".to_owned()));
        if let Some(missing) = missing {
            not_run(&missing);
            return None;
        }
        Some(Cosign { path: format!("{}:{}", found.unwrap().trim(), std::env::var("PATH").unwrap()) })
    }

    /// Creates a pair of keys without a password, and returns the path of both without the extension.
    pub(crate) fn keys(&self, directory: &Path) -> PathBuf {
        std::fs::create_dir_all(directory).unwrap();
        let mut command = Command::new("cosign");
        command.arg("generate-key-pair").current_dir(directory);
        run(command.env("PATH", &self.path).env("COSIGN_PASSWORD", "")).unwrap();
        directory.join("cosign")
    }

    /// Returns the call that publishes a release, signed by a key.
    fn publication(&self, release: &Directory, place: &str, key: &Path) -> Command {
        let mut command = release.script("publish.sh", place);
        command.env("PATH", &self.path).env("COSIGN_KEY", key.with_extension("key")).env("COSIGN_PASSWORD", "");
        command.env("PLAIN_HTTP", "true").env_remove("REGISTRY_USER");
        command
    }

    /// Publishes a release, signed by a key, and returns what the script prints.
    pub(crate) fn publish(&self, release: &Directory, place: &str, key: &Path) -> Result<String, String> {
        run(&mut self.publication(release, place, key))
    }

    /// Runs a documented command on the release in a registry, with the publisher's key.
    fn verify(&self, command: &str, release: &Directory, place: &str, key: &Path) -> Result<String, String> {
        let key = key.with_extension("pub");
        let command = command.replace(REGISTRY, place).replace("PUBLIC_KEY", key.to_str().unwrap());
        run(Command::new("bash").args(["-euc", &command]).env("PATH", &self.path).current_dir(release.release()))
    }
}

/// Runs crane, and returns what it prints.
pub(crate) fn crane(words: &[&str]) -> Result<String, String> {
    let tools = run(Command::new(root().join("e2e/release/tools.sh")).arg("crane"))?;
    run(Command::new(Path::new(tools.trim()).join("crane")).arg("--insecure").args(words))
}

/// Returns the digest with which `publish.sh` has published an image or the chart.
fn digest<'a>(said: &'a str, name: &str) -> &'a str {
    let words = said.split_whitespace().filter_map(|word| word.split_once('@'));
    words.filter(|(place, _)| place.ends_with(name)).map(|(_, digest)| digest).next().unwrap()
}

/// Checks that a command fails, and that it names this reason.
#[track_caller]
pub(crate) fn refused(result: &Result<String, String>, reason: &str) {
    assert!(result.as_ref().is_err_and(|said| said.contains(reason)), "not refused with {reason:?}: {result:?}");
}

#[test]
fn documented_commands_accept_release_signed_by_key_and_refuse_others() {
    let Some(cosign) = Cosign::find() else { return };
    let directory = Directory::new("signed");
    let registry = Registry::start(&directory);
    let place = registry.place.as_str();
    let keys = [cosign.keys(&directory.0.join("publisher")), cosign.keys(&directory.0.join("stranger"))];
    let [publisher, stranger] = &keys;
    let commands: Vec<String> = documented().into_iter().filter(|command| command.contains("PUBLIC_KEY")).collect();
    let (files, stored): (Vec<_>, Vec<_>) = commands.iter().partition(|command| command.contains("checksums.txt.sig"));
    assert_eq!((files.len(), stored.len()), (2, 2), "{commands:?}");
    let invalid = |file: &str| if file.starts_with("openssl") { "Verification failure" } else { "invalid signature" };
    // The documented commands verify the chart.
    let about = |name: &str| stored.iter().map(|command| command.replace("charts/remora", name)).collect::<Vec<_>>();

    let release = Directory::new("published");
    release.pack_for(place, "");
    release.write_provenance(place);
    cosign.publish(&release, place, publisher).unwrap();
    let said = cosign.publish(&release, place, publisher).expect("a second run publishes the same");
    for file in &files {
        cosign.verify(file, &release, place, publisher).unwrap();
        refused(&cosign.verify(file, &release, place, stranger), invalid(file));
    }
    for command in ["charts/remora", "remora-sidecar"].into_iter().flat_map(about) {
        cosign.verify(&command, &release, place, publisher).unwrap();
        refused(&cosign.verify(&command, &release, place, stranger), "no matching");
    }
    // A client that reads the index first may check only the image of its architecture.
    let image = crane(&["digest", "--platform", "linux/arm64", &format!("{place}/remora-sidecar:{VERSION}")]).unwrap();
    let command = about("remora-sidecar")[0].replace(&format!(":{VERSION}"), &format!("@{}", image.trim()));
    cosign.verify(&command, &release, place, publisher).unwrap();

    let sums = release.release().join("checksums.txt");
    let altered = std::fs::read_to_string(&sums).unwrap().replace("remora.yaml", "remora.yml");
    std::fs::write(&sums, altered).unwrap();
    for file in &files {
        refused(&cosign.verify(file, &release, place, publisher), invalid(file));
    }

    // Another release under the same tags, with a stranger's signatures and then with the publisher's of the first one.
    let forged = Directory::new("forged");
    let elsewhere = format!("{place}-forged");
    forged.pack_for(&elsewhere, " altered");
    forged.write_provenance(&elsewhere);
    let forgery = cosign.publish(&forged, &elsewhere, stranger).unwrap();
    for name in ["/charts/remora", "/remora-sidecar"] {
        let [right, wrong] = [&said, &forgery].map(|said| digest(said, name));
        assert_ne!(right, wrong, "{name}");
        let copied = ["sig", "att"].map(|kind| format!("{}.{kind}", wrong.replace(':', "-")));
        for tag in copied.iter().map(String::as_str).chain([VERSION]) {
            crane(&["copy", &format!("{elsewhere}{name}:{tag}"), &format!("{place}{name}:{tag}")]).unwrap();
        }
        for command in about(&name[1..]) {
            refused(&cosign.verify(&command, &release, place, publisher), "no matching");
            let pinned = command.replace(&format!(":{VERSION}"), &format!("@{right}"));
            cosign.verify(&pinned, &release, place, publisher).unwrap();
        }
        for (kind, command) in ["sig", "att"].iter().zip(about(&name[1..])) {
            let tag = |digest: &str| format!("{place}{name}:{}.{kind}", digest.replace(':', "-"));
            crane(&["copy", &tag(right), &tag(wrong)]).unwrap();
            refused(&cosign.verify(&command, &release, place, publisher), "digest");
        }
    }
}

/// The signature of the checksums comes first, so the registry, which does not exist, is not asked.
#[test]
fn publication_with_wrong_password_of_key_pushes_nothing() {
    let Some(cosign) = Cosign::find() else { return };
    let release = Directory::new("unsigned");
    let place = "127.0.0.1:1/remora";
    release.pack_for(place, "");
    let key = cosign.keys(&release.0.join("publisher"));
    let mut command = cosign.publication(&release, place, &key);
    let result = run(command.env("COSIGN_PASSWORD", "another"));
    refused(&result, "nothing is published");
    assert!(result.is_err_and(|said| !said.contains("cannot push")), "it pushes before it signs");
}
