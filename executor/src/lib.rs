//! What does happen: a real transformer, run by a plan.
