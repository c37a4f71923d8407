"""Measure the speed of reput with a user's store on the user's machine: scan, rebuild, queries, look-up."""
