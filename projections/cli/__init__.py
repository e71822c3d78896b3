"""The command line: one module per command, imported when the command is called, so that `projections --help` is quick."""
