"""Rule files that ship: `projections check social` and `--rules social` find them by name."""
