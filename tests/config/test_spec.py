"""The hash names an outcome: nothing else changes it, and everything that matters does."""

import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.config import Experiment, canonical, load, spec_hash
from testbed.config.spec import differences, keys

DEFAULT_HASH = "82eb6fa6"


def test_the_hash_of_the_defaults_is_pinned():
    # It names folders of results: a new value makes every finished run another experiment.
    assert spec_hash(Experiment()) == DEFAULT_HASH


def test_the_hash_is_the_same_in_another_process():
    code = "from testbed.config import *; print(spec_hash(Experiment()))"
    for salt in ("0", "1"):
        output = subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": salt},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert output.strip() == DEFAULT_HASH


@pytest.mark.parametrize(
    "override", ["name=other", "seeds=1,2", "execution.kind=processes", "execution.workers=3"]
)
def test_what_does_not_determine_the_outcome(override):
    assert spec_hash(load(None, [override]), "fsosa") == spec_hash(Experiment(), "fsosa")


CHOICES = {
    "fidelity": "cost",
    "mobility.source": "trace",
    "mobility.trace": "t.csv",
    "mobility.arrivals.stay": "log-normal",
    "mobility.schedule.kind": "mixed",
    "mobility.membership": "rsu",
    "mobility.rsu.x": 1.0,
    "mobility.rsu.y": 1.0,
    "mobility.rsu.radius": 250.0,
    "mobility.rsu.minimum_stay": 5.0,
    "mobility.rsu.grace": 5.0,
    "mobility.rsus": [{"name": "a", "x": 1.0, "y": 2.0, "radius": 250.0}],
    "mobility.domain": "separate",
    "mobility.follow": "a",
    "mobility.density": 2.0,
    "mobility.scale": 0.5,
    "mobility.warmup": 60.0,
    "mobility.end": 600.0,
    "mobility.backend": "traci",
    "clients.initial": 9,
    "data.name": "mnist",
    "data.path": "d",
    "data.labels": "d",
    "data.test_path": "d",
    "data.test_labels": "d",
    "data.attribute": "weather",
    "data.limit": 500,
    "data.test_limit": 500,
    "data.users": 0.5,
    "data.partition": "iid",
    "learning.model": "lenet",
    "learning.device": "cpu",
    "detection.image_size": 320,
    "detection.augment": "flip",
    "detection.optimiser": "adamw",
    "detection.weights": "w.pt",
    "detection.precision": "float32",
    "fisher.kind": "diagonal",
    "fisher.estimator": "sampled",
    "fisher.upload": "half",
    "fusion.preset": "paper",
    "editing.methods": ["retrain"],
    "editing.handling": "batch",
    "editing.below_subset": "strict",
    "network.preset": "itsg5",
    "network.downlink": "nr-dl-20",
    "network.fading": False,
    "network.sharing": "slots",
    "network.rate_mbps": 6.0,
    "network.bandwidth_mhz": 10.0,
    "network.frequency_ghz": 5.9,
    "network.power_dbm": 20.0,
    "network.gains_dbi": 6.0,
    "network.noise_figure_db": 7.0,
    "network.margin_db": 1.0,
    "network.alpha": 0.5,
    "network.cap": 3.0,
    "device.preset": "drive-agx-orin",
    "device.sigma": 0.3,
    "work.when": "prepared",
    "work.departure": "abort",
    "time.mode": "measured",
}
COMPANIONS = {
    "mobility.source": ["mobility.trace=t.csv"],
    "mobility.rsu.x": ["mobility.rsu.y=2"],
    "mobility.rsu.y": ["mobility.rsu.x=2"],
    "data.attribute": [
        "data.name=bdd100k",
        *(f"data.{key}=d" for key in ("path", "labels", "test_path", "test_labels")),
        "fisher.estimator=empirical",
    ],
}
DECISIVE = [
    key for key in keys() if key.split(".")[0] not in ("name", "scale", "seeds", "execution")
]


def another(key: str) -> object:
    """Return an allowed value of `key` that is not its default."""
    default = keys()[key].default
    if key in CHOICES:
        return CHOICES[key]
    if isinstance(default, str):
        return default + "x"
    return default + 1 if isinstance(default, int) else default / 2


