//! The loops that show what a memory can do.
