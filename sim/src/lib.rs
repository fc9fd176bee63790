//! What would happen: discrete-event simulation of a plan.
