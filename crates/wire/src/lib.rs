//! Bytes to messages and back: OP_MSG, OP_COMPRESSED, the legacy hello; a tokio-util codec without commands.
