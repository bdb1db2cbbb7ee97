"""The masker of a strategy that masks units of several characters, such as words."""

from typing import TYPE_CHECKING

from configs.branch import derived_seed
from configs.keys import ConfigError
from data.masking.segment_masker import SegmentMasker
from data.masking.segmenters import Segmenter, Strategy
from data.masking.token_units import for_tokens

if TYPE_CHECKING:
    from configs.masking import MaskingConfigs


def build_masker(c: "MaskingConfigs", strategy: Strategy) -> SegmentMasker:
    """The masker that the keys ask for, with the segmenter that `strategy` makes for the training
    text."""
    root = c.root()
    is_static = c.masks == "static"
    segmenter = segmenter_of(c, strategy)
    if is_static and not segmenter.allows_static_masks:
        raise ConfigError(
            "masking.masks=static: this masking.strategy draws units or weights anew; use dynamic"
        )
    return SegmentMasker(
        c.corruption,
        segmenter=segmenter,
        seed=derived_seed(root.seed, "masks"),
        device=root.torch_device,
        no_mask_tokens=c.no_mask_ids,
        static_text_len=len(root.data.training_ids) if is_static else 0,
        corrupt_units=c.corrupt == "unit",
    )


def segmenter_of(c: "MaskingConfigs", strategy: Strategy) -> Segmenter:
    """The segmenter of a strategy for the tokens of the training text."""
    data = c.root().data
    stays_on_disk = data.loaded.is_sample or data.loaded.has_documents
    if data.vocabulary.is_characters and not stays_on_disk:
        return strategy(data.loaded.training)

    documents = data.stored_tokens.documents if stays_on_disk else None
    return for_tokens(
        strategy, data.loaded, data.training_ids, data.vocabulary, documents
    )
