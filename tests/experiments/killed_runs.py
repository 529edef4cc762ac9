"""Runs of one configuration that are killed, and what they leave."""

import json
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from killing import NEVER, Death, End, Killer

TRAFFIC = """# end: 70.0
time,vehicle,kind
1.0,a,join
1.0,b,join
1.0,c,join
1.0,d,join
1.0,e,join
15.0,a,leave
20.0,f,join
30.0,b,leave
40.0,g,join
50.0,c,leave
60.0,a,join
"""
CONFIG = """
name: killed
mobility: {source: trace, trace: traffic.csv, warmup: 10, participation: 1.0}
clients: {initial: 5, pool: 7}
data: {test_share: 0.85}
fisher: {kind: diagonal}
learning: {model: small-cnn, epochs: 2, lr: 0.05, batch: 16}
rounds: {rounds: 2}
editing: {requests: 6, rho: 0.8, methods: [fsosa, federaser]}
"""
WORKERS = "execution: {kind: processes, workers: 1}\n"
DRAWN = "testbed run"
SEED, JOURNAL = "/seed=0", ".seed=0.journal"
# What differs from run to run, or says that one was stopped.
OTHERWISE = ("wall_s", "resumed", "store")


@dataclass(frozen=True)
class Place:
    """A configuration that is run in several results folders, and killed there."""

    killer: Killer
    folder: Path
    config: str = CONFIG

    def out(self, name: object) -> Path:
        return self.folder / str(name)

    def start(self, name: object, death: Death = NEVER, command: str = "run") -> End:
        """Run the configuration in a results folder; nothing outlives it."""
        path = self.folder / "killed.yaml"
        path.write_text(self.config)
        (self.folder / "traffic.csv").write_text(TRAFFIC)
        end = self.killer.start(path, self.out(name), death, command)
        assert end.orphans == ()
        return end

    def kill(self, name: object, death: Death, command: str = "run") -> None:
        end = self.start(name, death, command)
        assert end.code == -(signal.SIGXFSZ if death.size else signal.SIGKILL), end.told

    def finish(self, name: object, command: str = "run") -> None:
        end = self.start(name, command=command)
        assert end.code == 0, end.told

    def finish_by_deaths(self, name: object, deaths: Iterator[Death]) -> int:
        """Kill run after run until one ends first; return how many were killed."""
        for killed, death in enumerate(deaths):
            end = self.start(name, death)
            if not end.killed:
                assert end.code == 0, end.told
                return killed
        raise AssertionError

    @cached_property
    def steps(self) -> int:
        """How many changes of files there are in a run that is not killed."""
        return self.start("whole").steps

    @cached_property
    def whole(self) -> dict[str, bytes]:
        """What a run leaves that is not killed."""
        assert self.steps
        return left(self.out("whole"))

    def named(self, method: str, name: str) -> bytes:
        """Return a file of a run that is not killed."""
        (found,) = (
            content
            for path, content in self.whole.items()
            if path.startswith(method) and path.endswith(f"/{name}")
        )
        return found

    def check(self, name: object) -> None:
        """Compare what a killed run has left in the end with what one leaves that is not."""
        found = left(self.out(name))
        assert found.keys() == self.whole.keys()
        assert [path for path in found if found[path] != self.whole[path]] == []


def left(out: Path) -> dict[str, bytes]:
    """Return every file in a results folder, hidden ones too; of a manifest what is exact."""
    found = {}
    for path in sorted(out.rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            if path.name == "manifest.json":
                manifest = json.loads(content)
                manifest["config"].pop("execution")
                content = json.dumps(
                    {key: manifest[key] for key in manifest if key not in OTHERWISE}
                ).encode()
            found[str(path.relative_to(out))] = content
    assert any(path.endswith("/model.safetensors") for path in found)
    return found


def manifests(out: Path) -> dict[str, dict[str, object]]:
    return {
        path.parents[1].name.partition("-")[0]: json.loads(path.read_text())
        for path in out.glob("*/seed=0/manifest.json")
    }


def journals(out: Path) -> dict[str, Path]:
    return {path.parent.name.partition("-")[0]: path for path in out.glob("*/.*.journal")}
