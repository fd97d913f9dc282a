import pytest

from freshet.job.units import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10s", 10.0),
        ("500ms", 0.5),
        ("1m", 60.0),
        ("1.5 h", 5400.0),
        (" 2S ", 2.0),
        ("3min", 180.0),
        ("30d", 2_592_000.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "10 parsecs", "1e3s", "0s", "nan s", "١s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 10s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("2GiB", 2 << 30), ("512MiB", 512 << 20), ("1.5 kib", 1536), ("1GB", 10**9), ("7B", 7), ("1TiB", 1 << 40)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "2", "2G", "-1GiB", "0GiB", "0.5B"])
def test_what_is_no_size_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="such as 2GiB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["10s", "500ms", "2m", "1h", "90s", "1.5ms"])
def test_a_formatted_duration_reads_back(text: str) -> None:
    assert format_duration(parse_duration(text)) == text


@pytest.mark.parametrize("text", ["1GiB", "1536MiB", "3KiB", "5B", "2048GiB"])
def test_a_formatted_size_reads_back(text: str) -> None:
    assert format_size(parse_size(text)) == text
