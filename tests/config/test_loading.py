"""Files and ``--set`` values become an `Experiment`; mistakes become one line each."""

from pathlib import Path

import pytest

from testbed.config import Experiment, load
from testbed.config.spec import keys
from testbed.errors import ConfigError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path | None, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path, overrides)
    message = str(caught.value)
    assert "\n" not in message
    return message


# What is read -------------------------------------------------------------------------


def test_nothing_given_is_the_defaults():
    assert load(None) == Experiment()


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "mobility:\nclients:\n"])
def test_empty_files_and_empty_sections_are_the_defaults(tmp_path, text):
    assert load(write(tmp_path / "a.yaml", text)) == Experiment()


def test_a_file_sets_what_it_names_and_nothing_else(tmp_path):
    file = write(tmp_path / "a.yaml", "name: pilot\nediting: {rho: 0.3}\nseeds: [0, 1]\n")
    expected = Experiment.model_validate(
        {"name": "pilot", "editing": {"rho": 0.3}, "seeds": (0, 1)}
    )
    assert load(file) == expected


def test_the_exponent_without_a_point_is_a_number(tmp_path):
    # YAML 1.1 reads 1e-3 as text.
    assert load(write(tmp_path / "a.yaml", "learning: {lr: 1e-3}")).learning.lr == 0.001


def test_extends_is_a_chain_merged_section_by_section(tmp_path):
    write(tmp_path / "base.yaml", "editing: {rho: 0.2, requests: 5}\nseeds: [0, 1, 2]\n")
    write(tmp_path / "more" / "mid.yaml", "extends: ../base.yaml\nediting: {rho: 0.4}\n")
    top = write(tmp_path / "top.yaml", "extends: more/mid.yaml\nseeds: [7]\n")
    experiment = load(top)
    assert (experiment.editing.rho, experiment.editing.requests) == (0.4, 5)
    assert experiment.seeds == (7,)  # lists are replaced, not joined


def test_an_empty_section_keeps_what_it_extends(tmp_path):
    write(tmp_path / "base.yaml", "editing: {rho: 0.2}\n")
    assert load(write(tmp_path / "a.yaml", "extends: base.yaml\nediting:\n")).editing.rho == 0.2


def test_null_restores_an_optional_key(tmp_path):
    write(tmp_path / "base.yaml", "mobility: {density: 2}\n")
    file = write(tmp_path / "a.yaml", "extends: base.yaml\nmobility: {density: null}\n")
    assert load(file).mobility.density is None


def test_overrides_win_over_the_file_and_the_last_over_the_others(tmp_path):
    file = write(tmp_path / "a.yaml", "editing: {rho: 0.3, requests: 4}\n")
    experiment = load(file, ["editing.rho=0.6", "editing.rho=0.7"])
    assert (experiment.editing.rho, experiment.editing.requests) == (0.7, 4)


@pytest.mark.parametrize(
    ("override", "seeds"),
    [("seeds=[0,1]", (0, 1)), ("seeds=0,1", (0, 1)), ("seeds=3", (3,)), (" seeds = 4, 5", (4, 5))],
)
def test_lists_on_the_command_line(override, seeds):
    assert load(None, [override]).seeds == seeds


@pytest.mark.parametrize("value", ["fsosa,retrain", "[fsosa, retrain]"])
def test_lists_of_words_on_the_command_line(value):
    assert load(None, [f"editing.methods={value}"]).editing.methods == ("fsosa", "retrain")


def test_a_whole_section_on_the_command_line():
    experiment = load(None, ["editing={rho: 0.2, requests: 3}", "device.name=a=b"])
    assert (experiment.editing.rho, experiment.editing.requests) == (0.2, 3)
    assert experiment.device.name == "a=b"


def test_anchors_and_merge_keys_are_yaml_too(tmp_path):
    text = (
        "device: &slow {peak_tflops: 2, utilisation: 0.5}\nserver: {<<: *slow, utilisation: 1}\n"
    )
    experiment = load(write(tmp_path / "a.yaml", text))
    assert (experiment.server.peak_tflops, experiment.server.utilisation) == (2.0, 1.0)
    assert experiment.device.utilisation == 0.5


# Paths --------------------------------------------------------------------------------


def test_paths_are_relative_to_the_file_that_names_them(tmp_path):
    write(tmp_path / "base" / "base.yaml", "data: {path: ../pictures}\n")
    text = "extends: base/base.yaml\nmobility: {trace: runs/t.csv, scenario: maps/town.sumocfg}\n"
    experiment = load(write(tmp_path / "top.yaml", text))
    assert experiment.data.path == tmp_path / "pictures"
    assert experiment.mobility.trace == tmp_path / "runs" / "t.csv"
    assert experiment.mobility.scenario == str(tmp_path / "maps" / "town.sumocfg")


