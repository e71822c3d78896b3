"""The language: key templates, patterns, expressions, rule models, loader, static analysis. It does not use AWS.

`models` and `loader` need pydantic and PyYAML, and run where rules are written. `program` compiles their document for
the engine and needs neither, so a Lambda function starts without them.
"""
