"""`dragoman launch`: set up the hosts over ssh, then run the workers in a static or an elastic world."""

from dragoman.launch.agents import Agents
from dragoman.launch.elastic_launcher import ElasticLauncher
from dragoman.launch.host_output import HostOutput
from dragoman.launch.host_preparation import LinkCheck, set_up_hosts
from dragoman.launch.launch_request import LaunchRequest
from dragoman.launch.ssh import SshClient
from dragoman.launch.static_launcher import StaticLauncher


def launch(request: LaunchRequest, client: SshClient, view: HostOutput, check_links: LinkCheck) -> str:
    """Train on several machines. Returns the reason for the end: `finished`, `interrupted`, `diverged`."""
    with Agents(request.machines, client) as agents:
        placement = set_up_hosts(request, client, agents, view, check_links)
        view.label(list(placement.labels().values()))
        if request.elastic:
            return ElasticLauncher(request, agents, client, placement, view).run()
        return StaticLauncher(request, agents, placement, view).run()
