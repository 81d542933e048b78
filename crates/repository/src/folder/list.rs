//! Listing of the objects in a folder.

use std::fs;
use std::io;
use std::path::Path as FsPath;

use object_store::ObjectMeta;
use object_store::path::Path;

use super::object_meta;

/// Deepest folder that is looked into: the layout has three levels, and links may form a circle.
const MAX_DEPTH: usize = 8;

/// All objects under a prefix, which need not exist. Hidden files and names that are not UTF-8 are
/// left out.
pub(super) fn objects(root: &FsPath, prefix: &Path) -> io::Result<Vec<ObjectMeta>> {
    let mut found = Vec::new();
    collect(&root.join(prefix.as_ref()), prefix.as_ref(), MAX_DEPTH, &mut found)?;
    Ok(found)
}

fn collect(
    folder: &FsPath,
    name: &str,
    depth: usize,
    found: &mut Vec<ObjectMeta>,
) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let part = entry.file_name();
        let Some(part) = part.to_str().filter(|part| !part.starts_with('.')) else { continue };
        let name = if name.is_empty() { part.to_owned() } else { format!("{name}/{part}") };
        // Follows links: `files` may be on another disk. An object may have just been deleted.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        if metadata.is_dir() && depth > 0 {
            collect(&entry.path(), &name, depth - 1, found)?;
        } else if metadata.is_file()
            && let Ok(location) = Path::parse(&name)
        {
            found.push(object_meta(location, &metadata)?);
        }
    }
    Ok(())
}
