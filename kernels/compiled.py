"""Compiles kernels with numba for a fixed target, and caches them under a hash of every source they depend on.

numba's own cache checks only the file of the outer function: when another file changes, a kernel keeps the old machine
code of what it calls and the old constants that it imports. Here the kernels of a module lie in a folder named by a
hash of its source, of every project module that it imports, directly or not, and of the compiler's versions. The
processor, as numba sees it, is part of the key inside that folder.

What is inlined becomes part of each kernel that calls it, and is optimised and made machine code of only there: numba
would do so with each by itself, too, which took a quarter of the time of all, and two fifths of the largest.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import inspect
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
from numba.core import caching, registry
from numba.core.codegen import JITCodeLibrary
from numba.core.types import unliteral  # type: ignore[attr-defined, unused-ignore]

from freshet.kernels.kernel_calls import noted, noting
from freshet.kernels.processor import compile_for_fixed_target
from freshet.kernels.user_cache import can_be_written, make_cache, make_readable, temporary_cache, user_cache

PACKAGES = ("kernels", "gnn", "state", "partitioner", "operators")
UNUSED_DAYS = 7
_DAY_S = 86_400.0
_SOURCE_STAMP = ""  # the name of a folder says all of the sources
_PROJECT = Path(__file__).resolve().parents[1]  # the package `freshet`, where it is installed
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.MULTILINE
)

_within = threading.local()  # `.inlined`: whether this thread compiles what is inlined

compile_for_fixed_target()


class _Library(JITCodeLibrary):  # type: ignore[misc, unused-ignore]
    """Compiled code of a kernel. Inlined functions stay unoptimised here; only their callers are optimised."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._is_inlined = getattr(_within, "inlined", False)

    def _optimize_final_module(self) -> None:
        if not self._is_inlined:
            super()._optimize_final_module()

    def _finalize_final_module(self) -> None:
        if not self._is_inlined:
            super()._finalize_final_module()
            return
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> Any:
        return self.serialize_using_bitcode() if self._is_inlined else super().serialize_using_object_code()


@cache
def _take_over_codegen() -> None:
    """Have numba make libraries of our kind, for whatever is compiled in this process."""
    codegen = registry.cpu_target.target_context.codegen()
    set_env = codegen.set_env

    def set_env_of_code(name: str, env: Any) -> None:
        if codegen._engine.is_symbol_defined(name):  # what is inlined has none of its own
            set_env(name, env)

    codegen._library_class, codegen.set_env = _Library, set_env_of_code


