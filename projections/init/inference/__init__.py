"""From the items of a sample and the description of their table to a proposal of rules. Pure: data in, data out."""
