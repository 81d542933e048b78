//! The wish to end, told to everybody who waits.

use tokio::sync::watch;

/// A flag that goes up once.
pub struct Shutdown {
    requested: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { requested: watch::Sender::new(false) }
    }
}

impl Shutdown {
    /// Asks everybody to end.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Whether somebody asked.
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits until somebody asks.
    pub async fn requested(&self) {
        let mut receiver = self.requested.subscribe();
        // An error means that the flag is gone with the service, which is an end, too.
        let _ = receiver.wait_for(|requested| *requested).await;
    }
}
