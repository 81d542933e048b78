//! Units that write encrypted values with their tags.

use mayfly_base::{Error, ErrorCode, Result};

use super::WriteUnit;
use crate::index::validation::{SafeContent, Validation};

impl WriteUnit<'_> {
    /// Allows the rest of the unit to change the tags of encrypted values, which the server has
    /// planned.
    ///
    /// # Errors
    /// 6346807 for a collection without encrypted fields.
    pub fn write_planned_tags(&mut self) -> Result<()> {
        let validation = self.state.validation.as_deref();
        if !validation.is_some_and(Validation::is_encrypted) {
            let text = "Target namespace is not an encrypted collection";
            return Err(Error::new(ErrorCode(6346807), text));
        }
        self.tags = SafeContent::Planned;
        Ok(())
    }
}
