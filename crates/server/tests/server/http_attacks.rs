//! The status page over the server's own TLS, and clients that keep its connections busy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use mayfly_base::testing::wait_until;
use mayfly_server::TlsMode;
use mayfly_value::bson::doc;

use crate::authorization::ok;
use crate::common::Connection;
use crate::http::{Response, Site, site};
use crate::tls::{Authority, connect_quietly};

/// The largest number of connections to the page.
const PLACES: usize = 64;

/// A server that requires TLS and a login, and its authority.
fn encrypted(mode: TlsMode) -> (Site, Authority, tempfile::TempDir) {
    let (files, authority) = (tempfile::tempdir().unwrap(), Authority::new("authority"));
    let certificate = files.path().join("server.pem");
    std::fs::write(&certificate, authority.server("server").0).unwrap();
    let site = site(|config| {
        config.authorization = true;
        config.tls.mode = mode;
        config.tls.certificate_key_file = Some(certificate);
    });
    let mut client = Connection::over(connect_quietly(site.port(), &authority.pem).unwrap());
    client.ok(&doc! { "createUser": "root", "pwd": "pw", "roles": ["root"], "$db": "admin" });
    (site, authority, files)
}

/// Sends a request over TLS.
fn ask(site: &Site, authority: &Authority, first: &str, lines: &[&str], body: &str) -> Response {
    let mut stream = connect_quietly(site.http.port(), &authority.pem).unwrap();
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    let (port, length) = (site.http.port(), body.len());
    let text = format!(
        "{first} HTTP/1.1\r\nHost: localhost:{port}\r\n{lines}Connection: close\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
    Response::read(&mut stream)
}

fn log_in(site: &Site, authority: &Authority, password: &str) -> Response {
    let origin = format!("Origin: https://localhost:{}", site.http.port());
    let lines = [origin.as_str(), "X-MayflyDB: 1", "Content-Type: application/json"];
    let body = format!(r#"{{"user": "root", "password": "{password}"}}"#);
    ask(site, authority, "POST /login", &lines, &body)
}

#[test]
fn a_login_over_the_servers_own_tls_has_a_secure_cookie() {
    let (site, authority, _files) = encrypted(TlsMode::Required);
    let form = ask(&site, &authority, "GET /", &[], "");
    assert_eq!((form.status, form.head.contains("location: /login")), (303, true));
    assert_eq!(log_in(&site, &authority, "wrong").status, 401);
    let answer = log_in(&site, &authority, "pw");
    assert_eq!(answer.status, 204, "{}", answer.body);
    let cookie = answer.head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap();
    let attributes = "; path=/; httponly; samesite=strict; max-age=43200; secure";
    assert!(cookie.ends_with(attributes), "{cookie}");
}

#[test]
fn a_request_without_encryption_is_answered_with_a_sentence() {
    let (site, authority, _files) = encrypted(TlsMode::Required);
    for first in ["GET /", "POST /login", "GET /healthz"] {
        let answer = site.send(first, &["Host: localhost"], "{}");
        assert_eq!(answer.status, 400);
        assert!(answer.body.contains("use https://"), "{}", answer.body);
        let length = format!("content-length: {}", answer.body.len());
        assert!(answer.head.contains(&length), "{}", answer.head);
    }
    // It is about the page: the server goes on, and so does the other way.
    assert_eq!(ask(&site, &authority, "GET /healthz", &[], "").status, 200);
    let (site, authority, _files) = encrypted(TlsMode::Allowed);
    assert_eq!(site.send("GET /healthz", &["Host: localhost"], "").status, 200);
    assert_eq!(ask(&site, &authority, "GET /healthz", &[], "").status, 200);
}

/// A client whose request never ends has its place for ten seconds.
#[test]
fn clients_with_half_a_request_lose_their_places() {
    let site = site(|_| {});
    let address = site.http;
    let head = format!("POST /login HTTP/1.1\r\nHost: {address}\r\n");
    let own = format!("Origin: http://{address}\r\nX-MayflyDB: 1\r\n");
    let body =
        format!("{head}{own}Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{{");
    let began = Instant::now();
    let mut slow: Vec<TcpStream> = Vec::new();
    for at in 0..PLACES {
        let mut stream = TcpStream::connect(address).unwrap();
        let sent = match at % 3 {
            0 => "",
            1 => &head,
            _ => &body,
        };
        stream.write_all(sent.as_bytes()).unwrap();
        slow.push(stream);
    }
    let is_served = || site.get("/healthz", &[]).status == 200;
    assert!(!is_served(), "{PLACES} clients have all places");
    // Byte after byte is as slow as nothing.
    for stream in &mut slow {
        let _ = stream.write_all(b"a");
    }
    wait_until("a place", is_served);
    let took = began.elapsed();
    assert!((Duration::from_secs(8)..Duration::from_secs(15)).contains(&took), "{took:?}");
    for mut stream in slow {
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut answer = String::new();
        let ended = stream.read_to_string(&mut answer);
        let is_reset =
            ended.as_ref().is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionReset);
        assert!(ended.is_ok() || is_reset, "{ended:?}");
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408 "), "{answer}");
    }
    ok(&mut site.connect(), doc! { "ping": 1, "$db": "admin" });
}
