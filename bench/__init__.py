"""reknit beside its peers on this machine: `python -m bench --help`, method in `bench/README.md`."""
