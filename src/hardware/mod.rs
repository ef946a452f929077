//! What machine this is: provenance, samples, doctor.
