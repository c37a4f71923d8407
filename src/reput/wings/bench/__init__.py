"""Measure the speed of reput on the user's machine with the user's store: scan, rebuild, queries, look-up."""
