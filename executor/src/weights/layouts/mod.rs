//! Matrices that a file keeps in another form than the model's own tensors: all experts in one
//! tensor, or numbers of few bits with their scales in other tensors.

pub(super) mod scaled;
pub(super) mod stacked;
