"""Putting messages: what is asked, checked, laid out and written at the end of the log."""
