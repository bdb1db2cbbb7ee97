from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from data.vocabulary import Vocabulary
from tests.model.conftest import model_of
from trained.batches import pieces
from trained.fill import fill
from trained.template import Notation, read_template


def filled(trained, *templates, **options):
    return fill(
        trained,
        [read_template(template, trained.vocabulary) for template in templates],
        **options,
    )


def test_a_run_fills_what_it_has_learned(with_ngrams):
    (result,) = filled(with_ngrams, "the c_t sat on th_ mat.\na dog ran")

    assert result.text == "the cat sat on the mat.\na dog ran"
    assert all(guess.probability > 0.5 for guess in result.guesses)


@pytest.mark.parametrize(
    "template", ["_he cat sa_", "____", "the cat", "", "\n", "_", "the[MASK]cat_"]
)
def test_only_blanks_change(with_ngrams, template):
    (result,) = filled(with_ngrams, template)
    plain = template.replace("[MASK]", "_")

    assert len(result.text) == len(plain)

    blanks = [i for i, character in enumerate(plain) if character == "_"]
    assert [guess.offset for guess in result.guesses] == blanks

    visible = "".join("_" if i in blanks else c for i, c in enumerate(result.text))
    assert visible == plain


def test_the_most_confident_blank_is_filled_first(with_ngrams):
    """Against a loop that fills one blank of one text per pass."""
    template = "why d_ th_ b_rds s_ng?\na d_g"
    vocabulary = with_ngrams.vocabulary
    ids = read_template(template, vocabulary).ids
    while (ids == vocabulary.mask_token).any():
        with torch.no_grad():
            probabilities = with_ngrams.model(ids[None])[
                :, : vocabulary.n_ordinary
            ].softmax(-1)
        probabilities[ids != vocabulary.mask_token] = 0
        position, character = divmod(int(probabilities.argmax()), vocabulary.n_ordinary)
        ids[position] = character

    assert filled(with_ngrams, template)[0].text == vocabulary.decode(ids)


def test_texts_do_not_see_each_other(with_ngrams):
    templates = ["the c_t", "a d_g", "_", "why d_ the b_rds", "", "m_", "the c_t sat"]
    together = filled(with_ngrams, *templates, n_candidates=3)
    for template, result in zip(templates, together, strict=True):
        (alone,) = filled(with_ngrams, template, n_candidates=3)
        assert alone.text == result.text
        for ours, theirs in zip(alone.guesses, result.guesses, strict=True):
            assert ours.offset == theirs.offset
            assert dict(ours.candidates) == pytest.approx(
                dict(theirs.candidates), abs=1e-5
            )


def test_a_model_without_an_attention_mask_fills_texts_of_different_lengths(
    with_ngrams,
):
    """Such as the README's model."""
    templates = ["the c_t", "a d_g", "the c_t sat", "", "the d_g"]
    model = model_of(lambda inputs, positions: with_ngrams.model(inputs, positions))
    own = filled(replace(with_ngrams, model=model), *templates)

    for ours, theirs in zip(own, filled(with_ngrams, *templates), strict=True):
        assert ours.text == theirs.text


def test_candidates_are_characters_in_order_of_their_probability(with_ngrams):
    (result,) = filled(with_ngrams, "the c_t", n_candidates=1_000)
    characters, probabilities = zip(*result.guesses[0].candidates, strict=True)

    assert sorted(characters) == with_ngrams.vocabulary.characters
    assert list(probabilities) == sorted(probabilities, reverse=True)
    assert sum(probabilities) == pytest.approx(1.0, abs=1e-4)  # without special tokens


def test_some_characters_may_be_excluded(with_ngrams):
    assert filled(with_ngrams, "on the mat._")[0].text == "on the mat.\n"
    assert "\n" not in filled(with_ngrams, "on the mat._", "_" * 20, never="\n")[1].text


@pytest.mark.parametrize(
    ("text", "notation", "expected"),
    [
        (
            r"a\_b_ \[c] \\d \n\[MASK]\\_",
            Notation(),
            ["a_b", 1, r" \[c] \\d \n[MASK]" "\\", 1],
        ),
        (r"a\_b [MASK]", Notation(raw=True), ["a\\", 1, "b ", 1]),
        (r"_\n[MASK] \?? \\?", Notation("?"), [r"_\n[MASK] ?", 1, " \\", 1]),
        (r"C/C=C\<?>[H]", Notation("<?>", raw=True), ["C/C=C\\", 1, "[H]"]),
        ("", Notation(), []),
    ],
)
def test_backslashes_are_special_before_blanks_only(text, notation, expected):
    template = read_template(text, Vocabulary(""), notation)
    parts = [len(part.ids) if part.is_blank else part.text for part in template.parts]

    assert parts == expected


def test_a_long_text_is_filled_in_pieces_that_overlap(with_ngrams):
    sentence = "the cat sat on the mat.\na dog ran\n"
    whole = sentence * 20
    positions = range(5, len(whole), 34)
    template = "".join(
        "_" if i in positions else character for i, character in enumerate(whole)
    )
    (result,) = filled(with_ngrams, template)

    assert result.text == whole
    assert [guess.offset for guess in result.guesses] == list(positions)


@pytest.mark.parametrize("longest", [1, 2, 5, 64])
def test_pieces_cover_a_text_once_with_context_on_both_sides(longest):
    for length in (0, 1, longest, longest + 1, 10 * longest + 3):
        cut = pieces(length, longest)
        covered = [0]
        for _, part in cut:
            assert part.start == covered[-1]
            covered.append(part.stop)

        assert covered[-1] == length
        for window, part in cut:
            assert window.stop - window.start <= longest
            assert part.start == 0 or part.start - window.start >= longest // 4
            assert part.stop == length or window.stop - part.stop >= longest // 4

        if longest > 1:
            for (one, _), (two, _) in pairwise(cut):
                assert 2 * (one.stop - two.start) >= longest


def test_a_text_of_too_many_blanks_is_refused(with_ngrams):
    with pytest.raises(ValueError, match="10,001 blanks"):
        read_template("a_" * 10_001, with_ngrams.vocabulary)
