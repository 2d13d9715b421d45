//! `Table`: entries under ids that are never used twice. `Named`: entries under ids of another table.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

/// An id of a [`Table`]. Ids of different tables have different types.
pub trait Id: Copy + Eq {
    /// Wraps the key of an entry.
    fn new(key: Key) -> Self;

    /// Returns the key of the entry.
    fn key(self) -> Key;

    /// Returns the id as a number.
    #[inline]
    fn number(self) -> u64 {
        let Key { place, version } = self.key();
        u64::from(version) << 32 | u64::from(place)
    }

    /// Returns the id with this number. It names no entry unless it came from an entry.
    #[inline]
    fn of_number(number: u64) -> Self {
        // Each half is cut to the part that it was made of.
        Self::new(Key { place: number as u32, version: (number >> 32) as u32 })
    }
}

/// The place of an entry, and how often the place was filled and emptied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    place: u32,
    version: u32,
}

impl Key {
    /// The key of no entry.
    pub const NONE: Self = Self { place: u32::MAX, version: 1 };
}

/// Declares types of ids.
macro_rules! ids {
    ($($(#[$attribute:meta])* $name:ident,)*) => {$(
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($crate::client::table::Key);

        impl $crate::client::table::Id for $name {
            #[inline]
            fn new(key: $crate::client::table::Key) -> Self {
                Self(key)
            }

            #[inline]
            fn key(self) -> $crate::client::table::Key {
                self.0
            }
        }

        impl Default for $name {
            /// Returns an id that names no entry.
            fn default() -> Self {
                Self($crate::client::table::Key::NONE)
            }
        }
    )*};
}

pub(crate) use ids;

/// Entries under ids. The id of a removed entry is stale forever.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table<I, T> {
    places: Vec<Place<T>>,
    /// The empty places. The one emptied last is filled first.
    empty: Vec<u32>,
    ids: PhantomData<I>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place<T> {
    /// Odd while the place is filled.
    version: u32,
    entry: Option<T>,
}

impl<I, T> Default for Table<I, T> {
    fn default() -> Self {
        Self { places: Vec::new(), empty: Vec::new(), ids: PhantomData }
    }
}

impl<I: Id, T> Table<I, T> {
    /// Adds an entry and returns its id.
    #[inline]
    pub fn insert(&mut self, entry: T) -> I {
        let (id, place) = self.fill();
        place.entry = Some(entry);
        id
    }

    /// Adds an entry that knows its id.
    pub fn insert_with_id(&mut self, make: impl FnOnce(I) -> T) -> I {
        let (id, place) = self.fill();
        place.entry = Some(make(id));
        id
    }

    /// Returns the place for the next entry.
    #[inline]
    fn fill(&mut self) -> (I, &mut Place<T>) {
        let at = self.empty.pop().unwrap_or_else(|| {
            self.places.push(Place { version: 0, entry: None });
            // A table is bounded far below 2^32 entries.
            (self.places.len() - 1) as u32
        });
        let place = &mut self.places[at as usize];
        place.version = place.version.wrapping_add(1);
        (I::new(Key { place: at + 1, version: place.version }), place)
    }

    /// Removes an entry.
    #[inline]
    pub fn remove(&mut self, id: I) -> Option<T> {
        let place = self.place_mut(id).filter(|place| place.entry.is_some())?;
        place.version = place.version.wrapping_add(1);
        let entry = place.entry.take();
        self.empty.push(id.key().place - 1);
        entry
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        for (at, place) in (0..).zip(&mut self.places) {
            if place.entry.take().is_some() {
                place.version = place.version.wrapping_add(1);
                self.empty.push(at);
            }
        }
    }

    /// Returns the entry with this id, unless it was removed.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        let Key { place, version } = id.key();
        let found = self.places.get((place as usize).wrapping_sub(1))?;
        if found.version == version { found.entry.as_ref() } else { None }
    }

    /// Returns the entry with this id for changes, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        self.place_mut(id)?.entry.as_mut()
    }

    #[inline]
    fn place_mut(&mut self, id: I) -> Option<&mut Place<T>> {
        let Key { place, version } = id.key();
        let found = self.places.get_mut((place as usize).wrapping_sub(1))?;
        (found.version == version).then_some(found)
    }

    /// Returns `true` if the entry was not removed.
    #[inline]
    pub fn contains(&self, id: I) -> bool {
        self.get(id).is_some()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.places.len() - self.empty.len()
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all entries with their ids, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (I, &T)> {
        (1..).zip(&self.places).filter_map(|(place, found)| {
            let id = I::new(Key { place, version: found.version });
            Some((id, found.entry.as_ref()?))
        })
    }

    /// Returns the ids of all entries.
    pub fn ids(&self) -> impl Iterator<Item = I> {
        self.iter().map(|(id, _)| id)
    }

    /// Returns all entries.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|place| place.entry.as_ref())
    }

    /// Returns all entries for changes.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.places.iter_mut().filter_map(|place| place.entry.as_mut())
    }
}

