"""The stores: DynamoDB and memory. Both answer alike."""
