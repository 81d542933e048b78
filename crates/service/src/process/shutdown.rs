//! The signals to end, and to leave the store to another server. Any number of tasks can wait for
//! them.

use std::time::Duration;

use tokio::sync::watch;

/// Flags that are set at most once.
pub struct Shutdown {
    asked: watch::Sender<bool>,
    requested: watch::Sender<bool>,
    hands_over: watch::Sender<Option<Duration>>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown {
            asked: watch::Sender::new(false),
            requested: watch::Sender::new(false),
            hands_over: watch::Sender::new(None),
        }
    }
}

impl Shutdown {
    /// Asks the server to stop. It leaves its store to another server first, if there is one.
    pub fn ask(&self) {
        self.asked.send_replace(true);
    }

    /// Ends the connections and the background work.
    pub fn request(&self) {
        self.requested.send_replace(true);
        self.ask();
    }

    /// Whether the server was asked to stop.
    pub fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// Waits until the server is asked to stop.
    pub async fn asked(&self) {
        wait_for(&self.asked).await;
    }

    /// Whether connections and background work are to end.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits until connections and background work are to end.
    pub async fn requested(&self) {
        wait_for(&self.requested).await;
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

async fn wait_for(flag: &watch::Sender<bool>) {
    // An error means that the flag was dropped with the service, which is an end as well.
    let _ = flag.subscribe().wait_for(|is_set| *is_set).await;
}
