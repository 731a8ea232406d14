//! What a request's target says: the segments of its path and the parameters of its query.
//!
//! A path is split first and each segment decoded once, so that a lock's name may contain anything. Nothing is
//! normalised, nothing passed over.

use std::fmt;

use axum::http::Uri;
use percent_encoding::percent_decode_str;

/// What is wrong with a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UriError {
    /// A percent sign without two hexadecimal digits after it, or bytes that are not UTF-8; and where.
    Encoding(String),
    UnknownParameter(String),
    RepeatedParameter(String),
}

/// One segment of the path, decoded. The first is number 0.
pub(crate) fn segment(uri: &Uri, number: usize) -> Result<String, UriError> {
    let raw = uri.path().split('/').nth(number + 1).unwrap_or_default();
    decode(raw).ok_or_else(|| UriError::Encoding("the path".to_owned()))
}

/// The parameters of the query, in the order in which they are asked for.
///
/// A `+` is a space there, as in a form; a plus sign is `%2B`.
pub(crate) fn parameters<const N: usize>(uri: &Uri, known: [&str; N]) -> Result<[Option<String>; N], UriError> {
    let mut values = [const { None }; N];
    let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
    for pair in pairs {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = decode(&name.replace('+', " ")).ok_or_else(|| UriError::Encoding("the query".to_owned()))?;
        let Some(at) = known.iter().position(|known| *known == name) else {
            return Err(UriError::UnknownParameter(name));
        };
        let Some(value) = decode(&value.replace('+', " ")) else {
            return Err(UriError::Encoding(format!("the query parameter {name}")));
        };
        if values[at].replace(value).is_some() {
            return Err(UriError::RepeatedParameter(name));
        }
    }
    Ok(values)
}

fn decode(raw: &str) -> Option<String> {
    let mut after_signs = raw.split('%').skip(1);
    let is_whole = after_signs.all(|rest| {
        let digits = rest.as_bytes().first_chunk::<2>();
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    });
    if !is_whole {
        return None;
    }
    percent_decode_str(raw).decode_utf8().ok().map(std::borrow::Cow::into_owned)
}

impl fmt::Display for UriError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding(place) => write!(f, "{place} is not percent-encoded UTF-8"),
            Self::UnknownParameter(name) => write!(f, "there is no query parameter {name:?} here"),
            Self::RepeatedParameter(name) => write!(f, "the query parameter {name} is there twice"),
        }
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;

    use super::{UriError, parameters, segment};

    #[test]
    fn a_segment_is_split_first_and_decoded_once() {
        let name = |path: &str| segment(&path.parse::<Uri>().unwrap(), 2);
        let ok = |name: &str| Ok(name.to_owned());
        assert_eq!(name("/api/locks/nightly%2Fimport/release"), ok("nightly/import"));
        assert_eq!(name("/api/locks/%252F"), ok("%2F"));
        assert_eq!(name("/api/locks/../release"), ok(".."));
        assert_eq!(name("/api/locks/%00%0a+%c3%A9"), ok("\0\n+é"));
        for broken in ["%", "%2", "%zz", "a%2", "%+1", "%ff", "%c3%28", "%ed%a0%80"] {
            let path = format!("/api/locks/{broken}");
            assert_eq!(name(&path), Err(UriError::Encoding("the path".into())), "{broken}");
        }
    }

    #[test]
    fn a_query_says_each_known_parameter_once_and_nothing_else() {
        let read = |query: &str| parameters(&format!("/?{query}").parse::<Uri>().unwrap(), ["match", "after"]);
        let some = |value: &str| Some(value.to_owned());
        assert_eq!(read(""), Ok([None, None]));
        assert_eq!(read("after=a%26b%3Dc&match=*"), Ok([some("*"), some("a&b=c")]));
        assert_eq!(read("match=a+b%2Bc=d&"), Ok([some("a b+c=d"), None]));
        assert_eq!(read("match"), Ok([some(""), None]));
        assert_eq!(read("Match=a"), Err(UriError::UnknownParameter("Match".into())));
        assert_eq!(read("match=a&match=a"), Err(UriError::RepeatedParameter("match".into())));
        assert_eq!(read("match=%f"), Err(UriError::Encoding("the query parameter match".into())));
    }
}
