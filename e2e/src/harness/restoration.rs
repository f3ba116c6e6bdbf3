//! Result of a case that restores at its end what it has changed for others.

/// Returns the error of the case, with the one of the restoration beside it. A failed restoration would otherwise hide
/// the error that it may be a consequence of.
///
/// # Errors
///
/// Returns an error if the case or the restoration has failed.
pub fn and_restoration(case: anyhow::Result<()>, restoration: anyhow::Result<()>) -> anyhow::Result<()> {
    match (case, restoration) {
        (Err(case), Err(restoration)) => {
            Err(anyhow::anyhow!("{case:#}; then the restoration failed, too: {restoration:#}"))
        }
        (case, restoration) => case.and(restoration),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_case_comes_before_the_one_of_restoration() {
        let failed = |text: &str| Err(anyhow::anyhow!(text.to_owned()));
        let text = |case, restoration| and_restoration(case, restoration).unwrap_err().to_string();
        assert_eq!(text(failed("case"), Ok(())), "case");
        assert_eq!(text(Ok(()), failed("restoration")), "restoration");
        let both = text(failed("case"), failed("restoration"));
        assert!(both.starts_with("case; ") && both.ends_with(": restoration"), "{both}");
        assert!(and_restoration(Ok(()), Ok(())).is_ok());
    }
}
