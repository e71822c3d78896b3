"""Entry points of the Lambda functions: wired once per cold start, and nothing else."""
