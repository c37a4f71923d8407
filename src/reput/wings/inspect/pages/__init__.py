"""Render the HTML pages of commands. A page needs no network, no script and no other file."""
