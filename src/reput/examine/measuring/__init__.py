"""Provide the parts of a store's statistics. `reput.examine.stats` joins them."""
