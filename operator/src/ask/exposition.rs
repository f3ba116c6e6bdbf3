//! Metrics as text, as pods of Remora expose them. Pure.

use jiff::Timestamp;

/// A sample of a metric.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample<'a> {
    /// Labels between the braces. Empty without labels.
    labels: &'a str,
    value: &'a str,
}

/// Iterates over the samples of a metric. Values of Remora's labels have no commas and quotes.
pub(super) fn samples<'a>(text: &'a str, metric: &'a str) -> impl Iterator<Item = Sample<'a>> {
    text.lines().filter_map(move |line| {
        let rest = line.strip_prefix(metric)?;
        let (labels, value) = match rest.strip_prefix('{') {
            Some(rest) => rest.rsplit_once("} ")?,
            None => ("", rest.strip_prefix(' ')?),
        };
        Some(Sample { labels, value })
    })
}

impl<'a> Sample<'a> {
    /// Returns the value of a label.
    pub(super) fn label(&self, name: &str) -> Option<&'a str> {
        let value = |label: &'a str| label.strip_prefix(name)?.strip_prefix("=\"")?.strip_suffix('"');
        self.labels.split(',').find_map(value)
    }

    /// Returns the value. `None` if it is no number.
    pub(super) fn number(&self) -> Option<f64> {
        self.value.trim().parse().ok().filter(|value: &f64| !value.is_nan())
    }

    /// Returns the value in seconds since 1970 as a time.
    pub(super) fn time(&self) -> Option<Timestamp> {
        // A timestamp has milliseconds, which fit into 64 bits for all times that a clock shows.
        Timestamp::from_second(self.number()? as i64).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE some_metric gauge\n\
        some_metric{environment=\"shop\",revision=\"abc\"} 1800000000.25\n\
        some_metric_of_another_name 7\n\
        plain NaN\n\
        plain 3\n";

    #[test]
    fn samples_have_the_labels_and_the_value_of_their_lines() {
        let found: Vec<Sample<'_>> = samples(TEXT, "some_metric").collect();
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!((found[0].label("environment"), found[0].label("revision")), (Some("shop"), Some("abc")));
        assert_eq!((found[0].label("env"), found[0].label("pod")), (None, None));
        assert_eq!(found[0].time(), Timestamp::from_second(1_800_000_000).ok());
    }

    #[test]
    fn value_that_is_no_number_is_none() {
        let numbers: Vec<Option<f64>> = samples(TEXT, "plain").map(|sample| sample.number()).collect();
        assert_eq!(numbers, [None, Some(3.0)]);
    }
}
