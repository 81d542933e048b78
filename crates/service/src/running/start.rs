//! Construction of a service.

use std::sync::Arc;

use crate::server::{Service, ServiceOptions};

impl Service {
    /// Creates a service, which starts now and records the visits of the TTL monitor.
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
