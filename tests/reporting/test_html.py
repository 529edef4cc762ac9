import json
import re
import shutil
from base64 import b64decode
from html.parser import HTMLParser

import pytest

from testbed.errors import ResultsError
from testbed.ledger import TARIFFS
from testbed.reporting.comparison import load
from testbed.reporting.contact import HEADER as CONTACT
from testbed.reporting.html import setting, to_html, write_report
from testbed.reporting.table import quality_text, summarise
from testbed.reporting.units import bytes_text, count_text, saving_text, time_text

VOID = {"meta", "img", "br", "link"}


class Page(HTMLParser):
    """Collects what the tests ask about and checks that elements are closed in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.cells, self.sources, self.elements, self.text = [], [], [], [], ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        self.sources += [value for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "td" in self.open:
            self.cells[-1] += data


@pytest.fixture(scope="module")
def page(runs):
    return Page(to_html(runs))


def test_the_report_is_written_beside_the_runs(experiment, tmp_path):
    folder = shutil.copytree(experiment, tmp_path / "copy")
    path = write_report(folder)
    assert path == folder / "report.html"
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    first = path.read_bytes()
    write_report(folder)
    assert path.read_bytes() == first


def test_the_report_needs_nothing_from_outside(page, runs):
    assert len(page.sources) == 4
    for source in page.sources:
        head, data = source.split(",")
        assert head == "data:image/png;base64"
        assert b64decode(data).startswith(b"\x89PNG")
    assert "script" not in page.elements
    assert not re.search(r"https?://|@import|url\(", to_html(runs))


def test_the_report_shows_the_table(page, runs):
    edit, retrain, _ = summarise(runs)
    # The second line of a cost is the saving, which Retrain has none of.
    assert page.cells[:9] == [
        "F-SOSA-U/I", quality_text(edit), "31", count_text(edit.triggered),
        f"{time_text(edit.seconds)}saved {saving_text(edit.seconds_saved)}",
        *(
            f"{bytes_text(edit.bytes[name])}saved {saving_text(edit.bytes_saved[name])}"
            for name in TARIFFS
        ),
        str(edit.flagged),
    ]  # fmt: skip
    assert page.cells[13:17] == [
        time_text(retrain.seconds), *(bytes_text(retrain.bytes[name]) for name in TARIFFS),
    ]  # fmt: skip
    assert page.elements.count("th") == 9 + len(CONTACT) + 3
    assert "Means over seeds 0, 1" in page.text


def test_without_retrain_the_table_shows_no_savings(runs):
    page = Page(to_html([run for run in runs if run.method == "fsosa"]))
    assert not any("saved" in cell for cell in page.cells)


def test_the_report_explains_tariffs_and_bands(page):
    for words in ("incremental", "broadcast", "paper", "published savings", "bootstrap intervals"):
        assert words in page.text


def test_the_report_says_where_the_numbers_come_from(page):
    """What the runs have in common stands there once."""
    facts = page.cells[27 + 3 * len(CONTACT) :]
    assert facts == [
        "configuration", "all", "0a1b2c3d",
        "data", "all", f"digits {'f' * 64}",
        "traffic", "all", "events 31, scenario city_grid",
        "versions", "all", "python 3.11.9, sumo 1.28.0, testbed 0.1.0",
    ]  # fmt: skip


def test_what_differs_between_runs_is_named_by_method_or_seed(tmp_path, make_run):
    for method in ("fsosa", "retrain"):
        for seed in (0, 1):
            path = make_run(tmp_path, method, seed, requests=2) / "manifest.json"
            manifest = json.loads(path.read_text())
            manifest["mobility"] = {
                "seed": seed, "warmup": 600.0, "rsu_x": None, "fingerprint": "ab" * 32,
                "scenario": "a_name_of_many_letters",
            }  # fmt: skip
            manifest["data"]["name"] = method
            manifest["versions"]["python"] = f"3.11.{seed if method == 'fsosa' else 0}"
            path.write_text(json.dumps(manifest))
    cells = Page(to_html(load(tmp_path))).cells
    facts = cells[cells.index("configuration") + 3 :]
    traffic = "scenario a_name_of_many_letters, seed {}, warmup 600"
    assert facts == [
        "data", "F-SOSA-U/I", f"fsosa {'f' * 64}",
        "data", "Retrain", f"retrain {'f' * 64}",
        "traffic", "seed 0", f"fingerprint {'ab' * 8}, {traffic.format(0)}",
        "traffic", "seed 1", f"fingerprint {'ab' * 8}, {traffic.format(1)}",
        "versions", "F-SOSA-U/I, seed 0; Retrain, seed 0; Retrain, seed 1",
        "python 3.11.0, sumo 1.28.0, testbed 0.1.0",
        "versions", "F-SOSA-U/I, seed 1", "python 3.11.1, sumo 1.28.0, testbed 0.1.0",
    ]  # fmt: skip


def test_the_setting_is_one_sentence(runs):
    assert setting(runs[0]) == (
        "digits spread over 100 partitions (Dirichlet α = 0.5); M0 = 20 clients at the start, "
        "ρ = 0.5; up to 31 requests from the SUMO scenario city_grid, handled one by one; "
        "30 local epochs, kfac Fisher, modelled time."
    )


def test_the_setting_follows_the_configuration(tmp_path, make_run):
    make_run(
        tmp_path, "fsosa", requests=2, data={"partition": "iid"}, editing={"handling": "batch"},
        mobility={"source": "trace", "trace": "somewhere/day.csv"},
    )  # fmt: skip
    text = setting(load(tmp_path)[0])
    assert "(evenly)" in text
    assert "from the trace day.csv, handled in batches" in text
    assert "somewhere" not in text


def test_the_setting_of_generated_traffic(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=2, mobility={"source": "generated"})
    assert "requests from the traffic drawn at random, handled" in setting(load(tmp_path)[0])


def test_warnings_name_their_run_and_are_escaped(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=2, warnings=("M fell <b>below</b> M0/2 & stayed",))
    html = to_html(load(tmp_path))
    assert "F-SOSA-U/I, seed 0: M fell &lt;b&gt;below&lt;/b&gt; M0/2 &amp; stayed" in html
    assert "M fell <b>below</b>" in Page(html).text
    assert "<h2>Warnings</h2>" in html


def test_without_warnings_there_is_no_heading_for_them(runs):
    assert "Warnings" not in to_html(runs)


def test_one_seed_has_no_band(tmp_path, make_run):
    make_run(tmp_path, "fsosa", requests=2)
    assert "bootstrap intervals" not in to_html(load(tmp_path))


@pytest.mark.parametrize("key", ["versions", "hash", "warnings", "population_initial", "mobility"])
def test_an_incomplete_manifest_is_one_line(tmp_path, make_run, key):
    path = make_run(tmp_path, "fsosa", requests=2) / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest[key]
    path.write_text(json.dumps(manifest))
    with pytest.raises(ResultsError, match=rf"\(no {key}\)") as caught:
        write_report(tmp_path)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "report.html").exists()
