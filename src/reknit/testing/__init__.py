"""A fabric in one thread with virtual time and a fault plan made from a seed: for reknit's own tests and for yours."""
