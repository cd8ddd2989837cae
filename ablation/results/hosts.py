"""The machines of a file that several have played, by the names that its rows call them."""

from collections.abc import Mapping
from typing import Any


def name_host(machines: dict[str, Any], host: str, machine: Any) -> str:
    """What rows call a machine, which `machines` holds from then on; those of one name that are not alike are numbered.

    Example: a second machine "node" beside {"node": {"threads": 2}} that has 4 threads -> "node (2)".
    """
    number, name = 1, host
    while machines.setdefault(name, machine) != machine:
        number += 1
        name = f"{host} ({number})"
    return name


def machine_of(hosts: Mapping[str, Any]) -> Any:
    """What all are, where they are alike; else, and of none, an empty table."""
    machines = list(hosts.values())
    return machines[0] if machines and all(machine == machines[0] for machine in machines) else {}
