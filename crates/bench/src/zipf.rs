//! Which record a request of YCSB names: a few very often, most seldom (Zipf's law), as YCSB's
//! generators choose.
//!
//! The popular ones are scattered over the key space by a hash ("scrambled"), so that they do not
//! lie in one block; in work D the newest ones are the popular ones.

use anyhow::Result;
use rand_distr::Distribution;

use crate::documents::Random;

/// YCSB's constant: how unequal the records are.
const THETA: f64 = 0.99;

/// Ranks by Zipf's law.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zipf {
    items: u32,
    law: rand_distr::Zipf<f64>,
}

impl Zipf {
    /// A distribution over this many ranks.
    ///
    /// # Errors
    /// There is no rank.
    pub(crate) fn new(items: u32) -> Result<Zipf> {
        Ok(Zipf { items, law: rand_distr::Zipf::new(f64::from(items), THETA)? })
    }

    /// A rank; 0 is the most frequent one.
    pub(crate) fn rank(&self, random: &mut Random) -> u32 {
        // The library's ranks begin with 1.
        (self.law.sample(&mut random.0) as u32 - 1).min(self.items - 1)
    }

    /// A number below the count of the items; the popular ones are scattered.
    pub(crate) fn scrambled(&self, random: &mut Random) -> u32 {
        (fnv(self.rank(random)) % u64::from(self.items)) as u32
    }
}

/// The hash with which YCSB scatters.
fn fnv(number: u32) -> u64 {
    u64::from(number).to_le_bytes().iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: usize = 200_000;

    #[test]
    fn ranks_follow_the_law() {
        let (zipf, mut random) = (Zipf::new(1000).unwrap(), Random::new(1));
        let mut seen = vec![0usize; 1000];
        for _ in 0..DRAWS {
            seen[zipf.rank(&mut random) as usize] += 1;
        }
        let zeta: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-THETA)).sum();
        for rank in [0, 1] {
            let expected = DRAWS as f64 * f64::from(rank + 1).powf(-THETA) / zeta;
            let found = seen[rank as usize] as f64;
            assert!((found / expected - 1.0).abs() < 0.05, "{rank}: {found}, not {expected}");
        }
        let (top, all): (usize, usize) = (seen[..100].iter().sum(), seen.iter().sum());
        let share = top as f64 / all as f64;
        assert!((0.6..0.8).contains(&share), "a tenth of the ranks has {share}");
        assert!(seen[900..].iter().sum::<usize>() > 0);
    }

    #[test]
    fn the_popular_ones_are_scattered() {
        let (zipf, mut random) = (Zipf::new(1000).unwrap(), Random::new(2));
        let mut seen = vec![0usize; 1000];
        for _ in 0..DRAWS {
            seen[zipf.scrambled(&mut random) as usize] += 1;
        }
        let most = seen.iter().enumerate().max_by_key(|(_, count)| **count).unwrap().0;
        assert_eq!(most as u64, fnv(0) % 1000);
        assert!(seen[..10].iter().sum::<usize>() < DRAWS / 4);
    }
}