def compiled(*, inner: bool = False, **options: Any) -> Any:
    """Numba's njit with these options and our cache; without a cache where no folder can be written to.

    An `inner` kernel is called by kernels alone. What Python would enter it by takes longer to compile than most of
    them: a fifth of the time of all.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        if numba.config.DISABLE_JIT:
            return noted(function) if noting() else function
        # nobody calls a kernel by its address
        dispatcher = numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=inner, **options)(function)
        _unify_literals(dispatcher)
        _note_inlined(dispatcher, bool(options.get("forceinline")))
        if inner:
            _refuse_python(dispatcher)
        if cache_folders(inspect.getfile(function)):
            dispatcher._cache = _Cache(function)
        return dispatcher

    return decorate


def _note_inlined(dispatcher: Any, inlined: bool) -> None:
    """Have libraries know of what they are while the kernel is compiled, or loaded, and what it calls."""
    compile_types = dispatcher.compile

    def compile_noted(sig: Any) -> Any:
        _take_over_codegen()
        before, _within.inlined = getattr(_within, "inlined", False), inlined
        try:
            return compile_types(sig)
        finally:
            _within.inlined = before

    dispatcher.compile = compile_noted


def _unify_literals(dispatcher: Any) -> None:
    """Have it compiled for an integer, not once for each value that stands in a call."""
    template = dispatcher.get_call_template

    def of_types(args: tuple[Any, ...], kws: dict[str, Any]) -> Any:
        plain = {name: unliteral(kind) for name, kind in kws.items()}
        return template(tuple(unliteral(kind) for kind in args), plain)

    dispatcher.get_call_template = of_types


def _refuse_python(dispatcher: Any) -> None:
    """Have a call from Python raise TypeError: there is nothing that it could enter."""
    name = dispatcher.py_func.__name__

    def refuse(*_: object, **__: object) -> None:
        msg = f"{name}: an inner kernel, which only kernels call (kernels/kernel.py)"
        raise TypeError(msg)

    dispatcher._insert = lambda *_: None
    dispatcher._compile_for_args = refuse


def sources_of(file: Path, project: Path = _PROJECT) -> list[Path]:
    """The file, and all project modules that it imports, directly or not."""
    found, left = {file}, [file]
    while left:
        for path in _imported(left.pop(), project) - found:
            found.add(path)
            left.append(path)
    return sorted(found)


@cache
def cache_folder(file: str) -> Path | None:
    """Return the first of `cache_folders` that kernels of a source file can be written to; None without one.

    What no process has used for some days is taken away when a new folder is made beside it.
    """
    for folder in cache_folders(file):
        with contextlib.suppress(OSError):
            _use(folder, folder.name.rpartition("-")[0])
            return folder
    return None


@cache
def cache_folders(file: str) -> list[Path]:
    """Return the folders for kernels of a source file: `NUMBA_CACHE_DIR` or beside the file, then the user's cache.

    They are read from wherever they are, so that a user who can't write to an installation has what was compiled there.
    """
    path = Path(file)
    if not path.is_file():
        return []
    digest = hashlib.sha256(f"{numba.__version__} {llvmlite.__version__}".encode())
    for source in sources_of(path.resolve()):
        digest.update(source.name.encode())
        digest.update(_hash_of(source))
    name = f"{path.parent.name}.{path.stem}-{digest.hexdigest()[:16]}"
    return [root / name for root in _roots(path)]


def kernel_modules() -> list[Path]:
    """The files that hold kernels."""
    mark = "freshet.kernels.kernel import"
    return [path for path in _modules(_PROJECT).values() if mark in path.read_text(encoding="utf-8")]


class Stamps(NamedTuple):
    """The files of which each says that all kernels are compiled as these sources say; `own` is the one to write."""

    own: Path | None  # None: no cache can be written to
    every: list[Path]


def ready_stamps() -> Stamps:
    """Return the path of the file which marks that all kernels of these sources are compiled."""
    versions = (sys.implementation.cache_tag, numba.__version__, llvmlite.__version__)
    target = (*versions, numba.config.CPU_NAME, numba.config.CPU_FEATURES)
    digest = hashlib.sha256(" ".join(map(str, target)).encode())
    for source in sorted({source for path in kernel_modules() for source in sources_of(path)}):
        digest.update(_hash_of(source))
    every = [root / f"{digest.hexdigest()[:16]}.ready" for root in _roots(Path(__file__))]
    for stamp in every:
        with contextlib.suppress(OSError):
            make_cache(stamp.parent)
            if os.access(stamp.parent, os.W_OK):
                _remove_unused(stamp)
                return Stamps(stamp, every)
    return Stamps(None, every)


def _remove_unused(stamp: Path) -> None:
    for other in stamp.parent.glob("*.ready"):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            if other != stamp and time.time() - other.stat().st_mtime > UNUSED_DAYS * _DAY_S:
                other.unlink()


def compiling() -> bool:
    """Return whether kernels are compiled; they are not if they run as plain Python, for debugging."""
    return not numba.config.DISABLE_JIT


def _roots(path: Path) -> list[Path]:
    first = Path(numba.config.CACHE_DIR) if numba.config.CACHE_DIR else path.parent / "__pycache__"
    roots = [first, user_cache() / "kernels"]
    if not any(map(can_be_written, roots)) and (temporary := temporary_cache()) is not None:
        roots.append(temporary / "kernels")
    return roots


def _use(folder: Path, label: str) -> None:
    """Make the folder, or note that it is used.

    Raises: OSError where it can't be written to.
    """
    if folder.is_dir() and os.access(folder, os.W_OK):
        if time.time() - folder.stat().st_mtime > _DAY_S:
            os.utime(folder)
        return
    make_cache(folder)
    (folder / ".lock").touch()
    for other in folder.parent.glob(f"{label}-*"):
        with contextlib.suppress(OSError):
            if time.time() - other.stat().st_mtime > UNUSED_DAYS * _DAY_S:
                shutil.rmtree(other, ignore_errors=True)


@cache
def _hash_of(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


@cache
def _imported(path: Path, project: Path) -> frozenset[Path]:
    """The project's modules that a file imports, wherever in it."""
    names: set[str] = set()
    for module, members, plain in _IMPORT.findall(path.read_text(encoding="utf-8")):
        if module:
            names.add(module)
            names.update(f"{module}.{member}" for member in re.findall(r"\w+", members))  # may be modules
        else:
            names.update(re.findall(r"[\w.]+", plain))
    modules = _modules(project)
    return frozenset(modules[name] for name in names if name in modules)


