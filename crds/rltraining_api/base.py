"""What every model of the contract shares: camelCase outside, snake_case inside, frozen, unknown keys refused."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """A piece of the contract. Read newer objects with ``model_validate(data, extra="ignore")``."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True, use_attribute_docstrings=True
    )

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a manifest or in ``status``: camelCase, JSON types, without what is unset."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)
