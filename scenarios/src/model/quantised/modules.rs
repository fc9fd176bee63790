//! The modules of a safetensors checkpoint, with the values of their matrices.
