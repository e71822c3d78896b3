"""The language: key templates, patterns, expressions, rule models, loader, static analysis. Knows no AWS.

`models` and `loader` need pydantic and ruamel.yaml and run where rules are written; `program` compiles the document they
produce into what the engine executes and needs neither, so that a Lambda function starts without them.
"""
