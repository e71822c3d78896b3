"""Local imitations of Lambda and SQS: event source mapping, queues, replay of recorded events."""
