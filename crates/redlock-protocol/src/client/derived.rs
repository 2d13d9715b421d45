//! `Derived`: data that follows from the rest of a state; `Index`: entries by key.

use std::collections::HashMap;
use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};

use redlock_core::Key;

/// Data that follows from the rest of a state, or that is empty between two inputs. It is neither
/// compared nor hashed.
#[derive(Clone, Debug, Default)]
pub struct Derived<T>(pub T);

impl<T> PartialEq for Derived<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Derived<T> {}

impl<T> Hash for Derived<T> {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl<T> Deref for Derived<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Derived<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

/// The ids of entries by key. It is never iterated, because its order depends on the seed.
pub type Index<I> = Derived<HashMap<Key, I, Seeded>>;

/// Returns an index whose hashes depend on `seed`. A caller that chooses keys must not know it.
pub fn index<I>(seed: u64) -> Index<I> {
    Derived(HashMap::with_hasher(Seeded(seed)))
}

/// Hashes that depend on a seed.
#[derive(Clone, Copy, Debug)]
pub struct Seeded(u64);

impl BuildHasher for Seeded {
    type Hasher = DefaultHasher;

    #[inline]
    fn build_hasher(&self) -> DefaultHasher {
        let mut hasher = DefaultHasher::new();
        hasher.write_u64(self.0);
        hasher
    }
}
