"""The parts of a store's statistics; `reput.examine.stats` joins them."""
