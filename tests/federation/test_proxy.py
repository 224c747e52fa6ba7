"""The recipe for several machines, over loopback: only SuperNodes with a registered key get in."""

import contextlib
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from federation_loop import in_process, settings
from strangers import Stranger

from fedbandit_envs.federation import launch
from fedbandit_envs.federation.isolation import listens
from fedbandit_envs.federation.programs import Programs, free_ports
from fedbandit_envs.federation.settings import write_app, write_toml

pytestmark = [pytest.mark.flower, pytest.mark.filterwarnings("default")]  # Flower's warnings are not ours
pytest.importorskip("flwr")
if shutil.which("nginx") is None:
    pytest.skip("needs nginx", allow_module_level=True)

HOST = launch.HOST
CONF = Path(launch.__file__).with_name("nginx.conf")
OF = settings(num_agents=2, num_arms=10, max_cycles=13)


class Server:
    """A SuperLink on one port, whose control only the operator knows, and nginx on another, which strangers know."""

    def __init__(self, programs: Programs, folder: Path):
        from fedbandit_envs.federation.keys import client_key, new_certificate

        self.programs, self.folder = programs, folder
        self.inside, self.outside, *self.own = free_ports(4, HOST)
        self.certificate, key = new_certificate(folder, HOST)
        self.environment = launch._environment(folder / "flower")
        self.keys = [client_key(folder / f"client{number}") for number in range(2)]
        connection = {"address": f"{HOST}:{self.inside}", "root-certificates": str(self.certificate)}
        write_toml(folder / "flower" / "config.toml", {"superlink": {"default": "here", "here": connection}})
        command = ["flower-superlink", "--host", HOST, "--port", str(self.inside), "--enable-supernode-auth"]
        command += ["--ssl-certfile", str(self.certificate), "--ssl-keyfile", str(key)]
        command += ["--ssl-ca-certfile", str(self.certificate), "--disable-runtime-dependency-installation"]
        programs.start("superlink", command, self.environment)
        self._start_nginx(key)
        while not (listens(programs, HOST, self.inside) and listens(programs, HOST, self.outside)):
            assert not programs.ended(), programs.log("superlink") + programs.log("nginx")
            time.sleep(0.2)
        for private, _ in self.keys:
            self.control("supernode", "register", f"{private}.pub")

    def _start_nginx(self, key: Path) -> None:
        (self.folder / "nginx").mkdir()
        text = CONF.read_text()
        comment, _, text = text.partition("\n\n")
        names = {
            "SERVER_NAME": "localhost",
            "PUBLIC_PORT": f"{HOST}:{self.outside}",
            "SUPERLINK": f"{HOST}:{self.inside}",
        }
        names |= {"CERTIFICATE": str(self.certificate), "KEY": str(key), "FOLDER": str(self.folder / "nginx")}
        for name, value in names.items():
            assert name in comment
            text = text.replace(name, value)
        text = text.replace("certificate CA;", f"certificate {self.certificate};")
        (self.folder / "nginx.conf").write_text(text)
        self.programs.start(
            "nginx", ["nginx", "-c", str(self.folder / "nginx.conf"), "-g", "daemon off;"], dict(os.environ)
        )

    def control(self, *words: str) -> str:
        """What only the operator can do, on the machine of the server."""
        done = subprocess.run(
            [Path(sys.executable).with_name("flwr"), *words, "here"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start_node(self, number: int) -> None:
        node = launch.write_node(self.folder / f"client{number}", [number])
        command = ["flower-supernode", "--superlink", f"{HOST}:{self.outside}", "--host", HOST]
        command += ["--root-certificates", str(self.certificate), "--port", str(self.own[number])]
        command += ["--auth-supernode-private-key", str(self.keys[number][0]), "--node-config", str(node)]
        self.programs.start(f"client-{number}", command, self.environment)

    def status(self, path: str) -> int:
        """What nginx answers to a stranger who asks for a path."""
        trusted = ssl.create_default_context(cafile=str(self.certificate))
        connection = http.client.HTTPSConnection(HOST, self.outside, context=trusted, timeout=20)
        with contextlib.closing(connection):
            connection.request("POST", path, body=b"")
            return connection.getresponse().status


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Programs(tmp_path / "logs") as programs:
        yield Server(programs, tmp_path)


def test_honest_nodes_run_to_the_end_through_the_proxy(server: Server) -> None:
    out = server.folder / "server"
    out.mkdir()
    owners = {fingerprint: [number] for number, (_, fingerprint) in enumerate(server.keys)}
    config = {**OF.config(), "owners": json.dumps(owners), "timeout": 60.0, "folder": str(out)}
    write_app(server.folder / "app", config)
    for number in range(2):
        server.start_node(number)
    server.control("run", str(server.folder / "app"))
    deadline, text = time.monotonic() + 200, ""
    while "done" not in text and "error" not in text and time.monotonic() < deadline:
        text = (out / "progress.jsonl").read_text() if (out / "progress.jsonl").exists() else ""
        time.sleep(0.5)
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines[-1] == {"done": True}, text + server.programs.log("client-0")
    assert lines[-2]["step"] == in_process(OF).steps[-1] == 13
    assert [line["faults"] for line in lines if "turn" in line] == [[], [], []]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/v1/fleet/register-node",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "/v1/fleet/..%2fcontrol%2fstart-run",
        "/v1/fleet/pull-messages/../../control/start-run",
        "//v1//control//start-run",
        "/docs",
    ],
)
def test_the_proxy_passes_no_other_path(server_for_paths: Server, path: str) -> None:
    before = server_for_paths.programs.log("superlink", 10**6)
    assert server_for_paths.status(path) in (400, 403, 404)
    assert server_for_paths.programs.log("superlink", 10**6) == before  # the SuperLink has not seen it
    assert server_for_paths.status("/v1/fleet/activate-node") in (400, 401, 415, 422)  # the SuperLink answers these


