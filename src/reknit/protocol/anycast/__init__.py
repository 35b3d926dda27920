"""Anycast: each event goes to one of those who subscribe, wherever they are, and its outcome comes back."""
