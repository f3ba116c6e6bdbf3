//! Rule for the names of FeatureEnvironments.

/// Largest length of an environment's name in characters. The names of objects and volumes contain it.
pub const ENVIRONMENT_MAX: usize = 40;

/// Error for a text that cannot be the name of an environment.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "{0:?} is not the name of a FeatureEnvironment: use at most 40 lower-case letters, digits and '-', with a letter or digit at both ends"
)]
pub struct InvalidEnvironmentName(String);

/// Returns the text if it can be the name of an environment: a DNS-1123 label of at most [`ENVIRONMENT_MAX`]
/// characters.
///
/// # Errors
/// Any other text.
pub fn environment_name(text: &str) -> Result<String, InvalidEnvironmentName> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let valid = text.len() <= ENVIRONMENT_MAX
        && text.chars().all(|c| plain(c) || c == '-')
        && text.starts_with(plain)
        && text.ends_with(plain);
    if valid {
        Ok(text.to_owned())
    } else {
        // The text comes from an annotation that any pod's author may write, so the message repeats only its beginning.
        Err(InvalidEnvironmentName(text.chars().take(64).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_dns_labels_of_forty_characters() {
        for good in ["a", "storefront", "a-b-0", &"x".repeat(40)] {
            assert!(environment_name(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "ä", &"x".repeat(41)] {
            assert!(environment_name(bad).is_err(), "{bad}");
        }
    }
}
