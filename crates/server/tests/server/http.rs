//! The status page over HTTP: which requests are refused, logins, rights, actions, and metrics.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mayfly_base::SystemClock;
use mayfly_base::testing::wait_until;
use mayfly_server::{Config, Running, StartOptions, TlsMode, start};
use mayfly_testkit::outside::Connection;
use mayfly_value::bson::doc;

use crate::authorization::{ok, run};

/// A server in this process.
pub(crate) struct Site {
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
    pub(crate) http: SocketAddr,
}

/// A response: the status, the head in lower case, and the body.
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Response {
    /// Reads a response until the connection ends.
    pub(crate) fn read(stream: &mut impl Read) -> Response {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        Response { status, head: head.to_lowercase(), body: body.to_owned() }
    }
}

fn try_start(change: impl FnOnce(&mut Config)) -> Result<Site, String> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut options = StartOptions::for_tests(Arc::new(SystemClock::new())).unwrap();
    options.config.http.addresses = vec![("127.0.0.1".to_owned(), 0)];
    change(&mut options.config);
    let running = runtime.block_on(start(options)).map_err(|error| format!("{error:#}"))?;
    let http = running.http_addresses().first().copied();
    let http = http.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 1)));
    Ok(Site { runtime, running: Some(running), http })
}

pub(crate) fn site(change: impl FnOnce(&mut Config)) -> Site {
    try_start(change).unwrap()
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(running.stop()).unwrap();
        }
    }
}

impl Site {
    pub(crate) fn connect(&self) -> Connection {
        Connection::open(self.port(), Duration::from_secs(20)).unwrap()
    }

    /// Sends a request with these lines after the first one, and the body.
    pub(crate) fn send(&self, first: &str, lines: &[&str], body: &str) -> Response {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let length = body.len();
        let text = format!(
            "{first} HTTP/1.1\r\n{lines}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).unwrap();
        Response::read(&mut stream)
    }

    /// The port of the wire protocol.
    pub(crate) fn port(&self) -> u16 {
        self.running.as_ref().unwrap().address().port()
    }

    fn host(&self) -> String {
        format!("Host: {}", self.http)
    }

    pub(crate) fn get(&self, path: &str, lines: &[&str]) -> Response {
        let host = self.host();
        self.send(&format!("GET {path}"), &[&[host.as_str()], lines].concat(), "")
    }

    /// Sends what the page sends.
    fn post(&self, path: &str, lines: &[&str], body: &str) -> Response {
        let (host, origin) = (self.host(), format!("Origin: http://{}", self.http));
        let own = [host.as_str(), &origin, "X-MayflyDB: 1", "Content-Type: application/json"];
        self.send(&format!("POST {path}"), &[&own[..], lines].concat(), body)
    }

    /// The cookie of a login.
    fn log_in(&self, user: &str, password: &str) -> String {
        let body = format!(r#"{{"user": "{user}", "password": "{password}"}}"#);
        let answer = self.post("/login", &[], &body);
        assert_eq!(answer.status, 204, "{}", answer.body);
        let cookie = answer.head.lines().find(|line| line.starts_with("set-cookie: ")).unwrap();
        assert!(cookie.contains("; path=/; httponly; samesite=strict; max-age=43200"), "{cookie}");
        // The head is in lower case, but the token is not: the request is sent again for it.
        let again = self.raw_cookie(&body);
        format!("Cookie: {again}")
    }

    fn raw_cookie(&self, body: &str) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        let text = format!(
            "POST /login HTTP/1.1\r\nHost: {0}\r\nOrigin: http://{0}\r\nX-MayflyDB: 1\r\n\
             Content-Type: application/json\r\nConnection: close\r\nContent-Length: {1}\r\n\r\n{body}",
            self.http,
            body.len()
        );
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let start = answer.find("mayflydb_session=").unwrap();
        answer[start..].split(';').next().unwrap().to_owned()
    }

    /// The first events of the page, until one has this text.
    fn events(&self, lines: &[&str], until: &str) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
        let text = format!("GET /events HTTP/1.1\r\nHost: {}\r\n{lines}\r\n", self.http);
        stream.write_all(text.as_bytes()).unwrap();
        let (mut all, mut part) = (String::new(), [0; 4096]);
        let began = std::time::Instant::now();
        while !all.contains(until) {
            assert!(began.elapsed() < Duration::from_secs(30), "no {until}: {all}");
            let read = stream.read(&mut part).unwrap();
            assert!(read > 0, "the events ended without {until}: {all}");
            all.push_str(&String::from_utf8_lossy(&part[..read]));
        }
        all
    }
}

