//! The only user of serde_yaml: bounded parsing with places in errors.
