"""Define the `reput` command. Each command has a file, which only converts options to arguments and results to text."""
