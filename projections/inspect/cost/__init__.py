"""What rules cost: write and read units, calls, Lambda time and dollars, by formulas or from a sample of events."""
