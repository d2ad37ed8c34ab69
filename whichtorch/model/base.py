"""What all nouns are made of: frozen models, the form of what is stored, and digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from whichtorch.base.redaction import restored

SCHEMA = 1  # of records and of --json; raised when a reader would misunderstand the new form

# as it is stored, a path may begin with ~ and hide a user's name: whoever reads it gets one that can be opened
StoredPath = Annotated[Path, AfterValidator(restored)]


class Model(BaseModel):
    """Base of all nouns: frozen, and strict about names so that a typo is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class OpenModel(Model):
    """Base of the facts that an attempt or a probe keeps: only fields that were set, and those it does not know.

    A record of an older or newer version is therefore read, and written again with the same fields.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True, serialize_by_alias=True)

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields = type(self).model_fields
        names = {fields[name].serialization_alias or name if name in fields else name for name in self.model_fields_set}
        return {name: value for name, value in write(self).items() if name in names}

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Mapping[str, Any], handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the schema of the fields, which the serializer would hide."""
        return handler({name: value for name, value in schema.items() if name != "serialization"})


def digest(value: object, length: int = 12) -> str:
    """Return the first `length` hex digits of the SHA-256 of `value` written as canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:length]
