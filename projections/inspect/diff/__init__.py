"""The consequences of a change of rules: for stored items, owners of attributes, the deployment, and its cost."""
