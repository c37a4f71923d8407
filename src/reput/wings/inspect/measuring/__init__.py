"""Provide the parts of a store's statistics. `reput.wings.inspect.stats` joins them."""
