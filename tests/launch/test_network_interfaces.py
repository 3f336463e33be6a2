import ipaddress

import psutil

from dragoman.launch.network_interfaces import addresses, interface_towards


def test_loopback_and_link_local_addresses_are_left_out():
    for interface, address in addresses():
        assert interface in psutil.net_if_addrs()
        assert not ipaddress.ip_address(address).is_loopback
        assert not ipaddress.ip_address(address).is_link_local


def test_no_interface_leads_to_this_machine_or_to_an_unknown_host():
    assert interface_towards("127.0.0.1") is None
    assert interface_towards("no-such-host.invalid") is None
