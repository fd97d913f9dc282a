"""Answers of checks of layers: what is claimed of each, and by what it is shown. They stand in model.json."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Verdict = Literal["proved", "refuted", "searched", "skipped"]
OF_TWO = "for two messages of any real numbers, by z3"
CUT_SHORT = "cut short"
"""Begins the `case` of a search that ended before its time."""
_CLOSED = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_CLOSED)
class ClaimAnswer:
    """Result of a check of one claim.

    proved: it holds for all real numbers, by a solver or by the form of the declaration; `case` says which.
    refuted: `case` is the smallest counterexample that was found, with both results. searched: no counterexample in
    that many cases; `case` may say of what size they are, what a solver proved of some, or why it could not be asked.
    skipped: nothing was tried; `case` says why.
    """

    claim: str
    answer: Verdict
    cases: Annotated[int, Field(ge=0)] = 0
    case: str = ""

    @property
    def words(self) -> str:
        """The answer for people: proved, refuted, skipped, or how many cases were searched."""
        if self.answer == "searched":
            return f"searched {self.cases:,} cases"
        return "proved for two messages alone" if (self.answer, self.case) == ("proved", OF_TWO) else self.answer

    @property
    def is_cut_short(self) -> bool:
        """True if a search ended before its time."""
        return self.answer == "searched" and self.case.startswith(CUT_SHORT)

    def __str__(self) -> str:
        lines = [f"{self.claim}: {self.words}", *(f"    {line}" for line in self.case.splitlines())]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return it as model.json and `--json` have it."""
        found: dict[str, Any] = {"claim": self.claim, "answer": self.answer}
        if self.answer == "searched":
            found["cases"] = self.cases
        return found | ({"case": self.case} if self.case else {})


@dataclass(frozen=True, config=_CLOSED)
class LayerAnswers:
    """Answers about a layer, or about all of a model on streams."""

    place: str
    """Number and type of the layer, such as `layer 1 own_layer`; or `model`."""
    answers: list[ClaimAnswer]

    def __str__(self) -> str:
        return "\n".join([self.place, *(f"  {line}" for one in self.answers for line in str(one).splitlines())])

    def as_json(self) -> dict[str, Any]:
        """Return it as model.json and `--json` have it."""
        return {"place": self.place, "answers": [one.as_json() for one in self.answers]}

    @property
    def in_a_line(self) -> str:
        """The answers for people, without the place; those that are alike together, with what limits a search."""
        claims: dict[str, list[str]] = {}
        for one in self.answers:
            limited = one.case and one.answer in ("searched", "skipped")
            claims.setdefault(f"{one.words} ({one.case})" if limited else one.words, []).append(one.claim)
        return "; ".join(f"{', '.join(of)}: {words}" for words, of in claims.items())


def is_refuted(answers: Iterable[ClaimAnswer]) -> bool:
    """Return whether one of the claims does not hold."""
    return any(one.answer == "refuted" for one in answers)
