//! What a layer above keeps with the store or with a collection as long as the server runs. Storage does not look at it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

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

/// The settings of a layer above: one value, made with its first use, the same for all collections of a store.
#[derive(Default)]
pub struct Settings(OnceLock<Box<dyn Any + Send + Sync>>);

impl Settings {
    /// The settings. All callers ask for the same type.
    pub fn get<T: Default + Send + Sync + 'static>(&self) -> &T {
        let settings = self.0.get_or_init(|| Box::new(T::default()));
        settings.downcast_ref().expect("one layer keeps its settings here, as one type")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[test]
    fn settings_are_made_once() {
        let settings = Settings::default();
        settings.get::<AtomicU32>().store(7, Ordering::Relaxed);
        assert_eq!(settings.get::<AtomicU32>().load(Ordering::Relaxed), 7);
    }

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
