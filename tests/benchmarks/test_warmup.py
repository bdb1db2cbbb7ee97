from benchmarks.warmup import report, variants
from configs.command_line import PRESETS, read_config, resolve


def test_every_variant_differs_from_the_preset_in_its_windows_and_budget_alone():
    quick = read_config(PRESETS / "quick.yaml")
    found = variants(60.0, 500_000)
    assert len(found) == 10
    for keys in found.values():
        values = resolve(quick, keys)
        changed = {key for key, value in resolve(quick, {}).items() if values[key] != value}
        assert changed <= {"training.stages", "training.max_seconds", "training.max_chars"}
        rates = [
            [row["masking_prob"] for row in stages] for stages in (keys["training.stages"], quick["training.stages"])
        ]
        assert rates[0] == rates[1]


def test_every_length_is_compared_with_the_warmup_of_the_same_budget():
    names = list(variants(60.0, 500_000))
    bases = report(names).bases
    assert set(names) - set(bases) == set(bases.values()) == {"warmup, 60 s", "warmup, 500,000 characters"}
    for name, base in bases.items():
        assert base.partition(", ")[2] == name.partition(", ")[2]
