"""Compare the entries that belong to the messages of the log with the entries in a store's index files.

These operations use the package:

check, repair      compare every entry, explain each difference, and plan the repair
prove              finds the log ranges that an IndexFile covers (`proof`)
diff               pairs the entries of two stores
recover, rebuild   assign queue offsets to messages (`placement`)
"""
