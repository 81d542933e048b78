//! The signals to end, and to leave the store to another server. Any number of tasks can wait for
//! them.

use std::time::Duration;

use tokio::sync::watch;

/// Flags that are set at most once.
pub struct Shutdown {
    requested: watch::Sender<bool>,
    hands_over: watch::Sender<Option<Duration>>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { requested: watch::Sender::new(false), hands_over: watch::Sender::new(None) }
    }
}

impl Shutdown {
    /// Sets the flag.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Whether the flag is set.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits until the flag is set.
    pub async fn requested(&self) {
        let mut receiver = self.requested.subscribe();
        // An error means that the flag was dropped with the service, which is an end as well.
        let _ = receiver.wait_for(|requested| *requested).await;
    }

    /// Asks the server to leave the store to another server over it, and to begin again as a
    /// secondary. It becomes the primary again if no other server does so for this long.
    pub fn request_hand_over(&self, longest: Duration) {
        self.hands_over.send_replace(Some(longest));
    }

    /// Waits until the server is to leave the store to another one. Returns for how long.
    pub async fn hand_over_requested(&self) -> Duration {
        let mut receiver = self.hands_over.subscribe();
        match receiver.wait_for(Option::is_some).await.map(|longest| *longest) {
            Ok(Some(longest)) => longest,
            _ => std::future::pending().await,
        }
    }
}
