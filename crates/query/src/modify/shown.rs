//! The version of a document that `findAndModify` returns. Its projection is applied in the write
//! unit before the commit, so that a failing projection has no effect, as in the reference.

use mayfly_base::Result;

use super::Image;
use super::record::Images;
use crate::exec::metadata_of;
use crate::language::CanonicalQuery;

/// The version that is returned, and the query with its projection.
#[derive(Clone, Copy)]
pub(crate) struct ReturnedVersion<'q> {
    query: &'q CanonicalQuery,
    image: Image,
}

impl<'q> ReturnedVersion<'q> {
    /// A version with the query's projection.
    pub(crate) fn of(query: &'q CanonicalQuery, image: Image) -> ReturnedVersion<'q> {
        ReturnedVersion { query, image }
    }

    /// No version is returned.
    pub(crate) fn nothing(query: &'q CanonicalQuery) -> ReturnedVersion<'q> {
        ReturnedVersion { query, image: Image::Neither }
    }

    /// Applies the projection, to report its errors.
    ///
    /// # Errors
    /// Errors of the projection.
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
