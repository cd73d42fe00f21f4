"""What a run of the pipeline says, kept for a test."""

from __future__ import annotations

from dataclasses import dataclass, field

from millrace_spark.pipeline.progress import NoProgress


@dataclass
class Told(NoProgress):
    """What a run says."""

    messages: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def message(self, line: str) -> None:
        self.messages.append(line)

    def warning(self, line: str) -> None:
        self.warnings.append(line)
