"""Message classes and enums of messaging.proto, from the descriptors that protoc wrote when the distribution was built.

They are in a descriptor pool of their own.  protoc's own Python code would register them in the pool of the process,
where RocketMQ's client for Python registers messages of the same names: the second one would fail.

    from gantry.proxy import messaging_pb2 as pb
    pb.Status(code=pb.OK)

The types for mypy are in messaging_pb2.pyi, which protoc writes too.
"""

from __future__ import annotations

from pathlib import Path

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_FILE = Path(__file__).with_name("messaging.binpb")


def _load() -> DescriptorPool:
    pool = DescriptorPool()
    found = descriptor_pb2.FileDescriptorSet.FromString(_FILE.read_bytes())
    for file in found.file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


DESCRIPTOR = _load().FindFileByName("messaging.proto")
for _name, _message in DESCRIPTOR.message_types_by_name.items():
    globals()[_name] = message_factory.GetMessageClass(_message)
for _name, _enum in DESCRIPTOR.enum_types_by_name.items():
    globals()[_name] = EnumTypeWrapper(_enum)
    for _value in _enum.values:
        globals()[_value.name] = _value.number
