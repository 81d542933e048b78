//! TLS: which certificates are accepted, and the binding of the login to the session.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mayfly_base::testing::wait_until;
use mayfly_kv::{Engine, Sharing};
use mayfly_kv_postgres::{OpenError, PostgresEngine, PostgresOptions};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::store::{self, Server};

/// An authority, as PEM, and what signs for it.
fn authority() -> (String, Issuer<'static, KeyPair>) {
    let (mut params, key) = (CertificateParams::default(), KeyPair::generate().unwrap());
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    (pem, Issuer::new(params, key))
}

/// A server that speaks TLS with this certificate and key, as PEM, and has the user `secret`.
fn encrypted(certificate: &str, key: &KeyPair) -> Server {
    let server = Server::start();
    server.add_file("server.crt", certificate);
    server.add_file("server.key", &key.serialize_pem());
    server.sql("create role secret login superuser password 'right'");
    server.sql("alter system set ssl = on");
    server.sql("select pg_reload_conf()");
    wait_until("the server speaks TLS", || server.sql("show ssl") == "on");
    server
}

fn open_as(server: &Server, host: &str, query: &str) -> Result<Arc<PostgresEngine>, OpenError> {
    let options = PostgresOptions { connections: 4, held_snapshots: 2, ..store::fresh() };
    let url = format!("postgresql://secret:right@{host}:{}/postgres?{query}", server.port);
    PostgresEngine::open(&url, options)
}

/// The manual of PostgreSQL makes a certificate by `openssl req -new -x509`, which is one of an
/// authority.
#[test]
fn a_certificate_is_accepted_if_it_is_listed_itself() {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = params.self_signed(&key).unwrap().pem();
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    let expired = params.self_signed(&key).unwrap().pem();
    let server = encrypted(&pem, &key);
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (listed, other) = (file("listed", &pem), file("other", &authority().0));
    for (host, mode) in [("localhost", "verify-full"), ("127.0.0.1", "verify-ca")] {
        let query = format!("sslmode={mode}&sslrootcert={listed}");
        drop(open_as(&server, host, &query).unwrap_or_else(|error| panic!("{query}: {error}")));
    }
    for (host, root) in [("127.0.0.1", &listed), ("localhost", &other)] {
        let query = format!("sslmode=verify-full&sslrootcert={root}");
        assert!(open_as(&server, host, &query).is_err(), "{host} {query}");
    }
    let server = encrypted(&expired, &key);
    let query = format!("sslmode=verify-ca&sslrootcert={}", file("expired", &expired));
    let refused = open_as(&server, "localhost", &query).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("xpired"), "{refused}");
}

#[test]
fn certificates_are_checked_as_the_url_says() {
    let ((root, issuer), (other_root, _)) = (authority(), authority());
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    let server = encrypted(&params.signed_by(&key, &issuer).unwrap().pem(), &key);
    let folder = tempfile::TempDir::new().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (root, other_root) = (file("root", &root), file("other", &other_root));
    let open = |host: &str, query: &str| open_as(&server, host, query);
    let bound = "sslmode=require&channel_binding=require";
    let accepted = [
        ("127.0.0.1", "sslmode=disable".to_owned()),
        ("127.0.0.1", "sslmode=prefer".to_owned()),
        ("127.0.0.1", bound.to_owned()),
        ("127.0.0.1", format!("sslmode=verify-ca&sslrootcert={root}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={root}")),
    ];
    for (host, query) in accepted {
        let engine = open(host, &query).unwrap_or_else(|error| panic!("{query}: {error}"));
        assert_eq!(engine.get_once(mayfly_kv::Keyspace::Record, b"k", &mut |_| ()), Ok(false));
        let is_called = Arc::<AtomicBool>::default();
        let called = is_called.clone();
        engine.listen(Box::new(move || called.store(true, Ordering::Release)));
        wait_until("the session that listens", || is_called.load(Ordering::Acquire));
        let encrypted = server.sql(
            "select bool_and(s.ssl)::text from pg_stat_ssl s join pg_stat_activity a using (pid) \
             where a.application_name = 'mayflydb'",
        );
        assert_eq!(encrypted == "true", query != "sslmode=disable", "{query}");
        drop(engine);
        let sessions = "select count(*) from pg_stat_activity where application_name = 'mayflydb'";
        wait_until("the sessions end", || server.sql(sessions) == "0");
    }
    for (host, query) in [
        ("127.0.0.1", "sslmode=disable&channel_binding=require".to_owned()),
        ("127.0.0.1", format!("sslmode=verify-full&sslrootcert={root}")),
        ("localhost", format!("sslmode=verify-full&sslrootcert={other_root}")),
        ("localhost", format!("sslmode=verify-ca&sslrootcert={other_root}")),
        ("localhost", format!("sslmode=require&sslrootcert={other_root}")),
        ("localhost", "sslmode=verify-full&sslrootcert=/missing".to_owned()),
    ] {
        let error = open(host, &query).map(|_| ()).unwrap_err();
        let is_expected = matches!(error, OpenError::Unavailable(_) | OpenError::Tls(_));
        assert!(is_expected && !error.to_string().contains("right"), "{query}: {error:?}");
    }
}
