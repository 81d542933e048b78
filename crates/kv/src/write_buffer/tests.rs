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
    let mut buffer = WriteBuffer::new();
    assert!(buffer.put_with_gap(Keyspace::Record, b"k", b"1234567", 0).is_err());
    assert!(buffer.put_with_gap(Keyspace::Record, b"k", b"12345678", 1).is_err());
    assert!(buffer.put_with_gap(Keyspace::Record, b"k", b"12345678", usize::MAX).is_err());
    assert!(buffer.is_empty() && buffer.check_filled().is_ok());
    buffer.put(Keyspace::Index, b"i", b"i");
    buffer.put_with_gap(Keyspace::Record, b"key", b"<........>", 1).unwrap();
    assert!(buffer.check_filled().is_err());
    buffer.fill_gaps(*b"12345678");
    buffer.put_with_gap(Keyspace::Record, b"l", b"........", 0).unwrap();
    buffer.fill_gaps(*b"abcdefgh");
    assert!(buffer.check_filled().is_ok());
    assert_eq!(buffer.get(Keyspace::Record, b"key"), Some(OwnWrite::Put(b"<12345678>")));
    assert_eq!(buffer.get(Keyspace::Record, b"l"), Some(OwnWrite::Put(b"abcdefgh")));
    assert_eq!(buffer.get(Keyspace::Index, b"i"), Some(OwnWrite::Put(b"i")));
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
    buffer.hashed.replace(all_alike);
    for n in 0..20_u8 {
        assert_eq!(buffer.get(Keyspace::Record, &[n]), Some(OwnWrite::Put(&[n])));
    }
}
