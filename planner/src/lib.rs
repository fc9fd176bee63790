//! Where things go: cost model, ILP, plan, explanation.
