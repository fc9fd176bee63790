//! CPU kernels with their references; the only unsafe code.
