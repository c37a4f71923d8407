"""The parts of a store's statistics; `reput.verify.stats` joins them."""
