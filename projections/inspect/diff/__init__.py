"""What a change of rules means: for what is stored, for who writes what, for the deployment, and what it costs."""
