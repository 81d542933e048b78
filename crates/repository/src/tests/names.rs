//! Texts of names: what is valid, and the order.

use super::*;

#[test]
fn names_of_backups_sort_by_time() {
    let ids: Vec<BackupId> =
        [NOW_MS, NOW_MS + 1, NOW_MS + 86_400_000].map(|ms| BackupId::new(ms).unwrap()).into();
    assert!(ids.is_sorted(), "{ids:?}");
    assert!(ids[0].as_str().starts_with("20261127T212149000Z-"), "{}", ids[0]);
    for ms in [i64::MIN, i64::MAX] {
        assert!(matches!(BackupId::new(ms), Err(Error::Clock { .. })));
    }
    for text in ["", "..", "20261127T212149000Z-0000000", "20261127T212149000Z-0000000G"] {
        assert!(text.parse::<BackupId>().is_err(), "{text}");
    }
}

#[test]
fn paths_cannot_lead_out_of_a_folder() {
    for text in ["a", "a/b", "000012.sst", "..a", "a..", "a b", "ä"] {
        assert!(text.parse::<FilePath>().is_ok(), "{text}");
    }
    let long = "a/".repeat(600) + "a";
    let component = "a".repeat(256);
    for text in [
        "", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/..", "./a", "a\\b", "c:a",
        "a\0", "a\nb", &long, &component,
    ] {
        assert!(text.parse::<FilePath>().is_err(), "{text}");
    }
}

#[test]
fn other_texts() {
    assert_eq!(time(7).to_string(), "0000000007.0000000001");
    assert_eq!("0000000007.0000000001".parse::<ClusterTime>().unwrap(), time(7));
    for text in ["", ".", "7.1", "+000000007.0000000001", "9999999999.0000000001"] {
        assert!(text.parse::<ClusterTime>().is_err(), "{text}");
    }
    assert_eq!(ClusterTime { seconds: u32::MAX, increment: 0 }.rfc3339(), "2106-02-07T06:28:15Z");
    for text in ["", "T1", "a/b", "..", "a.b", &"a".repeat(65)] {
        assert!(text.parse::<Timeline>().is_err(), "{text}");
    }
    let text = Checksum::of(b"").to_string();
    assert_eq!(text.parse::<Checksum>().unwrap(), Checksum::of(b""));
    assert!(
        text.to_uppercase().parse::<Checksum>().is_err() && text[1..].parse::<Checksum>().is_err()
    );
    assert!("x".parse::<StoreId>().is_err());
    assert_eq!(store_id().to_string().parse::<StoreId>().unwrap(), store_id());
}
