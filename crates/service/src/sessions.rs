//! Logical sessions: which are there and when each was last used. They time out after half an hour.
//!
//! On a server without transactions a session is only its id; nothing hangs on it but what `killSessions` finds
//! by the `lsid` of running operations and cursors.

use std::collections::HashMap;

use mayfly_base::{Error, ErrorCode, Result, limits};
use parking_lot::Mutex;

/// The UUID of a logical session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId(pub [u8; 16]);

/// Last uses by session.
#[derive(Default)]
pub struct Sessions {
    last_use_ms: Mutex<HashMap<SessionId, i64>>,
}

impl Sessions {
    /// The session is used now; it begins when it was not there.
    ///
    /// # Errors
    /// 261 TooManyLogicalSessions.
    pub fn touch(&self, session: SessionId, now_ms: i64) -> Result<()> {
        let mut sessions = self.last_use_ms.lock();
        if let Some(last_use) = sessions.get_mut(&session) {
            *last_use = now_ms;
            return Ok(());
        }
        if sessions.len() >= limits::MAX_LOGICAL_SESSIONS {
            expire(&mut sessions, now_ms);
        }
        if sessions.len() >= limits::MAX_LOGICAL_SESSIONS {
            let text = "cannot add session into the cache: too many logical sessions";
            return Err(Error::new(ErrorCode::TooManyLogicalSessions, text));
        }
        sessions.insert(session, now_ms);
        Ok(())
    }

    /// The session is over.
    pub fn end(&self, session: SessionId) {
        self.last_use_ms.lock().remove(&session);
    }

    /// How many there are, those that timed out left aside.
    pub fn count(&self, now_ms: i64) -> usize {
        let mut sessions = self.last_use_ms.lock();
        expire(&mut sessions, now_ms);
        sessions.len()
    }

    /// Id and last use of each.
    pub fn list(&self, now_ms: i64) -> Vec<(SessionId, i64)> {
        let mut sessions = self.last_use_ms.lock();
        expire(&mut sessions, now_ms);
        sessions.iter().map(|(id, last_use)| (*id, *last_use)).collect()
    }
}

fn expire(sessions: &mut HashMap<SessionId, i64>, now_ms: i64) {
    let oldest = now_ms - i64::from(limits::SESSION_TIMEOUT_MINUTES) * 60_000;
    sessions.retain(|_, last_use| *last_use >= oldest);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_time_out() {
        let sessions = Sessions::default();
        sessions.touch(SessionId([1; 16]), 0).unwrap();
        sessions.touch(SessionId([2; 16]), 1_000).unwrap();
        assert_eq!(sessions.count(30 * 60_000), 2);
        assert_eq!(sessions.count(30 * 60_000 + 1), 1);
        sessions.end(SessionId([2; 16]));
        assert_eq!(sessions.count(0), 0);
    }
}
