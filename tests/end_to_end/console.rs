//! A client of the console, which behaves like a browser without scripts or like a program.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;

/// The maximum size of a page in bytes.
const PAGE_BYTES_MAX: usize = 60 * 1024;

/// A response.
pub(crate) struct Response {
    pub(crate) status: u16,
    /// The head of the response, in lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

/// The address of a console.
pub(crate) struct Console {
    address: String,
}

impl Console {
    /// Returns the console of the `weir up` in a folder.
    pub(crate) fn of(folder: &Path) -> Self {
        let text = fs::read_to_string(folder.join(".weir/running.json")).unwrap();
        let running: Value = serde_json::from_str(&text).unwrap();
        Self::at(running["console"].as_str().unwrap())
    }

    /// Returns the console at a URL.
    pub(crate) fn at(url: &str) -> Self {
        Self { address: url.strip_prefix("http://").unwrap().trim_end_matches('/').to_owned() }
    }

    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let more: String =
            headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nContent-Length: {}\r\n{more}\r\n{body}",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Sends a request with these additional headers.
    pub(crate) fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let mut text = String::new();
        self.send(method, path, headers, body).read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Response { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    /// Returns a page. Checks that it is small, has the security headers, and has no inline style
    /// or script.
    pub(crate) fn page(&self, path: &str) -> String {
        let Response { status, head, body } = self.request("GET", path, &[], "");
        assert_eq!(status, 200, "{path}: {body}");
        assert!(body.len() <= PAGE_BYTES_MAX, "{path}: {} bytes", body.len());
        for part in
            ["content-security-policy: default-src 'none';", "frame-ancestors 'none'", "nosniff"]
        {
            assert!(head.contains(part), "{path}: {head}");
        }
        for inline in ["style=\"", " onclick", "<style"] {
            assert!(!body.contains(inline), "{path}: {inline}");
        }
        body
    }

    /// Returns the JSON version of a page.
    pub(crate) fn twin(&self, path: &str) -> Value {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let response = self.request("GET", &format!("{path}.json?{query}"), &[], "");
        assert_eq!(response.status, 200, "{path}: {}", response.body);
        serde_json::from_str(&response.body).unwrap()
    }

    /// Returns the form token of a page.
    pub(crate) fn token(&self, page: &str) -> String {
        let page = self.page(page);
        let (_, behind) = page.split_once("name=\"token\" value=\"").unwrap();
        behind.split('"').next().unwrap().to_owned()
    }

    /// Presses a button of a page: sends its form as a browser does.
    pub(crate) fn press(&self, page: &str, action: &str, fields: &str) -> Response {
        let (token, origin) = (self.token(page), format!("http://{}", self.address));
        let headers = [
            ("Content-Type", "application/x-www-form-urlencoded"),
            ("Origin", &*origin),
            ("User-Agent", "Mozilla/5.0"),
        ];
        self.request("POST", action, &headers, &format!("token={token}&back={page}&{fields}"))
    }

    /// Returns the first lines of an event stream until one begins with `wanted`.
    pub(crate) fn events(&self, path: &str, wanted: &str) -> Vec<String> {
        let stream = self.send("GET", path, &[], "");
        let mut lines = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            let is_last = line.starts_with(wanted);
            lines.push(line);
            if is_last {
                return lines;
            }
        }
        assert!(lines.is_empty(), "the events ended without `{wanted}`: {lines:?}");
        lines
    }
}

/// Percent-encodes a string for a query.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte.is_ascii_alphanumeric() {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
