from benchmarks.trials import COMMON
from benchmarks.warmup import WITH_WARMUP, variants
from configs.command_line.command import PRESETS, read_config, resolve


def rates(values):
    return [(row["until"], row["masking_prob"]) for row in values["training.stages"]]


def test_every_variant_differs_from_its_preset_in_its_windows_and_budget_alone():
    for keys in variants(60.0).values():
        preset = read_config(PRESETS / f"{keys.pop('preset')}.yaml")
        values = resolve(preset, keys)
        own = resolve(preset, {})

        different = {key for key, value in own.items() if values[key] != value}

        assert different <= {"training.stages", "training.max_seconds", *COMMON}
        assert rates(values) == rates(own)


def test_the_lengths_are_the_last_and_the_first_of_the_preset():
    lengths = {}
    for name, keys in variants(60.0).items():
        lengths[name] = {row["seq_len"] for row in keys["training.stages"]}

    expected = {}
    for preset in WITH_WARMUP:
        expected[f"{preset}, warmup"] = {64, 128, 256}
        expected[f"{preset}, 256 only"] = {256}
        expected[f"{preset}, 64 only"] = {64}

    assert lengths == expected
