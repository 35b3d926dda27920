"""Gateways: foreign protocols, translated into ours. They hold no delivery logic."""
