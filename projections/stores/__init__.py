"""The stores: DynamoDB (the one place that imports boto3 and translates its errors) and memory; both answer alike."""
