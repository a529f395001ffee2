"""Names that users import from ``rltraining``."""

from __future__ import annotations

import pytest
import rltraining


@pytest.mark.parametrize("name", rltraining.__all__)
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(rltraining, name).__name__ == name


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Trainer'"):
        rltraining.Trainer  # noqa: B018 - the access is tested
