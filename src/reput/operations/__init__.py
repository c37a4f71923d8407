"""The operations of reput: each is one function that returns a printable report.

The command line, the console and programs call the same functions. They are public as `reput.check` and so on.
"""
