"""Rules → what has to be deployed for them: a SAM template, and whether a template agrees."""
