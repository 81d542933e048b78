//! A signal to end, which any number of tasks can wait for.

use tokio::sync::watch;

/// A flag that is set at most once.
pub struct Shutdown {
    requested: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { requested: watch::Sender::new(false) }
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
}
