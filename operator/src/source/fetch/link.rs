//! Parser of the `Link` header, limited to what pagination needs (RFC 8288). Pure.

/// Returns the target of the first link with the relation `next`, in any of the headers.
pub(super) fn next<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    headers.into_iter().find_map(|header| Links(header).find(|link| link.is_next).map(|link| link.target))
}

struct Link<'a> {
    target: &'a str,
    is_next: bool,
}

/// Iterator over the links of one header. It stops at the first malformed link.
struct Links<'a>(&'a str);

impl<'a> Iterator for Links<'a> {
    type Item = Link<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0.trim_start_matches([' ', '\t', ',']);
        let (target, mut rest) = rest.strip_prefix('<')?.split_once('>')?;
        let mut is_next = false;
        loop {
            rest = rest.trim_start();
            let Some(parameter) = rest.strip_prefix(';') else {
                break;
            };
            let (name, value, after) = split_parameter(parameter)?;
            if name.eq_ignore_ascii_case("rel") {
                is_next |= value.split_ascii_whitespace().any(|relation| relation.eq_ignore_ascii_case("next"));
            }
            rest = after;
        }
        self.0 = rest;
        Some(Link { target, is_next })
    }
}

/// Splits text into a parameter's name, its value without quotes, and the rest.
fn split_parameter(text: &str) -> Option<(&str, &str, &str)> {
    let end = text.find(['=', ';', ',']).unwrap_or(text.len());
    let (name, rest) = text.split_at_checked(end)?;
    let Some(value) = rest.strip_prefix('=') else {
        return Some((name.trim(), "", rest));
    };
    let value = value.trim_start();
    if let Some(quoted) = value.strip_prefix('"') {
        let (inside, after) = quoted.split_once('"')?;
        return Some((name.trim(), inside, after));
    }
    let (value, after) = value.split_at_checked(value.find([';', ',']).unwrap_or(value.len()))?;
    Some((name.trim(), value.trim(), after))
}

#[cfg(test)]
mod tests {
    use super::next;

    #[test]
    fn next_page_is_found_in_every_notation() {
        for header in [
            "</p?a=1>; rel=\"next\"",
            "</p?a=1>;rel=next",
            "</p?a=1> ; rel = next ; title=x",
            "</p?a=1>; REL=\"prefetch Next\"",
            "</first>; rel=first, </p?a=1>; rel=\"next\"",
            "</x,y;z>; title=\"a, b; c\"; rel=prev, </p?a=1>; rel=next",
            "</p?a=1>; crossorigin; rel=next",
        ] {
            assert_eq!(next([header]), Some("/p?a=1"), "{header}");
        }
        assert_eq!(next(["</a>; rel=prev", "</b>; rel=next"]), Some("/b"));
    }

    #[test]
    fn other_links_are_no_next_page() {
        for header in [
            "",
            "</p>",
            "</p>; rel=prev",
            "</p>; title=next",
            "/p; rel=next",
            "</p; rel=next",
            "</p>; rel=\"next",
            ",,,",
        ] {
            assert_eq!(next([header]), None, "{header}");
        }
    }
}
