"""Export messages to lake tables and JSON Lines.

Each task writes a range of the log into files. One commit adds these files to the table. The commit also records a mark
for each log: the offset up to which it has been exported.
"""
