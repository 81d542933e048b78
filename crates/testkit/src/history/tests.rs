//! Histories that snapshot isolation allows, and those that it forbids.

use super::*;

fn kinds(history: &str) -> Vec<&'static str> {
    let history: Vec<Transaction> =
        history.trim().lines().map(|line| line.trim().parse().unwrap()).collect();
    check(&history).into_iter().map(|anomaly| anomaly.kind).collect()
}

#[test]
fn what_snapshot_isolation_allows() {
    // Sequential transactions.
    assert!(kinds("1 2 ok a:1=1\n3 4 ok r:1=1 a:1=2\n5 6 ok r:1=1,2").is_empty());
    // Write skew: each reads what the other one overwrites.
    let skew = "1 9 ok r:1= r:2= a:1=1\n1 9 ok r:1= r:2= a:2=2\n10 11 ok r:1=1 r:2=2";
    assert!(kinds(skew).is_empty());
    // A concurrent reader with an older snapshot.
    assert!(kinds("1 9 ok a:1=1\n2 8 ok r:1=\n10 11 ok r:1=1").is_empty());
    // The outcome of the first one is unknown.
    assert!(kinds("1 2 info a:1=1\n3 4 ok r:1=\n9 10 ok r:1=1").is_empty());
    assert!(kinds("1 2 info a:1=1\n3 4 ok r:1=").is_empty());
}

#[test]
fn what_it_forbids() {
    let cases = [
        ("twice", "1 2 ok a:1=1\n3 4 ok r:1=1,1"),
        ("aborted read (G1a)", "1 2 fail a:1=1\n3 4 ok r:1=1"),
        ("intermediate read (G1b)", "1 5 ok a:1=1 a:1=2\n1 4 ok r:1=1\n6 7 ok r:1=1,2"),
        ("lost write", "1 2 ok a:1=1\n3 4 ok a:1=2\n5 6 ok r:1=2"),
        (
            "incompatible order",
            "1 9 ok a:1=1\n1 9 ok a:1=2\n1 9 ok r:1=1\n1 9 ok r:1=2\n10 11 ok r:1=1,2",
        ),
        ("unrepeatable read", "1 9 ok r:1= r:1=1\n1 9 ok a:1=1\n10 11 ok r:1=1"),
        ("own write missing", "1 9 ok a:1=1 r:1=\n10 11 ok r:1=1"),
        ("from nowhere", "1 2 ok r:1=7"),
    ];
    for (kind, history) in cases {
        assert_eq!(kinds(history).first(), Some(&kind), "{history}");
    }
}

#[test]
fn circles_that_it_forbids() {
    let cases = [
        // Read skew: a part of the writes of another transaction.
        "1 9 ok a:1=1 a:2=2\n1 9 ok r:1=1 r:2=\n10 11 ok r:1=1 r:2=2",
        // A lost update: both read the empty list and append.
        "1 9 ok r:1= a:1=1\n1 9 ok r:1= a:1=2\n10 11 ok r:1=1,2",
        // Writes that are overwritten in opposite order (G0).
        "1 9 ok a:1=1 a:2=2\n1 9 ok a:1=3 a:2=4\n10 11 ok r:1=1,3 r:2=4,2",
        // Two transactions that read each other's writes (G1c).
        "1 9 ok a:1=1 r:2=2\n1 9 ok a:2=2 r:1=1\n10 11 ok r:1=1 r:2=2",
        // A stale read: the writer had ended before the reader began.
        "1 2 ok a:1=1\n3 4 ok r:1=\n5 6 ok r:1=1",
        // A long fork: two readers observe two writers in opposite order.
        "1 9 ok a:1=1\n1 9 ok a:2=2\n1 9 ok r:1=1 r:2=\n1 9 ok r:1= r:2=2\n10 11 ok r:1=1 r:2=2",
    ];
    for history in cases {
        assert_eq!(kinds(history), ["circle"], "{history}");
    }
}

#[test]
fn registers_that_are_right() {
    // A chain, with a concurrent failure and one unknown outcome.
    assert!(
        kinds("1 2 ok g:1= w:1=1\n3 4 ok g:1=1 w:1=2\n3 4 fail g:1=1 w:1=3\n9 9 ok g:1=2")
            .is_empty()
    );
    assert!(
        kinds("1 2 ok g:1= w:1=1\n3 4 info g:1=1 w:1=2\n5 6 ok g:1=1 w:1=3\n9 9 ok g:1=3")
            .is_empty()
    );
    assert!(kinds("1 2 ok g:1= w:1=1\n3 4 info g:1=1 w:1=2\n9 9 ok g:1=2").is_empty());
    // Two writes in one transaction; a list with the same number is independent.
    assert!(kinds("1 2 ok g:1= w:1=1 w:1=2 g:1=2\n3 4 ok a:1=3\n9 9 ok r:1=3 g:1=2").is_empty());
}

#[test]
fn registers_that_are_wrong() {
    let cases = [
        ("lost update", "1 9 ok g:1= w:1=1\n1 9 ok g:1= w:1=2\n10 11 ok g:1=2"),
        ("unrepeatable read", "1 9 ok g:1= g:1=1\n1 9 ok g:1= w:1=1\n10 11 ok g:1=1"),
        ("aborted read (G1a)", "1 2 fail g:1= w:1=1\n3 4 ok g:1=1"),
        ("intermediate read (G1b)", "1 9 ok g:1= w:1=1 w:1=2\n2 3 ok g:1=1\n10 11 ok g:1=2"),
        ("lost write", "1 2 ok g:1= w:1=1\n10 11 ok g:1="),
        ("own write missing", "1 9 ok g:1= w:1=1 g:1=\n10 11 ok g:1=1"),
        ("from nowhere", "1 2 ok g:1=7"),
        ("twice", "1 9 ok g:1=2 w:1=1\n1 9 ok g:1=1 w:1=2\n10 11 ok g:1=2"),
        ("circle", "1 2 ok g:1= w:1=1\n3 4 ok g:1=\n5 6 ok g:1=1"),
        ("circle", "1 9 ok g:1= w:1=1 a:2=2\n1 9 ok g:1=1 r:2=\n10 11 ok g:1=1 r:2=2"),
    ];
    for (kind, history) in cases {
        assert!(kinds(history).contains(&kind), "{history}: {:?}", kinds(history));
    }
}

#[test]
fn text_is_read_as_it_was_written() {
    let text = "1 2 ok a:1=1 r:1=1,2 r:2= g:1= w:1=3 g:1=3\n3 4 fail\n5 6 info a:1=4";
    let written: Vec<_> = parse(text).unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(written.join("\n"), text);
    for wrong in ["x 2 ok", "1 2 perhaps", "1 2 ok a:1=", "1 2 ok g:1=1,2", "1 2 ok z:1=1"] {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
}
