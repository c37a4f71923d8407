"""Define the operations of reput: functions that return a printable report.

The command line, the console and programs call the same functions. They are public under names such as
`reput.check`.
"""
