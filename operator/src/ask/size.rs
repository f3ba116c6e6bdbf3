//! `kubectl remora size`: what takes the bytes of a revision.

use std::fmt;

use remora_snapshot::{FeatureDescription, VariantDescription, files};
use remora_tools::counted;
use serde::Serialize;

use super::{
    answer::{CommandOutput, TextOutput},
    cluster::Cluster,
    failure::Failure,
    published,
};

/// Number of flags that the text lists.
const LARGEST: usize = 10;

/// Show what takes the bytes of an environment: its objects, and the values of its largest flags.
#[derive(Debug, clap::Args)]
pub(super) struct Size {
    /// Name of the FeatureEnvironment.
    environment: String,
    /// Revision to read. Default: the published revision.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
}

/// Sizes of a revision in bytes.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Sizes {
    revision: String,
    bytes: usize,
    objects: Vec<Object>,
    features: usize,
    segments: usize,
    identity_overrides: usize,
    /// Flags by the bytes of their values in all variants and segment overrides, largest first.
    flags: Vec<Flag>,
}

#[derive(Debug, Serialize)]
struct Object {
    object: String,
    file: String,
    bytes: usize,
    /// Share of what one object can hold, in percent.
    percent: usize,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Flag {
    name: String,
    bytes: usize,
}

/// Measures a revision.
pub(super) async fn size(cluster: &Cluster, asked: &Size) -> Result<Sizes, Failure> {
    let environment = cluster.environment(&asked.environment).await?;
    let found = published::read(cluster, &environment, asked.revision.as_deref()).await?;
    let described = found.snapshot.describe();
    let objects = found.files.into_iter().map(|(object, file, bytes)| Object {
        object,
        file,
        bytes,
        percent: bytes * 100 / files::MAX_FILE_BYTES,
    });
    let objects: Vec<Object> = objects.collect();
    Ok(Sizes {
        revision: found.snapshot.revision().to_string(),
        bytes: objects.iter().map(|object| object.bytes).sum(),
        objects,
        features: described.features.len(),
        segments: described.segments.len(),
        identity_overrides: found.snapshot.identity_overrides(),
        flags: largest(&described.features),
    })
}

fn largest(features: &[FeatureDescription<'_>]) -> Vec<Flag> {
    let of_variants =
        |variants: &[VariantDescription<'_>]| variants.iter().map(|variant| variant.value.len()).sum::<usize>();
    let mut flags: Vec<Flag> = features
        .iter()
        .map(|feature| {
            let overrides = feature.overrides.iter().map(|own| own.value.len() + of_variants(&own.variants));
            let bytes = feature.value.len() + of_variants(&feature.variants) + overrides.sum::<usize>();
            Flag { name: feature.name.to_owned(), bytes }
        })
        .collect();
    flags.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    flags
}

impl CommandOutput for Sizes {
    fn text(&self, output: &mut TextOutput) -> fmt::Result {
        let Self { revision, bytes, features, segments, identity_overrides, .. } = self;
        output.line(format!(
            "revision {revision}: {bytes} bytes, {}, {}, {}",
            counted(*features, "feature"),
            counted(*segments, "segment"),
            counted(*identity_overrides, "identity override")
        ))?;
        let mut rows = vec![["OBJECT", "BYTES", "OF AN OBJECT"].map(str::to_owned).to_vec()];
        rows.extend(
            self.objects
                .iter()
                .map(|object| vec![object.object.clone(), object.bytes.to_string(), format!("{} %", object.percent)]),
        );
        output.table(&rows)?;
        output.line("")?;
        output.line(format!("the {LARGEST} flags with the largest values, over all variants and segments"))?;
        let mut rows = vec![["FLAG", "BYTES"].map(str::to_owned).to_vec()];
        rows.extend(self.flags.iter().take(LARGEST).map(|flag| vec![flag.name.clone(), flag.bytes.to_string()]));
        output.table(&rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_flag_counts_values_of_variants() {
        let feature = |name: &'static str, value: &'static str, variants: &[&'static str]| FeatureDescription {
            id: 1,
            name,
            enabled: true,
            value: value.into(),
            variants: variants
                .iter()
                .map(|value| VariantDescription { weight: "50", value: (*value).into() })
                .collect(),
            overrides: Vec::new(),
            server_only: false,
            unserved: false,
        };
        let flags = largest(&[feature("small", "1", &[]), feature("split", "1", &["12345", "12345"])]);
        assert_eq!(flags[0], Flag { name: "split".to_owned(), bytes: 11 });
        assert_eq!(flags[1], Flag { name: "small".to_owned(), bytes: 1 });
    }
}