def test_the_folder_does_not_show_when_it_is_the_current_one(tmp_path, monkeypatch):
    # The same words from the same place give the same hash on every machine.
    write(tmp_path / "configs" / "a.yaml", "data: {path: ../pictures}\n")
    monkeypatch.chdir(tmp_path)
    from_file = load(Path("configs/a.yaml"))
    assert from_file.data.path == Path("pictures")
    assert from_file == load(None, ["data.path=pictures"])


def test_absolute_and_home_paths_stay_what_they_are(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/somebody")
    file = write(tmp_path / "a.yaml", "data: {path: ~/mnist}\nmobility: {trace: /tmp/t.csv}\n")
    assert load(file).data.path == Path("/home/somebody/mnist")
    assert load(file).mobility.trace == Path("/tmp/t.csv")


@pytest.mark.parametrize(
    ("scenario", "expected"),
    [
        ("city_grid", "city_grid"),  # a name
        ("town.sumocfg", "{folder}/town.sumocfg"),
        ("./grid", "{folder}/grid"),
    ],
)
def test_only_a_scenario_that_looks_like_a_path_is_one(tmp_path, scenario, expected):
    file = write(tmp_path / "a.yaml", f"mobility: {{scenario: {scenario}}}\n")
    assert load(file).mobility.scenario == expected.format(folder=tmp_path)


def test_a_path_on_the_command_line_is_relative_to_the_current_directory(tmp_path):
    file = write(tmp_path / "a.yaml", "data: {path: here}\n")
    experiment = load(file, ["data.path=sub/../there", "mobility.scenario=./grid"])
    assert experiment.data.path == Path("there")
    assert experiment.mobility.scenario == "./grid"  # not the scenario called grid


# What is refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("mobility.densty=3", "mobility.densty: unknown key; did you mean mobility.density?"),
        ("mobilty.density=3", "mobilty: unknown key; did you mean mobility?"),
        (
            "mobility.rsu.radus=3",
            "mobility.rsu.radus: unknown key; did you mean mobility.rsu.radius?",
        ),
        ("rho=0.3", "rho: unknown key; did you mean editing.rho?"),
        ("editing.roh=0.3", "editing.roh: unknown key; did you mean editing.rho?"),
        ("data.zzz=1", "data.zzz: unknown key; known here: name, path, labels, test_path, "),
        ("editing.rho=1.5", "editing.rho: 1.5 must be at most 1"),
        ("editing.rho=0", "editing.rho: 0 must be greater than 0"),
        ("editing.rho=.nan", "editing.rho: nan must be a finite number"),
        ("mobility.participation=1.01", "mobility.participation: 1.01 must be at most 1"),
        ("clients.pool=0", "clients.pool: 0 must be at least 1"),
        ("clients.pool=1.5", "clients.pool: 1.5 must be a whole number"),
        ("clients.pool=many", "clients.pool: 'many' must be a whole number"),
        ("clients.pool=true", "clients.pool: true must be a number"),
        ("seeds=[true]", "seeds[0]: true must be a number"),
        ("seeds=0,one", "seeds[1]: 'one' must be a whole number"),
        ("seeds=", "seeds[0]: null must be a whole number"),
        ("seeds=0,0", "seeds must name at least one seed, each once"),
        ("learning.lr=fast", "learning.lr: 'fast' must be a number"),
        ("learning.lr=.inf", "learning.lr: inf must be a finite number"),
        ("mobility.rsu={x: .nan, y: 1}", "mobility.rsu.x: nan must be a finite number"),
        ("mobility.participation=.inf", "mobility.participation: inf must be a finite number"),
        ("mobility.density=0.0009", "mobility.density: 0.0009 must be at least 0.001"),
        ("network.rate_mbps=1e-300", "network.rate_mbps: '1e-300' must be at least 1e-06"),
        ("network.rate_mbps=2.0e+6", "network.rate_mbps: 2000000.0 must be at most 1e+06"),
        ("network.latency_ms=1.1e+7", "network.latency_ms: 11000000.0 must be at most 1e+07"),
        ("device.peak_tflops=1e-300", "device.peak_tflops: '1e-300' must be at least 1e-06"),
        ("server.peak_tflops=1e-300", "server.peak_tflops: '1e-300' must be at least 1e-06"),
        ("learning.lr={a: 1}", "learning.lr: {'a': 1} must be a number"),
        ("fusion.preset=[a]", "fusion.preset: ['a'] must be 'robust' or 'paper'"),
        ("device.preset={a: 1}", "device.preset: {'a': 1} must be 'jetson-tx2', "),
        ("data.name=minst", "data.name: 'minst' must be 'digits', 'mnist', 'fashion-mnist', "),
        ("data.path=3", "data.path: 3 must be a path"),
        ("device.name=7", "device.name: 7 must be text; put it in quotes"),
        ("name=.hidden", "name: '.hidden' must begin with a letter or digit"),
        ("mobility=3", "mobility: 3 must be a section with keys of its own"),
        ("mobility.source=trace", "mobility: source 'trace' needs mobility.trace"),
        ("clients.initial=1", "editing.rho 0.5 of clients.initial 1 gives an empty subset"),
        (
            "editing.methods=fsoas",
            "editing.methods[0]: 'fsoas' must be 'fsosa', 'retrain', 'finetune', ",
        ),
        ("editing.rho", "--set 'editing.rho': write KEY=VALUE"),
        ("=3", "--set '=3': write KEY=VALUE"),
        ("editing..rho=3", "--set 'editing..rho=3': write KEY=VALUE"),
        ("name={", "--set name: '{' is not valid YAML: "),
        (
            "name={a: 1, a: 2}",
            "--set name: '{a: 1, a: 2}' is not valid YAML: key 'a' stands twice",
        ),
        ("extends=a.yaml", "extends: unknown key; "),
        ("a\nb=1", "'a\\nb': unknown key"),
        ("name=" + "x" * 99 + "!", "name: '" + "x" * 59 + "... must begin"),
    ],
)
def test_refused_values(override, message):
    assert refusal(None, override).startswith(message)


