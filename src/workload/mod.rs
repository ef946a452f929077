//! What to ask. A workload turns one cell of the plan into requests; it knows nothing of transport.
