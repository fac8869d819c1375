//! Boxes whose content is made where it stays. `Box::new` and `Box::pin` make it on the stack and copy it: of a future all
//! the room that it may ever need, kilobytes that hold nothing yet, over memory that the core does not have at hand.

use std::pin::Pin;

/// What `make` makes, in a box.
#[inline]
pub fn boxed<T>(make: impl FnOnce() -> T) -> Box<T> {
    // In this order: what is made after there is a place for it is made there.
    Box::write(Box::new_uninit(), make())
}

/// The same of a future.
#[inline]
pub fn pinned<T>(make: impl FnOnce() -> T) -> Pin<Box<T>> {
    Box::into_pin(boxed(make))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn what_is_made_is_in_the_box() {
        assert_eq!(*boxed(|| [7_u8; 4_096]), [7; 4_096]);
        let mut future = pinned(|| async { 7 });
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(7));
    }
}
