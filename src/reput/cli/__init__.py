"""The `reput` command: options in, text out. One command per file, no logic in them."""
