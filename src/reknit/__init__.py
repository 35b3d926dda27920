"""An event fabric: every event arrives, or you are told why."""

__version__ = "0.1.0"

__all__ = ["__version__"]
