"""Export messages to lake tables and JSON Lines.

Tasks write ranges of the log into files. One commit adds these files to the table, together with the marks up to which
each log has been exported.
"""
