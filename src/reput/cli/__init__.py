"""The `reput` command: options in, text out. One command per file; what they do is done in the rooms below."""
