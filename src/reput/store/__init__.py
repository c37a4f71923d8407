"""RocketMQ's nouns: CommitLog, ConsumeQueue, IndexFile, checkpoint, and the store that contains them."""
