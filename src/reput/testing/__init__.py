"""What other projects may test with: messages and logs to begin from, strategies of Hypothesis, a disk that forgets.

builders        a message, a CommitLog of messages
strategies      hypothesis strategies: hosts, texts, whole messages
forgetful_disk  a disk that loses, when the power is cut, what was not synced
"""
