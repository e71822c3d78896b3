"""The local loop: a table's stream is followed, and what is deployed does its work in this process, seen line by line."""
