//! Values that higher layers attach to the store or to a collection for the lifetime of the server.
//! Storage does not read them.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::RwLock;

/// At most one value, of any type.
#[derive(Default)]
pub struct Attached {
    there: AtomicBool,
    value: RwLock<Option<Arc<dyn Any + Send + Sync>>>,
}

impl Attached {
    /// Whether there may be a value. Most collections have none, which costs one load to find out.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.there.load(Ordering::Relaxed)
    }

    /// The value, if it has this type.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        if !self.is_there() {
            return None;
        }
        self.value.read().clone()?.downcast().ok()
    }

    /// Removes the value.
    pub fn clear(&self) {
        let mut value = self.value.write();
        self.there.store(false, Ordering::Relaxed);
        *value = None;
    }

    /// Replaces the value by the result of `change`; `None` removes it.
    pub fn change<T: Send + Sync + 'static>(&self, change: impl FnOnce(Option<&T>) -> Option<T>) {
        let mut value = self.value.write();
        let changed = change(value.as_deref().and_then(<dyn Any + Send + Sync>::downcast_ref));
        self.there.store(changed.is_some(), Ordering::Relaxed);
        *value = changed.map(|changed| Arc::new(changed) as Arc<dyn Any + Send + Sync>);
    }
}

/// The settings of a higher layer: one value for the store, made at its first use.
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
