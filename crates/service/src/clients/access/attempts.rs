//! Failed logins by client address, and the delay of their answers.
//!
//! An address has [`FREE`] failures and regains one each second. The answer to each further failure
//! is delayed as if the failures of that address had to be a second apart, by [`LONGEST`] at most.
//! Successful logins are never delayed, so that clients that share an address with an attacker can
//! log in.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;

/// Failures that are answered at once.
const FREE: u32 = 10;
/// The cost of each failure, in microseconds.
const COST_MICROS: i64 = 1_000_000;
/// The longest delay of an answer.
const LONGEST: Duration = Duration::from_secs(10);
/// The number of addresses that are tracked. Further addresses share one entry.
const MOST_ADDRESSES: usize = 10_000;

/// Failed logins by client address.
#[derive(Default)]
pub struct Attempts {
    /// For each address, the monotonic microsecond at which its failures are paid for. The key
    /// `None` stands for all addresses beyond [`MOST_ADDRESSES`].
    paid_until: Mutex<HashMap<Option<IpAddr>, i64>>,
}

impl Attempts {
    /// Records a failed login from `client` (`address:port`) and returns the delay of the answer.
    /// `now` is in monotonic microseconds.
    pub fn failed(&self, client: &str, now: i64) -> Duration {
        let mut paid_until = self.paid_until.lock();
        let mut address = super::ip(client).map(network);
        if !paid_until.contains_key(&address) && paid_until.len() >= MOST_ADDRESSES {
            paid_until.retain(|_, until| *until > now);
            if paid_until.len() >= MOST_ADDRESSES {
                address = None;
            }
        }
        let until = paid_until.entry(address).or_insert(now);
        let longest = i64::try_from(LONGEST.as_micros()).unwrap_or(i64::MAX);
        let free = i64::from(FREE) * COST_MICROS;
        *until = (*until).max(now).saturating_add(COST_MICROS).min(now + free + longest);
        let late = *until - now - free;
        Duration::from_micros(u64::try_from(late).unwrap_or(0))
    }
}

/// The address without its host part for IPv6, because a client with an IPv6 address usually owns
/// its whole /64 network.
fn network(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6([a, b, c, d, 0, 0, 0, 0].into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_failures_of_one_address_wait() {
        let attempts = Attempts::default();
        for _ in 0..FREE {
            assert_eq!(attempts.failed("10.0.0.1:5", 0), Duration::ZERO);
        }
        assert_eq!(attempts.failed("10.0.0.1:6", 0), Duration::from_secs(1));
        assert_eq!(attempts.failed("10.0.0.1:6", 0), Duration::from_secs(2));
        assert_eq!(attempts.failed("10.0.0.2:6", 0), Duration::ZERO);
        // Two seconds later two are paid.
        assert_eq!(attempts.failed("10.0.0.1:6", 2_000_000), Duration::from_secs(1));
        for _ in 0..100 {
            attempts.failed("10.0.0.1:6", 2_000_000);
        }
        assert_eq!(attempts.failed("10.0.0.1:6", 2_000_000), LONGEST);
        assert_eq!(attempts.failed("10.0.0.1:6", 60_000_000), Duration::ZERO);
    }

    #[test]
    fn addresses_of_one_network_count_together_and_memory_is_bounded() {
        let attempts = Attempts::default();
        for host in 0..FREE {
            assert_eq!(attempts.failed(&format!("[2001:db8::{host}]:1"), 0), Duration::ZERO);
        }
        assert!(attempts.failed("[2001:db8::ffff]:1", 0) > Duration::ZERO);
        for host in 0..30_000 {
            attempts.failed(&format!("10.0.{}.{}:1", host / 256, host % 256), 0);
        }
        assert!(attempts.paid_until.lock().len() <= MOST_ADDRESSES + 1);
        attempts.failed("10.1.0.0:1", 100_000_000);
        assert_eq!(attempts.paid_until.lock().len(), 1);
    }
}
