"""Open, map, sync, rename and delete files. No other package of reput does this."""
