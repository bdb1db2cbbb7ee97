from benchmarks.trials import COMMON
from benchmarks.warmup import WITH_WARMUP, bases, trials, variants
from configs.command_line.command import PRESETS, read_config, resolve


def test_every_variant_differs_from_its_preset_in_its_windows_and_budget_alone():
    found = trials(60.0, seeds=3)
    assert len(found) == 18
    assert [trial["seed"] for trial in found] == sorted(trial["seed"] for trial in found)
    for trial in found:
        preset = read_config(PRESETS / f"{trial['preset']}.yaml")
        values, own = resolve(preset, trial["keys"]), resolve(preset, {})
        different = {key for key, value in own.items() if values[key] != value}
        assert different <= {"training.stages", "training.max_seconds", *COMMON}
        assert rates(values) == rates(own)


def rates(values):
    return [(row["until"], row["masking_prob"]) for row in values["training.stages"]]


def test_the_lengths_are_the_last_and_the_first_of_the_preset_and_are_compared_with_its_warmup():
    for preset in WITH_WARMUP:
        lengths = [
            {row["seq_len"] for row in keys["training.stages"]}
            for keys in variants(preset).values()
        ]
        assert lengths == [{64, 128, 256}, {256}, {64}]
        warmup, *others = variants(preset)
        assert [bases()[name] for name in others] == [warmup, warmup]
        assert warmup not in bases()
