"""Rules on a live stream: the deployed functions in this process, with reports of each record and each write."""
