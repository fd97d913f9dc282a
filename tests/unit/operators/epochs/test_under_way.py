"""Which epochs are under way, by what the operators of one attempt note."""

import gc

from freshet.operators.epochs.under_way import UnderWay, of_attempt


def test_an_epoch_is_under_way_until_the_last_part_here_has_it() -> None:
    noted = UnderWay()
    noted.expect([1, 3])
    noted.note_sealed(1)
    noted.note_sealed(2)
    assert noted.epochs == 2
    noted.note_applied(1, 2)
    assert noted.epochs == 2
    noted.note_applied(3, 1)
    assert noted.epochs == 1
    noted.note_applied(3, 2)
    assert noted.epochs == 0


def test_without_a_part_of_the_sink_nobody_knows() -> None:
    noted = UnderWay()
    noted.note_sealed(1)
    assert noted.epochs is None
    noted.expect([0])
    assert noted.epochs == 1, "the Sink may open after the first epochs"


def test_an_attempt_begins_where_the_state_stands() -> None:
    noted = UnderWay()
    noted.expect([0, 1])
    noted.begin(700)
    assert noted.epochs == 0
    noted.note_sealed(701)
    assert noted.epochs == 1
    noted.note_applied(1, 701)
    assert noted.epochs == 1, "of part 0 nothing has come yet"
    noted.note_applied(0, 701)
    assert noted.epochs == 0


def test_a_function_of_an_attempt_before_does_no_harm() -> None:
    """It has numbers of its own; where Flink counts attempts anew, the next epoch puts them right."""
    old, new = of_attempt("job", 1), of_attempt("job", 2)
    assert of_attempt("job", 2) is new
    assert of_attempt("another", 2) is not new
    new.expect([0])
    new.begin(10)
    new.note_sealed(11)
    old.expect([0])
    old.note_applied(0, 900)
    assert new.epochs == 1
    new.note_applied(0, 900)  # of a function that Flink has not dropped yet
    assert new.epochs == 0
    new.note_sealed(12)
    new.note_applied(0, 11)
    assert new.epochs == 1


def test_nothing_is_left_of_an_attempt_that_everybody_has_let_go() -> None:
    one = of_attempt("job", 3)
    one.expect([0])
    del one
    gc.collect()
    assert of_attempt("job", 3).epochs is None
