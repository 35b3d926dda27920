"""Programs with an identity and quotas: `tenants.py` is what one does, `doors.py` what it does at the gateways."""
