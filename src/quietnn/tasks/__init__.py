"""Tasks: models, data, training. `language_model` is the function, as users call it; its module has the same name."""

from quietnn.tasks.language_model import language_model as language_model

__all__ = ["language_model"]
