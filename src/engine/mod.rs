//! Our own inference engine: one thread that steps, admit → schedule → forward → sample → emit.
