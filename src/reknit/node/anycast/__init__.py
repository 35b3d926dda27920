"""anycast."""
