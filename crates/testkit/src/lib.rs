//! Golden-script runner and fakes for tests.