def test_every_other_key_changes_the_hash():
    hashes = {spec_hash(Experiment())}
    for key in DECISIVE:
        overrides = [*COMPANIONS.get(key, []), f"{key}={json.dumps(another(key))}"]
        hashes.add(spec_hash(load(None, overrides)))
    assert len(hashes) == 1 + len(DECISIVE)


def test_a_cell_depends_on_its_method_and_not_on_the_others():
    alone, beside = (
        load(None, ["editing.methods=fsosa"]),
        load(None, ["editing.methods=retrain,fsosa"]),
    )
    assert spec_hash(alone, "fsosa") == spec_hash(beside, "fsosa") != spec_hash(beside, "retrain")
    assert spec_hash(alone) != spec_hash(beside)


def test_numbers_written_differently_are_the_same_number():
    assert spec_hash(load(None, ["learning.lr=1e-2"])) == spec_hash(
        load(None, ["learning.lr=0.010"])
    )
    assert spec_hash(load(None, ["mobility.density=2"])) == spec_hash(
        load(None, ["mobility.density=2.0"])
    )


def test_canonical_is_sorted_compact_and_reads_back():
    experiment = load(None, ["data.path=a/b", "seeds=3,1", "learning.lr=0.1"])
    text = canonical(experiment)
    assert (
        '"data":{"alpha":0.5,"attribute":"class","holdout":0.1,"labels":null,"limit":null,'
        '"minimum":2,"name":"digits","partition":"dirichlet","path":"a/b"' in text
    )
    assert '"lr":0.1,' in text
    assert text.startswith('{"clients":{"initial":null,"pool":100},')
    assert Experiment.model_validate(json.loads(text)) == experiment


@st.composite
def documents(draw):
    """Valid documents whose sections and keys stand in any order."""
    sections = {
        "editing": {
            "rho": draw(st.floats(0.05, 0.95)),
            "requests": draw(st.integers(1, 99)),
            "handling": draw(st.sampled_from(["sequential", "batch"])),
        },
        "data": {"alpha": draw(st.floats(0.01, 10)), "minimum": draw(st.integers(1, 9))},
        "network": {"rate_mbps": draw(st.floats(0.1, 1e4)), "latency_ms": draw(st.floats(0, 99))},
    }
    return sections


def shuffled(draw, mapping):
    return {
        key: shuffled(draw, value) if isinstance(value, dict) else value
        for key, value in draw(st.permutations(list(mapping.items())))
    }


@settings(deadline=None)
@given(st.data())
def test_the_order_of_keys_is_irrelevant(tmp_path_factory, data):
    document = data.draw(documents())
    again = shuffled(data.draw, document)
    folder = tmp_path_factory.getbasetemp()
    hashes = set()
    for each in (document, again):
        file = folder / "order.yaml"
        file.write_text(yaml.safe_dump(each, sort_keys=False), encoding="utf-8")
        hashes.add(spec_hash(load(file)))
    assert len(hashes) == 1


@settings(deadline=None)
@given(st.floats(0.05, 0.95), st.floats(0.05, 0.95))
def test_hashes_are_equal_exactly_when_the_experiments_are(a, b):
    first, second = load(None, [f"editing.rho={a!r}"]), load(None, [f"editing.rho={b!r}"])
    assert (spec_hash(first) == spec_hash(second)) == (a == b)


def test_differences_name_key_and_both_values():
    there, here = (
        Experiment(),
        load(None, ["editing.rho=0.3", "mobility.rsu.radius=250", "data.name=mnist", "seeds=1,2"]),
    )
    lines = differences(there.model_dump(mode="json"), here.model_dump(mode="json"))
    assert lines == [
        "data.name: digits there, mnist here",
        "editing.rho: 0.5 there, 0.3 here",
        "mobility.rsu.radius: unset there, 250.0 here",
        "seeds: [0] there, [1, 2] here",
    ]
    assert differences(there.model_dump(mode="json"), Experiment().model_dump(mode="json")) == []


def test_differences_with_a_key_of_another_version():
    assert differences({"a": {"b": 1}, "c": True}, {"a": 1}) == [
        'a: {"b": 1} there, 1 here',
        "c: true there, absent here",
    ]


def test_keys_are_dotted_leaves():
    assert list(keys())[:2] == ["name", "scale"]
    assert "mobility.rsu.radius" in keys()
    assert "mobility.rsu" not in keys()
