//! Construction of a service.

use std::sync::Arc;

use mayfly_value::DocBuf;

use super::stored_functions;
use crate::server::{Service, ServiceOptions};

impl Service {
    /// Creates a service, which starts now and records the visits of the TTL monitor.
    pub fn new(options: ServiceOptions) -> Arc<Service> {
        let service = Service::assemble(options);
        let store = Arc::downgrade(&service.store);
        service.ops.library().read_by(move |op, db| match store.upgrade() {
            Some(store) => stored_functions::read(&store, op, db),
            None => Ok(DocBuf::empty().into_bytes()),
        });
        let recorder = Arc::downgrade(&service);
        service.store.on_ttl_visit(move |report| {
            if let Some(service) = recorder.upgrade() {
                service.profile_visit(report);
            }
        });
        service
    }
}
