"""Who may speak for which agents: the run's configuration lists the key of each client and the agents that it has."""

import base64
import binascii
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedbandit_envs.arrays import IntArray
from fedbandit_envs.federation.audit_trail import Refusal
from fedbandit_envs.federation.texts import shown
from fedbandit_envs.rounds.blocks import checked_rows

_MOST_STRANGERS = 1000  # how many unknown keys are recorded; a stranger can make new keys without end


class Owners:
    """The agents of each key. Nobody can claim an agent: what a client says of itself must agree with this list.

    Args:
        agents: for each key the numbers of its agents, in the order in which the client has them.
        num_agents: the number of agents, M.
        audit: a function that is called with each refusal.

    >>> owners = Owners({"SHA256:one": [0, 2], "SHA256:two": [1]}, num_agents=3, audit=print)
    >>> owners.connected({17: "SHA256:two", 18: "SHA256:mine"}, round=4)
    Refusal(who='SHA256:mine', agents=(), round=4, reason='its key speaks for no agent of this run')
    {'SHA256:two': 17}
    """

    def __init__(self, agents: Mapping[str, Sequence[int]], num_agents: int, audit: Callable[[Refusal], None]):
        rows = checked_rows(list(agents.values()), num_agents, name="owners")
        self.agents: dict[str, IntArray] = dict(zip(agents, rows, strict=True))
        self._audit = audit
        self._strangers: set[str] = set()

    def connected(self, nodes: Mapping[int, str], round: int) -> dict[str, int]:
        """The nodes whose keys are listed, by key. All others are recorded, each key once."""
        found: dict[str, int] = {}
        for node, key in sorted(nodes.items()):
            if key in self.agents:
                found[key] = node  # a client that comes back gets a larger number: the newest counts
            elif key not in self._strangers and len(self._strangers) < _MOST_STRANGERS:
                self._strangers.add(key)
                self._audit(Refusal(shown(key), (), round, "its key speaks for no agent of this run"))
        return found

    def record(self, failed: Mapping[str, str], round: int) -> None:
        """Record why the replies of these keys were not used."""
        for key, reason in failed.items():
            self._audit(Refusal(key, self.agents[key].tolist(), round, reason))


def key_fingerprint(public_key: str) -> str:
    """The fingerprint of a public key in the form of OpenSSH, as `ssh-keygen -l -f node0.pub` shows it.

    Args:
        public_key: the content of the file, such as "ecdsa-sha2-nistp384 AAAA... comment".

    >>> key_fingerprint("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
    'SHA256:kmYcvdi2GkPeWxB6XLjrZB8JHsy2Hm8luHMFp9GMvqk'
    """
    try:
        content = base64.b64decode(public_key.split()[1], validate=True)
    except (IndexError, binascii.Error, ValueError) as error:
        raise ValueError(
            f"public key: expected a line of OpenSSH such as 'ecdsa-sha2-nistp384 AAAA...', got {shown(public_key)}"
        ) from error
    return "SHA256:" + base64.b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")


def owners_of(config: Mapping[str, Any]) -> dict[str, list[int]]:
    """The entry "owners" of a run's configuration: for each fingerprint of a key a list of agents, as JSON.

    >>> owners_of({"owners": '{"SHA256:one": [0, 2]}'})
    {'SHA256:one': [0, 2]}
    """
    text = str(config.get("owners") or "")
    try:
        owners = json.loads(text)
    except (ValueError, RecursionError):
        owners = None
    if not isinstance(owners, dict) or not owners:
        raise ValueError(
            'run-config: expected for "owners" the agents of each SuperNode\'s key as JSON, such as '
            f'{{"SHA256:...": [0, 1]}}, got {shown(text)}; ssh-keygen -l -f node0.pub shows the fingerprint of a key'
        )
    return owners
