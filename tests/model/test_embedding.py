import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import model.embedding
from model.embedding import Embedding


@pytest.mark.parametrize("shape", [(7,), (3, 5)])
def test_it_is_pytorchs_embedding_with_pytorchs_gradient(shape):
    theirs, ours = nn.Embedding(11, 4), Embedding(11, 4)
    ours.load_state_dict(theirs.state_dict())
    tokens = torch.randint(11, shape, generator=torch.Generator().manual_seed(0))
    weights = torch.randn((*shape, 4), generator=torch.Generator().manual_seed(1))
    found = []
    for embedding in (theirs, ours):
        rows = embedding(tokens)
        (rows * weights).sum().backward()
        found.append((rows.detach(), embedding.weight.grad))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.allclose(found[0][1], found[1][1])


def test_what_is_no_token_is_refused():
    """A label to be ignored that leaked into the inputs would else be taken for a token, counted from the end."""
    with pytest.raises(IndexError):
        Embedding(11, 4)(torch.tensor([3, -1]))


COMPILED = """
import sys
import torch
from torch._dynamo.utils import counters
sys.path.insert(0, sys.argv[1])
from embedding import Embedding

embedding = Embedding(11, 4)
torch.compile(lambda: embedding(torch.tensor([3])).sum())().backward()
print(embedding.weight.grad[3, 0].item(), counters["aot_autograd"]["autograd_cache_hit"])
"""


def test_a_gradient_that_was_edited_is_not_that_of_an_earlier_program(tmp_path):
    """What was compiled is taken from the cache, but not for another gradient."""
    source = Path(model.embedding.__file__).read_text()
    line = "    return embedding_gradient(gradient, tokens, ctx.n_tokens), None\n"
    assert line in source
    results = []
    for name, content in (
        ("first", source),
        ("again", source),
        ("edited", source.replace(line, line.replace("return ", "return 2 * "))),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "embedding.py").write_text(content)
        done = subprocess.run(
            [sys.executable, "-c", COMPILED, str(tmp_path / name)],
            env={**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "compiled")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        results.append(done.stdout.split())
    assert results == [["1.0", "0"], ["1.0", "1"], ["2.0", "0"]]
