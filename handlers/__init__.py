"""Entry points of the Lambda functions: wired once per cold start, and nothing else."""

import gc

# Imports allocate much and free nothing: collecting meanwhile is a tenth of a cold start. Each function enables it again.
gc.disable()
