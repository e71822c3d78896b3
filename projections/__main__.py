"""`python -m projections`: the command line."""

from projections.cli.main import main

main()
