//! The storage engine: catalog, collections, indexes, write units, oplog, TTL monitor.