fn with_login(config: &mut Config) {
    config.authorization = true;
}

/// A server with the users root, who may do everything, and none, who may do nothing.
fn with_users(change: impl FnOnce(&mut Config)) -> (Site, Connection) {
    let site = site(|config| {
        with_login(config);
        change(config);
    });
    let mut admin = site.connect();
    let create = doc! { "createUser": "root", "pwd": "pw", "roles": ["root"], "$db": "admin" };
    ok(&mut admin, create);
    crate::authorization::log_in(&mut admin, "root", "admin", "pw");
    ok(&mut admin, doc! { "createUser": "none", "pwd": "pw", "roles": [], "$db": "admin" });
    (site, admin)
}

#[test]
fn nothing_is_served_without_the_option() {
    let site = site(|config| config.http.addresses.clear());
    assert!(site.running.as_ref().unwrap().http_addresses().is_empty());
}

#[test]
fn other_machines_need_a_login_and_encryption() {
    let on_all = |config: &mut Config| config.http.addresses = vec![("0.0.0.0".to_owned(), 0)];
    let refused = |change: fn(&mut Config)| {
        let started = try_start(|config| {
            on_all(config);
            change(config);
        });
        started.err().expect("the server must not start")
    };
    let text = refused(|_| {});
    assert!(text.starts_with("cannot serve the status page on 0.0.0.0:0: "), "{text}");
    assert!(text.ends_with("because --auth and --tlsMode are not set"), "{text}");
    assert!(refused(with_login).ends_with("because --tlsMode is not set"));
    assert!(refused(|config| config.tls.mode = TlsMode::Allowed).ends_with("--auth is not set"));
    let open = site(|config| {
        on_all(config);
        config.allow_open = true;
    });
    assert_eq!(open.running.as_ref().unwrap().http_addresses().len(), 1);
}

#[test]
fn an_unusable_token_file_prevents_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let start = || try_start(|config| config.http.token_file = Some(file.clone())).err();
    assert!(start().unwrap().contains("cannot use the token file"));
    std::fs::write(&file, "short\n").unwrap();
    assert!(start().unwrap().contains("the token is too short"));
}

#[test]
fn a_hostile_name_of_the_server_is_refused() {
    let site = site(|config| config.http.hosts = vec!["db.example.net".to_owned()]);
    let status = |lines: &[&str]| site.send("GET /metrics", lines, "").status;
    for known in ["localhost", "LOCALHOST:27018", "127.0.0.1:1", "[::1]:5", "db.example.net:443"] {
        assert_eq!(status(&[&format!("Host: {known}")]), 200, "{known}");
    }
    for hostile in ["evil.test", "localhost.evil.test", "192.0.2.1", "db.example.net.evil.test", ""]
    {
        assert_eq!(status(&[&format!("Host: {hostile}")]), 421, "{hostile}");
    }
    assert_eq!(status(&[]), 400);
    assert_eq!(status(&["Host: localhost", "Host: evil.test"]), 400);
    // Probes name the server as they like.
    for path in ["/healthz", "/readyz"] {
        assert_eq!(site.send(&format!("GET {path}"), &["Host: evil.test"], "").status, 200);
    }
}

