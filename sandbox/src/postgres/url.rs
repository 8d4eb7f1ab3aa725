//! Connection strings, handled as text so that every parameter the user wrote survives.

use std::fmt::Write;
use std::path::Path;

use super::folder::PORT;

/// The name of the private server's superuser.
pub(super) const USER: &str = "longhaul";

/// A database of a server that listens in `socket_dir`.
pub(super) fn of_socket(socket_dir: &Path, database: &str) -> String {
    let host = encode(&socket_dir.to_string_lossy());
    format!("postgres://{USER}@{host}:{PORT}/{}?sslmode=disable", encode(database))
}

/// The same server, user and parameters, with another database.
pub(super) fn with_database(url: &str, database: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let authority_at = address.find("://").map_or(0, |at| at + 3);
    let path_at = address[authority_at..].find('/').map_or(address.len(), |at| authority_at + at);
    let mut changed = format!("{}/{}", &address[..path_at], encode(database));
    let kept: Vec<&str> =
        query.unwrap_or("").split('&').filter(|pair| !pair.is_empty() && !pair.starts_with("dbname=")).collect();
    if !kept.is_empty() {
        changed.push('?');
        changed.push_str(&kept.join("&"));
    }
    changed
}

/// Percent-encodes everything but letters, digits and `_-.~`.
fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"_-.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{of_socket, with_database};

    #[test]
    fn a_socket_is_a_percent_encoded_host() {
        assert_eq!(
            of_socket(Path::new("/tmp/a b"), "x/y"),
            "postgres://longhaul@%2Ftmp%2Fa%20b:5432/x%2Fy?sslmode=disable"
        );
    }

    #[test]
    fn only_the_database_changes() {
        for (url, expected) in [
            ("postgres://u:p@h:1/old", "postgres://u:p@h:1/new"),
            ("postgres://u@h", "postgres://u@h/new"),
            ("postgres://h/old?sslmode=require&dbname=z", "postgres://h/new?sslmode=require"),
            ("postgres:///old?host=/run/pg", "postgres:///new?host=/run/pg"),
            ("postgres://u@h?application_name=a/b", "postgres://u@h/new?application_name=a/b"),
        ] {
            assert_eq!(with_database(url, "new"), expected);
        }
    }
}
