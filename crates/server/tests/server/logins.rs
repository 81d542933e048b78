//! Logins that another client tries to take over or to repeat, unfinished logins, and logins by the
//! messages of old drivers.

use mayfly_value::bson::{Document, doc};

use crate::authorization::{bytes, ok, proof, refused, root, run, start, text};
use crate::common::Connection;

fn sasl_start(client: &mut Connection, bare: &str) -> Document {
    let payload = bytes(&format!("n,,{bare}"));
    let options = doc! { "skipEmptyExchange": true };
    ok(
        client,
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "options": options, "$db": "admin" },
    )
}

fn sasl_continue(client: &mut Connection, last: &str, db: &str) -> Document {
    run(client, doc! { "saslContinue": 1, "conversationId": 1, "payload": bytes(last), "$db": db })
}

/// The reply by OP_QUERY.
fn legacy(client: &mut Connection, db: &str, command: &Document) -> Document {
    let reply = client.run_legacy(db, command).unwrap();
    Document::from_reader(reply.as_bytes()).unwrap()
}

fn is_refused(reply: &Document, code: i32) {
    assert_eq!(reply.get_i32("code").ok(), Some(code), "{reply}");
}

#[test]
fn a_proof_is_good_for_one_conversation_of_one_user_on_one_connection() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let create = doc! { "createUser": "other", "pwd": "pw", "roles": ["root"], "$db": "admin" };
    ok(&mut admin, create);
    let bare = "n=root,r=abcdefghijklmnop";
    let find = doc! { "find": "c", "$db": "test" };
    let mut client = server.connect();

    let first = text(&sasl_start(&mut client, bare));
    let last = proof(bare, &first, "pw");
    // The conversation does not exist on another connection.
    is_refused(&sasl_continue(&mut server.connect(), &last, "admin"), 17);
    // A second `saslStart` begins another login, for the same user or another one.
    sasl_start(&mut client, bare);
    is_refused(&sasl_continue(&mut client, &last, "admin"), 18);
    let first = text(&sasl_start(&mut client, bare));
    sasl_start(&mut client, "n=other,r=abcdefghijklmnop");
    is_refused(&sasl_continue(&mut client, &proof(bare, &first, "pw"), "admin"), 18);
    // A proof with the nonces of this conversation, signed for the other user.
    let first = text(&sasl_start(&mut client, bare));
    let swapped = proof("n=other,r=abcdefghijklmnop", &first, "pw");
    is_refused(&sasl_continue(&mut client, &swapped, "admin"), 18);
    // A client that received a lower iteration count.
    let first = text(&sasl_start(&mut client, bare));
    let cheap = first.replace("i=15000", "i=4096");
    assert_ne!(cheap, first);
    is_refused(&sasl_continue(&mut client, &proof(bare, &cheap, "pw"), "admin"), 18);
    // Another database between the two steps.
    let first = text(&sasl_start(&mut client, bare));
    is_refused(&sasl_continue(&mut client, &proof(bare, &first, "pw"), "test"), 18);
    refused(&mut client, find.clone());

    // A conversation that has succeeded is over.
    let first = text(&sasl_start(&mut client, bare));
    let last = proof(bare, &first, "pw");
    assert_eq!(sasl_continue(&mut client, &last, "admin").get_bool("done").ok(), Some(true));
    ok(&mut client, find);
    is_refused(&sasl_continue(&mut client, &last, "admin"), 17);
}

#[test]
fn a_failed_login_leaves_the_user_who_is_logged_in() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let bare = "n=root,r=abcdefghijklmnop";
    let first = text(&sasl_start(&mut admin, bare));
    is_refused(&sasl_continue(&mut admin, &proof(bare, &first, "wrong"), "admin"), 18);
    ok(&mut admin, doc! { "find": "c", "$db": "test" });
}

