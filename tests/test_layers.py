"""The imports of Folio's modules follow its layers, and its functions stay short.

Imports count at the top of a module and in a function, but not under `TYPE_CHECKING`.
"""

import ast
import graphlib
import sys

import pytest

from runs.files import ROOT

LINES_PER_FUNCTION = 60
LEVELS = 3  # of nested blocks in a function
DYNAMIC = ("import_module", "__import__")  # the functions that import

# Package -> the packages and modules of ours that it may import, in addition to itself.
LAYERS = {
    "runs": set(),
    "model": set(),
    "data": {"runs.errors", "runs.files", "runs.figures", "runs.reading", "runs.terminal"},
    "training": {"data", "runs"},
    "distributed": {"data", "runs", "training"},
    "configs": {"data", "distributed", "model", "runs", "training"},
    "board": {"runs"},
    "trained": {"configs", "data", "distributed", "model", "runs", "training"},
    "writing": {"configs", "data", "model", "runs", "trained", "training"},
    "planning": {"configs", "data", "runs", "training"},
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
    paths = [
        *root.glob("*.py"),
        *(path for package in PACKAGES for path in (root / package).rglob("*.py")),
    ]
    relative = [
        path.relative_to(root) for path in paths if not {"node_modules", "cache"} & set(path.parts)
    ]
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): root / path
        for path in relative
    }


def executed(node):
    """A node and all below it, without the blocks under `if TYPE_CHECKING`."""
    yield node
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        children = node.orelse
    else:
        children = ast.iter_child_nodes(node)
    for child in children:
        yield from executed(child)


def imports(name, path, modules):
    """The modules, ours and others, that a file imports when it runs, by their dotted names."""
    imported = set()
    for node in executed(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = (
                name.split(".")[: -node.level + (path.stem == "__init__") or None]
                if node.level
                else []
            )
            base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from data import corpus` imports the module data.corpus, `from data.corpus import
            # Corpus` does not.
            imported |= {
                full if (full := f"{base}.{alias.name}") in modules else base
                for alias in node.names
            }
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "attr", getattr(node.func, "id", "")) in DYNAMIC
        ):
            imported |= {
                argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)
            }
    return imported


def is_within(name, allowed):
    """Whether a module is one of `allowed`, or inside one of them."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in allowed)


def all_imports(root):
    modules = sources(root)
    return {name: imports(name, path, set(modules)) for name, path in modules.items()}


def wrong_layers(graph):
    entry_points = {name for name in graph if "." not in name} - PACKAGES
    for name, imported in graph.items():
        package = name.partition(".")[0]
        ours = {other for other in imported if is_within(other, PACKAGES | entry_points)}
        on_top = (PACKAGES | entry_points) - ({"benchmarks"} if package in entry_points else set())
        allowed = LAYERS[package] | {package} if package in LAYERS else on_top
        yield from (
            f"{name} imports {other}" for other in sorted(ours) if not is_within(other, allowed)
        )


def wrong_importers(graph):
    for name, imported in graph.items():
        for other in sorted(imported):
            importers = IMPORTERS.get(other.partition(".")[0])
            if importers is not None and not is_within(name, importers):
                yield f"{name} imports {other}"


def cycle(graph):
    """The modules of an import cycle, or an empty list."""
    try:
        graphlib.TopologicalSorter(
            {name: imported & set(graph) for name, imported in graph.items()}
        ).prepare()
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


def test_runs_needs_few_other_packages(graph):
    allowed = RUNS_USES | {"runs"} | sys.stdlib_module_names
    imported = {
        (name, other) for name in graph if is_within(name, {"runs"}) for other in graph[name]
    }
    assert [pair for pair in sorted(imported) if not is_within(pair[1], allowed)] == []


def nesting(node, level=0):
    """The number of blocks inside each other below a node; `elif` opens no further one."""
    inner = level
    for child in ast.iter_child_nodes(node):
        is_elif = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        if not isinstance(child, ast.FunctionDef | ast.ClassDef | ast.Lambda):
            inner = max(inner, nesting(child, level + (isinstance(child, BLOCKS) and not is_elif)))
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


@pytest.mark.parametrize(
    ("module", "line", "check"),
    [
        ("data/windows/windows.py", "from training.loop import Trainer", wrong_layers),
        ("data/windows/windows.py", "from runs.run_folder import RunFolder", wrong_layers),
        ("data/windows/windows.py", "def main():\n    from configs import keys", wrong_layers),
        (
            "data/windows/windows.py",
            "from . import loop\nfrom ...training import loop",
            wrong_layers,
        ),
        ("data/windows/windows.py", "import predict", wrong_layers),
        ("predict.py", "from benchmarks.machine import machine", wrong_layers),
        ("model/modern.py", "from data.vocabulary import Vocabulary", wrong_layers),
        (
            "board/store.py",
            "import importlib\nimportlib.import_module('training.loop')",
            wrong_layers,
        ),
        ("training/loop.py", "def main():\n    import labml.experiment", wrong_importers),
        ("training/loop.py", "from labml_nn.optimizers.noam import Noam", wrong_importers),
        ("training/loop.py", "from training import state", cycle),
        ("training/loop.py", "def main():\n    from training.state import Trainer", cycle),
    ],
)
def test_a_wrong_import_is_found(tmp_path, module, line, check):
    for name in (
        "data/windows/windows.py",
        "model/modern.py",
        "board/store.py",
        "training/loop.py",
        "predict.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import os\n")
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "keys.py").touch()
    (tmp_path / "training" / "state.py").write_text("from training.loop import Trainer\n")
    assert list(check(all_imports(tmp_path))) == []
    (tmp_path / module).write_text(line)
    assert list(check(all_imports(tmp_path))) != []


@pytest.mark.parametrize("name", ["TYPE_CHECKING", "typing.TYPE_CHECKING"])
def test_imports_for_annotations_do_not_count(tmp_path, name):
    module = tmp_path / "module.py"
    module.write_text(f"if {name}:\n    import configs.keys\nelse:\n    import model\n")
    assert imports("data.module", module, set()) == {"model"}
