"""Provide the parts of a comparison of two stores. `reput.wings.inspect.diff` joins them."""
