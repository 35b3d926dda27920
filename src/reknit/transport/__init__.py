"""How bytes get from one process to another. A transport knows frames and nothing else."""
