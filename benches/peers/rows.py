"""One row of the table, and the table: for people, as Markdown, and as JSON."""

import statistics
from dataclasses import asdict, dataclass

COLUMNS = ["data", "MiB", "codec", "settings", "ratio", "encode GB/s", "share", "decode GB/s", "share", "bit for bit"]


@dataclass(frozen=True)
class Row:
    """Throughput is raw bytes per second. A share is what the codec moves (raw and compressed bytes) over what a copy moves
    (read and written) in the same run, on the device that is called `GPU 0` or `CPU`. `error` says why there are no numbers."""

    device: str
    data: str
    dtype: str
    raw_bytes: int
    codec: str
    settings: str
    ratio: float | None = None
    encode_seconds: float | None = None
    decode_seconds: float | None = None
    copy_seconds: float | None = None
    verified: bool = False
    error: str | None = None
    # How far the timings lie apart: (75th percentile - 25th) / median, of encode and decode.
    spread: tuple[float, float] | None = None

    def speed(self, seconds: float | None) -> float | None:
        return None if not seconds else self.raw_bytes / seconds / 1e9

    def share(self, seconds: float | None) -> float | None:
        if not seconds or not self.copy_seconds or not self.ratio:
            return None
        return (1 + 1 / self.ratio) / 2 * self.copy_seconds / seconds

    def cells(self) -> list[str]:
        text = lambda value, digits: "" if value is None else f"{value:.{digits}f}"  # noqa: E731
        head = [self.data, text(self.raw_bytes / (1 << 20), 0), self.codec, self.settings]
        if self.error:
            return [*head, "", "", "", "", "", "error"]
        numbers = [text(self.ratio, 4)]
        for seconds in (self.encode_seconds, self.decode_seconds):
            speed = self.speed(seconds)
            numbers += [text(speed, 0 if self.device.startswith("GPU") else 2), text(self.share(seconds), 3)]
        return [*head, *numbers, "yes" if self.verified else "NO"]

    def record(self) -> dict:
        return asdict(self) | {
            "encode_GBps": self.speed(self.encode_seconds),
            "encode_share": self.share(self.encode_seconds),
            "decode_GBps": self.speed(self.decode_seconds),
            "decode_share": self.share(self.decode_seconds),
        }


def spread(times: list[float]) -> float:
    low, middle, high = statistics.quantiles(times, n=4)
    return (high - low) / middle


def grid(lines: list[list[str]], numeric: list[bool], markdown: bool) -> str:
    """Aligned cells; the first line has the titles."""
    if markdown:
        lines = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines)]
    out = []
    for number, line in enumerate(lines):
        padded = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(line, widths, numeric)]
        out.append("| " + " | ".join(padded) + " |" if markdown else "  ".join(padded).rstrip())
        if number == 0:
            rules = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, numeric)]
            out.append("| " + " | ".join(rules) + " |" if markdown else "  ".join("-" * width for width in widths))
    return "\n".join([*out, ""])


def table(rows: list[Row], markdown: bool) -> str:
    numeric = [column == 1 or 4 <= column < len(COLUMNS) - 1 for column in range(len(COLUMNS))]
    parts = []
    for device in dict.fromkeys(row.device for row in rows):
        cells = [row.cells() for row in rows if row.device == device]
        parts += [device, "", grid([COLUMNS, *cells], numeric, markdown)]
    return "\n".join(parts)
