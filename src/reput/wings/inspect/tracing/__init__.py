"""Provide the parts of a trace. `reput.wings.inspect.trace` joins them."""
