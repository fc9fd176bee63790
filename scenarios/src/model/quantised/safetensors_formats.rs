//! The formats of a published safetensors checkpoint by class.
