"""The machines: pure state, no I/O. Time, randomness and input come in as arguments; effects go out as values."""
