"""The piecewise JSON reader says what ``json`` says, in any cut, with bounded memory."""

import json
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bdd100k_tools import LabelError, streaming
from bdd100k_tools.streaming import members

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.sampled_from(['quote " here', "back\\slash", "\u2028 \U0001f697", "}],["]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
indents = st.sampled_from([None, 0, 3])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("streaming") / "document.json"


def chunked(path, chunk, key="frames"):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "CHUNK", chunk)
        return list(members(path, key, LabelError))


@settings(max_examples=150, deadline=None)
@given(st.lists(values, max_size=6), st.integers(1, 40), indents, st.booleans())
def test_a_list_in_any_cut(path, document, chunk, indent, ascii_):
    path.write_text(json.dumps(document, indent=indent, ensure_ascii=ascii_), encoding="utf-8")
    assert chunked(path, chunk) == [(None, item) for item in document]


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["frames", "groups", "config", "a"]), values, max_size=4),
    st.integers(1, 40),
    indents,
)
def test_a_mapping_in_any_cut(path, document, chunk, indent):
    path.write_text(json.dumps(document, indent=indent), encoding="utf-8")
    expected = []
    for key, value in document.items():
        if key == "frames" and isinstance(value, list):
            expected += [(key, item) for item in value]
        else:
            expected.append((key, value))
    assert chunked(path, chunk) == expected


@pytest.mark.parametrize(
    "document",
    ['[{"a": -1.5e+3, "b": "\\ud83d\\ude97"}, [true, null]]', '{"frames": [1, 22], "x": -12}'],
)
def test_every_beginning_of_a_document_is_refused(path, document):
    for end in range(len(document)):
        path.write_text(document[:end], encoding="utf-8")
        for chunk in (1, 7, 1000):
            with pytest.raises(LabelError, match="not valid JSON"):
                chunked(path, chunk)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: not valid JSON: expected {, found the end"),
        ("7", "line 1: not valid JSON: expected {, found 7"),
        ("[1,\n2,\n\n oops]", "line 4: not valid JSON: Expecting value"),
        ("[1,\n2]\n]", "line 3: not valid JSON: expected the end, found ]"),
        ("[1 2]", "line 1: not valid JSON: expected , or ], found 2"),
        ("[1,]", "line 1: not valid JSON: Expecting value"),
        ('{"a" 1}', "line 1: not valid JSON: expected :, found 1"),
        ('{"a": 1,}', 'line 1: not valid JSON: expected ", found }'),
        ("{1: 2}", 'line 1: not valid JSON: expected ", found 1'),
        ('[\n{"a": "cut', "line 2: not valid JSON: Unterminated string"),
    ],
)
@pytest.mark.parametrize("chunk", [1, 5, 1000])
def test_what_is_wrong_is_named_with_its_line(path, text, message, chunk):
    path.write_text(text, encoding="utf-8")
    with pytest.raises(LabelError) as caught:
        chunked(path, chunk)
    assert str(caught.value).startswith(f"{path}, {message}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"\x89PNG\r\n\x1a\n"])
def test_what_is_no_json_at_all(path, content):
    path.write_bytes(content)
    with pytest.raises(LabelError, match=r"not a JSON file|not valid JSON"):
        chunked(path, 1 << 20)


def test_a_byte_order_mark_is_no_mistake(path):
    path.write_bytes(b"\xef\xbb\xbf[1]")
    assert chunked(path, 100) == [(None, 1)]


def test_an_error_early_in_a_large_file_is_found_without_reading_it_all(path):
    path.write_text("[{nonsense}," + " " * 30_000_000 + "]", encoding="utf-8")
    tracemalloc.start()
    with pytest.raises(LabelError, match="Expecting property name"):
        chunked(path, 1 << 16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_one_endless_member_is_refused(path, monkeypatch):
    monkeypatch.setattr(streaming, "LARGEST", 1000)
    path.write_text(json.dumps([[1] * 10, ["x" * 5000]]), encoding="utf-8")
    found = members(path, "frames", LabelError)
    monkeypatch.setattr(streaming, "CHUNK", 100)
    assert next(found) == (None, [1] * 10)
    with pytest.raises(LabelError, match="one member has over"):
        next(found)


def test_memory_is_bounded_by_a_chunk(path):
    item = json.dumps({"name": "x" * 1000})
    with path.open("w", encoding="utf-8") as stream:
        stream.write("[" + ",".join([item] * 20_000) + "]")
    assert path.stat().st_size > 20_000_000
    tracemalloc.start()
    count = sum(1 for _ in members(path, "frames"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 6 * streaming.CHUNK
