"""Provide the parts of a trace. `reput.examine.trace` joins them."""
