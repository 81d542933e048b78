//! How far the end of the server, or of a connection, has come. Any number of tasks can wait for a
//! stage.

use std::time::Duration;

use tokio::sync::watch;

/// The stage of an end. It only advances.
pub struct Shutdown {
    stage: watch::Sender<Stage>,
}

/// The stages in their order; each may be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// Nothing was requested.
    Runs,
    /// The server is to leave its store to another server for this time at most.
    HandsOver(Duration),
    /// The server is to stop.
    Stops,
    /// Connections and background work end.
    Ends,
}

impl Default for Shutdown {
    fn default() -> Shutdown {
        Shutdown { stage: watch::Sender::new(Stage::Runs) }
    }
}

impl Shutdown {
    /// Asks the server to leave the store to another server over it, and to begin again as a
    /// secondary. It becomes the primary again if no other server does so for this long.
    pub fn request_hand_over(&self, longest: Duration) {
        self.advance_to(Stage::HandsOver(longest));
    }

    /// Waits until the server is to leave the store to another one. Returns for how long.
    pub async fn hand_over_requested(&self) -> Duration {
        match self.reached(|stage| matches!(stage, Stage::HandsOver(_))).await {
            Some(Stage::HandsOver(longest)) => longest,
            _ => std::future::pending().await,
        }
    }

    /// Asks the server to stop. It leaves its store to another server first, if there is one.
    pub fn request(&self) {
        self.advance_to(Stage::Stops);
    }

    /// Whether the server was asked to stop.
    pub fn is_requested(&self) -> bool {
        *self.stage.borrow() >= Stage::Stops
    }

    /// Waits until the server is asked to stop.
    pub async fn requested(&self) {
        self.reached(|stage| stage >= Stage::Stops).await;
    }

    /// Ends the connections and the background work.
    pub fn begin(&self) {
        self.advance_to(Stage::Ends);
    }

    /// Whether connections and background work are to end.
    pub fn has_begun(&self) -> bool {
        *self.stage.borrow() == Stage::Ends
    }

    /// Waits until connections and background work are to end.
    pub async fn begun(&self) {
        self.reached(|stage| stage == Stage::Ends).await;
    }

    fn advance_to(&self, stage: Stage) {
        self.stage.send_if_modified(|now| {
            let advances = stage > *now;
            *now = stage.max(*now);
            advances
        });
    }

    /// Waits for a stage; `None` if this was dropped with the service, which is an end as well.
    async fn reached(&self, is_met: impl Fn(Stage) -> bool) -> Option<Stage> {
        let mut stages = self.stage.subscribe();
        stages.wait_for(|stage| is_met(*stage)).await.map(|stage| *stage).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_never_takes_an_earlier_one_back() {
        let shutdown = Shutdown::default();
        shutdown.begin();
        shutdown.request();
        shutdown.request_hand_over(Duration::from_secs(1));
        assert!(shutdown.has_begun() && shutdown.is_requested());
    }

    #[test]
    fn a_request_to_stop_does_not_end_connections() {
        let shutdown = Shutdown::default();
        shutdown.request_hand_over(Duration::from_secs(1));
        assert!(!shutdown.is_requested());
        shutdown.request();
        assert!(shutdown.is_requested() && !shutdown.has_begun());
    }
}
