import math
from pathlib import Path

import pytest
import torch
from torch import nn

import model.embedding
from model.embedding import Embedding
from tests.conftest import written


@pytest.mark.parametrize("shape", [(17,), (3, 5)])
def test_rows_and_gradients_are_those_of_pytorchs_embedding(shape):
    ours = Embedding(11, 4)
    theirs = nn.Embedding.from_pretrained(ours.weight.detach(), freeze=False)
    tokens = torch.arange(21)[: math.prod(shape)].view(shape) % 11
    gradient = torch.randn(*shape, 4)

    for embedding in (theirs, ours):
        embedding(tokens).backward(gradient)

    assert torch.equal(ours(tokens), theirs(tokens))
    assert torch.allclose(ours.weight.grad, theirs.weight.grad)


def test_the_gradient_of_few_tokens_that_occur_often_repeats_bit_for_bit():
    """On CUDA, PyTorch adds such gradients in the order in which threads arrive, unless it is told
    not to."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    embedding = Embedding(67, 256).to(device)
    tokens = torch.randint(67, (16_384,), device=device)
    tokens[::3] = 66  # as [MASK]
    gradient = torch.randn(16_384, 256, device=device)

    def gradient_of_table():
        return torch.autograd.grad(embedding(tokens), embedding.weight, gradient)[0]

    first = gradient_of_table()

    for _ in range(4):
        assert torch.equal(gradient_of_table(), first)

    # other operations keep their faster kernels
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_negative_id_is_refused():
    """An ignored label that leaks into the inputs must not count as a token from the end of the
    table."""
    with pytest.raises(IndexError):
        Embedding(11, 4)(torch.tensor([3, -1]))


COMPILED = """
import importlib, sys
import torch
from torch._dynamo.utils import counters

sys.path.insert(0, sys.argv[1])
for name in sys.argv[2:]:
    torch._dynamo.reset()
    counters.clear()
    embedding = importlib.import_module(f"{name}.embedding").Embedding(11, 4)
    tokens = torch.tensor([3])  # an input: a constant would be copied by C++ code, which takes long to compile
    torch.compile(lambda: embedding(tokens))().backward(torch.ones(1, 4))
    print(embedding.weight.grad[3, 0].item(), counters["aot_autograd"]["autograd_cache_hit"])
"""


@pytest.mark.slow
def test_compiled_code_is_cached_but_not_used_for_an_edited_gradient(
    tmp_path, fork_server
):
    source = Path(model.embedding.__file__).read_text()
    line = "    return embedding_gradient(gradient, "

    assert line in source

    doubled = line.replace("return ", "return 2 * ")
    edited = source.replace(line, doubled)
    contents = {"first": source, "again": source, "edited": edited}
    for name, content in contents.items():
        (tmp_path / name).mkdir()
        written(tmp_path / name / "embedding.py", content)

    program = written(tmp_path / "compiled.py", COMPILED)

    words = [str(program), str(tmp_path), *contents]
    cache = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")}
    done = fork_server.start(words, cache)

    assert done.output().splitlines() == ["1.0 0", "1.0 1", "2.0 0"]
