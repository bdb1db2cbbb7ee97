import torch

from trained.inside import attention_maps, nearest_characters


def test_the_maps_are_those_of_the_attention(plain):
    """The values weighted by the maps give the output of the module itself."""
    model = plain.model
    calls = []
    attention = model.encoder.layers[1].attention
    hook = attention.register_forward_hook(
        lambda module, arguments, output: calls.append((arguments[0], output))
    )
    ids = plain.vocabulary.encode("the cat sat on the mat.")
    maps = attention_maps(model, ids)
    hook.remove()

    ((inputs, outputs),) = calls

    assert maps.shape == (2, 2, len(ids), len(ids))
    assert torch.allclose(maps.sum(-1), torch.ones(maps.shape[:3]), atol=1e-5)

    with torch.no_grad():
        value = (
            attention.query_key_value(inputs)
            .view(len(ids), 3, 2, -1)[:, 2]
            .transpose(0, 1)
        )
        mixed = (maps[1] @ value).transpose(0, 1).flatten(1)

        assert torch.allclose(attention.output(mixed), outputs[0], atol=1e-5)

    assert not attention._forward_pre_hooks


def test_each_character_has_other_characters_nearby(plain):
    nearest = nearest_characters(plain.model, plain.vocabulary, n=3)

    assert list(nearest) == plain.vocabulary.characters
    for character, others in nearest.items():
        assert len(set(others)) == 3
        assert character not in others
