//! The experiment file: YAML types, parse with spans, axes, arms and the plan.
