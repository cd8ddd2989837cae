"""What a stage made beside its measurements, as one file that is small enough to be fetched."""

from collections.abc import Iterable
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from ablation.gpu_check.record import StageRecord

MOST_BYTES = 16 << 20


def pack(record: StageRecord, name: str, files: Iterable[Path]) -> None:
    """Put files of the stage's work into `NAME.zip` beside its record; where it is too large, say where they lie."""
    there, target = [file for file in files if file.is_file()], record.folder / f"{name}.zip"
    if not there:
        return
    scratch = record.work / target.name
    with ZipFile(scratch, "w", ZIP_DEFLATED) as archive:
        for file in there:
            archive.write(file, file.relative_to(record.work))
    if scratch.stat().st_size < MOST_BYTES:
        scratch.replace(target)
    else:
        record.leave_out(f"{name}.zip", f"{scratch.stat().st_size:,} bytes; it lies in {record.work}")
