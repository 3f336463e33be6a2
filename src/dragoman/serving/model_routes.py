"""The way from one language to another: a model, or two in a row through a third language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from dragoman.corpus.language_codes import same_language
from dragoman.decoding.glossary import Glossary, make_glossary
from dragoman.serving.request_batcher import RequestBatcher

PREFERRED_PIVOT = "en"


class UnknownDirectionError(Exception):
    """No model translates the requested language pair. The message lists those available."""


@dataclass(frozen=True)
class ServedModel:
    """A model, or two in a row that translate through a third language, with the glossary for its direction."""

    name: str
    source: str
    target: str
    batcher: RequestBatcher
    then: "ServedModel | None" = None
    """The model that translates the result of this one further."""
    glossary: Glossary | None = field(default=None, compare=False)

    @property
    def last(self) -> "ServedModel":
        """The model that writes the translation."""
        return self.then or self

    @property
    def via(self) -> str | None:
        """The language between the two models of a pivot translation."""
        return None if self.then is None else self.then.source

    def followed_by(self, second: "ServedModel") -> "ServedModel":
        return ServedModel(f"{self.name}+{second.name}", self.source, second.target, self.batcher, second)

    def with_terms(self, terms: Mapping[str, str]) -> "ServedModel":
        """The model with more terms. They take precedence over those of its glossary."""
        own = {} if self.glossary is None else self.glossary.terms
        # In this order, because terms that differ only in case count as equal, and the first is used.
        merged = {**terms, **{term: target for term, target in own.items() if term not in terms}}
        return replace(self, glossary=make_glossary(merged.items(), self.source, "glossary"))


def find_routes(models: Sequence[ServedModel]) -> list[ServedModel]:
    """All models, and two in a row for directions that no model translates: through English if possible."""
    pivots = [
        first.followed_by(second)
        for first in models
        for second in models
        if same_language(first.target, second.source) and not same_language(first.source, second.target)
    ]
    pivots.sort(key=lambda route: not same_language(str(route.via), PREFERRED_PIVOT))
    direct = {(model.source, model.target) for model in models}
    return [*models, *(route for route in pivots if (route.source, route.target) not in direct)]


def find_route(models: Sequence[ServedModel], source: str, target: str, name: str | None) -> ServedModel:
    """The model for a language pair: the named one, or the first; if there is none, two in a row.

    An exact match comes first; otherwise regions may differ: a model for pt-BR also serves requests for pt.
    """
    routes = find_routes(models)
    exact = [model for model in routes if (model.source, model.target) == (source, target)]
    matching = exact or [
        model
        for model in routes
        if same_language(model.source, source)
        and same_language(model.target, target)
        and not same_language(source, target)
    ]
    for model in matching:
        if name in (None, model.name):
            return model
    available = ", ".join(f"{model.source} to {model.target} ({model.name})" for model in models)
    is_served_target = any(same_language(model.target, target) for model in models)
    requested = f"{source} to {target}" if is_served_target else f"into {target}"
    requested += "" if name is None else f" ({name})"
    raise UnknownDirectionError(f"No model translates {requested}: choose one of {available}.")
