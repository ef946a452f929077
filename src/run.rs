//! Carries out a plan: launches arms, runs cells, writes the log, derives tables and the report.
