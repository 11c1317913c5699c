"""Compile gantry.leaves._fast where that is possible, and describe the messages of gantry.proxy.

Everything else stands in pyproject.toml.

The compiled leaves are an accelerator: the pure ones do the same work.  So a machine without a C
compiler, without Python's headers or without Cython gets a working installation, this script says in
one block what is missing, and every start of a broker says it again in one line.  With
GANTRY_COMPILED=required in the environment (CI, image builds) the build fails instead.

protoc (grpcio-tools) makes two files beside messaging.proto: messaging.binpb, a set of file descriptors that
`gantry.proxy.messaging_pb2` loads, and messaging_pb2.pyi, the types of its messages.  Without grpcio-tools (an sdist
brings the two files) they stay as they are.
"""

from __future__ import annotations

import importlib.resources
import os
import sys
from pathlib import Path

from setuptools import Extension, setup

HERE = Path(__file__).parent
FOLDER = Path("src/gantry/leaves/_fast")
MESSAGES = Path("src/gantry/proxy/messaging.proto")
REQUIRED = os.environ.get("GANTRY_COMPILED") == "required"
LINUX_ONLY = ("sockets", "sysio")  # a server's; _choice.py knows them as well
# Debug and sanitizer builds (make fuzz) bring their own flags through CFLAGS, which come after these.
C_FLAGS = ["-O2", "-fno-strict-aliasing", "-fwrapv"]


def extensions() -> list[Extension]:
    """One extension for each .pyx beside the pure leaves; none where Cython is missing."""
    sources = sorted((HERE / FOLDER).glob("*.pyx"))
    if sys.platform != "linux":
        sources = [source for source in sources if source.stem not in LINUX_ONLY]
    if not sources:
        return []
    try:
        from Cython.Build import cythonize
    except ImportError:
        if REQUIRED:
            raise
        complain("Cython is not installed")
        return []
    modules = [
        Extension(
            f"gantry.leaves._fast.{source.stem}",
            [str(FOLDER / source.name)],
            extra_compile_args=C_FLAGS,
            depends=[str(FOLDER / part.name) for part in (HERE / FOLDER).iterdir() if part.suffix in (".pxd", ".h")],
        )
        for source in sources
    ]
    made: list[Extension] = cythonize(
        modules, build_dir="build/cython", language_level=3, include_path=[str(HERE / "src")], quiet=True
    )
    for module in made:
        module.optional = not REQUIRED  # cythonize makes new ones and forgets this
    return made


def describe_messages() -> None:
    """Write messaging.binpb and messaging_pb2.pyi; nothing where grpcio-tools is missing and they are there."""
    described = MESSAGES.with_suffix(".binpb")
    try:
        from grpc_tools import protoc
    except ImportError:
        if described.exists():
            return
        raise
    folder = str(MESSAGES.parent)
    common = str(importlib.resources.files("grpc_tools") / "_proto")
    failed = protoc.main(
        [
            "protoc",
            f"-I{folder}",
            f"-I{common}",
            f"--descriptor_set_out={described}",
            "--include_imports",
            f"--pyi_out={folder}",
            MESSAGES.name,
        ]
    )
    if failed:
        raise SystemExit(f"{MESSAGES}: protoc ended with {failed}")


def complain(reason: str) -> None:
    """Say loudly that the installation will be slower than it could be."""
    rule = "*" * 78
    print(
        f"{rule}\ngantrymq: the compiled leaves are not built: {reason}.\n"
        "The broker works without them and is several times slower; install a C compiler and\n"
        f"Python's headers (Debian: apt-get install gcc python3-dev) and install again.\n{rule}",
        file=sys.stderr,
    )


os.chdir(HERE)
describe_messages()
setup(ext_modules=extensions())
