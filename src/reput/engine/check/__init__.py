"""Inspect the files of a store, and check that they match each other."""
