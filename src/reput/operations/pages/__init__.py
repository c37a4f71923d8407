"""HTML pages of commands, which need no network, no script and no other file."""
