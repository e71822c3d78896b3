"""Rules → what has to be deployed for them: a SAM template, a manifest for other tools, and whether a template agrees."""
