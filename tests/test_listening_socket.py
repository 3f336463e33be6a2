"""Ports that servers listen on."""

import socket

import pytest

from dragoman.errors import DragomanError
from dragoman.listening_socket import bind_socket, url_to_open


def test_the_url_of_a_server_on_all_addresses_has_the_name_of_this_machine():
    assert url_to_open("127.0.0.1", 80) == "http://127.0.0.1:80"
    assert url_to_open("::1", 80) == "http://[::1]:80"
    assert url_to_open("0.0.0.0", 80) == f"http://{socket.gethostname()}:80"


def test_a_port_in_use_is_reported_with_a_remedy():
    with bind_socket("127.0.0.1", 0) as listener:
        listener.listen()
        with pytest.raises(DragomanError, match="choose another --port"):
            bind_socket("127.0.0.1", listener.getsockname()[1])
