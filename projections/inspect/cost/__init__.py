"""What rules cost: write and read units, calls, Lambda time and dollars, of generated changes or of a sample of events."""
