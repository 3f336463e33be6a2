"""Host headers that are accepted and refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.host_header import host_name, is_allowed

NAMES = frozenset({"translate.example.org"})


@pytest.mark.parametrize(
    "header",
    ["localhost", "LOCALHOST:8765", "app.localhost", "127.0.0.1", "127.0.0.1:80", "[::1]:8765", "[::1]",
     "192.168.1.7:1", "Translate.Example.org", "translate.example.org.:443"],
)  # fmt: skip
def test_local_names_addresses_and_own_names_are_allowed(header: str) -> None:
    assert is_allowed(host_name(header), NAMES)


@pytest.mark.parametrize(
    "header",
    ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "translate.example.org.evil", "[evil]", "",
     "[", "127.0.0.1@evil.example", "évil", "notlocalhost"],
)  # fmt: skip
def test_other_names_are_refused(header: str) -> None:
    assert not is_allowed(host_name(header), NAMES)
    assert is_allowed(host_name(header), {"*"})


@given(st.text(max_size=40))
def test_no_header_raises_an_error(header: str) -> None:
    is_allowed(host_name(header), NAMES)
