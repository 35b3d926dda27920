"""Describes the resources below `/api/v1/` for programs, as an OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from reknit.console.resources import Resource


def describe(resources: Sequence[Resource], root: str, version: str) -> dict[str, Any]:
    """The OpenAPI document."""
    bodies = [one.body for one in resources if one.body is not None]
    schemas, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    by_body = dict(zip(bodies, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in resources:
        paths.setdefault(root + one.path, {})[one.method.lower()] = _operation(one, by_body)
    bearer = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "reknit", "version": version},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": bearer},
        "security": [{}, {"bearer": []}],
    }


def _operation(resource: Resource, by_body: dict[type[Any], dict[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "summary": resource.help,
        "parameters": [
            {"name": one.name, "in": "query", "description": one.help, "schema": one.schema()}
            for one in resource.parameters
        ],
        "responses": {
            "200": {"description": "The answer.", "content": {"application/json": {}}},
            "default": {
                "description": "What is wrong, as {code, error}.",
                "content": {"application/json": {}},
            },
        },
    }
    if resource.body is not None:
        made["requestBody"] = {"content": {"application/json": {"schema": by_body[resource.body]}}}
    return made
