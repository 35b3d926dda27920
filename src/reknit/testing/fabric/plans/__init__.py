"""Plans of whole fabrics: what runs in one, and what goes wrong, as a seed draws it.

Open `plan.py` first: it has every knob. `families.py` has plans for one kind of fault, `sizes.py` small and large ones.
"""
