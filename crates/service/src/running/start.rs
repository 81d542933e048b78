//! A service that begins.

use std::sync::Arc;

use crate::server::{Service, ServiceOptions};

impl Service {
    /// A service that begins now, and records the visits of the TTL monitor.
    pub fn new(options: ServiceOptions) -> Arc<Service> {
        let service = Service::assemble(options);
        let recorder = Arc::downgrade(&service);
        service.store.on_ttl_visit(move |report| {
            if let Some(service) = recorder.upgrade() {
                service.profile_visit(report);
            }
        });
        service
    }
}
