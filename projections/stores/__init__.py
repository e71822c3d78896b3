"""The stores: DynamoDB (the one place that imports botocore and translates its errors) and memory; both answer alike."""
