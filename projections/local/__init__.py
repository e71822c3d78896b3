"""What Lambda and SQS do with functions, done on this machine: event source mapping, queues, replay of recorded events."""
