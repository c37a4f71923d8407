"""The only room that opens, maps, syncs, renames or unlinks files."""
