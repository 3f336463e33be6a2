import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.errors import DragomanError
from dragoman.openseq2seq.python_literals import MAX_FILE_BYTES, Symbol, read_assignments

HOSTILE = {
    "a syntax error": (b"base_params = {", "line 1, is not valid Python 3"),
    "Python 2": (b"print 'x'", "line 1, is not valid Python 3"),
    "a null byte": (b"a = 1\0", "not valid Python"),
    "Latin-1": (b"a = '\xe9'", "is not UTF-8"),
    "brackets": (b"a = " + b"[" * 50_000, "not valid Python"),
    "operators": (b"a = " + b"-" * 50_000 + b"1", "nested too deeply"),
    "sums": (b"a = 1" + b"+1" * 50_000, "nested too deeply"),
    "attributes": (b"a = b" + b".c" * 50_000, "nested too deeply"),
    "a huge number": (b"a = " + b"9" * 5_000, "not valid Python"),
    "a huge hexadecimal number": (b"a = 0x" + b"f" * 5_000, "not valid Python"),
    "a huge file": (b"#" * (MAX_FILE_BYTES + 1), "larger than 1 MB"),
}


@pytest.fixture
def read(tmp_path):
    def read(text: str | bytes):
        path = tmp_path / "config.py"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_assignments(path)

    return read


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("4 * 512", 2048),
        ("-2.5 + 1", -1.5),
        ("7 // 2 ** 1", 3),
        ("'/data/' + 'train.en'", "/data/train.en"),
        ("os.path.join('/data', 'train.en')", "/data/train.en"),
        ("dict({'a': 1}, b=2, **{'c': 3})", {"a": 1, "b": 2, "c": 3}),
        ("{'a': 1, **{'b': 2}}['b']", 2),
        ("f'{1}-{\"x\"}'", "1-x"),
        ("copy.deepcopy([1, (2, None)])", [1, (2, None)]),
        ("tf.float32", Symbol("tf.float32")),
        ("open('/etc/passwd').read()", Symbol("open('/etc/passwd').read()")),
        ("[n for n in range(3)]", Symbol("[n for n in range(3)]")),
        ("1 / 0", Symbol("1 / 0")),
        ("9 ** 9 ** 9", Symbol("9 ** 9 ** 9")),
        ("9 ** 200", Symbol("9 ** 200")),
        ("'x' * 10 ** 9", Symbol("'x' * 10 ** 9")),
        ("(-8) ** 0.5", Symbol("(-8) ** 0.5")),
    ],
)
def test_expressions_have_their_value_or_stay_as_they_are_written(read, expression, value):
    assert read(f"a = {expression}").variables["a"] == value


def test_assignments_follow_each_other(read):
    text = "a = b = {'x': {}}\na['x']['y'] = 2\nc, d = 1, 2\nd += 3\na['x']['y'] *= d\nb.update(z=c)\ne: int = d"
    variables = read(text).variables
    assert variables["a"] == {"x": {"y": 10}, "z": 1}
    assert variables["e"] == 5


def test_imported_names_keep_the_name_they_were_imported_by(read):
    variables = read("import tensorflow as tf\nfrom x.y import Encoder as E\na = tf.float32\nb = E").variables
    assert variables["a"].name == "float32"
    assert variables["b"] == Symbol("Encoder")


def test_statements_that_are_not_evaluated_are_reported(read):
    skipped = read("import os\nif os.environ:\n  a = 1\nprint('x')\nx.y = 2\nunknown.update(a=1)\n'''text'''").skipped
    assert skipped == ["line 2: if os.environ:", "line 4: print('x')", "line 5: x.y = 2", "line 6: unknown.update(a=1)"]


def test_nothing_is_ever_run(read, tmp_path):
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w')"
    read(
        f'{code}\na = {code}\nb = [{code} for _ in [1]]\nc = {{**{code}}}\nd = f"{{{code}}}"\ne = dict(x={code})\n'
        f"class A:\n  {code}\n@({code})\ndef f(x={code}): pass\nassert {code}\nwith {code}: pass\nx = lambda: {code}\n"
        f"a[{code}] = 1\nimport this_does_not_exist\n{{}}.update({code})\nimport antigravity"
    )
    assert not trace.exists()


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_get_one_sentence(read, name):
    content, message = HOSTILE[name]
    with pytest.raises(DragomanError, match=message) as refused:
        read(content)
    assert "\n" not in str(refused.value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_read_or_refused_in_one_sentence(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("config") / "config.py"
    path.write_bytes(content)
    sentence = ""
    try:
        read_assignments(path)
    except DragomanError as refused:
        sentence = str(refused)
    assert "\n" not in sentence
