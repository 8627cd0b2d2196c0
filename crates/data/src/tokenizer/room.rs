//! Room for the texts that are encoded at the same time.

use std::sync::{Condvar, Mutex, PoisonError};

/// A number of bytes that several threads share.
pub(super) struct Room {
    free: Mutex<usize>,
    freed: Condvar,
}

/// A part of a room, until it is dropped.
pub(super) struct Taken<'room> {
    room: &'room Room,
    bytes: usize,
}

impl Room {
    pub(super) const fn new(bytes: usize) -> Self {
        Room { free: Mutex::new(bytes), freed: Condvar::new() }
    }

    /// Waits until `bytes` are free, and takes them. There must not be more of them than the room has.
    pub(super) fn take(&self, bytes: usize) -> Taken<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let enough = self.freed.wait_while(free, |free| *free < bytes);
        *enough.unwrap_or_else(PoisonError::into_inner) -= bytes;
        Taken { room: self, bytes }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.room.free.lock().unwrap_or_else(PoisonError::into_inner) += self.bytes;
        self.room.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        thread,
    };

    use super::*;

    #[test]
    fn long_texts_wait_for_each_other_and_short_ones_do_not() {
        let room = Room::new(10);
        // This would wait for ever if only one could be there.
        drop((room.take(5), room.take(4), room.take(1)));

        let (in_use, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let encode = |bytes: usize| {
            let _taken = room.take(bytes);
            let now = in_use.fetch_add(bytes, Ordering::SeqCst) + bytes;
            most.fetch_max(now, Ordering::SeqCst);
            thread::yield_now();
            in_use.fetch_sub(bytes, Ordering::SeqCst);
        };

        let encode = &encode;
        thread::scope(|scope| {
            for bytes in [10, 6, 1, 6, 4, 3, 3, 0].repeat(20) {
                scope.spawn(move || encode(bytes));
            }
        });

        let most = most.into_inner();
        assert!(most <= 10, "{most} bytes were taken at once");
        assert_eq!(room.free.into_inner().unwrap(), 10);
    }
}
