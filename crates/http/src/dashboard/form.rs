//! Forms of pages, read within limits. The check of access has compared their token before a handler is called.

use axum::extract::Request;
use bytes::Bytes;

use crate::body;
use crate::error::{ApiError, ApiResult};

/// The fields of a form that was sent.
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads a form of at most `bytes_max` bytes.
    pub async fn read(request: Request, bytes_max: usize) -> ApiResult<Form> {
        Ok(Form::parse(&body::read(request, bytes_max).await?))
    }

    fn parse(body: &Bytes) -> Form {
        Form(form_urlencoded::parse(body).into_owned().collect())
    }

    /// Returns a form that was not sent.
    #[cfg(test)]
    pub fn from_pairs(pairs: Vec<(String, String)>) -> Form {
        Form(pairs)
    }

    /// Returns the text of a field; `None` if it is absent or empty, as a field that nobody filled in.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim())?;
        (!value.is_empty()).then_some(value)
    }

    /// Returns the text of a field as it was sent.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns every value of a field that can be given several times.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns whether a box is checked.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns a field that must be there.
    pub fn need(&self, name: &'static str) -> ApiResult<&str> {
        self.get(name).ok_or_else(|| ApiError::invalid(name, "expected a value, got none"))
    }

    /// Parses a field; the error names it.
    pub fn parsed<T>(&self, name: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> ApiResult<Option<T>> {
        self.get(name).map(|text| parse(text).map_err(|message| ApiError::invalid(name, message))).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_an_empty_one_is_absent() {
        let form = Form::parse(&Bytes::from_static(b"a=1+2%263&b=&c=+&a=x&id=1&id=2"));
        assert_eq!((form.get("a"), form.get("b"), form.get("c"), form.get("d")), (Some("1 2&3"), None, None, None));
        assert_eq!(form.all("id").collect::<Vec<_>>(), ["1", "2"]);
        assert!(form.need("b").is_err() && form.has("a"));
    }
}
