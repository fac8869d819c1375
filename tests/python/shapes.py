"""Compares JSON with the types of a vendor's own client, or with its service model, and says what differs.

The clients validate little themselves: most of their types let unknown members through, and some are not checked at
run time at all. Here a member that the type does not know is a difference, and so is one that is missing.
"""

import collections.abc
import datetime
import enum
import re
import types
import typing

import pydantic
import typing_extensions

MISSING, UNKNOWN, WRONG = "missing", "unknown", "wrong"
# Members by which variants are told apart: a variant that differs here is not meant.
TAGS = ("type", "role", "object", "event")


class Difference(typing.NamedTuple):
    path: str
    kind: str
    words: str
    # The name of the member, where that is what is missing or unknown.
    name: str = ""

    def __str__(self):
        return f"{self.path or 'the whole'}: {self.words}"


def differences(value, kind, path=""):
    """What keeps a value from being of a type."""
    kind = plain(kind)
    if kind in (typing.Any, object) or isinstance(kind, typing.TypeVar):
        return []
    if kind in (None, type(None)):
        return [] if value is None else [wrong(path, value, "null")]
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return best([differences(value, one, path) for one in arguments], path)
    if origin in (typing.Literal, typing_extensions.Literal):
        return [] if value in arguments else [wrong(path, value, f"one of {list(arguments)}")]
    if typing_extensions.is_typeddict(kind):
        return members(value, typed_members(kind), path, kind)
    if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel):
        return members(value, model_members(kind), path, kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        known = [member.value for member in kind]
        # Google's client reads its words in any case.
        same = value.upper() if isinstance(value, str) and "CaseInSensitiveEnum" in {one.__name__ for one in kind.__mro__} else value
        return [] if value in known or same in known else [wrong(path, value, f"one of {known}")]
    container = origin or kind
    if isinstance(container, type) and issubclass(container, collections.abc.Mapping):
        if not isinstance(value, dict):
            return [wrong(path, value, "an object")]
        inner = arguments[1] if len(arguments) == 2 else typing.Any
        return [found for name, each in value.items() for found in differences(each, inner, f"{path}.{name}")]
    if is_list(container):
        if not isinstance(value, list):
            return [wrong(path, value, "a list")]
        inner = arguments[0] if arguments else typing.Any
        return [found for place, each in enumerate(value) for found in differences(each, inner, f"{path}[{place}]")]
    return [] if is_scalar(value, kind) else [wrong(path, value, getattr(kind, "__name__", str(kind)))]


def plain(kind):
    """A type without what is said beside it."""
    while True:
        if isinstance(kind, typing_extensions.TypeAliasType):
            kind = kind.__value__
        elif isinstance(typing_extensions.get_origin(kind), typing_extensions.TypeAliasType):
            kind = typing_extensions.get_origin(kind).__value__[typing.get_args(kind)]
        elif typing_extensions.get_origin(kind) in (typing_extensions.Annotated, typing_extensions.Required, typing_extensions.NotRequired):
            kind = typing.get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        else:
            return kind


def is_list(container):
    if not isinstance(container, type) or issubclass(container, (str, bytes)):
        # A protocol of a client for "a list, but not a text".
        return getattr(container, "__name__", "") == "SequenceNotStr"
    return issubclass(container, collections.abc.Iterable) or container.__name__ == "SequenceNotStr"


def is_scalar(value, kind):
    if kind is bool:
        return isinstance(value, bool)
    if kind in (int, float):
        numbers = (int,) if kind is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if kind in (str, bytes, datetime.datetime):
        return isinstance(value, str)
    return False


def wrong(path, value, wanted):
    shown = repr(value)
    return Difference(path, WRONG, f"{shown if len(shown) < 80 else shown[:80] + '…'} is not {wanted}")


def best(found, path):
    """The differences to the variant that was meant: of the right kind, with the right tag, and the most like it."""

    tags = [f"{path}.{tag}" for tag in TAGS]

    def weight(differences):
        is_other = any(one.path == path and one.kind == WRONG for one in differences)
        tagged = sum(one.path in tags or one.path == path and one.name in TAGS for one in differences)
        return (is_other, tagged, len(differences))

    return min(found, key=weight)


def typed_members(kind):
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    required = set(kind.__required_keys__)
    for name, hint in hints.items():
        if typing_extensions.get_origin(hint) is typing_extensions.Required:
            required.add(name)
        elif typing_extensions.get_origin(hint) is typing_extensions.NotRequired:
            required.discard(name)
    return {name: (hint, name in required) for name, hint in hints.items()}


def model_members(kind):
    if not kind.__pydantic_complete__:
        kind.model_rebuild()
    return {
        field.alias or written_as(field) or name: (field.annotation, field.is_required())
        for name, field in kind.model_fields.items()
    }


def written_as(field):
    """The name of a member on the wire, where only a note on its type tells it."""
    return next((note.alias for note in field.metadata if isinstance(getattr(note, "alias", None), str)), None)


def members(value, known, path, kind):
    if not isinstance(value, dict):
        return [wrong(path, value, f"an object ({kind.__name__})")]
    found = []
    for name, (hint, required) in known.items():
        if name not in value:
            if required:
                found.append(Difference(path, MISSING, f"{name} is missing ({kind.__name__})", name))
        elif not (value[name] is None and not required and not isinstance(kind, typing._TypedDictMeta)):
            found += differences(value[name], hint, f"{path}.{name}")
    for name in value:
        if name not in known:
            found.append(Difference(path, UNKNOWN, f"{name} is unknown ({kind.__name__})", name))
    return found


def service_differences(value, shape, path=""):
    """The same for a shape of a service model of Amazon's."""
    if shape.type_name == "structure":
        if getattr(shape, "is_document_type", False):
            return []
        if not isinstance(value, dict):
            return [wrong(path, value, f"an object ({shape.name})")]
        found = [
            Difference(path, MISSING, f"{name} is missing ({shape.name})", name)
            for name in shape.required_members
            if name not in value
        ]
        if getattr(shape, "is_tagged_union", False) and len(value) != 1:
            found.append(wrong(path, sorted(value), f"one member of {shape.name}"))
        for name, inner in value.items():
            if name in shape.members:
                found += service_differences(inner, shape.members[name], f"{path}.{name}")
            else:
                found.append(Difference(path, UNKNOWN, f"{name} is unknown ({shape.name})", name))
        return found
    if shape.type_name == "list":
        if not isinstance(value, list):
            return [wrong(path, value, "a list")]
        each = [found for place, one in enumerate(value) for found in service_differences(one, shape.member, f"{path}[{place}]")]
        return size(value, shape, path) + each
    if shape.type_name == "map":
        if not isinstance(value, dict):
            return [wrong(path, value, "an object")]
        found = [one for name in value for one in service_differences(name, shape.key, f"{path}.{name}")]
        return found + [one for name, inner in value.items() for one in service_differences(inner, shape.value, f"{path}.{name}")]
    kinds = {"string": str, "blob": str, "boolean": bool, "integer": int, "long": int, "float": float, "double": float}
    if not is_scalar(value, kinds[shape.type_name]):
        return [wrong(path, value, shape.type_name)]
    if shape.type_name == "blob":
        return []
    found = size(value, shape, path)
    if shape.enum if shape.type_name == "string" else False:
        found += [] if value in shape.enum else [wrong(path, value, f"one of {shape.enum}")]
    pattern = shape.metadata.get("pattern")
    if pattern and isinstance(value, str) and not re.fullmatch(pattern, value):
        found.append(wrong(path, value, pattern))
    return found


def size(value, shape, path):
    length = value if isinstance(value, (int, float)) else len(value)
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if least is not None and length < least or most is not None and length > most:
        return [wrong(path, value, f"between {least} and {most}")]
    return []
