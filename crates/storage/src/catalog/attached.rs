//! What a layer above keeps about a collection as long as it exists and the server runs. Storage does not look at it.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;

/// At most one value of any type.
#[derive(Default)]
pub struct Attached {
    there: AtomicBool,
    value: RwLock<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Attached {
    /// Whether something may be there. Most collections have nothing, which costs one load to find out.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.there.load(Ordering::Relaxed)
    }

    /// What is there.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        if !self.is_there() {
            return None;
        }
        self.value.read().clone()?.downcast().ok()
    }

    /// Takes away what is there.
    pub fn clear(&self) {
        let mut value = self.value.write();
        self.there.store(false, Ordering::Relaxed);
        *value = None;
    }

    /// Puts something else in its place, or nothing.
    pub fn change<T: Send + Sync + 'static>(&self, change: impl FnOnce(Option<&T>) -> Option<T>) {
        let mut value = self.value.write();
        let changed = change(value.as_deref().and_then(<dyn Any + Send + Sync>::downcast_ref));
        self.there.store(changed.is_some(), Ordering::Relaxed);
        *value = changed.map(|changed| Arc::new(changed) as Arc<dyn Any + Send + Sync>);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_attached_is_found() {
        let attached = Attached::default();
        assert_eq!(attached.get::<u32>(), None);
        attached.change(|_: Option<&u32>| Some(1));
        attached.change(|old: Option<&u32>| old.map(|old| old + 1));
        assert_eq!(attached.get::<u32>().as_deref(), Some(&2));
        attached.change(|_: Option<&u32>| None);
        assert!(!attached.is_there());
        attached.change(|_: Option<&u32>| Some(1));
        attached.clear();
        assert_eq!(attached.get::<u32>(), None);
    }
}
