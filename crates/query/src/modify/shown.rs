//! The version of a document that `findAndModify` answers with. Its projection is tried in the write unit, before anything is
//! committed: a projection that fails leaves no write behind, as in the reference.

use mayfly_base::Result;

use super::Image;
use super::record::Images;
use crate::exec::metadata_of;
use crate::language::CanonicalQuery;

/// Which version is shown, through which projection.
#[derive(Clone, Copy)]
pub(crate) struct Shown<'q> {
    query: &'q CanonicalQuery,
    image: Image,
}

impl<'q> Shown<'q> {
    /// This version through the query's projection.
    pub(crate) fn of(query: &'q CanonicalQuery, image: Image) -> Shown<'q> {
        Shown { query, image }
    }

    /// Nobody looks.
    pub(crate) fn nothing(query: &'q CanonicalQuery) -> Shown<'q> {
        Shown { query, image: Image::Neither }
    }

    /// Fails when the projection does.
    ///
    /// # Errors
    /// Those of the projection.
    pub(crate) fn check(self, images: Images<'_>) -> Result<()> {
        let document = match self.image {
            Image::Neither => None,
            Image::Before => images.before,
            Image::After => images.after,
        };
        match (&self.query.projection, document) {
            (Some(projection), Some(document)) => {
                let metadata = metadata_of(self.query, document)?;
                let frame = metadata.frame(document);
                projection.project_found(frame, &self.query.matcher).map(|_| ())
            }
            _ => Ok(()),
        }
    }
}
