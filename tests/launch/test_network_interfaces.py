import ipaddress

import psutil

from dragoman.launch.network_interfaces import addresses, interface_towards


def test_only_addresses_that_others_can_reach_are_named():
    for interface, address in addresses():
        assert interface in psutil.net_if_addrs()
        assert not ipaddress.ip_address(address).is_loopback
        assert not ipaddress.ip_address(address).is_link_local


def test_the_way_to_oneself_needs_no_interface():
    assert interface_towards("127.0.0.1") is None
    assert interface_towards("no-such-host.invalid") is None
