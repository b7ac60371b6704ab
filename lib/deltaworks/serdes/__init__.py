"""Serdes: how keys and values become bytes, compatible with Kafka's own serializers.

Null never reaches a serde: a null key or value stays null.
"""

from deltaworks.serdes.base import Serde
from deltaworks.serdes.inference import serde_for
from deltaworks.serdes.json import Json
from deltaworks.serdes.primitives import Bytes, Double, Integer, Long, String
from deltaworks.serdes.windowed import SessionWindowed, TimeWindowed, Windowed

__all__ = [
    "Bytes",
    "Double",
    "Integer",
    "Json",
    "Long",
    "Serde",
    "SessionWindowed",
    "String",
    "TimeWindowed",
    "Windowed",
    "serde_for",
]
