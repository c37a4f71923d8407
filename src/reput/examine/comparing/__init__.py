"""Provide the parts of a comparison of two stores. `reput.examine.diff` joins them."""
