"""Pictures and accounts of what a run did."""
