//! The functions that databases store for scripts. A sandbox gets them from the operation of
//! its thread, because the expression that contains a script does not know the database. The
//! service sets the reader of these functions in the registry of operations.

use std::sync::{Arc, OnceLock};

use mayfly_base::Result;

use crate::OpCtx;

/// Reads the stored functions of a database as the bytes of a BSON document.
type ReadFunctions = Box<dyn Fn(&Arc<OpCtx>, &str) -> Result<Vec<u8>> + Send + Sync>;

/// The reader of stored functions, which is set when the server starts.
#[derive(Default)]
pub struct ScriptLibrary(OnceLock<ReadFunctions>);

impl ScriptLibrary {
    /// Installs the reader. Only the first call has an effect.
    pub fn read_by(
        &self,
        read: impl Fn(&Arc<OpCtx>, &str) -> Result<Vec<u8>> + Send + Sync + 'static,
    ) {
        let _ = self.0.set(Box::new(read));
    }

    /// The stored functions of a database; `None` if there is no reader.
    pub(crate) fn functions(&self, op: &Arc<OpCtx>, db: &str) -> Result<Option<Vec<u8>>> {
        self.0.get().map(|read| read(op, db)).transpose()
    }
}
