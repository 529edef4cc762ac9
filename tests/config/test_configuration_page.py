"""The page in docs names every key with its real default, and its example is valid."""

import re
from pathlib import Path

import pytest
import yaml

from testbed.config import Experiment, load
from testbed.config.spec import keys

PAGE = Path(__file__).parents[2].joinpath("docs", "configuration.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `([a-z_.]+)` \| `?(.*?)`? \| ", PAGE, re.MULTILINE))
DEFAULTS = Experiment().model_dump(mode="json")


def test_every_key_and_no_other_has_a_row_in_the_order_of_the_schema_within_its_section():
    assert sorted(ROWS) == sorted(keys())
    for section in {key.partition(".")[0] for key in keys()}:
        documented = [key for key in ROWS if key.partition(".")[0] == section]
        assert documented == [key for key in keys() if key.partition(".")[0] == section]


@pytest.mark.parametrize("key", keys())
def test_the_default_on_the_page_is_the_real_one(key):
    value = DEFAULTS
    for name in key.split("."):
        value = value[name]
    if value is None:
        assert ROWS[key] == "unset"
    else:
        assert load(None, [f"{key}={ROWS[key]}"]) == Experiment()
        assert ROWS[key] == "[fsosa, retrain, finetune]" or ROWS[key] == str(value)


@pytest.mark.parametrize("key", keys())
def test_every_choice_is_explained(key):
    (row,) = re.findall(rf"^\| `{re.escape(key)}` .*$", PAGE, re.MULTILINE)
    literals = re.findall(r"Literal\[(.*?)\]", str(keys()[key].annotation))
    for choice in re.findall(r"'([\w-]+)'", "".join(literals)):
        assert f"`{choice}`" in row or choice in ROWS[key]


def test_the_example_is_valid(tmp_path):
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "a.yaml").write_text(example, encoding="utf-8")
    experiment = load(tmp_path / "a.yaml")
    assert experiment.name == yaml.safe_load(example)["name"]
    assert (experiment.mobility.density, experiment.editing.rho) == (2.0, 0.3)


def test_the_mistakes_shown_are_what_is_printed():
    from testbed.errors import ConfigError

    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    for override, line in zip(
        ("mobility.densty=2", "editing.rho=1.5"), shown.splitlines(), strict=True
    ):
        with pytest.raises(ConfigError, match=re.escape(line)):
            load(None, [override])
