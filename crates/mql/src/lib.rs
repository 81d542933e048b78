//! The query language: matcher, projection, sort patterns, update operators; pure and synchronous.
