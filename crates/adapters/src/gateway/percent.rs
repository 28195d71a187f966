//! Percent-encoding of names in paths and queries.

/// Encodes a name as one segment of a path or one value of a query: everything but unreserved characters is escaped.
pub fn encode(text: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push('%');
            encoded.push(char::from(HEX[usize::from(byte >> 4)]));
            encoded.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_segment() {
        assert_eq!(encode("email.send-1_~"), "email.send-1_~");
        assert_eq!(encode("a/b?c=d&e#f g%"), "a%2Fb%3Fc%3Dd%26e%23f%20g%25");
        assert_eq!(encode("ü"), "%C3%BC");
    }
}
