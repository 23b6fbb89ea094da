"""Base of the groups of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Base of every configuration group: immutable, unknown keys refused, nothing converted (`true` is no number)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
