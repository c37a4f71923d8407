"""The operations of reput, one function each, which returns a report that prints itself.

The command line, the console and programs call the same functions. They are public as `reput.check` and so on.
"""
