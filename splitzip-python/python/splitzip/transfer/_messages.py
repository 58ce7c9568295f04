"""What the two sides say to each other, as bytes. ``docs/wire.md`` has the tables and the order in which they come."""

from __future__ import annotations

import base64
import enum
import json
import struct
from typing import Any, NamedTuple

from .. import _splitzip
from ..errors import ArgumentError
from .engine import Memory
from .errors import TransferError

MAGIC = b"SPZT"
VERSION = 1
_HEADER = struct.Struct("<4sBBHQQQ")
_LANDED = struct.Struct("<IIIIQ")
_CREDIT = struct.Struct("<II")


class Kind(enum.IntEnum):
    """What a message is."""

    HELLO = 1
    WELCOME = 2
    REFUSED = 3
    START = 4
    ACCEPT = 5
    CREDIT = 6
    LANDED = 7
    DONE = 8
    FAILED = 9
    CANCELLED = 10
    ALIVE = 11
    BYE = 12


class Message(NamedTuple):
    """From which side to which, about which transfer."""

    kind: Kind
    to: int
    sender: int
    transfer: int = 0
    body: bytes = b""

    def pack(self) -> bytes:
        """As it goes over the wire."""
        return _HEADER.pack(MAGIC, VERSION, self.kind, 0, self.to, self.sender, self.transfer) + self.body

    @classmethod
    def unpack(cls, data: bytes) -> Message | None:
        """``None`` for what is no message of this version."""
        if len(data) < _HEADER.size:
            return None
        magic, version, kind, zero, to, sender, transfer = _HEADER.unpack_from(data)
        if (magic, version, zero) != (MAGIC, VERSION, 0) or kind not in Kind._value2member_map_:
            return None
        return cls(Kind(kind), to, sender, transfer, data[_HEADER.size :])


class Landed(NamedTuple):
    """A frame that is complete in a slot."""

    layer: int
    slot: int
    generation: int
    nbytes: int

    def pack(self) -> bytes:
        """The body of the message."""
        return _LANDED.pack(self.layer, self.slot, self.generation, 0, self.nbytes)

    @classmethod
    def unpack(cls, body: bytes) -> Landed | None:
        """``None`` for a body of another form."""
        if len(body) != _LANDED.size:
            return None
        layer, slot, generation, zero, nbytes = _LANDED.unpack(body)
        return cls(layer, slot, generation, nbytes) if zero == 0 else None


class Credit(NamedTuple):
    """A slot that may be written to. Whoever writes says the same generation again, so that nothing old passes for something new."""

    slot: int
    generation: int


def pack_credits(credits: list[Credit]) -> bytes:
    """The body of ACCEPT and of CREDIT."""
    return b"".join(_CREDIT.pack(*credit) for credit in credits)


def unpack_credits(body: bytes) -> list[Credit]:
    """An incomplete one at the end is left out."""
    whole = len(body) - len(body) % _CREDIT.size
    return [Credit(*pair) for pair in _CREDIT.iter_unpack(body[:whole])]


class Address(NamedTuple):
    """Where a receiver is, for whoever wants to send to it."""

    channel: int
    engine: str
    metadata: bytes
    slots: list[Memory]

    def pack(self) -> bytes:
        """Text of JSON, so that it can go through anything."""
        slots = [list(slot) for slot in self.slots]
        fields = {
            "splitzip": VERSION,
            "channel": self.channel,
            "engine": self.engine,
            "metadata": base64.b64encode(self.metadata).decode(),
            "slots": slots,
        }
        return json.dumps(fields).encode()

    @classmethod
    def unpack(cls, data: bytes) -> Address:
        """Raises :class:`ArgumentError` for what is no address."""
        try:
            fields = json.loads(data)
            version = fields["splitzip"]
            if version != VERSION:
                raise ArgumentError(f"the receiver speaks version {version} of the protocol, and this sender version {VERSION}; use the same package on both sides")
            slots = [Memory(int(at), int(size), None if device is None else int(device)) for at, size, device in fields["slots"]]
            return cls(int(fields["channel"]), str(fields["engine"]), base64.b64decode(fields["metadata"]), slots)
        except (KeyError, TypeError, ValueError) as error:
            if isinstance(error, ArgumentError):
                raise
            raise ArgumentError(f"this is no address of a receiver ({error}); give what Receiver.address says, as it is") from error


class Plan(NamedTuple):
    """What a transfer will bring: a form of frame for every layer."""

    #: Forms that differ.
    specs: list[_splitzip.Spec]
    #: For each layer the number of its form.
    layers: list[int]

    def pack(self) -> bytes:
        """The body of START."""
        specs = [[spec.tensors, spec.checksums, spec.arrival, spec.layout_id] for spec in self.specs]
        return json.dumps({"specs": specs, "layers": self.layers}).encode()

    @classmethod
    def unpack(cls, body: bytes) -> Plan:
        """Raises :class:`TransferError` for what is none."""
        try:
            fields = json.loads(body)
            specs = []
            for tensors, checksums, arrival, layout_id in fields["specs"]:
                described = [(name, number, dtype, scheme, bases, tuple(shape)) for name, number, dtype, scheme, bases, shape in tensors]
                specs.append(_splitzip.Spec(described, checksums, bool(arrival), layout_id))
            layers = [int(number) for number in fields["layers"]]
            if not all(0 <= number < len(specs) for number in layers):
                raise ValueError("a layer has a form that is not there")
            return cls(specs, layers)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise TransferError(f"the sender announced a transfer that cannot be read: {error}") from error

    def spec(self, layer: int) -> Any:
        """The form of a layer."""
        return self.specs[self.layers[layer]]
