//! Encrypted connections to the real binary: the modes, logins by certificate, and rotation of the
//! files.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use mayfly_base::testing::wait_until;
use mayfly_value::bson::{Document, doc};
use pkcs8::pkcs5::pbes2::Parameters;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, date_time_ymd,
};
use rustls::client::WantsClientCert;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, RootCertStore, StreamOwned,
    SupportedProtocolVersion,
};

use crate::common::{Connection, Server, is_healthy, message};

/// An authority with its key.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Clone)]
pub(crate) struct Certificate(pub(crate) String);

impl Authority {
    pub(crate) fn new(name: &str) -> Authority {
        let mut params = params(name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { pem, issuer: Issuer::new(params, key) }
    }

    fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Certificate {
        let mut params = params(name);
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Certificate(format!("{}{}", certificate.pem(), key.serialize_pem()))
    }

    pub(crate) fn server(&self, name: &str) -> Certificate {
        self.sign(name, |params| {
            params.subject_alt_names =
                CertificateParams::new(["localhost".to_owned()]).unwrap().subject_alt_names;
        })
    }

    fn client(&self, name: &str) -> Certificate {
        self.sign(name, |params| {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        })
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Example");
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// A running server with its files.
struct Encrypted {
    server: Server,
    folder: tempfile::TempDir,
    authority: Authority,
}

impl Encrypted {
    fn start(mode: &str, options: &[&str]) -> Encrypted {
        Encrypted::start_by(Authority::new("authority"), mode, options)
    }

    fn start_by(authority: Authority, mode: &str, options: &[&str]) -> Encrypted {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(path("server.pem"), authority.server("first").0).unwrap();
        std::fs::write(path("ca.pem"), &authority.pem).unwrap();
        let (server, ca) = (path("server.pem"), path("ca.pem"));
        let own = ["--storageEngine", "memory", "--tlsMode", mode];
        let files = ["--tlsCertificateKeyFile", &server, "--tlsCAFile", &ca];
        let server = Server::start_with(folder.path(), &[&own, &files, options].concat());
        Encrypted { server, folder, authority }
    }

    /// A connection with this certificate; an error when the handshake fails.
    fn connect(&self, certificate: Option<&Certificate>) -> std::io::Result<Tls> {
        connect(self.server.port, &self.authority.pem, certificate)
    }
}

pub(crate) type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(port: u16, ca: &str, certificate: Option<&Certificate>) -> std::io::Result<Tls> {
    connect_by(&[&TLS12, &TLS13], port, ca, certificate)
}

fn trusting(
    versions: &[&'static SupportedProtocolVersion],
    ca: &str,
) -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
}

fn connect_by(
    versions: &[&'static SupportedProtocolVersion],
    port: u16,
    ca: &str,
    certificate: Option<&Certificate>,
) -> std::io::Result<Tls> {
    let builder = trusting(versions, ca);
    let config = match certificate {
        None => builder.with_no_client_auth(),
        Some(Certificate(pem)) => {
            let chain = vec![CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    let mut stream = begin(config, port)?;
    // With TLS 1.3 the server refuses a client's certificate after the handshake.
    exchange(&mut stream, &doc! { "ping": 1, "$db": "admin" })?;
    Ok(stream)
}

fn begin(config: ClientConfig, port: u16) -> std::io::Result<Tls> {
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    Ok(StreamOwned::new(session, TcpStream::connect(("127.0.0.1", port))?))
}

/// A connection on which nothing was sent, to a server that this authority has certified.
pub(crate) fn connect_quietly(port: u16, ca: &str) -> std::io::Result<Tls> {
    begin(trusting(&[&TLS12, &TLS13], ca).with_no_client_auth(), port)
}

fn exchange(stream: &mut (impl Read + Write), command: &Document) -> std::io::Result<Document> {
    let reply = Connection::over(stream).run(command)?;
    Ok(Document::from_reader(reply.as_bytes()).unwrap())
}

#[track_caller]
fn ok(stream: &mut (impl Read + Write), command: Document) -> Document {
    let reply = exchange(stream, &command).unwrap();
    assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{command}: {reply}");
    reply
}

#[track_caller]
fn code(stream: &mut (impl Read + Write), command: Document) -> Option<i32> {
    exchange(stream, &command).unwrap().get_i32("code").ok()
}

fn x509(user: Option<&str>) -> Document {
    let mut command = doc! { "authenticate": 1, "mechanism": "MONGODB-X509" };
    command.extend(user.map(|user| ("user".to_owned(), user.into())));
    command.extend(doc! { "$db": "$external" });
    command
}

#[test]
fn modes_say_who_is_served() {
    let required = Encrypted::start("requireTLS", &[]);
    let client = required.authority.client("ann");
    required.connect(Some(&client)).unwrap();
    let mut plain = TcpStream::connect(("127.0.0.1", required.server.port)).unwrap();
    assert!(exchange(&mut plain, &doc! { "ping": 1, "$db": "admin" }).is_err());
    // Without a certificate, and with one of another authority.
    assert!(required.connect(None).is_err());
    let other = Authority::new("other");
    assert!(required.connect(Some(&other.client("ann"))).is_err());
    // A certificate for servers is refused as that of a client.
    let server = required.authority.sign("ann", |params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    assert!(required.connect(Some(&server)).is_err());
    // Invalid data after the first byte of a handshake only ends that connection.
    let mut broken = TcpStream::connect(("127.0.0.1", required.server.port)).unwrap();
    broken.write_all(&[22, 3, 1, 0, 5, 1, 2, 3, 4, 5]).unwrap();
    let _ = broken.read_to_end(&mut Vec::new());
    required.connect(Some(&client)).unwrap();

    let allowed = Encrypted::start("preferTLS", &["--tlsAllowConnectionsWithoutCertificates"]);
    allowed.connect(None).unwrap();
    let mut plain = TcpStream::connect(("127.0.0.1", allowed.server.port)).unwrap();
    let status = ok(&mut plain, doc! { "serverStatus": 1, "$db": "admin" });
    let counts = status.get_document("transportSecurity").unwrap();
    assert_eq!((counts.get_i64("1.3").ok(), counts.get_i64("1.2").ok()), (Some(1), Some(0)));
    let security = status.get_document("security").unwrap();
    let subject = security.get_str("SSLServerSubjectName").unwrap();
    assert_eq!(subject, "CN=first,O=Example");
}

#[test]
fn disabled_versions_are_not_spoken() {
    for (disabled, other) in [("TLS1_2", &TLS13), ("TLS1_0,TLS1_3", &TLS12)] {
        let options = ["--tlsDisabledProtocols", disabled];
        let server = Encrypted::start("requireTLS", &options);
        let client = server.authority.client("ann");
        let by = |version| {
            let (port, ca) = (server.server.port, &server.authority.pem);
            connect_by(&[version], port, ca, Some(&client)).is_ok()
        };
        let spoken = [&TLS12, &TLS13].map(|version| (version.version, by(version)));
        assert_eq!(spoken, [&TLS12, &TLS13].map(|it| (it.version, it == other)), "{disabled}");
    }
}

#[test]
fn certificates_log_their_users_in() {
    let options = ["--auth", "--tlsAllowConnectionsWithoutCertificates"];
    let encrypted = Encrypted::start("requireTLS", &options);
    let find = doc! { "find": "c", "$db": "shop" };
    let mut first = encrypted.connect(None).unwrap();
    let role = doc! { "role": "readWrite", "db": "shop" };
    ok(&mut first, doc! { "createUser": "root", "pwd": "pw", "roles": ["root"], "$db": "admin" });
    drop(first);

    // The certificate has roles, so that its user can create others: root on admin.
    let roles = b"\x31\x0f\x30\x0d\x0c\x04root\x0c\x05admin";
    let chief = encrypted.authority.sign("chief", |params| {
        let oid = [1, 3, 6, 1, 4, 1, 34601, 2, 1, 1];
        let extension = CustomExtension::from_oid_content(&oid, roles.to_vec());
        params.custom_extensions.push(extension);
    });
    let mut chief = encrypted.connect(Some(&chief)).unwrap();
    assert_eq!(code(&mut chief, find.clone()), Some(13));
    let reply = ok(&mut chief, x509(None));
    assert_eq!(reply.get_str("user").ok(), Some("CN=chief,O=Example"));
    assert_eq!(reply.get_str("dbname").ok(), Some("$external"));
    ok(&mut chief, find.clone());

    let ann = encrypted.authority.client("ann");
    let mut connection = encrypted.connect(Some(&ann)).unwrap();
    // There is no such user yet.
    assert_eq!(code(&mut connection, x509(None)), Some(18));
    let name = "CN=ann,O=Example";
    ok(&mut chief, doc! { "createUser": name, "roles": [role], "$db": "$external" });
    // The role of the certificate still applies after a change of users.
    ok(&mut chief, find.clone());
    for wrong in [
        x509(Some("CN=bob,O=Example")),
        x509(Some("CN=chief,O=Example")),
        doc! { "authenticate": 1, "mechanism": "SCRAM-SHA-256", "$db": "$external" },
    ] {
        assert_eq!(code(&mut connection, wrong), Some(18));
        assert_eq!(code(&mut connection, find.clone()), Some(13));
    }
    let unknown = doc! { "authenticate": 1, "mechanism": "PLAIN", "$db": "$external" };
    assert_eq!(code(&mut connection, unknown), Some(334));
    let mut misplaced = x509(None);
    misplaced.insert("$db", "admin");
    assert_eq!(code(&mut connection, misplaced), Some(17));
    ok(&mut connection, x509(Some(name)));
    ok(&mut connection, find.clone());
    assert_eq!(code(&mut connection, doc! { "find": "c", "$db": "other" }), Some(13));
    // A login within the handshake (`speculativeAuthenticate`).
    let mut second = encrypted.connect(Some(&ann)).unwrap();
    let mut speculative = x509(None);
    speculative.remove("$db");
    speculative.insert("db", "$external");
    let hello = doc! { "hello": 1, "speculativeAuthenticate": speculative, "$db": "admin" };
    let reply = ok(&mut second, hello);
    let answer = reply.get_document("speculativeAuthenticate").unwrap();
    assert_eq!(answer.get_str("user").ok(), Some(name));
    ok(&mut second, find.clone());
    // The rules for other users apply to these.
    ok(&mut chief, doc! { "dropUser": name, "$db": "$external" });
    assert_eq!(code(&mut second, find), Some(13));
    // Without a certificate there is no user to log in.
    let mut nobody = encrypted.connect(None).unwrap();
    assert_eq!(code(&mut nobody, x509(None)), Some(18));
    assert_eq!(code(&mut nobody, x509(Some("CN=chief,O=Example"))), Some(18));
}

#[test]
fn files_are_read_again_without_dropping_connections() {
    let encrypted = Encrypted::start("requireTLS", &["--tlsAllowConnectionsWithoutCertificates"]);
    let mut before = encrypted.connect(None).unwrap();
    let rotate = doc! { "rotateCertificates": 1, "message": "every year", "$db": "admin" };
    let path = encrypted.folder.path();
    let subject = |stream: &mut Tls| {
        let status = ok(stream, doc! { "serverStatus": 1, "$db": "admin" });
        let security = status.get_document("security").unwrap();
        security.get_str("SSLServerSubjectName").unwrap().to_owned()
    };
    // Invalid files change nothing.
    std::fs::write(path.join("server.pem"), "nonsense").unwrap();
    assert_eq!(code(&mut before, rotate.clone()), Some(140));
    assert_eq!(subject(&mut encrypted.connect(None).unwrap()), "CN=first,O=Example");
    let other = Authority::new("other");
    std::fs::write(path.join("server.pem"), other.server("second").0).unwrap();
    ok(&mut before, rotate);
    assert_eq!(subject(&mut before), "CN=second,O=Example");
    // The client trusts only the first authority.
    assert!(encrypted.connect(None).is_err());
    connect(encrypted.server.port, &other.pem, None).unwrap();

    // SIGHUP does the same; invalid files leave the previous ones in use.
    let process = rustix::process::Pid::from_child(&encrypted.server.child);
    for (pem, subject_then) in [
        ("nonsense".to_owned(), "CN=second,O=Example"),
        (other.server("third").0, "CN=third,O=Example"),
    ] {
        std::fs::write(path.join("server.pem"), pem).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::HUP).unwrap();
        wait_until(subject_then, || subject(&mut before) == subject_then);
    }
    connect(encrypted.server.port, &other.pem, None).unwrap();
}

#[test]
fn large_replies_and_vanished_clients_are_as_without_encryption() {
    let encrypted = Encrypted::start("requireTLS", &["--tlsAllowConnectionsWithoutCertificates"]);
    let mut client = encrypted.connect(None).unwrap();
    let text = "x".repeat(8 << 20);
    let documents = [doc! { "_id": 1, "s": &text }, doc! { "_id": 2, "s": &text }];
    for document in documents {
        ok(&mut client, doc! { "insert": "c", "documents": [document], "$db": "test" });
    }
    let found = ok(&mut client, doc! { "find": "c", "filter": { "_id": 2 }, "$db": "test" });
    let batch = found.get_document("cursor").unwrap().get_array("firstBatch").unwrap();
    let document = batch[0].as_document().unwrap();
    assert_eq!(document.get_str("s").unwrap().len(), text.len());

    // A client that sends `close_notify` while its command runs.
    let mut gone = encrypted.connect(None).unwrap();
    let script =
        doc! { "$function": { "body": "function() { for (;;); }", "args": [], "lang": "js" } };
    let endless =
        doc! { "find": "c", "filter": { "$expr": script }, "comment": "endless", "$db": "test" };
    gone.write_all(&message(&endless)).unwrap();
    gone.flush().unwrap();
    let running = doc! { "aggregate": 1, "cursor": {}, "$db": "admin", "pipeline": [
        { "$currentOp": { "allUsers": true } },
        { "$match": { "command.comment": "endless" } },
    ] };
    let mut count = || {
        let reply = ok(&mut client, running.clone());
        reply.get_document("cursor").unwrap().get_array("firstBatch").unwrap().len()
    };
    wait_until("the script runs", || count() > 0);
    gone.conn.send_close_notify();
    gone.conn.write_tls(&mut gone.sock).unwrap();
    drop(gone);
    wait_until("the operation ends with its client", || count() == 0);
}

#[test]
fn files_and_options_that_cannot_be_used_are_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::new("authority");
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("good.pem"), authority.server("first").0).unwrap();
    std::fs::write(path("ca.pem"), &authority.pem).unwrap();
    std::fs::write(path("empty.pem"), "").unwrap();
    let keyless =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    std::fs::write(path("locked.pem"), format!("{}{keyless}", authority.pem)).unwrap();
    let (good, ca, empty, locked) =
        (path("good.pem"), path("ca.pem"), path("empty.pem"), path("locked.pem"));
    let cases: &[(&[&str], &str)] = &[
        (&[], "net.tls.certificateKeyFile is not set"),
        (&["--tlsCertificateKeyFile", "/nowhere/at-all"], "/nowhere/at-all"),
        (&["--tlsCertificateKeyFile", &empty], "contains no certificate"),
        (&["--tlsCertificateKeyFile", &ca], "contains no private key"),
        (&["--tlsCertificateKeyFile", &locked], "has a password"),
        (&["--tlsCertificateKeyFile", &good, "--tlsCAFile", &empty], "contains no certificate"),
        (&["--tlsCertificateKeyFile", &good, "--tlsCRLFile", &ca], "needs net.tls.CAFile"),
        (&["--tlsCertificateKeyFile", &good, "--tlsFIPSMode"], "no certified"),
        (&["--tlsCertificateKeyFile", &good, "--tlsDisabledProtocols", "SSL3"], "SSL3"),
        (
            &["--tlsCertificateKeyFile", &good, "--tlsDisabledProtocols", "TLS1_2,TLS1_3"],
            "leaves no version",
        ),
    ];
    for (options, expected) in cases {
        let said = refused(&path("data"), &[&["--tlsMode", "requireTLS"], *options].concat());
        assert!(said.contains(expected), "{options:?}: {said}");
        assert!(!Path::new(&path("data")).exists(), "{options:?}");
    }
}

#[test]
fn listening_on_all_addresses_needs_a_login_or_a_decision() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let all: &[&[&str]] = &[
        &["--bind_ip_all"],
        &["--bind_ip", "0.0.0.0"],
        &["--bind_ip", "127.0.0.1,0"],
        &["--bind_ip", "*"],
        &["--bind_ip", "::0"],
        &["--bind_ip", "::ffff:0.0.0.0"],
    ];
    for options in all {
        let said = refused(data.to_str().unwrap(), options);
        assert!(said.contains("--allowOpen"), "{options:?}: {said}");
        assert!(!data.exists(), "{options:?}");
    }
}

/// RFC 5280, section 5: a list that the authority signs.
#[test]
fn revoked_certificates_are_refused() {
    let authority = Authority::new("authority");
    let numbered =
        |number: u64| authority.sign("ann", |params| params.serial_number = Some(number.into()));
    let long_ago = date_time_ymd(2000, 1, 1);
    let list = CertificateRevocationListParams {
        this_update: long_ago,
        next_update: date_time_ymd(2999, 1, 1),
        crl_number: 1u64.into(),
        issuing_distribution_point: None,
        revoked_certs: vec![RevokedCertParams {
            serial_number: 7u64.into(),
            revocation_time: long_ago,
            reason_code: None,
            invalidity_date: None,
        }],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&authority.issuer).unwrap().pem().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crl.pem");
    std::fs::write(&path, list).unwrap();
    let options = ["--tlsCRLFile", path.to_str().unwrap()];
    let (good, revoked) = (numbered(8), numbered(7));
    let encrypted = Encrypted::start_by(authority, "requireTLS", &options);
    encrypted.connect(Some(&good)).unwrap();
    assert!(encrypted.connect(Some(&revoked)).is_err());
}

#[test]
fn a_key_with_a_password_works_and_a_near_expiry_is_logged() {
    let authority = Authority::new("authority");
    let Certificate(pem) = authority.sign("first", |params| {
        params.subject_alt_names =
            CertificateParams::new(["localhost".to_owned()]).unwrap().subject_alt_names;
        let end = SystemTime::now() + Duration::from_secs(3 * 24 * 60 * 60);
        params.not_after =
            date_time_ymd(1970, 1, 1) + end.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    });
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let key = pkcs8::PrivateKeyInfoRef::try_from(key.secret_der()).unwrap();
    let cipher = Parameters::generate_pbkdf2_sha256_aes256cbc(2048, b"12345678", [1; 16]).unwrap();
    let locked = STANDARD.encode(key.encrypt_with_params(cipher, "open").unwrap().as_bytes());
    let mark = "ENCRYPTED PRIVATE KEY-----";
    let locked = format!("-----BEGIN {mark}\n{locked}\n-----END {mark}\n");
    let end = pem.find("-----BEGIN PRIVATE KEY-----").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locked.pem");
    std::fs::write(&path, format!("{}{locked}", &pem[..end])).unwrap();
    let path = path.to_str().unwrap();
    let options = ["--tlsCertificateKeyFile", path, "--tlsCertificateKeyFilePassword", "open"];
    let own = ["--storageEngine", "memory", "--tlsMode", "requireTLS"];
    let server = Server::start_with(folder.path(), &[&own[..], &options].concat());
    let mut client = connect(server.port, &authority.pem, None).unwrap();
    // A background task checks the certificate.
    wait_until("the warning is logged", || {
        let log = ok(&mut client, doc! { "getLog": "global", "$db": "admin" }).to_string();
        log.contains("the server's certificate expires soon")
    });
    let wrong = [&options[..3], &["shut"], &own[2..]].concat();
    let said = refused(folder.path().join("data").to_str().unwrap(), &wrong);
    assert!(said.contains("has another password"), "{said}");
}

#[test]
fn a_supervisor_sees_whether_it_is_well() {
    let encrypted = Encrypted::start("requireTLS", &[]);
    let port = encrypted.server.port.to_string();
    let check = |mode: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mayflydb"));
        command.args(["--healthcheck", "--port", &port, "--tlsMode", mode]).output().unwrap().status
    };
    assert!(check("requireTLS").success());
    assert!(!check("disabled").success());
    let port = encrypted.server.port;
    drop(encrypted);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_mayflydb"));
    command.args(["--healthcheck", "--port", &port.to_string(), "--tlsMode", "requireTLS"]);
    assert!(!command.output().unwrap().status.success());
}

#[test]
fn the_health_check_needs_no_flags_over_tls() {
    let authority = Authority::new("authority");
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (server, ca) = (path("server.pem"), path("ca.pem"));
    std::fs::write(&server, authority.server("first").0).unwrap();
    std::fs::write(&ca, &authority.pem).unwrap();
    // With an authority, clients need a certificate, which the health check does not have.
    let with_certificates = ["--tlsCAFile", &ca];
    for (mode, more) in [
        ("allowTLS", &[][..]),
        ("preferTLS", &with_certificates),
        ("requireTLS", &[]),
        ("requireTLS", &with_certificates),
    ] {
        let data = tempfile::tempdir().unwrap();
        let own = ["--tlsMode", mode, "--tlsCertificateKeyFile", &server];
        let mut running = Server::start_with(data.path(), &[&own, more].concat());
        assert!(is_healthy(data.path(), &[]), "{mode} {more:?}");
        if mode == "requireTLS" && !more.is_empty() {
            let refused = connect(running.port, &authority.pem, None);
            assert!(refused.is_err(), "the server takes clients without a certificate");
        }
        running.child.kill().unwrap();
        running.child.wait().unwrap();
        assert!(!is_healthy(data.path(), &[]), "{mode} {more:?}: the server is gone");
    }
}

/// The error message of a binary that does not start.
fn refused(folder: &str, options: &[&str]) -> String {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_mayflydb"))
        .args(["--port", "0", "--dbpath", folder])
        .args(options)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{options:?}");
    String::from_utf8(output.stderr).unwrap()
}
