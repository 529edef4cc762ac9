"""Claim cards: what they may say, and what is told of a mistake."""

from pathlib import Path

import pytest
import yaml
from cards import CARD, card, figure, write

from testbed.claims.measures import ALL, check
from testbed.config import load
from testbed.config.cards import Card, load_card, load_cards
from testbed.errors import ConfigError

REPOSITORY = Path(__file__).parents[2]
CARDS = REPOSITORY / "configs" / "claims"
STUDY = CARD["study"]


@pytest.fixture(scope="module")
def real() -> tuple[Card, ...]:
    return load_cards(CARDS)


def test_every_published_figure_has_a_card(real: tuple[Card, ...]) -> None:
    bands = {
        (each.at, *(each.between or ()))
        for one in real
        for each in one.figures
        if each.at is not None or each.between
    }
    for published in (
        (None, 36.66, 53.84), (None, 21.97, 25.76), (20.27,), (25.0,), (32.87,), (39.73,), (10,),
        (0.67,), (None, 23.26, 49.04), (None, 38.92, 43.35),
    ):  # fmt: skip
        assert published in bands, published
    assert any(each.within == 2.46 for one in real for each in one.figures)
    names = {one.name for one in real}
    assert names >= {
        "trigger-rate", "stability", "heterogeneity", "rho-tradeoff", "scalability", "resnet18",
        "bdd100k-map", "communication", "membership-inference",
    }  # fmt: skip


def test_cards_ask_for_what_can_be_measured_and_name_their_tariff(real: tuple[Card, ...]) -> None:
    for one in real:
        check(one)
        priced = any(each.options.get("of") == "bytes" for each in one.figures)
        assert not priced or one.tariff == "paper"


def test_a_card_that_trains_nothing_is_tried_at_the_papers_size(real: tuple[Card, ...]) -> None:
    assert all("paper" in one.scales and "smoke" in one.scales for one in real)
    assert all("small" in one.scales for one in real if one.trains)


def test_the_studies_files_have_the_scales(real: tuple[Card, ...]) -> None:
    for one in real:
        for scale, own in one.scales.items():
            if one.study and not own.config and "bdd100k" not in one.data:
                name = next(iter(one.data))
                load(one.study.config, [f"scale={scale}", f"data.name={name}"])


def test_no_card_is_explained_where_it_is_not_tried(real: tuple[Card, ...]) -> None:
    for one in real:
        for each in one.figures:
            assert each.why.keys() <= one.scales.keys()


