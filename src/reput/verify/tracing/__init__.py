"""The parts of a trace; `reput.verify.trace` joins them."""
