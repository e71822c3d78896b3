"""Sizes of items and values in bytes, as DynamoDB counts them."""

from __future__ import annotations

from base64 import b64decode

from projections.language.values import Image, Value

__all__ = ["attribute_size", "item_size", "size"]


def item_size(image: Image) -> int:
    """Return the bytes of an item as DynamoDB counts them: names and values."""
    return sum(attribute_size(name, value) for name, value in image.items())


def attribute_size(name: str, value: Value) -> int:
    return _length(name) + size(value)


def size(value: Value) -> int:
    if "S" in value:
        return _length(value["S"])
    ((kind, content),) = value.items()
    match kind:
        case "N":
            return _number_size(content)
        case "B":
            return len(str(content)) * 3 // 4 - str(content).count("=")
        case "BOOL" | "NULL":
            return 1
        case "M":
            return 3 + sum(1 + _length(name) + size(each) for name, each in content.items())
        case "L":
            return 3 + sum(1 + size(each) for each in content)
        case "SS":
            return sum(map(_length, content))
        case "NS":
            return sum(map(_number_size, content))
    return sum(len(b64decode(each)) for each in content)


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _number_size(text: str) -> int:
    """Return about one byte for two digits, and one more: AWS documents only this."""
    digits = text.lstrip("-").replace(".", "").strip("0")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
