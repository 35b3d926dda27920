"""blocking."""
