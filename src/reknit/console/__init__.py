"""The web page of a node, and its figures as JSON: `reknit up --http` serves them at `/` and below `/api/v1/`.

`console.py` puts the parts together. The page is in `static/`: plain ES modules, no build step.
"""