def test_a_card_is_named_after_its_file_and_finds_its_study(tmp_path: Path) -> None:
    found = card(tmp_path / "claims")
    assert found.name == "cheap"
    assert found.study is not None
    assert found.study.config == tmp_path / "claims" / "study.yaml"
    assert not found.trains
    assert card(tmp_path, study={**STUDY, "settings": {}}).trains


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"figurs": []}, "figurs: unknown key; did you mean figures?"),
        ({"figures": []}, r"figures: \[\] must have at least 1"),
        ({"figures": [figure(between=None)]}, "name one of at, between, .*, not none"),
        ({"figures": [figure(at=3)]}, "name one of .*, not at and between"),
        ({"figures": [figure(between=[2, 1])]}, r"between \[2.0, 1.0\] is an empty range"),
        ({"figures": [figure(within=-1)]}, r"figures\[0\].within: -1 must be at least 0"),
        ({"figures": [figure(why={"huge": "x"})]}, "figures.*huge"),
        ({"figures": [figure(data=["mnist"])]}, "time saved: data: the card has no mnist"),
        ({"scales": {}}, "scales: {} must have at least 1"),
        ({"scales": {"huge": {}}}, "scales.huge"),
        ({"scales": {"smoke": {"seeds": []}}}, "scales.smoke.seeds"),
        ({"tariff": "cheap"}, "tariff: 'cheap' must be"),
        ({"data": None}, "data names the sets that a study is run on"),
        ({"study": None}, "data names the sets that a study is run on"),
        ({"study": {**STUDY, "methods": ["magic"]}}, r"study.methods\[0\]: 'magic' must be"),
        ({"study": {**STUDY, "grid": {}}}, "study.grid"),
        ({"says": None}, "says: is missing"),
        ({"says": ""}, "says: '' must not be empty"),
    ],
)
def test_a_mistake_in_a_card_is_one_line(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    path = write(tmp_path, **changes)
    with pytest.raises(ConfigError, match=told) as caught:
        load_card(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"measure": "magic"},
            f"measure 'magic' is not known; known: {', '.join(sorted(ALL))[:8]}",
        ),
        ({"measure": "unstable"}, "measure 'unstable' is not known; known: "),
        ({"options": {}}, "saved needs the option of"),
        ({"options": {"of": "pictures"}}, "options.of: 'pictures': Input should be 'time' or"),
        ({"options": {"of": 3}}, "options.of: 3: Input should be 'time' or 'bytes'"),
        ({"options": {"of": "time", "method": ["fsosa"]}}, "options.method: ['fsosa']: "),
        (
            {"options": {"of": "time", "method": "pfnm"}},
            "the study has no pfnm; known: fsosa, ret",
        ),
        ({"options": {"of": "time", "against": "pfnm"}}, "the study has no pfnm"),
        (
            {"measure": "share", "options": {"part": "noise"}},
            "options.part: 'noise': Input should",
        ),
        ({"measure": "difference", "options": {"at": "noon"}}, "options.at: 'noon': Input should"),
        ({"measure": "triggered", "options": {"kind": "rest"}}, "options.kind: 'rest': Input"),
        ({"measure": "rise", "options": {"of": "mood"}}, "options.of: 'mood': Input should be"),
        (
            {"measure": "lead", "options": {"over": [], "which": "largest"}},
            "options.over: []: ",
        ),
        (
            {"measure": "lead", "options": {"over": ["pfnm"], "which": "largest"}},
            "the study has no pfnm",
        ),
        ({"where": {"nosuch": 1}}, "where: nosuch: no such key of a configuration"),
        ({"options": {"of": "time", "off": 1}}, "saved has no option 'off'; known: of, method"),
        ({"measure": "told-apart", "options": {"what": "p"}}, "give the card study.audit"),
    ],
)
def test_a_figure_that_cannot_be_measured_is_refused_before_anything_is_run(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    found = card(tmp_path, figures=[figure(**changes)])
    with pytest.raises(ConfigError, match="claim cheap, figure 'time saved'") as caught:
        check(found)
    assert told in str(caught.value)


def test_bytes_need_a_tariff_that_is_named_beforehand(tmp_path: Path) -> None:
    found = card(tmp_path, tariff=None, figures=[figure(options={"of": "bytes"})])
    with pytest.raises(ConfigError, match="bytes are priced by a tariff; name it in the card"):
        check(found)


def test_without_a_study_only_what_is_worked_out_can_be_asked_for(tmp_path: Path) -> None:
    found = card(tmp_path, study=None, data=None)
    with pytest.raises(ConfigError, match="'saved' is not known without a study; known: unstable"):
        check(found)


def test_unknown_claims_and_empty_folders_are_named(tmp_path: Path) -> None:
    write(tmp_path / "claims", "one")
    (tmp_path / "claims" / "study.yaml").rename(tmp_path / "study.yaml")
    with pytest.raises(ConfigError, match="two: no such claim; known: one, or all"):
        load_cards(tmp_path / "claims", ("one", "two"))
    with pytest.raises(ConfigError, match="holds no claim card; name a folder"):
        load_cards(tmp_path / "nowhere")


def test_cards_are_yaml(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("says: [")
    with pytest.raises(ConfigError, match=r"bad.yaml, line 1 is not valid YAML"):
        load_card(path)
    path.write_text(yaml.safe_dump(["says"]))
    with pytest.raises(ConfigError, match="must hold 'key: value' lines"):
        load_card(path)
    path.write_text("scales: 3\nstudy: x\n")
    with pytest.raises(ConfigError, match="scales: 3 must be a section"):
        load_card(path)


@pytest.mark.parametrize(
    ("measure", "options", "told"),
    [
        ("unstable", {"rhos": [0.5], "populations": [5]}, "options.populations"),
        ("unstable", {"rhos": [0.5], "populations": [2, 5, 9]}, "options.populations"),
        ("unstable", {"rhos": [0.5], "populations": [2.5, 5]}, "options.populations[0]: 2.5"),
        ("unstable", {"rhos": [0.5], "populations": ["a", "b"]}, "options.populations[0]: 'a'"),
        ("unstable", {"rhos": 0.5, "populations": [2, 5]}, "options.rhos: 0.5"),
        ("unstable", {"rhos": [1.5], "populations": [2, 5]}, "options.rhos[0]: 1.5"),
        ("unstable", {"rhos": [True], "populations": [2, 5]}, "options.rhos[0]: true"),
        ("unstable", {"rhos": [float("nan")], "populations": [2, 5]}, "options.rhos"),
        ("violations", {"largest": -1, "most": 2}, "options.largest: -1"),
        ("violations", {"largest": 3, "most": None}, "options.most: null"),
    ],
)
def test_options_of_what_is_worked_out_have_types(
    tmp_path: Path, measure: str, options: dict[str, object], told: str
) -> None:
    one = figure(measure=measure, options=options, between=None, at_most=1)
    found = card(tmp_path, study=None, data=None, tariff=None, figures=[one])
    with pytest.raises(ConfigError, match="claim cheap, figure 'time saved': ") as caught:
        check(found)
    assert told in str(caught.value)


def test_a_card_is_named_after_its_file_only(tmp_path: Path) -> None:
    path = write(tmp_path)
    (tmp_path / "cheap.yaml").write_text("name: ../../elsewhere\n" + path.read_text())
    with pytest.raises(ConfigError, match="name: a card is named after its file; remove it"):
        load_card(tmp_path / "cheap.yaml")


def test_data_sets_and_figures_have_names_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.nosuch: no such data set; known: digits"):
        card(tmp_path, data={"nosuch": {}})
    with pytest.raises(ConfigError, match="two figures have one name"):
        card(tmp_path, figures=[figure(), figure()])