@pytest.fixture(scope="module")
def server_for_paths(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("paths")
    with Programs(folder / "logs") as programs:
        yield Server(programs, folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can try it as another user")
def test_a_stranger_with_the_certificate_gets_neither_code_nor_a_node(server: Server, place: Path) -> None:
    from fedbandit_envs.federation.keys import client_key

    stranger = Stranger(place)
    shutil.copy(server.certificate, stranger.home / "ca.crt")
    key, _ = client_key(stranger.home / "mine")
    connection = {"address": f"{HOST}:{server.outside}", "root-certificates": str(stranger.home / "ca.crt")}
    write_toml(stranger.home / "config.toml", {"superlink": {"default": "here", "here": connection}})
    subprocess.run(["chown", "-R", "nobody:nogroup", str(stranger.home)], check=True)
    submitted = stranger.calls("flwr", "run", str(stranger.home / "app"), "here")
    registered = stranger.calls("flwr", "supernode", "register", f"{key}.pub", "here")
    node = ["timeout", "20", "flower-supernode", "--superlink", f"{HOST}:{server.outside}", "--max-retries", "1"]
    node += ["--root-certificates", str(stranger.home / "ca.crt"), "--host", HOST, "--port", str(free_ports(1)[0])]
    stranger.calls(*node, "--auth-supernode-private-key", str(key))
    without_key = stranger.calls(*node)
    assert "403 Forbidden" in submitted.stdout + submitted.stderr
    assert "403 Forbidden" in registered.stdout + registered.stderr
    assert "403 Forbidden" in without_key.stderr  # it tried to register a key that it has made itself
    assert "No SuperNode found with the given public key" in server.programs.log("superlink", 10**6)
    nodes = json.loads(server.control("supernode", "list", "--format", "json"))["nodes"]
    assert len(nodes) == 2
    assert {one["status"] for one in nodes} == {"registered"}  # nobody has come as one of the two
    assert json.loads(server.control("list", "--format", "json"))["runs"] == []
    assert not stranger.mark.exists()
