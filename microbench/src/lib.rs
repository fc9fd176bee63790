//! How we learn what a machine can do.