/// For an entry that cannot have been removed.
#[expect(clippy::expect_used, reason = "the caller knows that the entry is there")]
impl<I: Id, T> Index<I> for Table<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        self.get(id).expect("the entry was not removed")
    }
}

#[expect(clippy::expect_used, reason = "the caller knows that the entry is there")]
impl<I: Id, T> IndexMut<I> for Table<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).expect("the entry was not removed")
    }
}

/// Entries under ids that another table gave out.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named<I, T> {
    /// The entries, each with the version of its id.
    places: Vec<Option<(u32, T)>>,
    len: usize,
    ids: PhantomData<I>,
}

impl<I, T> Default for Named<I, T> {
    fn default() -> Self {
        Self { places: Vec::new(), len: 0, ids: PhantomData }
    }
}

impl<I: Id, T> Named<I, T> {
    /// Adds an entry.
    #[inline]
    pub fn insert(&mut self, id: I, entry: T) {
        let at = id.key().place as usize;
        if self.places.len() <= at {
            self.places.resize_with(at + 1, || None);
        }
        let former = self.places[at].replace((id.key().version, entry));
        self.len += usize::from(former.is_none());
    }

    /// Removes an entry.
    #[inline]
    pub fn remove(&mut self, id: I) -> Option<T> {
        let place = self.places.get_mut(id.key().place as usize)?;
        let (_, entry) = place.take_if(|(version, _)| *version == id.key().version)?;
        self.len -= 1;
        Some(entry)
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.places.clear();
        self.len = 0;
    }

    /// Returns the entry with this id, unless it was removed.
    #[inline]
    pub fn get(&self, id: I) -> Option<&T> {
        let (version, entry) = self.places.get(id.key().place as usize)?.as_ref()?;
        (*version == id.key().version).then_some(entry)
    }

    /// Returns the entry with this id for changes, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, id: I) -> Option<&mut T> {
        let (version, entry) = self.places.get_mut(id.key().place as usize)?.as_mut()?;
        (*version == id.key().version).then_some(entry)
    }

    /// Returns `true` if the entry was not removed.
    #[inline]
    pub fn contains(&self, id: I) -> bool {
        self.get(id).is_some()
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the ids of all entries, in the order of their places.
    pub fn ids(&self) -> impl Iterator<Item = I> {
        let id = |(at, place): (u32, &Option<(u32, T)>)| {
            let (version, _) = place.as_ref()?;
            Some(I::new(Key { place: at, version: *version }))
        };
        (0..).zip(&self.places).filter_map(id)
    }
}

#[expect(clippy::expect_used, reason = "the caller knows that the entry is there")]
impl<I: Id, T> Index<I> for Named<I, T> {
    type Output = T;

    fn index(&self, id: I) -> &T {
        self.get(id).expect("the entry was not removed")
    }
}

#[expect(clippy::expect_used, reason = "the caller knows that the entry is there")]
impl<I: Id, T> IndexMut<I> for Named<I, T> {
    fn index_mut(&mut self, id: I) -> &mut T {
        self.get_mut(id).expect("the entry was not removed")
    }
}

#[cfg(test)]
mod tests {
    use super::super::ids::LockId;
    use super::*;

    #[test]
    fn id_names_its_entry_until_removal() {
        let mut table = Table::<LockId, char>::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!((table.get(a), table.get(b), table.len()), (Some(&'a'), Some(&'b'), 2));
        assert_eq!((table.remove(a), table.remove(a), table.get(a)), (Some('a'), None, None));
        let c = table.insert('c');
        assert_ne!(a, c, "the place is the same");
        assert_eq!((table.get(a), table.get(c), table.len()), (None, Some(&'c'), 2));
        assert!(!table.contains(LockId::default()));
    }

    #[test]
    fn cleared_table_has_no_old_ids() {
        let mut table = Table::<LockId, u32>::default();
        let former: Vec<LockId> = (0..10).map(|entry| table.insert(entry)).collect();
        table.clear();
        let present: Vec<LockId> = (0..10).map(|entry| table.insert(entry)).collect();
        assert!(former.iter().all(|id| !table.contains(*id)));
        assert_eq!((table.len(), table.ids().count()), (10, 10));
        assert!(present.iter().all(|id| table.contains(*id)));
    }

    #[test]
    fn id_survives_conversion_to_a_number() {
        let mut table = Table::<LockId, ()>::default();
        let first = table.insert(());
        table.remove(first);
        let id = table.insert(());
        assert_eq!(LockId::of_number(id.number()), id);
        assert_ne!(first.number(), id.number());
    }
}
