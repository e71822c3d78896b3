"""The stores: DynamoDB and memory. Both give the same answers."""