@cache
def _modules(project: Path) -> dict[str, Path]:
    """Every module of the packages, by name."""
    found = {}
    for package in PACKAGES:
        for path in (project / package).rglob("*.py"):
            parts = path.relative_to(project).with_suffix("").parts
            found[".".join(("freshet", *(parts[:-1] if parts[-1] == "__init__" else parts)))] = path
    return found


class _Locator(caching._CacheLocator):  # type: ignore[misc, unused-ignore]
    """Name our folder to numba; the name says all about the sources, so there is no stamp beside it."""

    def __init__(self, function: Any, file: str) -> None:
        self._folder, self._line = cache_folder(file) or cache_folders(file)[0], function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return _SOURCE_STAMP

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, function: Any, file: str) -> _Locator:
        return cls(function, file)


class _File(caching.IndexDataCacheFile):  # type: ignore[misc, unused-ignore]
    @contextlib.contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        with super()._open_for_write(filepath) as file:
            make_readable(Path(file.name))
            yield file

    def _load_index(self) -> Any:
        try:
            return super()._load_index()
        except (AttributeError, ImportError):  # it names a type where a version before had it
            return {}


class _Kept(caching.CompileResultCacheImpl):  # type: ignore[misc, unused-ignore]
    _locator_classes = (_Locator,)

    def check_cachable(self, cres: Any) -> bool:
        return not cres.library.has_dynamic_globals  # addresses of this process


class _Cache(caching.FunctionCache):  # type: ignore[misc, unused-ignore]
    """numba's cache, read wherever kernels may lie, and written to by one process at a time.

    numba numbers the files of a function's signatures by its index, which two processes may read at once: then the
    index of one names the code of the other.
    """

    _impl_class = _Kept
    _writes = True

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        file = inspect.getfile(function)
        self._writes = cache_folder(file) is not None
        base = self._impl.filename_base
        others = [str(folder) for folder in cache_folders(file) if str(folder) != self.cache_path]
        self._cache_file = _File(self.cache_path, base, _SOURCE_STAMP)
        self._others = [_File(folder, base, _SOURCE_STAMP) for folder in others]

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = super().load_overload(sig, target_context)
        key = self._index_key(sig, target_context.codegen())
        for other in self._others:
            with contextlib.suppress(OSError):  # not ours to read
                if found is None and (data := other.load(key)) is not None:
                    found = self._impl.rebuild(target_context, data)
        return found

    def save_overload(self, signature: Any, data: Any) -> None:
        if not self._writes:
            return
        with _alone_in(Path(self.cache_path)):
            super().save_overload(signature, data)


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    make_cache(folder)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
