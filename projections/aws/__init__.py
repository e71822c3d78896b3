"""AWS beside the items of DynamoDB: clients, queues, buckets, metrics, functions, stacks; the wiring of functions."""
