"""The parts of a comparison of two stores; `reput.verify.diff` joins them."""
