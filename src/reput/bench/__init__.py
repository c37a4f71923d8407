"""Measure reput on a user's machine with a user's store: the machine's limits, scan, rebuild, queries, look-up."""
