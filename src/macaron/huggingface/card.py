"""What a model card (README.md) says of its model, as data."""

from pathlib import Path

from macaron.errors import MacaronError, first_line


def scores(folder: Path) -> dict[str, float]:
    """The scores in the metadata of a folder's card, such as ``bleu on tatoeba``; none without a card."""
    from huggingface_hub import ModelCard

    path = folder / "README.md"
    try:
        results = (ModelCard.load(path).data.eval_results or []) if path.is_file() else []
    except Exception as error:  # whatever its parser of YAML raises
        raise MacaronError(f"{path}: the metadata cannot be read ({first_line(error)})") from None
    return {f"{each.metric_name or each.metric_type} on {each.dataset_name}": each.metric_value for each in results}
