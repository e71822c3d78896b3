"""One module per command. Each is imported when its command is called, so that `projections --help` is quick."""
