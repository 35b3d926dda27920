"""Programs with an identity and quotas.

Begin with `tenants.py`: what one does. `doors.py` is what it does at the gateways.
"""
