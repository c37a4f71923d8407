"""Render HTML pages of commands; pages need no network, no script and no other file."""