/// Many logins that are begun and not finished, of existing users and others, with messages of the
/// largest size.
#[test]
#[cfg(target_os = "linux")]
fn unfinished_logins_take_no_memory() {
    let (_folder, server) = start(&[]);
    let _admin = root(&server);
    let resident_kb = || {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<i64>().unwrap()
    };
    let nonce = "x".repeat(3000);
    let begin_some = |logins: usize| {
        for at in 0..logins / 100 {
            let mut client = server.connect();
            for number in 0..100 {
                let user = if number % 2 == 0 { "root".to_owned() } else { format!("n{at}") };
                sasl_start(&mut client, &format!("n={user},r={nonce}"));
            }
        }
    };
    begin_some(1000);
    let before = resident_kb();
    begin_some(4000);
    // An unfinished login would take 9 kB.
    let grown = resident_kb() - before;
    assert!(grown < 16_000, "4000 logins that were begun took {grown} kB");
}

#[test]
fn commands_that_are_missing_are_no_oracle() {
    let (_folder, server) = start(&[]);
    let mut admin = root(&server);
    let mut nobody = server.connect();
    let missing = doc! { "cleanupOrphaned": "c", "$db": "test" };
    let shown = refused(&mut nobody, missing.clone());
    assert_eq!(shown, "Command cleanupOrphaned requires authentication");
    is_refused(&run(&mut admin, missing), 238);
    is_refused(&run(&mut nobody, doc! { "noSuchCommand": 1, "$db": "test" }), 59);
}

/// "Database Command Support" of OP_QUERY, and the exchange of Java 3.12: its third message repeats
/// the server's signature.
#[test]
fn old_drivers_log_in_by_op_query() {
    let (_folder, server) = start(&[]);
    let _admin = root(&server);
    let mut client = server.connect();
    let done = |reply: &Document| {
        assert_eq!(reply.get_f64("ok").ok(), Some(1.0), "{reply}");
        reply.get_bool("done").ok()
    };
    for name in ["isMaster", "ismaster", "hello", "buildInfo", "buildinfo", "_isSelf"] {
        let mut command = doc! {};
        command.insert(name, 1);
        done(&legacy(&mut client, "admin", &command));
    }
    let me = legacy(&mut client, "admin", &doc! { "_isSelf": 1 });
    let same = legacy(&mut server.connect(), "admin", &doc! { "_isSelf": 1 });
    assert_eq!(me.get_object_id("id").unwrap(), same.get_object_id("id").unwrap());
    is_refused(&legacy(&mut client, "admin", &doc! { "find": "c" }), 352);
    is_refused(&legacy(&mut client, "a.b", &doc! { "buildInfo": 1 }), 73);
    is_refused(
        &legacy(&mut client, "$external", &doc! { "authenticate": 1, "mechanism": "MONGODB-X509" }),
        18,
    );

    for other_content in [None, Some(""), Some("something else")] {
        let mut client = server.connect();
        let bare = "n=root,r=abcdefghijklmnop";
        let payload = bytes(&format!("n,,{bare}"));
        let begin = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload };
        let first = legacy(&mut client, "admin", &begin);
        assert_eq!(done(&first), Some(false));
        let go_on = |client: &mut Connection, text: &str| {
            let command = doc! { "saslContinue": 1, "conversationId": 1, "payload": bytes(text) };
            legacy(client, "admin", &command)
        };
        let second = go_on(&mut client, &proof(bare, &text(&first), "pw"));
        assert_eq!(done(&second), Some(false));
        refused(&mut client, doc! { "find": "c", "$db": "test" });
        let signature = text(&second);
        let third = go_on(&mut client, other_content.unwrap_or(&signature));
        assert_eq!(done(&third), Some(true));
        ok(&mut client, doc! { "find": "c", "$db": "test" });
    }
}

#[test]
fn a_mechanism_that_the_server_does_not_have_is_said_so() {
    let (_folder, server) = start(&[]);
    let _admin = root(&server);
    for command in [
        doc! { "saslStart": 1, "mechanism": "PLAIN", "payload": bytes("x"), "$db": "$external" },
        doc! { "saslStart": 1, "mechanism": "", "payload": bytes("x"), "$db": "admin" },
        doc! { "saslStart": 1, "mechanism": "scram-sha-256", "payload": bytes("x"), "$db": "admin" },
        doc! { "authenticate": 1, "mechanism": "GSSAPI", "$db": "$external" },
    ] {
        let reply = run(&mut server.connect(), command.clone());
        is_refused(&reply, 334);
        assert_eq!(reply.get_str("codeName").ok(), Some("MechanismUnavailable"));
    }
}