COORDINATES = ("mobility.rsu.x", "mobility.rsu.y")
FLOATS = [key for key, field in keys().items() if "float" in str(field.annotation)]


@pytest.mark.parametrize("key", FLOATS)
@pytest.mark.parametrize("value", [".nan", ".inf", "-.inf", "1.0e+15", "-1.0e+15"])
def test_no_number_is_without_bounds(key, value):
    # Coordinates come in pairs.
    override = f"mobility.rsu={{x: {value}, y: {value}}}"
    message = refusal(None, override if key in COORDINATES else f"{key}={value}")
    assert message.startswith(key if key not in COORDINATES else "mobility.rsu.x")


def test_every_mistake_is_named_at_once():
    message = refusal(None, "editing.rho=2", "clients.pool=0")
    assert message == "clients.pool: 0 must be at least 1; editing.rho: 2 must be at most 1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: b: c\n", ", line 1 is not valid YAML: mapping values are not allowed here"),
        ("name: x\nseeds: [0\n", ", line 3 is not valid YAML: expected ',' or ']'"),
        ("name: x\nname: y\n", ", line 2 is not valid YAML: key 'name' stands twice"),
        ("data:\n  path: x\n  path: y\n", ", line 3 is not valid YAML: key 'path' stands twice"),
        ("1: x\n", ", line 1 is not valid YAML: a key '1' must be text"),
        ("? [a, b]\n: x\n", ", line 1 is not valid YAML: a key of several parts must be text"),
        ("name: x\n---\nname: y\n", ", line 2 is not valid YAML: but found another document"),
        ("name: !!python/name:os.system\n", ", line 1 is not valid YAML: could not determine a"),
        ("name: \a\n", " is not valid YAML: special characters are not allowed"),
        ("- a\n", " must hold 'key: value' lines, not ['a']"),
        ("words\n", " must hold 'key: value' lines, not 'words'"),
        ("extends: [a, b]\n", ": extends: ['a', 'b'] must be the name of one file"),
        ("[" * 5000, " is not valid YAML: it is nested too deeply"),
        ("mobility: &a\n  rsu: *a\n", " is not valid YAML: Circular reference detected"),
    ],
)
def test_refused_files(tmp_path, text, message):
    file = write(tmp_path / "a.yaml", text)
    assert refusal(file).removeprefix(str(file)).startswith(message)


def test_files_that_cannot_be_read(tmp_path):
    assert refusal(tmp_path / "no.yaml") == (
        f"cannot read config {tmp_path / 'no.yaml'}: No such file or directory"
    )
    assert refusal(tmp_path) == f"cannot read config {tmp_path}: Is a directory"
    (tmp_path / "latin.yaml").write_bytes("name: é".encode("latin-1"))
    assert "is not a text file; write it in UTF-8" in refusal(tmp_path / "latin.yaml")


def test_a_missing_base_names_who_asked_for_it(tmp_path):
    file = write(tmp_path / "a.yaml", "extends: no.yaml\n")
    assert refusal(file) == (
        f"cannot read config {tmp_path / 'no.yaml'} (extended by {file}): "
        "No such file or directory"
    )


def test_cycles_are_refused(tmp_path):
    a = write(tmp_path / "a.yaml", "extends: b.yaml\n")
    b = write(tmp_path / "b.yaml", "extends: ./a.yaml\n")
    assert refusal(a).startswith(f"{a} extends {b} extends {a}: a file cannot extend itself")
    itself = write(tmp_path / "c.yaml", "extends: c.yaml\n")
    assert refusal(itself).startswith(f"{itself} extends {itself}: ")
