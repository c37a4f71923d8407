"""Read what only RocketMQ 5 has: timers, compacted topics, tiered storage."""
