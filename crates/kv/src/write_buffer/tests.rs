//! What a transaction wrote last, in which order its writes come, and gaps.

use super::*;

#[test]
fn the_last_write_counts_with_and_without_an_index() {
    for others in [0_u32, 100] {
        let mut buffer = WriteBuffer::new();
        buffer.put(Keyspace::Record, b"k", b"1");
        for n in 0..others {
            buffer.put(Keyspace::Index, &n.to_be_bytes(), b"");
        }
        assert_eq!(buffer.get(Keyspace::Record, b"k"), Some(OwnWrite::Put(b"1")));
        assert_eq!(buffer.get(Keyspace::Record, b"l"), None);
        assert_eq!(buffer.get(Keyspace::Catalog, b"k"), None);
        buffer.delete(Keyspace::Record, b"k");
        assert_eq!(buffer.get(Keyspace::Record, b"k"), Some(OwnWrite::Deleted));
        buffer.put(Keyspace::Record, b"k", b"2");
        assert_eq!(buffer.get(Keyspace::Record, b"k"), Some(OwnWrite::Put(b"2")));
    }
}

#[test]
fn operations_come_by_key_and_those_of_one_key_in_the_order_of_the_calls() {
    let keyspaces = [Keyspace::Index, Keyspace::Record, Keyspace::Oplog];
    for count in [3, 8, 9, 500] {
        let mut buffer = WriteBuffer::new();
        let mut random = 1_u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (random >> 33) % below
        };
        let mut expected = Vec::new();
        for n in 0..count {
            let keyspace = keyspaces[next(3) as usize];
            // Short keys, equal keys, and keys that differ after their first bytes.
            let key = vec![next(2) as u8; next(20) as usize];
            let value = (n as u32).to_be_bytes().to_vec();
            buffer.put(keyspace, &key, &value);
            expected.push((keyspace, key, value));
        }
        if count > SEARCHED {
            expected.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        }
        let found = buffer.ops_by_key().map(|(keyspace, key, write)| match write {
            OwnWrite::Put(value) => (keyspace, key.to_vec(), value.to_vec()),
            OwnWrite::Deleted | OwnWrite::Retired => unreachable!("only puts"),
        });
        assert_eq!(found.collect::<Vec<_>>(), expected, "{count}");
    }
}

#[test]
fn gaps_are_filled_where_they_were_left() {
    let log = LogClock::new();
    let entries = LogEntries { count: 2, now_ms: 0x3132_3334 * 1_000 };
    let mut buffer = WriteBuffer::new();
    let put = |buffer: &mut WriteBuffer, value: &[u8], gap| {
        buffer.put_with_gaps(Keyspace::Record, b"key", value, &[gap])
    };
    for gap in [
        Gap::Value(0, Which::Last),
        Gap::Value(usize::MAX, Which::Last),
        Gap::Key(0, Which::Entry(0)),
    ] {
        assert!(put(&mut buffer, b"1234567", gap).is_err());
    }
    assert!(put(&mut buffer, b"12345678", Gap::Value(1, Which::Last)).is_err());
    assert!(buffer.is_empty());
    assert!(buffer.take_place(Some(&log), LogEntries::NONE).unwrap().is_none());
    buffer.put(Keyspace::Index, b"i", b"i");
    put(&mut buffer, b"<........>", Gap::Value(1, Which::Last)).unwrap();
    let gaps = [Gap::Key(1, Which::Entry(0)), Gap::Value(0, Which::Entry(1))];
    buffer.put_with_gaps(Keyspace::Oplog, b"-........-", b"........", &gaps).unwrap();
    assert!(buffer.take_place(Some(&log), LogEntries::NONE).is_err());
    assert!(buffer.take_place(None, entries).is_err());
    let place = buffer.take_place(Some(&log), entries).unwrap().unwrap();
    assert_eq!((place.first(), place.last()), ((0x3132_3334 << 32) + 1, (0x3132_3334 << 32) + 2));
    let found: Vec<_> = buffer.ops().collect();
    assert_eq!(
        found,
        [
            (Keyspace::Index, &b"i"[..], OwnWrite::Put(b"i")),
            (Keyspace::Record, b"key", OwnWrite::Put(b"<\x02\0\0\x004321>")),
            (Keyspace::Oplog, b"-1234\0\0\0\x01-", OwnWrite::Put(b"\x02\0\0\x004321")),
        ]
    );
}

#[test]
fn equal_hashes_are_distinguished() {
    let mut buffer = WriteBuffer::new();
    for n in 0..20_u8 {
        buffer.put(Keyspace::Record, &[n], &[n]);
    }
    let all_alike = Hashed {
        latest: (0..20).map(|n| (key_hash(Keyspace::Record, &[n]), 19)).collect(),
        previous: (0..20).map(|at: u32| at.checked_sub(1).unwrap_or(NONE)).collect(),
    };
    buffer.indexes().hashed.replace(all_alike);
    for n in 0..20_u8 {
        assert_eq!(buffer.get(Keyspace::Record, &[n]), Some(OwnWrite::Put(&[n])));
    }
}
