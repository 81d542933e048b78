//! Sets of documents, and columns that are damaged.

use proptest::prelude::*;

use super::{BitSet, Column};

proptest! {
    #[test]
    fn a_set_is_a_set(numbers in prop::collection::btree_set(0_usize..200, 0..40), len in 1_usize..200) {
        let mut set = BitSet::new(len);
        numbers.iter().for_each(|number| set.insert(*number));
        let inside = numbers.iter().filter(|number| **number < len).count();
        prop_assert_eq!(set.count(), inside);
        prop_assert_eq!(BitSet::from_bytes(&set.to_bytes(), len), Some(set.clone()));
        prop_assert_eq!(BitSet::from_bytes(&set.to_bytes(), len + 64), None);
        let mut other = set.clone();
        other.invert();
        prop_assert_eq!(other.count(), len - inside);
        other.unite(&set);
        prop_assert_eq!(other.count(), len);
        other.subtract(&set);
        other.intersect(&set);
        prop_assert_eq!(other.count(), 0);
    }

    #[test]
    fn no_bytes_make_a_column_panic(
        bytes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 4),
        key in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let column = Column {
            key_offsets: &bytes[0],
            keys: &bytes[1],
            list_offsets: &bytes[2],
            lists: &bytes[3],
        };
        let mut set = BitSet::new(10);
        column.select_key(&key, &mut set);
        column.select_range(&(key..vec![255]), &mut set, &|| Ok(())).unwrap();
    }
}
