//! The compiler's messages for wrong handlers, which the tests compare.
