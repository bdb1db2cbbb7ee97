"""The imports of Folio's modules follow its layers, and its functions stay short.

Imports count at the top of a module and in a function, but not under `TYPE_CHECKING`.
"""

import ast
import graphlib
import sys
from importlib.util import resolve_name

import pytest

from configs.references import FOLIO
from runs.files import ROOT

LINES_PER_FUNCTION = 60
LEVELS = 3  # of nested blocks in a function
DYNAMIC = ("import_module", "__import__")  # the functions that import

# Package -> the packages and modules of ours that it may import, in addition to itself.
LAYERS = {
    "runs": set(),
    "model": set(),
    "data": {
        "runs.errors",
        "runs.files",
        "runs.figures",
        "runs.reading",
        "runs.terminal",
    },
    "training": {"data", "runs"},
    "distributed": {"data", "runs", "training"},
    "configs": {"data", "distributed", "model", "runs", "training"},
    "board": {"runs"},
    "trained": {"configs", "data", "distributed", "model", "runs", "training"},
    "writing": {"configs", "data", "model", "runs", "trained", "training"},
    "planning": {"configs", "data", "runs", "training"},
    "trials": {"configs", "data", "runs", "trained"},
}
PACKAGES = LAYERS.keys() | {"benchmarks"}
BLOCKS = (ast.If, ast.For, ast.While, ast.With, ast.Try)
# Third-party package -> the modules and packages that may import it.
IMPORTERS = {
    "labml": {"training.tracking", "configs"},
    "labml_nn": {"model.labml_transformer", "configs"},
    "labml_app": {"board"},
    "labml_db": {"board"},
}
RUNS_USES = {"numpy", "matplotlib", "yaml", "psutil", "pynvml"}


def sources(root):
    """Every module that is not a test, by its dotted name."""
    paths = list(root.glob("*.py"))
    for package in PACKAGES:
        paths += (root / package).rglob("*.py")
    modules = {}
    for path in paths:
        parts = path.relative_to(root).with_suffix("").parts
        if not {"node_modules", "cache"} & set(parts):
            modules[".".join(parts).removesuffix(".__init__")] = path
    return modules


def executed(node):
    """A node and all below it, without the blocks under `if TYPE_CHECKING`."""
    yield node
    children = ast.iter_child_nodes(node)
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        children = node.orelse
    for child in children:
        yield from executed(child)


def imports(name, path, modules):
    """The modules, ours and others, that a file imports when it runs, by their dotted names."""
    imported = set()
    for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = name if path.stem == "__init__" else name.rpartition(".")[0]
            relative = "." * node.level + (node.module or "")
            base = resolve_name(relative, package)
            for alias in node.names:
                # `from data import corpus` imports the module data.corpus, `from data.corpus
                # import Corpus` does not.
                full = f"{base}.{alias.name}"
                imported.add(full if full in modules else base)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(DYNAMIC):
            imported |= {
                word.value for word in node.args[:1] if isinstance(word, ast.Constant)
            }
    return imported


def is_within(name, allowed):
    """Whether a module is one of `allowed`, or inside one of them."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)


def all_imports(root):
    modules = sources(root)
    return {name: imports(name, path, modules) for name, path in modules.items()}


def wrong_layers(graph):
    entry_points = {name for name in graph if "." not in name} - PACKAGES
    ours = PACKAGES | entry_points
    for name, imported in graph.items():
        package = name.partition(".")[0]
        allowed = ours - {"benchmarks"} if package in entry_points else ours
        if package in LAYERS:
            allowed = LAYERS[package] | {package}
        for other in imported:
            if is_within(other, ours) and not is_within(other, allowed):
                yield f"{name} imports {other}"


def wrong_importers(graph):
    for name, imported in graph.items():
        for other in imported:
            importers = IMPORTERS.get(other.partition(".")[0], {name})
            if not is_within(name, importers):
                yield f"{name} imports {other}"


def cycle(graph):
    """The modules of an import cycle, or an empty list."""
    ours = {name: imported & graph.keys() for name, imported in graph.items()}
    try:
        graphlib.TopologicalSorter(ours).prepare()
    except graphlib.CycleError as error:
        return error.args[1]
    return []


@pytest.fixture(scope="module")
def graph():
    return all_imports(ROOT)


@pytest.mark.parametrize("check", [wrong_layers, wrong_importers, cycle])
def test_modules_import_only_the_layers_below_them(graph, check):
    """Only a few import labml, and none import each other in a cycle."""
    assert list(check(graph)) == []


def test_the_packages_that_a_run_keeps_no_copies_of_are_folios():
    assert PACKAGES | {"auditing", "tests"} == FOLIO


def test_runs_needs_few_other_packages(graph):
    allowed = RUNS_USES | {"runs"} | sys.stdlib_module_names
    for name, imported in graph.items():
        if is_within(name, {"runs"}):
            assert [
                other for other in imported if not is_within(other, allowed)
            ] == [], name


def nesting(node, level=0):
    """The number of blocks inside each other below a node; `elif` opens no further one."""
    inner = level
    for child in ast.iter_child_nodes(node):
        is_elif = (
            isinstance(node, ast.If)
            and isinstance(child, ast.If)
            and node.orelse == [child]
        )
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            inner = max(
                inner,
                nesting(child, level + (isinstance(child, BLOCKS) and not is_elif)),
            )
    return inner


def test_functions_are_short_and_flat():
    wrong = []
    for name, path in sources(ROOT).items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                n_lines = (node.end_lineno or 0) - node.lineno + 1
                if n_lines > LINES_PER_FUNCTION or nesting(node) > LEVELS:
                    wrong.append((name, node.name, n_lines, nesting(node)))
    assert wrong == []


WINDOWS = "data/windows/windows.py"
LOOP = "training/loop.py"


@pytest.mark.parametrize(
    ("module", "line", "check"),
    [
        (WINDOWS, "from training.loop import Trainer", wrong_layers),
        (WINDOWS, "from runs.run_folder import RunFolder", wrong_layers),
        (WINDOWS, "def main():\n    from configs import keys", wrong_layers),
        (WINDOWS, "import predict", wrong_layers),
        ("predict.py", "from benchmarks.machine import machine", wrong_layers),
        ("model/modern.py", "from data.vocabulary import Vocabulary", wrong_layers),
        ("board/store.py", "importlib.import_module('training.loop')", wrong_layers),
        (LOOP, "def main():\n    import labml.experiment", wrong_importers),
        (LOOP, "from labml_nn.optimizers.noam import Noam", wrong_importers),
        (LOOP, "from training import state", cycle),
        (LOOP, "def main():\n    from training.state import Trainer", cycle),
    ],
)
def test_a_wrong_import_is_found(tmp_path, module, line, check):
    for name in (
        WINDOWS,
        LOOP,
        "model/modern.py",
        "board/store.py",
        "predict.py",
        "configs/keys.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import os\n")
    (tmp_path / "training" / "state.py").write_text(
        "from training.loop import Trainer\n"
    )
    assert list(check(all_imports(tmp_path))) == []
    (tmp_path / module).write_text(line)
    assert list(check(all_imports(tmp_path))) != []


@pytest.mark.parametrize("name", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_imports_for_annotations_do_not_count(tmp_path, name):
    module = tmp_path / "module.py"
    module.write_text(f"if {name}:\n    import configs.keys\nelse:\n    import model\n")
    assert imports("data.module", module, set()) == {"model"}
