"""What commands print that is more than a few lines."""
