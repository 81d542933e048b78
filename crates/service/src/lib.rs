//! What outlives a command: sessions, cursor registry, parameters, metrics, log buffer.
