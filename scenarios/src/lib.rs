//! What we ask: models, operators, workloads, objectives.
