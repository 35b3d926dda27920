"""uProtocol's attributes on events: what they are, how they are checked, and how they look in other formats."""
