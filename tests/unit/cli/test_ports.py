from __future__ import annotations

import argparse
import errno
import os
import socket

import pytest

from gantry.cli.ports import explain_listen_error, holder_of, port_number
from gantry.errors import ConfigError


def _listen_error(port: int, number: int = errno.EADDRINUSE) -> ConfigError:
    error = ConfigError(f"cannot listen on 127.0.0.1:{port}: {os.strerror(number)}")
    error.__cause__ = OSError(number, os.strerror(number))
    return error


def test_the_holder_of_a_port_is_named_with_the_flag_to_choose_another() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        text = str(explain_listen_error(_listen_error(port), {"--broker-port": port}))
        assert f"(pid {os.getpid()})" in text
        assert f"port {port}" in text
        assert "--broker-port" in text


def test_a_port_nobody_holds_has_no_holder() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, and never listening
        assert holder_of(bound.getsockname()[1]) is None


def test_other_troubles_with_a_port_stay_as_they_are() -> None:
    error = _listen_error(80, errno.EACCES)
    assert explain_listen_error(error, {"--broker-port": 80}) is error


@pytest.mark.parametrize("text", ["65536", "99999", "-1", "many", "", "1.5", "--1"])
def test_what_is_no_port_is_told_and_not_taken_modulo(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="65535"):
        port_number(text)


@pytest.mark.parametrize("text", ["-1", "0", "9876", "65535"])
def test_a_port_is_a_number(text: str) -> None:
    assert port_number(text, low=-1) == int(text)
