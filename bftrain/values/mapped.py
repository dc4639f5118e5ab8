"""Values that hold mappings: read-only inside, and yet able to travel to another process."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import msgspec

# Where a mapping is not given; one object for all, so that a comparison shows that nothing has to be checked
NOTHING: Final[MappingProxyType[str, Any]] = MappingProxyType({})


class Mapped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A value with mappings: read-only views cannot be pickled, so they travel as the plain dicts they view."""

    def __reduce__(self) -> tuple[object, ...]:
        """Give what makes an equal value: its class and its fields."""
        fields = {
            name: dict(content) if isinstance(content, MappingProxyType) else content
            for name, content in msgspec.structs.asdict(self).items()
        }
        return (_made_of, (type(self), fields))


def _made_of(kind: type[Mapped], fields: dict[str, object]) -> Mapped:
    return kind(**fields)
