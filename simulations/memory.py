"""Too little memory: what says so, and whether there is any point in starting."""

from __future__ import annotations

import errno
import os

NEEDED = 1.5
"""GiB of address space below which libraries may end the process with words of their own, or with none.  With torch
2.13.0 on 2 cores, small commands took at most 1.4; sweep and train took 2.2 where they might, and ran with 1.5."""
SAID = "out of memory: "
"""How the line begins that says so."""


def out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from or while handling, says that memory ran out.

    A library that cannot be loaded counts if the loader gives this reason, or gives none for a segment that it could
    not map, as glibc does then: a folder mounted without the right to execute has a reason of its own.
    """
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        if _says_so(found):
            return True
        seen.append(found)
        found = found.__cause__ or found.__context__
    return False


def _says_so(error: BaseException) -> bool:
    text = str(error)
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return True
    if isinstance(error, ImportError | OSError):
        return text.endswith(("failed to map segment from shared object", os.strerror(errno.ENOMEM)))
    return isinstance(error, RuntimeError) and ("alloc" in text or "can't start new thread" in text)  # as torch says it


def check_limit() -> None:
    """Fail now rather than in the midst of a library that ends the process.

    Raises
    ------
    MemoryError : this process may not have the address space that is `NEEDED`.
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < NEEDED * 2**30:
        raise MemoryError(
            f"{limit / 2**30:.3g} GiB of address space are allowed (ulimit -v): expected at least {NEEDED:g}"
        )