#[test]
fn every_response_has_the_security_headers() {
    let site = site(|_| {});
    for path in ["/", "/login", "/page/page.js", "/metrics", "/robots.txt", "/nothing"] {
        let head = site.get(path, &[]).head;
        for line in [
            "content-security-policy: default-src 'self';",
            "x-content-type-options: nosniff",
            "x-frame-options: deny",
            "cache-control: no-store",
        ] {
            assert!(head.contains(line), "{path} lacks {line}: {head}");
        }
    }
    assert!(site.get("/robots.txt", &[]).body.contains("Disallow: /"));
    assert_eq!(site.get("/page/..%2fmod.rs", &[]).status, 404);
}

#[test]
fn actions_come_from_the_page_only() {
    let site = site(|_| {});
    let mut client = site.connect();
    let insert = doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1",
    "expireAfterSeconds": 60, "ttl": { "maxDocsPerSec": 7 } }], "$db": "test" };
    ok(&mut client, insert);
    let policy = r#"{"ns": "test.c", "index": "at_1"}"#;
    let (host, own, json) = (site.host(), "X-MayflyDB: 1", "Content-Type: application/json");
    let origin = format!("Origin: http://{}", site.http);
    let status = |lines: &[&str]| site.send("POST /actions/pause", lines, policy).status;
    for lines in [
        &[host.as_str(), json][..],
        &[host.as_str(), own, json],
        &[host.as_str(), &origin, json],
        &[host.as_str(), "Origin: http://evil.test", own, json],
        &[host.as_str(), "Origin: null", own, json],
        &[host.as_str(), &origin, own, json, "Sec-Fetch-Site: cross-site"],
    ] {
        assert_eq!(status(lines), 403, "{lines:?}");
    }
    assert_eq!(site.get("/events", &["Sec-Fetch-Site: cross-site"]).status, 403);
    let ttl = |client: &mut Connection| {
        let listed = ok(client, doc! { "listIndexes": "c", "$db": "test" });
        let batch = listed.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
        batch[1].as_document().unwrap().get_document("ttl").unwrap().clone()
    };
    assert_eq!(ttl(&mut client), doc! { "maxDocsPerSec": 7 });
    assert_eq!(site.post("/actions/pause", &[], policy).status, 200);
    assert_eq!(ttl(&mut client), doc! { "maxDocsPerSec": 7, "paused": true });
    assert!(site.events(&[], "event: operations").contains("\"paused\":true"));
    assert_eq!(site.post("/actions/continue", &[], policy).status, 200);
    assert_eq!(ttl(&mut client), doc! { "maxDocsPerSec": 7 });
    let census = site.post("/actions/census", &[], policy);
    assert!(census.body.contains("\"dueNow\":0"), "{}", census.body);
    assert_eq!(site.post("/actions/resume", &[], "{}").status, 200);
    assert_eq!(site.post("/actions/kill", &[], r#"{"opid": 1000000}"#).status, 200);
    for (path, body, expected) in [
        ("/actions/pause", r#"{"ns": "test.c", "index": "gone"}"#, 409),
        ("/actions/pause", r#"{"ns": "nothing"}"#, 409),
        ("/actions/kill", "{}", 400),
        ("/actions/drop", "{}", 404),
        ("/actions/pause", "not json", 400),
    ] {
        assert_eq!(site.post(path, &[], body).status, expected, "{path} {body}");
    }
}

/// The policy of a collection that is clustered by a date.
#[test]
fn a_policy_without_an_index_can_be_paused() {
    let site = site(|_| {});
    let mut client = site.connect();
    let create = doc! { "create": "c", "clusteredIndex": { "key": { "_id": 1 }, "unique": true },
    "expireAfterSeconds": 60_i64, "$db": "test" };
    ok(&mut client, create);
    let policy = r#"{"ns": "test.c", "index": "_id_"}"#;
    let answer = site.post("/actions/pause", &[], policy);
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(site.events(&[], "event: operations").contains("\"paused\":true"));
}

#[test]
fn a_read_only_page_has_no_actions() {
    let site = site(|config| config.http.read_only = true);
    for action in ["pause", "continue", "resume", "kill"] {
        let answer = site.post(&format!("/actions/{action}"), &[], r#"{"opid": 1}"#);
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("net.http.readOnly"));
    }
    assert!(site.events(&[], "event: policies").contains("\"readOnly\":true"));
}

#[test]
fn a_user_logs_in_and_out() {
    let (site, mut admin) = with_users(|_| {});
    assert_eq!((site.get("/", &[]).status, site.get("/login", &[]).status), (303, 200));
    for path in ["/events", "/history"] {
        assert_eq!(site.get(path, &[]).status, 401);
        let cookie = format!("Cookie: mayflydb_session={}", "A".repeat(43));
        assert_eq!(site.get(path, &[&cookie]).status, 401);
    }
    assert_eq!(site.post("/actions/resume", &[], "{}").status, 401);
    for body in [
        r#"{"user": "root", "password": "wrong"}"#,
        r#"{"user": "nobody", "password": "pw"}"#,
        r#"{"user": "root", "password": "pw", "database": "test"}"#,
    ] {
        let answer = site.post("/login", &[], body);
        assert_eq!(
            (answer.status, answer.body.as_str()),
            (401, "the name or the password is wrong\n")
        );
        assert!(!answer.head.contains("set-cookie"));
    }
    assert_eq!(site.post("/login", &[], "{}").status, 400);

    let cookie = site.log_in("root", "pw");
    assert_eq!(site.get("/", &[&cookie]).status, 200);
    let events = site.events(&[&cookie], "event: policies");
    assert!(events.contains("\"user\":\"root@admin\""), "{events}");
    assert_eq!(site.post("/logout", &[&cookie], "{}").status, 204);
    assert_eq!(site.get("/history", &[&cookie]).status, 401);

    // A user that was dropped has no session any more.
    let cookie = site.log_in("none", "pw");
    ok(&mut admin, doc! { "dropUser": "none", "$db": "admin" });
    assert_eq!(site.get("/history", &[&cookie]).status, 401);
}

#[test]
fn many_wrong_passwords_are_answered_late() {
    let (site, _admin) = with_users(|_| {});
    let began = std::time::Instant::now();
    for _ in 0..12 {
        assert_eq!(site.post("/login", &[], r#"{"user": "root", "password": "x"}"#).status, 401);
    }
    assert!(began.elapsed() > Duration::from_millis(1500));
}

#[test]
fn a_panel_names_the_right_that_the_user_lacks() {
    let (site, mut admin) = with_users(|_| {});
    let cookie = site.log_in("none", "pw");
    let events = site.events(&[&cookie], "event: collections");
    for (panel, right) in [
        ("policies", "serverStatus"),
        ("points", "serverStatus"),
        ("log", "getLog"),
        ("disk", "serverStatus"),
    ] {
        let event =
            format!("event: {panel}\ndata: {{\"right\":\"{right} (in the role clusterMonitor)\"}}");
        assert!(events.contains(&event), "{event}: {events}");
    }
    assert_eq!(site.get("/history", &[&cookie]).status, 403);
    assert_eq!(site.get("/metrics", &[&cookie]).status, 403);
    for action in ["resume", "kill"] {
        let answer = site.post(&format!("/actions/{action}"), &[&cookie], r#"{"opid": 1}"#);
        assert_eq!(answer.status, 403, "{}", answer.body);
    }
    // A role that is granted counts at once.
    let grant = doc! { "grantRolesToUser": "none", "roles": ["clusterMonitor"], "$db": "admin" };
    ok(&mut admin, grant);
    assert_eq!(site.get("/history", &[&cookie]).status, 200);
    ok(&mut admin, doc! { "insert": "c", "documents": [{ "n": 1 }], "$db": "test" });
    let events = site.events(&[&cookie], "event: collections");
    let collections = site.events(&[&cookie], "\"ns\":\"test.c\"");
    assert!(!events.contains("\"right\"") && collections.contains("\"refused\":0"), "{events}");
    assert_eq!(site.post("/actions/resume", &[&cookie], "{}").status, 403);
}

#[test]
fn metrics_need_the_token_or_a_user() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123\n").unwrap();
    let (site, _admin) = with_users(|config| config.http.token_file = Some(file.clone()));
    let basic = |text: &str| format!("Authorization: Basic {}", STANDARD.encode(text));
    let answer = site.get("/metrics", &[]);
    assert_eq!(answer.status, 401);
    assert!(answer.head.contains("www-authenticate: basic"));
    for (header, status) in [
        ("Authorization: Bearer 0123456789abcdef0123".to_owned(), 200),
        ("Authorization: Bearer 0123456789abcdef012".to_owned(), 401),
        ("Authorization: Bearer".to_owned(), 401),
        (basic("root:pw"), 200),
        (basic("root:pw"), 200),
        (basic("root:wrong"), 401),
        (basic("none:pw"), 403),
        (basic("root"), 401),
        ("Authorization: Basic %".to_owned(), 401),
        ("Authorization: Digest x".to_owned(), 401),
    ] {
        let answer = site.get("/metrics", &[&header]);
        assert_eq!(answer.status, status, "{header}: {}", answer.body);
    }
    // The token gives access to nothing else.
    let token = "Authorization: Bearer 0123456789abcdef0123";
    assert_eq!(site.get("/history", &[token]).status, 401);
}

#[test]
fn metrics_have_the_names_of_policies_escaped() {
    let site = site(|_| {});
    let mut client = site.connect();
    let name = "a\"b\\c\n<script>";
    let create = doc! { "createIndexes": name, "indexes": [{ "key": { "at": 1 }, "name": "at_1",
    "expireAfterSeconds": 60 }], "$db": "test" };
    ok(&mut client, create);
    let labels = r#"{db="test",collection="a\"b\\c\n<script>",index="at_1"}"#;
    // The figures of policies are up to half a second old.
    let mut text = String::new();
    wait_until("the metrics have the policy", || {
        text = site.get("/metrics", &[]).body;
        text.contains(&format!("mayflydb_ttl_overdue_seconds{labels} 0\n"))
    });
    let info = format!(
        "mayflydb_build_info{{version=\"{}\",compatible_with=\"{}\",engine=\"memory\"}} 1\n",
        env!("CARGO_PKG_VERSION"),
        mayfly_commands::VERSION
    );
    assert!(text.contains(&info), "{text}");
    for line in text.lines() {
        assert!(
            line.starts_with("mayflydb_")
                || line.starts_with("# HELP")
                || line.starts_with("# TYPE"),
            "{line}"
        );
    }
    let accept = "Accept: application/openmetrics-text; version=1.0.0";
    let open = site.get("/metrics", &[accept]);
    assert!(open.head.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(open.body.contains("# TYPE mayflydb_operations counter\n"));
    assert!(open.body.ends_with("# EOF\n"));
    let reply = run(&mut client, doc! { "serverStatus": 1, "$db": "admin" });
    let connections = reply.get_document("connections").unwrap();
    // Connections to the page are not among those of the protocol.
    assert_eq!(connections.get_i32("current").ok(), Some(1), "{connections}");
}

#[test]
fn connections_and_requests_have_limits() {
    let site = site(|_| {});
    let open: Vec<TcpStream> = (0..70).map(|_| TcpStream::connect(site.http).unwrap()).collect();
    let closed = open.iter().filter(|stream| {
        stream
            .set_read_timeout(Some(Duration::from_millis(if stream.peer_addr().is_ok() {
                30
            } else {
                1
            })))
            .unwrap();
        matches!((&mut &**stream).read(&mut [0]), Ok(0))
    });
    assert_eq!(closed.count(), 70 - 64);
    drop(open);
    mayfly_base::testing::wait_until("a place", || {
        let mut stream = TcpStream::connect(site.http).unwrap();
        let sent = stream
            .write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && answer.contains("ok")
    });
    let long = format!("X-Long: {}", "x".repeat(20_000));
    assert!(matches!(site.get("/", &[&long]).status, 431 | 0));
    let body = format!("{{\"user\": \"{}\"}}", "x".repeat(17_000));
    assert_eq!(site.post("/login", &[], &body).status, 413);
    let many: Vec<String> = (0..100).map(|at| format!("X-{at}: 1")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(matches!(site.get("/", &many).status, 431 | 0));
}
